"""One request through the gate of an upstream: it waits for its turn, goes, and is settled once, whatever ends it first.

While it waits, its deadline, its caller's end and its caller's change of mind are its own affair; once it has gone they are its
line's. The deadline is one for both.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from greenroom.actors.client.errors import ClientClosed, InitTimeout, NotReady, RequestLost, RequestTimeout, Unavailable
from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import Wakeup, running_process
from greenroom.supervision.fair_queue import FairQueue
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .breaker import is_failure
from .federation_errors import UpstreamBusy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterator, Mapping

    from greenroom.actors.client.interfaces import Line, Pending, Progress
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import ExitReason, Process

    from .upstream import Upstream


@dataclass(repr=False, eq=False, slots=True)
class UpstreamRequest:
    """A `Pending`, before and after it was sent. One that need not wait is little more than the line's own."""

    method: str
    params: Mapping[str, Any] | None
    _seconds: float | None
    wait: bool
    principal: Hashable
    """The principal: principals take turns."""
    options: Mapping[str, Any]
    """The line's."""
    epoch: int = 0
    """The breaker's, when it was sent."""
    inner: Pending | None = None
    _over: bool = False
    _error: BaseException | None = None
    _future: asyncio.Future[dict[str, Any]] | None = None
    """Only of one that had to wait, as is what follows,"""
    _limiter: RequestLimiter | None = None
    """and this only as long as it waits."""
    _context: Context = field(init=False)
    _patience_timer: asyncio.TimerHandle | None = field(init=False)
    _owner: Process | None = field(init=False)
    _sent: Wakeup = field(init=False)
    _timer: asyncio.TimerHandle | None = field(init=False)
    _until: float = field(init=False)

    def __repr__(self) -> str:
        state = "settled" if self.settled else "waiting" if self.inner is None else "under way"
        return f"<GuardedRequest {self.method} {state}>"

    # --- for the caller

    @property
    def id(self) -> RequestId:
        """What the server knows it as; 0 as long as it was not sent."""
        return 0 if self.inner is None else self.inner.id

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.result().__await__()

    async def result(self) -> dict[str, Any]:
        """The result. A task that is cancelled while waiting for it cancels the request."""
        if self._future is not None:
            try:
                return await asyncio.shield(self._future)
            except asyncio.CancelledError:
                self.cancel("cancelled")
                raise
        if self.inner is None:
            assert self._error is not None
            raise self._error
        try:
            return await self.inner.result()
        except (RequestCancelled, ClientClosed):
            if self._error is None:
                raise
            raise self._error from None

    async def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """How it goes, once it was sent."""
        while self.inner is None:
            if self.settled:
                return
            await self._sent.wait()
        async for each in self.inner.progress(of_task=of_task):
            yield each

    def cancel(self, reason: str = "") -> None:
        """Cancel the request: its caller does not want it any more."""
        if self.inner is not None:
            self.inner.cancel(reason)
        if self._future is not None:
            self.fail(RequestCancelled(reason))

    def when_settled(self, tell: Callable[[dict[str, Any] | None, BaseException | None], object]) -> None:
        """Have `tell` called with the outcome, once, and soon."""
        if self._future is not None:

            def done(future: asyncio.Future[dict[str, Any]]) -> None:
                error = future.exception()
                tell(None if error is not None else future.result(), error)

            self._future.add_done_callback(done)
        elif self.inner is not None:
            self.inner.when_settled(
                lambda result, error: tell(result, self._error if error is not None and self._error else error)
            )
        else:
            asyncio.get_running_loop().call_soon(tell, None, self._error)

    # --- for the gate

    @property
    def settled(self) -> bool:
        """Whether its outcome is decided."""
        if self._future is not None:
            return self._future.done()
        return self._over or self._error is not None or bool(getattr(self.inner, "settled", False))

    def queue(self, gate: RequestLimiter, patience: float | None = None) -> None:
        """It waits. From now on it sees to it itself that it does not wait too long: `patience` is for processes that do not run."""
        self._limiter = gate
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        self._sent = Wakeup()
        self._context = copy_context()  # it is sent by the task that makes room, in the context of its caller
        owner = self._owner = running_process()
        if owner is not None:
            owner.add_exit_waiter(self)
        self._timer = self._patience_timer = None
        if patience is not None and (self._seconds is None or patience < self._seconds):
            self._patience_timer = loop.call_later(patience, self._on_patience_over, patience)
        if self._seconds is not None:
            self._until = loop.time() + self._seconds
            self._timer = loop.call_later(self._seconds, self._expire)

    def send(self, line: Line, gate: RequestLimiter, turn: int) -> None:
        """It goes."""
        self.epoch = turn
        left = self._seconds
        if self._limiter is None:
            inner = line.begin(self.method, self.params, timeout=left, wait=self.wait, **self.options)
            self.inner = inner
        else:
            self._stop_waiting()
            if left is not None:
                left = max(0.0, self._until - asyncio.get_running_loop().time())
            begin = partial(line.begin, self.method, self.params, timeout=left, wait=self.wait, **self.options)
            inner = self.inner = self._context.run(begin)
            self._sent.wake()
        inner.when_settled(partial(self._on_outcome, gate))

    def fail(self, error: BaseException) -> None:
        """It will have no result, unless it has one."""
        if self._future is not None:
            self._settle(None, error)
        elif not self._over and self._error is None:
            self._error = error

    def give_up(self, error: Exception) -> None:
        """Fail it: no answer will come. What has gone may have been done, whatever has become of its server since."""
        waits = self.inner is None or getattr(self.inner, "wire", self) is None  # for its line to have a server again
        self.fail(error if waits else RequestLost(self.method, error))
        if self.inner is not None:
            self.inner.cancel("nobody is there")

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The process that asked is gone."""
        self._owner = None
        self.cancel("the caller has ended")

    def _on_outcome(self, gate: RequestLimiter, result: dict[str, Any] | None, error: BaseException | None) -> None:
        self._over = True
        if isinstance(error, ClientClosed) and gate.wanted:
            error = RequestLost(self.method, ConnectionLost("its processes were stopped, and are started again"))
            self._error = self._error or error
        gate.on_ended(self, error)
        if self._future is not None:
            self._settle(result, error)

    def _on_patience_over(self, patience: float) -> None:
        """Its server has not even begun to start: where it runs now, the request waits for its turn."""
        self._patience_timer = None
        if self._limiter is not None and (slow := self._limiter.stalled(patience)) is not None:
            self.fail(slow)

    def _expire(self) -> None:
        self.fail(RequestTimeout(self.method, self._seconds or 0.0))

    def _settle(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        self._stop_waiting()
        future = self._future
        assert future is not None
        if future.done():
            return
        if error is None:
            future.set_result({} if result is None else result)
        else:
            future.set_exception(error)
            future.exception()  # marks it as seen: perhaps no task waits for it any more
        self._sent.wake()

    def _stop_waiting(self) -> None:
        """It does not wait any more."""
        gate, self._limiter = self._limiter, None
        if gate is None:
            return
        for timer in (self._timer, self._patience_timer):
            if timer is not None:
                timer.cancel()
        if self._owner is not None:
            self._owner.remove_exit_waiter(self)
            self._owner = None
        gate.on_give_up(self)


# --- How many requests may be under way at one upstream, which wait, and which is next: pure book-keeping.
# The principals for which they are made take turns, and where the queue is full the one with most waiting makes room (`FairQueue`); else the newcomer is refused.

T = TypeVar("T")

WEIGHT: Final = 0.2
"""How much the latest request counts in the estimate of how long one takes."""


class Admission(NamedTuple, Generic[T]):
    """What became of a request that came: it may go, or waits; `displaced` had to make room for it."""

    granted: bool
    displaced: T | None = None


class AdmissionQueue(Generic[T]):
    """The book of one upstream. `T` is a request: anything hashable."""

    __slots__ = ("_seconds", "_since", "_waiting", "is_open", "limit", "name", "queue")

    def __init__(self, name: str, limit: int, queue: int) -> None:
        """At most `limit` under way, and `queue` waiting. It is not open yet: all wait."""
        if limit < 1 or queue < 0:
            raise ValueError(f"an upstream has room for 1 or more, and 0 or more may wait, not {limit!r} and {queue!r}")
        self.name = name
        self.limit = limit
        self.queue = queue
        self.is_open = False
        """Whether any may go at all."""
        self._since: dict[T, float] = {}
        self._waiting: FairQueue[T] = FairQueue()
        self._seconds: float | None = None

    @property
    def under_way(self) -> int:
        """How many are."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def requests_under_way(self) -> tuple[T, ...]:
        """Those that are under way."""
        return tuple(self._since)

    def __iter__(self) -> Iterator[T]:
        """Those that wait."""
        return iter(self._waiting)

    def enter(self, who: Hashable, request: T, now: float) -> Admission[T]:
        """A request comes. Raises `UpstreamBusy` when there is no room for it."""
        if self.is_open and len(self._since) < self.limit and not self._waiting:
            self._since[request] = now
            return Admission(granted=True)
        displaced = None
        if len(self._waiting) >= self.queue:
            displaced = self._waiting.displace(who)
            if displaced is None:
                raise self.busy()
        self._waiting.add(who, request)
        return Admission(granted=False, displaced=displaced)

    def busy(self) -> UpstreamBusy:
        """The error for a request that finds no room."""
        text = f"{self.name}: {len(self._since)} requests are under way, and {len(self._waiting)} wait"
        return UpstreamBusy(text, self.retry_after())

    def retry_after(self) -> float | None:
        """In about how many seconds there is room for one more to wait."""
        return None if self._seconds is None else self._seconds / self.limit

    def leave(self, request: T, now: float) -> bool:
        """A request that went has ended; False when it had not gone."""
        began = self._since.pop(request, None)
        if began is None:
            return False
        took = max(0.0, now - began)
        self._seconds = took if self._seconds is None else self._seconds + WEIGHT * (took - self._seconds)
        return True

    def give_up(self, request: T) -> bool:
        """A request does not wait any more; False when it did not."""
        return self._waiting.remove(request)

    def next(self, now: float) -> T | None:
        """The one whose turn it is, which goes; None when none waits, or may."""
        if not self.is_open or len(self._since) >= self.limit:
            return None
        request = self._waiting.take()
        if request is not None:
            self._since[request] = now
        return request


# --- The gate of an upstream: each request passes it, and is refused, made to wait or let go, and counted when it ends.
# It is no process, so that a request costs no message: the task that asks, or the one whose answer makes room, does the book-keeping.


class RequestLimiter(AdmissionQueue[UpstreamRequest]):
    """Of one registration. It is open while the upstream's processes run."""

    __slots__ = ("_closed", "_upstream")

    def __init__(self, upstream: Upstream) -> None:
        """Shut."""
        spec = upstream.spec
        super().__init__(upstream.name, spec.concurrent, spec.queue)
        self._upstream = upstream
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        return not (self._since or self._waiting)

    @property
    def wanted(self) -> bool:
        """Whether it is to go on here, whatever ends just now."""
        upstream = self._upstream
        return not (self._closed or upstream.stopped or upstream.leave_by is not None)

    def admit(self, request: UpstreamRequest) -> None:
        """A request comes."""
        refusal = self.refusal()
        if not self._upstream.connected:
            self.shut()
        if refusal is None and not (self.is_open or request.wait):
            refusal = NotReady(f"{self._upstream.name} does not run just now")
        if refusal is not None:
            request.fail(refusal)
            return
        try:
            entry = self.enter(request.principal, request, _now())
        except UpstreamBusy as busy:
            request.fail(busy)
            return
        if entry.granted:
            request.send(self._upstream.line, self, self._upstream.breaker.epoch)
            return
        request.queue(self, None if self.is_open else self._upstream.federation.patience)
        if entry.displaced is not None:
            entry.displaced.fail(self.busy())

    def stalled(self, patience: float) -> Exception | None:
        """Why a request that has waited so long for the upstream's processes waits no more; None where they run now."""
        if self.is_open:
            return None
        upstream = self._upstream
        slow = InitTimeout(f"it is still {upstream.status.state.value} after {patience:g} s")
        return Unavailable(upstream.name, slow)

    def refusal(self) -> Exception | None:
        """Why nothing may pass."""
        upstream = self._upstream
        if self._closed or (upstream.stopped and not upstream.connected):
            return ClientClosed(f"{upstream.name} was stopped")
        return upstream.refusal()

    def open(self) -> None:
        """Its processes run."""
        self.is_open = True
        self.pump()

    def shut(self) -> None:
        """They do not, just now."""
        self.is_open = False

    def close(self) -> None:
        """Nothing passes any more. What is under way is its line's to end."""
        self._closed = True
        self.refuse_waiting()

    def abandon(self) -> None:
        """No upstream remains: fail waiting requests and those under way now."""
        self.refuse_waiting()
        refusal = self.refusal()
        for request in self.requests_under_way:
            if refusal is not None:
                request.give_up(refusal)

    def refuse_waiting(self) -> None:
        """Fail the requests that wait, if nothing may pass."""
        refusal = self.refusal
        for request in self:
            if (why := refusal()) is not None:
                request.fail(why)

    def on_ended(self, request: UpstreamRequest, error: BaseException | None) -> None:
        """One that had gone has its outcome."""
        now = _now()
        self.leave(request, now)
        breaker = self._upstream.breaker
        failed = is_failure(error, breaker.settings.peer_codes)
        self._upstream.note_sign_in(error)
        if isinstance(error, RequestLost) and isinstance(error.cause, ConnectFailed):
            opens = breaker.record_unreachable(
                request.epoch, now, error
            )  # it was tried twice, and no peer answers there
        else:
            opens = failed is not None and breaker.record(request.epoch, failed=failed, now=now, cause=error)
        if opens:
            self.refuse_waiting()
            self._upstream.refresh()
        self.pump()
        self._empty()

    def on_give_up(self, request: UpstreamRequest) -> None:
        """One that waited does so no more."""
        if self.give_up(request):
            self._empty()

    def _empty(self) -> None:
        """Wake an upstream that is about to leave and waits for its gate to be empty."""
        if self._upstream.leave_by is not None and self.idle:
            self._upstream.wakeup.wake()

    def pump(self) -> None:
        """Send the requests whose turn it is."""
        if not self._waiting:
            return
        if not self._upstream.connected:
            self.shut()
        if not self._closed and self._upstream.breaker.closed:
            now = _now()
            while (request := self.next(now)) is not None:
                request.send(self._upstream.line, self, self._upstream.breaker.epoch)


def _now() -> float:
    return asyncio.get_running_loop().time()
