"""`PendingRequest`: one request to a server, from its beginning to its outcome.

A request is settled exactly once: by a reply, its deadline, a loss, or its caller's end. The caller awaits it, and the connection has it in its
table for as long as the server may answer. The first of the two to settle it wins; when that was the caller, the connection gets a
`RequestWithdrawn` and notifies the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import Wakeup
from greenroom.supervision.event_bus import bus
from greenroom.supervision.kernel.process_lookup import current

from .errors import RequestLost, RequestTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping

    from greenroom.supervision import ExitReason, Node, Pid, Process

    from .client_events import ClientCall
    from .connection_line import ConnectionLine
    from .interfaces import Progress
    from .outgoing_envelope import OutgoingEnvelope
    from .response_cache import Outcome


OutcomeCallback: TypeAlias = "Callable[[dict[str, Any] | None, BaseException | None], object]"
"""Called with the result of a request, or with its error."""
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
        "server/discover",
    )
)
"""Methods whose requests may be sent again when it is unknown whether the server has seen them."""


class RequestWithdrawn(NamedTuple):
    """To the connection: the caller stopped waiting for this request."""

    request: PendingRequest
    reason: str


class PendingRequest:
    """One request, as its caller and the connection share it."""

    # Defaults on the class: most requests keep these to their end, so an instance stores only the exceptions.
    waits = True
    open_ended = False
    """Whether it has no reply until one side ends it: it takes no place among the requests under way, and keeps no replaced wire open."""
    as_task = False
    """Whether the caller wants the task that the server makes of it, and not its result."""
    follows = False
    """Whether it waits for the end of a task, which goes on while the server cannot be reached."""
    reached = 0.0
    """The last progress."""
    suspended = False
    """Whether it waits for something else than the wire before it is sent again: for answers to questions, or for a list."""
    rounds = 0
    """How often the server answered it with a request for input,"""
    idle_rounds = 0
    """and how often without a question."""
    retry: Mapping[str, Any] | None = None
    """The params that a retry has more than the first request."""
    refused = 0
    """How often the server refused it before it did anything, for a reason that this client could mend."""
    doubted: tuple[Exception, bool] | None = None
    """An error that looked like one of a server of the other era, and whether the request stood alone. It is the outcome if the server is of the same era still."""
    envelope: OutgoingEnvelope | None = None
    """The envelope with which the request was sent last, if it stood alone: a reply is read by the era of its request, and not of the connection."""
    judge: Callable[[dict[str, Any] | None, BaseException | None], Outcome] | None = None
    """Called with the outcome of a request whose result may be kept; returns the outcome for its caller."""
    resends = 0
    """How often it was resent after a loss."""
    held = 0
    """How often the server answered with a retry-later error; negative while the request waits for that time."""
    token: str | int | None = None
    task: str | None = None
    """The id of the task that the server made of it, while its progress is followed."""
    wire: Pid | None = None
    """The wire that it was sent on; None while it waits."""
    deadline: float | None = None
    """The deadline on the loop's clock."""
    call: ClientCall | None = None
    """The call that listeners of events hear of."""
    connection: Process | None = None
    """The connection that has it in its table, and has to be told when it is cancelled."""
    _owner: Process | None = None
    _progress_updates: deque[Progress] | None = None
    """Progress that was received and not read yet."""
    _wakeup: Wakeup

    def __init__(self, loop: asyncio.AbstractEventLoop, id: int, method: str, params: Mapping[str, Any] | None) -> None:
        """Made by `Line.begin`."""
        self.id = id
        self.method = method
        self.params = params
        self.idempotent: bool = method in IDEMPOTENT
        self._future: asyncio.Future[dict[str, Any]] = loop.create_future()

    def __repr__(self) -> str:
        return f"<PendingRequest {self.id} {self.method}{', settled' if self._future.done() else ''}>"

    # --- for the caller

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        future = self._future
        try:
            return (yield from future)
        except asyncio.CancelledError:
            if future.cancelled():
                self.settle(
                    None
                )  # the future is done already: this only removes the exit waiter at the caller's process
                self._withdraw("cancelled")
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    raise RequestCancelled from None  # another task that awaited it was cancelled, and with it the request
            raise

    async def result(self) -> dict[str, Any]:
        """The result. A task that is cancelled while waiting for it cancels the request."""
        return await self

    async def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """Progress until the request is settled, or with `of_task` until the task that it became has ended; for one reader."""
        steps = self._progress_updates
        if steps is None:
            return
        while True:
            while steps:
                yield steps.popleft()
            if self._future.done() and not (of_task and self.task is not None):
                return
            await self._wakeup.wait()

    def cancel(self, reason: str = "") -> None:
        """Cancel the request."""
        if self.settle(None, RequestCancelled(reason)):
            self._withdraw(reason)

    def when_settled(self, tell: OutcomeCallback) -> None:
        """Call `tell` with the outcome once, soon after the request is settled."""

        def done(future: asyncio.Future[dict[str, Any]]) -> None:
            if future.cancelled():
                tell(None, RequestCancelled("cancelled"))
            else:
                error = future.exception()
                tell(None if error is not None else future.result(), error)

        self._future.add_done_callback(done)

    @property
    def settled(self) -> bool:
        """Whether the request has its outcome."""
        return self._future.done()

    @property
    def is_begun(self) -> bool:
        """Whether the server has begun to act on it, though it is on no wire: it has asked for input, or has made a task of it."""
        return self.rounds > 0 or self.follows

    def lost_with(self, cause: Exception) -> RequestLost:
        """The error of the request if its connection has ended so."""
        return RequestLost(self.method, cause, maybe_done=self.wire is not None or self.is_begun)

    # --- for the line

    def expect_progress(self, most: int) -> None:
        """Keep the last `most` progress notifications for the reader."""
        self._progress_updates, self._wakeup = deque(maxlen=most), Wakeup()

    def begin(self, node: Node, seconds: float | None) -> None:
        """Start the deadline, and tie the request to the calling process: it is cancelled when that ends."""
        owner = self._owner = current.get()
        if owner is not None:
            owner.add_exit_waiter(self)
        if seconds is not None:
            self.deadline = node.loop.time() + seconds
            node.deadlines.add(seconds, self)

    def params_to_send(self) -> Mapping[str, Any] | None:
        """The params as they are sent: with the trace context, where calls are traced."""
        return self.params if self.call is None else self.call.on_sent(self.params)

    # --- for the callers that settle it

    def settle(self, result: dict[str, Any] | None, error: BaseException | None = None) -> bool:
        """Decide it. False when it was decided already."""
        owner = self._owner
        if owner is not None:
            owner.remove_exit_waiter(self)
            self._owner = None
        if self._progress_updates is not None:
            self._wakeup.wake()
        future = self._future
        if self.call is not None:
            is_decided = future.done()  # otherwise than by this method only when the task that awaits it was cancelled
            self.call.end(result, RequestCancelled() if is_decided else error)
        if future.done():
            return False
        if self.judge is not None and not self.rounds:  # the answer to a retry depends on more than the request
            result, error = self.judge(result, error)
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no error: a result
        else:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: the caller may be gone, and asyncio would log the error
        return True

    def expire(self, seconds: float) -> None:
        """Fail the request: its deadline is over."""
        if self.settle(None, RequestTimeout(self.method, seconds)):
            self._withdraw("timeout")

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """Called when the calling process has ended."""
        self._owner = None
        self.cancel("the caller has ended")

    def tell(self, progress: Progress) -> None:
        """Add a progress notification for the reader."""
        self.reached = progress.progress
        if self.call is not None and bus.detail_listener is not None:
            total = "" if progress.total is None else f" of {progress.total:g}"
            self.call.step("progress", f"{progress.progress:g}{total} {progress.message or ''}".rstrip())
        if self._progress_updates is not None:
            self._progress_updates.append(progress)
            self._wakeup.wake()

    def task_over(self) -> None:
        """End the progress: the task has ended, or is no longer followed."""
        self.task = None
        if self._progress_updates is not None:
            self._wakeup.wake()

    def _withdraw(self, reason: str) -> None:
        """Have the connection forget the request and notify the server, unless it has done so already."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.send(RequestWithdrawn(self, reason), exempt=True)


class InternalRequest(PendingRequest):
    """A request that the connection itself makes: `initialize`, `ping`, or a renewed subscription."""

    def __init__(
        self,
        line: ConnectionLine,
        loop: asyncio.AbstractEventLoop,
        method: str,
        params: Mapping[str, Any] | None,
        then: OutcomeCallback,
    ) -> None:
        """`then` is called with the outcome, once, at the moment when the request is settled."""
        super().__init__(loop, next(line.ids), method, params)
        if bus.listener is not None:
            self.call = line.start_call(loop, method, params, self.id)
        self.idempotent = False
        self.on_outcome = then

    def settle(self, result: dict[str, Any] | None, error: BaseException | None = None) -> bool:
        """Decide it."""
        decided = super().settle(result, error)
        if decided:
            self.on_outcome(result, error)
        return decided
