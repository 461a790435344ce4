"""One request through the gate of an upstream: it waits for its turn, goes, and is settled once, whatever ends it first.

While it waits, its deadline, its caller's end and its caller's change of mind are its own affair; once it has gone they are its
line's. The deadline is one for both.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.actors.cancellation import RequestCancelled
from greenroom.actors.client.errors import ClientClosed, RequestLost, RequestTimeout
from greenroom.supervision.kernel.current import current
from greenroom.transports.client.errors import ConnectionLost

from .news import Bell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Hashable, Mapping

    from greenroom.actors.client.seam import Line, Pending, Progress
    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import ExitReason
    from greenroom.supervision.kernel.process import Process

    from .gate import Gate


class GuardedRequest:
    """A `Pending`, before and after it was sent. One that need not wait is little more than the line's own."""

    __slots__ = (
        "_context",
        "_error",
        "_future",
        "_gate",
        "_impatience",
        "_over",
        "_owner",
        "_seconds",
        "_sent",
        "_timer",
        "_until",
        "inner",
        "method",
        "options",
        "params",
        "turn",
        "wait",
        "who",
    )

    _context: Context
    _impatience: asyncio.TimerHandle | None
    _owner: Process | None
    _sent: Bell
    _timer: asyncio.TimerHandle | None
    _until: float

    def __init__(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        seconds: float | None,
        wait: bool,
        who: Hashable,
        **options: Any,
    ) -> None:
        """`who` is on whose behalf: those take turns. The `options` are the line's."""
        self.method = method
        self.params = params
        self.wait = wait
        self.who = who
        self.options = options
        self.turn = 0
        """The breaker's, when it was sent."""
        self.inner: Pending | None = None
        self._seconds = seconds
        self._over = False
        self._error: BaseException | None = None
        self._future: asyncio.Future[dict[str, Any]] | None = None  # only for one that had to wait
        self._gate: Gate | None = None  # as long as it waits

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
        """The result. Whoever is cancelled while waiting for it cancels the request."""
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
        """Nobody wants it any more."""
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

    def queue(self, gate: Gate, patience: float | None = None) -> None:
        """It waits. From now on it sees to it itself that it does not wait too long: `patience` is for processes that do not run."""
        self._gate = gate
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        self._sent = Bell()
        self._context = copy_context()  # it is sent by whoever makes room, and is its caller's all the same
        owner = self._owner = current.get()
        if owner is not None:
            owner.await_death(self)
        self._timer = self._impatience = None
        if patience is not None and (self._seconds is None or patience < self._seconds):
            self._impatience = loop.call_later(patience, self._weary, patience)
        if self._seconds is not None:
            self._until = loop.time() + self._seconds
            self._timer = loop.call_later(self._seconds, self._expire)

    def send(self, line: Line, gate: Gate, turn: int) -> None:
        """It goes."""
        self.turn = turn
        left = self._seconds
        if self._gate is None:
            inner = line.begin(self.method, self.params, timeout=left, wait=self.wait, **self.options)
            self.inner = inner
        else:
            self._rest()
            if left is not None:
                left = max(0.0, self._until - asyncio.get_running_loop().time())
            begin = partial(line.begin, self.method, self.params, timeout=left, wait=self.wait, **self.options)
            inner = self.inner = self._context.run(begin)
            self._sent.ring()
        inner.when_settled(partial(self._came, gate))

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

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The process that asked is gone."""
        self._owner = None
        self.cancel("the caller has ended")

    def _came(self, gate: Gate, result: dict[str, Any] | None, error: BaseException | None) -> None:
        self._over = True
        if isinstance(error, ClientClosed) and gate.wanted:
            error = RequestLost(self.method, ConnectionLost("its processes were stopped, and are started again"))
            self._error = self._error or error
        gate.ended(self, error)
        if self._future is not None:
            self._settle(result, error)

    def _weary(self, patience: float) -> None:
        """Its server has not even begun to start: where it runs now, the request waits for its turn."""
        self._impatience = None
        if self._gate is not None and (slow := self._gate.stalled(patience)) is not None:
            self.fail(slow)

    def _expire(self) -> None:
        self.fail(RequestTimeout(self.method, self._seconds or 0.0))

    def _settle(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        self._rest()
        future = self._future
        assert future is not None
        if future.done():
            return
        if error is None:
            future.set_result({} if result is None else result)
        else:
            future.set_exception(error)
            future.exception()  # marks it as seen: perhaps nobody waits any more
        self._sent.ring()

    def _rest(self) -> None:
        """It does not wait any more."""
        gate, self._gate = self._gate, None
        if gate is None:
            return
        for timer in (self._timer, self._impatience):
            if timer is not None:
                timer.cancel()
        if self._owner is not None:
            self._owner.forget(self)
            self._owner = None
        gate.gave_up(self)
