"""A semaphore (how many at a time) and a rate limiter (how many a second), both processes.

Processes acquire permits by calls. The semaphore monitors each holder, so a permit comes back however its holder dies.
Both bound the number of waiting callers, and refuse the next one at once with `Busy`. When one of them dies, its waiting
callers get the reason, and a restarted one starts with all permits free.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, TypeVar

from .behaviours.gen_server import GenServer
from .behaviours.replies import Reject, later
from .kernel import api
from .kernel.clock import now
from .kernel.errors import ActorError, NotAnActor
from .kernel.process_lookup import current_process
from .kernel.process_messages import Down, Pid

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from .behaviours.refs import Ref
    from .behaviours.replies import Caller
    from .kernel.links import Monitor


T = TypeVar("T")


class Busy(ActorError):
    """No permit is free, and the queue is full; `retry_after` is when to try again, where that is known."""

    def __init__(self, what: str, retry_after: float | None = None) -> None:
        """`what` is the message."""
        super().__init__(what, retry_after)
        self.what = what
        self.retry_after = retry_after

    def __str__(self) -> str:
        again = "" if self.retry_after is None else f"; try again in {self.retry_after:g} s"
        return f"{self.what}{again}"


class _WaitQueue(deque[T]):
    """The waiting callers. Callers that gave up do not count, and are swept so that they do not pile up."""

    def __init__(self, most: int | None, gave_up: Callable[[T], bool]) -> None:
        super().__init__()
        if most is not None and most < 0:
            raise ValueError(f"queue must be 0 or more, or None for no bound, not {most!r}")
        self._most = most
        self._gave_up = gave_up
        self._sweep_from = 0

    def has_room(self) -> bool:
        """Whether another caller may wait."""
        if len(self) >= self._sweep_from:
            waiting = [entry for entry in self if not self._gave_up(entry)]
            self.clear()
            self.extend(waiting)
            swept = max(_SWEEP_FROM, 2 * len(waiting))
            self._sweep_from = swept if self._most is None else min(self._most, swept)
        return self._most is None or len(self) < self._most


@dataclass(slots=True)
class _Holder:
    monitor: Monitor
    tickets: list[object] = field(default_factory=list[object])


class Semaphore(GenServer):
    """At most `permits` holders at a time; the others wait in order, `queue` of them at the most.

    Use it through `permit`: ``async with permit(gate): …``.
    """

    def __init__(self, permits: int, queue: int | None = None) -> None:
        """A `queue` of None lets every caller wait."""
        if permits < 1:
            raise ValueError(f"permits must be at least 1, not {permits!r}")
        self._waiting: _WaitQueue[tuple[Pid, Caller[None], object]] = _WaitQueue(queue, _gave_up)
        self.permits = permits
        self.queue = queue
        self.free = permits
        self._holders: dict[Pid, _Holder] = {}

    def acquire(self, ticket: object = None) -> None:
        """Take a permit, or wait for one. `ticket` identifies it in `release`."""
        if self.try_acquire(ticket):
            return None
        if not self._waiting.has_room():
            raise Reject(Busy(f"all {self.permits} permits are taken and {len(self._waiting)} wait"))
        self._waiting.append((self._caller_pid(), self.caller, ticket))
        return later()  # type: ignore[no-any-return]  # stands for the None that comes later

    def try_acquire(self, ticket: object = None) -> bool:
        """Take a permit if there is one."""
        pid = self._caller_pid()
        if not self.free:
            return False
        self.free -= 1
        self._hold(pid, ticket)
        return True

    def _caller_pid(self) -> Pid:
        if self.caller.pid is None:
            raise Reject(NotAnActor("hold a permit"))
        return self.caller.pid

    def release(self, pid: Pid, ticket: object = None) -> bool:
        """Give back the permit of `pid` with this ticket; False when it holds none."""
        holder = self._holders.get(pid)
        if holder is None or ticket not in holder.tickets:
            return False
        holder.tickets.remove(ticket)
        if not holder.tickets:
            api.demonitor(holder.monitor, flush=True)
            del self._holders[pid]
        self._pass_on(1)
        return True

    def held(self) -> dict[Pid, int]:
        """The holders, and the number of permits of each."""
        return {pid: len(holder.tickets) for pid, holder in self._holders.items()}

    def handle_info(self, message: Any) -> None:
        """Handle the exit of a holder: pass its permits on."""
        match message:
            case Down(pid=Pid() as pid):
                holder = self._holders.pop(pid, None)
                if holder is not None:
                    self._pass_on(len(holder.tickets))
            case _:
                super().handle_info(message)

    def _hold(self, pid: Pid, ticket: object) -> None:
        holder = self._holders.get(pid)
        if holder is None:
            holder = self._holders[pid] = _Holder(api.monitor(pid))
        holder.tickets.append(ticket)

    def _pass_on(self, permits: int) -> None:
        self.free += permits
        while self.free and self._waiting:
            pid, caller, ticket = self._waiting.popleft()
            # A caller that gave up or died gets no permit, which would never be released.
            if not _gave_up((pid, caller, ticket)) and caller.reply(None):
                self.free -= 1
                self._hold(pid, ticket)


@asynccontextmanager
async def permit(semaphore: Ref[Semaphore], timeout: float | None = 5.0) -> AsyncGenerator[None]:
    """Hold a permit for the block, also given back when the block is cancelled. For processes only."""
    me = current_process("hold a permit").pid
    ticket = next(_tickets)
    try:
        await semaphore.within(timeout).call(Semaphore.acquire, ticket)
        yield
    finally:
        # Also when the wait was cancelled: the permit may have been given in that moment.
        semaphore.cast(Semaphore.release, me, ticket)


class RateLimiter(GenServer):
    """At most `rate` a second on average, and `burst` at once: a bucket of tokens, on the node's clock.

    ``await limiter.call(RateLimiter.acquire)`` waits for its turn; `try_acquire` never waits.
    """

    def __init__(self, rate: float, burst: int = 1, queue: int | None = 1000) -> None:
        """The bucket starts full."""
        if not rate > 0:
            raise ValueError(f"rate must be more than 0 a second, not {rate!r}")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst!r}")
        self._waiting: _WaitQueue[tuple[int, Caller[None]]] = _WaitQueue(queue, lambda entry: entry[1].over)
        self.rate = rate
        self.burst = burst
        self.queue = queue
        self._tokens = float(burst)
        self._filled = self._now()
        self._alarm: api.Timer | None = None

    def acquire(self, tokens: int = 1) -> None:
        """Take so many tokens, or wait in order until they are available."""
        self._check(tokens)
        self._serve()
        if not self._waiting and self._draw(tokens):
            return None
        if not self._waiting.has_room():
            raise Reject(Busy(f"the rate limit is reached and {len(self._waiting)} wait", self._otp_delay(tokens)))
        self._waiting.append((tokens, self.caller))
        self._wake()
        return later()  # type: ignore[no-any-return]  # stands for the None that comes later

    def try_acquire(self, tokens: int = 1) -> float:
        """Take so many tokens if they are available, and return 0; else the seconds after which to try again."""
        self._check(tokens)
        self._serve()
        if not self._waiting and self._draw(tokens):
            return 0.0
        return self._otp_delay(tokens)

    def handle_info(self, message: Any) -> None:
        """Handle the alarm: serve waiting callers."""
        if message is _TICK:
            self._alarm = None
            self._serve()
            self._wake()
        else:
            super().handle_info(message)

    def _check(self, tokens: int) -> None:
        if not 1 <= tokens <= self.burst:
            raise Reject(ValueError(f"tokens must be 1 to {self.burst}, which is the burst, not {tokens!r}"))

    def _now(self) -> float:
        return now(self._otp_process.node.loop)

    def _fill(self) -> None:
        moment = self._now()
        self._tokens = min(float(self.burst), self._tokens + (moment - self._filled) * self.rate)
        self._filled = moment

    def _draw(self, tokens: int) -> bool:
        self._fill()
        if self._tokens < tokens - _ROUNDING:
            return False
        self._tokens -= tokens
        return True

    def _otp_delay(self, tokens: int) -> float:
        before = sum(wanted for wanted, caller in self._waiting if not caller.over)
        return max(0.0, (before + tokens - self._tokens) / self.rate)

    def _serve(self) -> None:
        while self._waiting:
            tokens, caller = self._waiting[0]
            if caller.over:
                self._waiting.popleft()
            elif self._draw(tokens):
                self._waiting.popleft()
                if not caller.reply(None):
                    self._tokens += tokens
            else:
                return

    def _wake(self) -> None:
        if self._alarm is None and self._waiting:
            missing = self._waiting[0][0] - self._tokens
            self._alarm = api.send_after(max(0.0, missing / self.rate), self.pid, _TICK)


_TICK = object()
_tickets = count_from(1)
_SWEEP_FROM = 256  # shorter queues are not worth sweeping
_ROUNDING = 1e-9  # the sum of many small float intervals may be short of the whole by this


def _gave_up(entry: tuple[Pid, Caller[None], object]) -> bool:
    return entry[1].over or not api.is_alive(entry[0])
