"""Requests to an upstream: `UpstreamRequest`, which may wait before it is sent, and `RequestLimiter`, which admits, queues or refuses it.

While a request waits, it handles its deadline, its cancellation and its caller's end itself; once it is sent its line does. One deadline
holds for both. No process is involved: the task that sends a request, or whose reply makes room, does the bookkeeping.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from greenroom.actors.client.connection_line import ConnectionLine
from greenroom.actors.client.errors import ClientClosed, InitTimeout, NotReady, RequestLost, RequestTimeout, Unavailable
from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import Wakeup, running_process
from greenroom.supervision.event_bus import bus
from greenroom.supervision.fair_queue import FairQueue
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .breaker import is_failure
from .federation_errors import UpstreamBusy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterator, Mapping

    from greenroom.actors.client.client_events import ClientCall
    from greenroom.actors.client.interfaces import Line, Pending, Progress
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import ExitReason, Process

    from .upstream import Upstream


@dataclass(repr=False, eq=False, slots=True)
class UpstreamRequest:
    """A `Pending` before and after it was sent. One that is sent at once costs little more than the line's own request."""

    method: str
    params: Mapping[str, Any] | None
    _seconds: float | None
    wait: bool
    principal: Hashable
    """The principal on whose behalf it is sent: waiting principals take turns."""
    options: Mapping[str, Any]
    """Options of `Line.begin`."""
    epoch: int = 0
    """The breaker's epoch when it was sent."""
    inner: Pending | None = None
    call: ClientCall | None = None
    """The call that listeners of events hear of, for a request that had to wait."""
    _over: bool = False
    _error: BaseException | None = None
    _future: asyncio.Future[dict[str, Any]] | None = None
    """This and the following fields are set only for a request that had to wait,"""
    _limiter: RequestLimiter | None = None
    """this one only while it waits."""
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
        """The request id on the wire; 0 before it is sent."""
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
        """Progress, from when the request is sent."""
        while self.inner is None:
            if self.settled:
                return
            await self._sent.wait()
        async for each in self.inner.progress(of_task=of_task):
            yield each

    def cancel(self, reason: str = "") -> None:
        """Cancel the request, waiting or sent."""
        if self.inner is not None:
            self.inner.cancel(reason)
        if self._future is not None:
            self.fail(RequestCancelled(reason))

    def when_settled(self, tell: Callable[[dict[str, Any] | None, BaseException | None], object]) -> None:
        """Call `tell` with the outcome once, soon after the request is settled."""
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

    # --- for the limiter

    def refuse(self, error: BaseException, host: str, server: str, line: Line | None = None) -> None:
        """Fail the request before it has waited, or was sent. `host` and `server` are the names of the federation and the upstream."""
        self.fail(error)
        if bus.listener is not None:
            self._start_call(host, server, line).end(None, error)

    def _start_call(self, host: str, server: str, line: Line | None) -> ClientCall:
        from greenroom.actors.client.client_events import ClientCall  # noqa: PLC0415 - only a program with a listener loads the events

        own = line if isinstance(line, ConnectionLine) else None
        return ClientCall(server, own, asyncio.get_running_loop(), self.method, self.params, host=host)

    @property
    def settled(self) -> bool:
        """Whether the request has its outcome."""
        if self._future is not None:
            return self._future.done()
        return self._over or self._error is not None or bool(getattr(self.inner, "settled", False))

    def was_answered(self, error: BaseException | None) -> bool:
        """Whether a request that timed out had a first answer: it waited for the end of a task, or for a user, and not for its server."""
        inner = self.inner
        return isinstance(error, RequestTimeout) and bool(
            getattr(inner, "follows", False) or getattr(inner, "suspended", False)
        )

    def queue(self, limiter: RequestLimiter, patience: float | None = None) -> None:
        """Start to wait, with its own timers: `patience` bounds the wait for an upstream whose processes do not run."""
        self._limiter = limiter
        if bus.listener is not None:
            self.call = self._start_call(limiter.host, limiter.name, limiter.line)
            self.call.step("queued")
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        self._sent = Wakeup()
        self._context = (
            copy_context()
        )  # another task will send it, the one that makes room: it must run with the caller's context variables
        owner = self._owner = running_process()
        if owner is not None:
            owner.add_exit_waiter(self)
        self._timer = self._patience_timer = None
        if patience is not None and (self._seconds is None or patience < self._seconds):
            self._patience_timer = loop.call_later(patience, self._on_patience_over, patience)
        if self._seconds is not None:
            self._until = loop.time() + self._seconds
            self._timer = loop.call_later(self._seconds, self._expire)

    def send(self, line: Line, limiter: RequestLimiter, epoch: int) -> None:
        """Send the request."""
        self.epoch = epoch
        left = self._seconds
        options = self.options
        if not isinstance(line, ConnectionLine):  # otherwise the line starts the call
            if self.call is None and bus.listener is not None:
                self.call = self._start_call(limiter.host, limiter.name, line)
        elif self.call is not None:
            options = {**options, "call": self.call}
        if self._limiter is None:
            inner = line.begin(self.method, self.params, timeout=left, wait=self.wait, **options)
            self.inner = inner
        else:
            self._stop_waiting()
            if left is not None:
                left = max(0.0, self._until - asyncio.get_running_loop().time())
            begin = partial(line.begin, self.method, self.params, timeout=left, wait=self.wait, **options)
            inner = self.inner = self._context.run(begin)
            self._sent.wake()
        inner.when_settled(partial(self._on_outcome, limiter))

    def fail(self, error: BaseException) -> None:
        """Fail the request, unless it is settled."""
        if self._future is not None:
            self._settle(None, error)
        elif not self._over and self._error is None:
            self._error = error

    def give_up(self, error: Exception) -> None:
        """Fail the request because no reply will come: with `RequestLost` if it was sent, since it may have been done."""
        inner = self.inner
        is_held = getattr(inner, "wire", self) is None and not getattr(inner, "is_begun", False)
        waits = inner is None or is_held  # not sent, or still held by its line
        lost = error if waits else RequestLost(self.method, error)
        self.fail(lost)
        if inner is not None:
            call: ClientCall | None = getattr(inner, "call", None)
            if call is not None:
                call.end(None, lost)
            inner.cancel("the upstream is gone")

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """Called when the calling process has ended."""
        self._owner = None
        self.cancel("the caller has ended")

    def _on_outcome(self, limiter: RequestLimiter, result: dict[str, Any] | None, error: BaseException | None) -> None:
        self._over = True
        if isinstance(error, ClientClosed) and limiter.wanted:
            error = RequestLost(self.method, ConnectionLost("its processes were stopped, and are started again"))
            self._error = self._error or error
        limiter.on_ended(self, error)
        if self.call is not None:
            self.call.end(result, error)
        if self._future is not None:
            self._settle(result, error)

    def _on_patience_over(self, patience: float) -> None:
        """The patience is over: fail the request, unless the upstream's processes run by now and it only waits for its turn."""
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
        if self.call is not None:
            self.call.end(result, error)
        if error is None:
            future.set_result({} if result is None else result)
        else:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: perhaps no task awaits it any more, and asyncio would log the error
        self._sent.wake()

    def _stop_waiting(self) -> None:
        """Stop the timers of the wait, and leave the queue."""
        limiter, self._limiter = self._limiter, None
        if limiter is None:
            return
        for timer in (self._timer, self._patience_timer):
            if timer is not None:
                timer.cancel()
        if self._owner is not None:
            self._owner.remove_exit_waiter(self)
            self._owner = None
        limiter.on_give_up(self)


# --- The admission queue of one upstream, as pure bookkeeping: which requests are under way, which wait, and which is next.
# Principals take turns. In a full queue the principal with most waiting requests makes room (`FairQueue`); otherwise the new request is refused.

T = TypeVar("T")

WEIGHT: Final = 0.2
"""The weight of the latest request in the moving average of how long one takes."""


class Admission(NamedTuple, Generic[T]):
    """The outcome of admitting a request: sent now or queued; `displaced` had to make room for it."""

    granted: bool
    displaced: T | None = None


class AdmissionQueue(Generic[T]):
    """Bounds the requests under way and waiting at one upstream. `T` is a request: anything hashable."""

    __slots__ = ("_seconds", "_since", "_waiting", "is_open", "limit", "name", "queue")

    def __init__(self, name: str, limit: int, queue: int) -> None:
        """At most `limit` requests under way, and `queue` waiting. Not open at first: all wait."""
        if limit < 1 or queue < 0:
            raise ValueError(f"limit is 1 or more and queue 0 or more, not {limit!r} and {queue!r}")
        self.name = name
        self.limit = limit
        self.queue = queue
        self.is_open = False
        """Whether requests may be sent at all."""
        self._since: dict[T, float] = {}
        self._waiting: FairQueue[T] = FairQueue()
        self._seconds: float | None = None

    @property
    def under_way(self) -> int:
        """The number of requests under way."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    @property
    def requests_under_way(self) -> tuple[T, ...]:
        """The requests under way."""
        return tuple(self._since)

    def __iter__(self) -> Iterator[T]:
        """The waiting requests."""
        return iter(self._waiting)

    def enter(self, who: Hashable, request: T, now: float) -> Admission[T]:
        """Admit or queue a request. Raises `UpstreamBusy` when the queue is full."""
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
        """The error for a request that finds the queue full."""
        text = f"{self.name}: {len(self._since)} requests are under way, and {len(self._waiting)} wait"
        return UpstreamBusy(text, self.retry_after())

    def retry_after(self) -> float | None:
        """An estimate of the seconds until there is room; None without experience."""
        return None if self._seconds is None else self._seconds / self.limit

    def leave(self, request: T, now: float) -> bool:
        """A request under way has ended. False when it was not under way."""
        began = self._since.pop(request, None)
        if began is None:
            return False
        took = max(0.0, now - began)
        self._seconds = took if self._seconds is None else self._seconds + WEIGHT * (took - self._seconds)
        return True

    def give_up(self, request: T) -> bool:
        """Remove a waiting request. False when it was not waiting."""
        return self._waiting.remove(request)

    def next(self, now: float) -> T | None:
        """Take the next request to send; None when none waits, or the limit is reached."""
        if not self.is_open or len(self._since) >= self.limit:
            return None
        request = self._waiting.take()
        if request is not None:
            self._since[request] = now
        return request


# --- The request limiter of an upstream: each request is admitted, queued or refused here, and counted when it ends.
# It is no process, so that a request costs no message: the sending task, or the one whose reply makes room, does the bookkeeping.


class RequestLimiter(AdmissionQueue[UpstreamRequest]):
    """Admits the requests of one upstream. It is open while the upstream's processes run."""

    __slots__ = ("_closed", "_upstream")

    def __init__(self, upstream: Upstream) -> None:
        """Not open: the upstream's processes do not run yet."""
        spec = upstream.spec
        super().__init__(upstream.name, spec.concurrent, spec.queue)
        self._upstream = upstream
        self._closed = False

    @property
    def line(self) -> Line:
        """The line by which it sends."""
        return self._upstream.line

    @property
    def host(self) -> str:
        """The name of the federation."""
        return self._upstream.federation.key.name

    @property
    def idle(self) -> bool:
        """Whether no request is under way or waiting."""
        return not (self._since or self._waiting)

    @property
    def wanted(self) -> bool:
        """Whether the upstream is to be kept: neither stopped nor being removed."""
        upstream = self._upstream
        return not (self._closed or upstream.stopped or upstream.leave_by is not None)

    def admit(self, request: UpstreamRequest) -> None:
        """Send, queue or refuse a new request."""
        refusal = self.refusal()
        if not self._upstream.connected:
            self.shut()
        if refusal is None and not (self.is_open or request.wait):
            refusal = NotReady(f"{self._upstream.name} is not running at the moment")
        if refusal is not None:
            request.refuse(refusal, self.host, self.name, self.line)
            return
        try:
            entry = self.enter(request.principal, request, _now())
        except UpstreamBusy as busy:
            request.refuse(busy, self.host, self.name, self.line)
            self._announce_full(busy, request)
            return
        if entry.granted:
            request.send(self._upstream.line, self, self._upstream.breaker.epoch)
            return
        request.queue(self, None if self.is_open else self._upstream.federation.patience)
        if entry.displaced is not None:
            full = self.busy()
            entry.displaced.fail(full)
            self._announce_full(full, entry.displaced)

    def _announce_full(self, busy: UpstreamBusy, request: UpstreamRequest) -> None:
        if bus.listener is not None:
            from .upstream_events import announce_full_queue  # noqa: PLC0415 - only a program with a listener loads the events

            announce_full_queue(self._upstream, busy, request.method)

    def stalled(self, patience: float) -> Exception | None:
        """The error for a request that waited this long for the upstream's processes; None if they run by now."""
        if self.is_open:
            return None
        upstream = self._upstream
        slow = InitTimeout(f"it is still {upstream.status.state.value} after {patience:g} s")
        return Unavailable(upstream.name, slow)

    def refusal(self) -> Exception | None:
        """The error with which all requests are refused; None if they may pass."""
        upstream = self._upstream
        if self._closed or (upstream.stopped and not upstream.connected):
            return ClientClosed(f"{upstream.name} was stopped")
        return upstream.refusal()

    def open(self) -> None:
        """The upstream's processes run: send the waiting requests."""
        self.is_open = True
        self.pump()

    def shut(self) -> None:
        """The upstream's processes do not run at the moment."""
        self.is_open = False

    def close(self) -> None:
        """Refuse everything from now on. Requests under way are ended by the line."""
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
        """Fail the waiting requests, if requests are refused now."""
        refusal = self.refusal
        for request in self:
            if (why := refusal()) is not None:
                request.fail(why)

    def on_ended(self, request: UpstreamRequest, error: BaseException | None) -> None:
        """A request under way has its outcome: count it, and send the next one."""
        now = _now()
        self.leave(request, now)
        breaker = self._upstream.breaker
        failed = None if request.was_answered(error) else is_failure(error, breaker.settings.peer_codes)
        self._upstream.note_sign_in(error)
        if isinstance(error, RequestLost) and isinstance(error.cause, ConnectFailed):
            opens = breaker.record_unreachable(
                request.epoch, now, error
            )  # the line has tried twice, and could not connect
        else:
            opens = failed is not None and breaker.record(request.epoch, failed=failed, now=now, cause=error)
        if opens:
            self.refuse_waiting()
            self._upstream.refresh()
        self.pump()
        self._empty()

    def on_give_up(self, request: UpstreamRequest) -> None:
        """A request has stopped waiting."""
        if self.give_up(request):
            self._empty()

    def _empty(self) -> None:
        """Wake an upstream that is being stopped and waits for its requests to end."""
        if self._upstream.leave_by is not None and self.idle:
            self._upstream.wakeup.wake()

    def pump(self) -> None:
        """Send waiting requests while the limit allows."""
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
