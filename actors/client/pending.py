"""One request, from whoever begins it to whatever ends it: an answer, the deadline, a loss, its caller's end. It is settled exactly once.

It belongs to two: its caller awaits it, and the connection has it in its table for as long as the server may answer. Whoever ends it
first decides; when that was not the connection, it hears of it as `Withdrawn`, and tells the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.actors.cancellation import RequestCancelled
from greenroom.supervision.kernel.current import current
from greenroom.supervision.kernel.messages import INFO

from .errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping

    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import ExitReason, Pid
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process

    from .seam import Progress

IDEMPOTENT: Final = frozenset(
    (
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "tasks/list",
        "tasks/get",
        "tasks/result",
    )
)
"""What may be sent once more when nobody knows whether it was seen."""


class Withdrawn(NamedTuple):
    """To the connection: nobody waits for it any more."""

    request: PendingRequest
    reason: str


class PendingRequest:
    """A request that is under way."""

    __slots__ = (
        "_connection",
        "_future",
        "_owner",
        "_progress",
        "deadline",
        "held",
        "id",
        "idempotent",
        "method",
        "params",
        "resends",
        "task",
        "token",
        "waits",
        "wire",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, id: int, method: str, params: Mapping[str, Any] | None) -> None:
        """Made by a `Line`."""
        self.id: RequestId = id
        self.method = method
        self.params = params
        self.idempotent: bool = method in IDEMPOTENT
        self.waits = True
        self.resends = 0
        """How often it was sent again."""
        self.held = 0
        """How often the server wanted to be asked later; less than 0 while it waits for that."""
        self.token: str | int | None = None
        self.task: str | None = None
        """The task that the server has made of it, while that is followed."""
        self.wire: Pid | None = None
        """On which wire it is under way; None while it waits."""
        self._future: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._connection: Process | None = None
        self._owner: Process | None = None
        self._progress: _Words | None = None
        self.deadline: float | None = None
        """When it falls due, on the loop's clock."""

    def __repr__(self) -> str:
        return f"<PendingRequest {self.id} {self.method}{', settled' if self._future.done() else ''}>"

    # --- for the caller

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        future = self._future
        try:
            return (yield from future)
        except asyncio.CancelledError:
            if future.cancelled():
                self._withdraw("cancelled")
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    raise RequestCancelled from None  # another reader of it was cancelled, and with it the request
            raise

    async def result(self) -> dict[str, Any]:
        """The result. Whoever is cancelled while waiting for it cancels the request."""
        return await self

    async def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """How it goes, until it is settled, or with `of_task` until the task has ended that it has become; for one reader."""
        words = self._progress
        if words is None:
            return
        while True:
            while words.kept:
                yield words.kept.popleft()
            if self._future.done() and not (of_task and self.task is not None):
                return
            await words.wait()

    def cancel(self, reason: str = "") -> None:
        """Nobody wants it any more."""
        if self.settle(None, RequestCancelled(reason)):
            self._withdraw(reason)

    def when_settled(self, tell: Callable[[dict[str, Any] | None, BaseException | None], object]) -> None:
        """Have `tell` called with the outcome, once, and soon."""

        def done(future: asyncio.Future[dict[str, Any]]) -> None:
            if future.cancelled():
                tell(None, RequestCancelled("cancelled"))
            else:
                error = future.exception()
                tell(None if error is not None else future.result(), error)

        self._future.add_done_callback(done)

    @property
    def settled(self) -> bool:
        """Whether its outcome is decided."""
        return self._future.done()

    # --- for the line

    def expect_progress(self, most: int) -> None:
        """Keep what is told of it."""
        self._progress = _Words(most)

    def begin(self, node: Node, seconds: float | None) -> None:
        """Its time begins, and ends with whoever asks."""
        owner = self._owner = current.get()
        if owner is not None:
            owner.await_death(self)
        if seconds is not None:
            self.deadline = node.loop.time() + seconds
            node.deadlines.add(seconds, self)

    # --- for whoever ends it

    def settle(self, result: dict[str, Any] | None, error: BaseException | None = None) -> bool:
        """Decide it. False when it was decided already."""
        owner = self._owner
        if owner is not None:
            owner.forget(self)
            self._owner = None
        if self._progress is not None:
            self._progress.wake()
        future = self._future
        if future.done():
            return False
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no error: a result
        else:
            future.set_exception(error)
            future.exception()  # marks it as seen: the caller may be gone
        return True

    def expire(self, seconds: float) -> None:
        """The deadline is over."""
        if self.settle(None, RequestTimeout(self.method, seconds)):
            self._withdraw("timeout")

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The process that asked is gone."""
        self._owner = None
        self.cancel("the caller has ended")

    def tell(self, progress: Progress) -> None:
        """How far it has come."""
        if self._progress is not None:
            self._progress.add(progress)

    def task_over(self) -> None:
        """The task has ended, or is followed no more."""
        self.task = None
        if self._progress is not None:
            self._progress.wake()

    def _withdraw(self, reason: str) -> bool:
        """Have the connection forget it, and tell the server; whether that was still to be done."""
        if self._owner is not None:
            self._owner.forget(self)
            self._owner = None
        if self._progress is not None:
            self._progress.wake()
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        connection.deliver_exempt((INFO, Withdrawn(self, reason)))
        return True

    def handed_to(self, connection: Process) -> None:
        """From now on a connection has to hear of it when nobody wants it any more."""
        self._connection = connection

    def forgotten(self) -> None:
        """The connection has taken it out of its table."""
        self._connection = None


class _Words:
    """What was told of one request, for one reader."""

    __slots__ = ("_reader", "kept")

    def __init__(self, most: int) -> None:
        self.kept: deque[Progress] = deque(maxlen=most)
        self._reader: asyncio.Future[None] | None = None

    def add(self, progress: Progress) -> None:
        self.kept.append(progress)
        self.wake()

    def wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None
