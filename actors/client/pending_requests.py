"""Requests: one from its beginning to what ends it (an answer, the deadline, a loss, its caller's end), and all of one connection.

A request is settled exactly once. It belongs to two: its caller awaits it, and the connection has it in its table for as long as the server may
answer. Whichever ends it first decides; when that was not the connection, it hears of it as `RequestWithdrawn`, and tells the server.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeGuard

from greenroom.protocol.errors import BadAnswer, LocalProtocolError, RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcResponse, encode_notification, encode_request
from greenroom.protocol.methods import PeerSide, missing_capability
from greenroom.supervision import Backoff, Wakeup, send_after
from greenroom.supervision.kernel.process_lookup import current
from greenroom.transports.client.errors import ConnectFailed, HttpError, TransportError, WireFull

from .errors import (
    ClientClosed,
    InitFailed,
    InitTimeout,
    NotReady,
    Parked,
    RequestLost,
    RequestTimeout,
    Unavailable,
    Unsupported,
    request_lost,
)
from .interfaces import Phase, Progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping

    from greenroom.protocol.errors import RemoteProtocolError
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import ExitReason, Node, Pid, Process
    from greenroom.transports.client.interfaces import ClientWire

    from .connection_line import ConnectionLine
    from .errors import ClientError

OutcomeCallback: TypeAlias = "Callable[[dict[str, Any] | None, BaseException | None], object]"
"""Is told the result of a request, or the error."""
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
"""Requests that may be sent once more when it is unknown whether the server has seen them."""


class RequestWithdrawn(NamedTuple):
    """To the connection: the caller does not wait for this request any more."""

    request: PendingRequest
    reason: str


class PendingRequest:
    """A request that is under way."""

    # Most are as it is here, from their beginning to their end.
    waits = True
    resends = 0
    """How often it was sent again."""
    held = 0
    """How often the server wanted to be asked later; less than 0 while it waits for that."""
    token: str | int | None = None
    task: str | None = None
    """The task that the server has made of it, while that is followed."""
    wire: Pid | None = None
    """On which wire it is under way; None while it waits."""
    deadline: float | None = None
    """When it falls due, on the loop's clock."""
    connection: Process | None = None
    """The one that has it in its table, and has to be told when it is cancelled."""
    _owner: Process | None = None
    _progress_updates: deque[Progress] | None = None
    """How far it has come, as it was told and not yet read."""
    _wakeup: Wakeup

    def __init__(self, loop: asyncio.AbstractEventLoop, id: int, method: str, params: Mapping[str, Any] | None) -> None:
        """Made by a `Line`."""
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
                self.settle(None)  # which was done: what is left is to let go of the caller
                self._withdraw("cancelled")
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    raise RequestCancelled from None  # another reader of it was cancelled, and with it the request
            raise

    async def result(self) -> dict[str, Any]:
        """The result. A task that is cancelled while waiting for it cancels the request."""
        return await self

    async def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """How it goes, until it is settled, or with `of_task` until the task has ended that it has become; for one reader."""
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
        """Cancel the request: its caller does not want it any more."""
        if self.settle(None, RequestCancelled(reason)):
            self._withdraw(reason)

    def when_settled(self, tell: OutcomeCallback) -> None:
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
        self._progress_updates, self._wakeup = deque(maxlen=most), Wakeup()

    def begin(self, node: Node, seconds: float | None) -> None:
        """Start its deadline, and tie it to the calling process: when that ends, so does the request."""
        owner = self._owner = current.get()
        if owner is not None:
            owner.add_exit_waiter(self)
        if seconds is not None:
            self.deadline = node.loop.time() + seconds
            node.deadlines.add(seconds, self)

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

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The process that asked is gone."""
        self._owner = None
        self.cancel("the caller has ended")

    def tell(self, progress: Progress) -> None:
        """How far it has come."""
        if self._progress_updates is not None:
            self._progress_updates.append(progress)
            self._wakeup.wake()

    def task_over(self) -> None:
        """The task has ended, or is followed no more."""
        self.task = None
        if self._progress_updates is not None:
            self._wakeup.wake()

    def _withdraw(self, reason: str) -> None:
        """Have the connection forget it, and tell the server, unless it did so already."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.send(RequestWithdrawn(self, reason), exempt=True)


# --- All of one connection. The table is the connection's; `wire` is set while requests may be sent.


class InternalRequest(PendingRequest):
    """A request of the connection's own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        id: int,
        method: str,
        params: Mapping[str, Any] | None,
        then: OutcomeCallback,
    ) -> None:
        """`then` is told the outcome, once, in the moment when it is decided."""
        super().__init__(loop, id, method, params)
        self.idempotent = False
        self.on_outcome = then

    def settle(self, result: dict[str, Any] | None, error: BaseException | None = None) -> bool:
        """Decide it."""
        decided = super().settle(result, error)
        if decided:
            self.on_outcome(result, error)
        return decided


RESENDS: Final = 1
"""How often a request that was lost is sent again."""
HOLDS: Final = 8
"""How often a request is sent again because the server wanted to be asked later."""
_TOO_MANY: Final = 429
LONGEST: Final = 60.0
"""Seconds; a handshake waits no longer, also if the server says so."""
_PAUSES: Final = Backoff(first=1.0, longest=LONGEST)
"""How long to wait where the server does not say it."""
_SPREAD: Final = 0.25
"""By what part a pause may be longer, so that all that were refused at once do not come back at once."""


FOLLOWED: Final = 256
"""How many tasks of one connection are followed at once; the oldest goes first."""
_ABOUT_A_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


class RetryDue(NamedTuple):
    """To the connection: a request that the server wanted to hear later can be sent again."""

    request: PendingRequest


class ReadyTimeout(NamedTuple):
    """To the connection: a request has waited for the server to be ready for as long as any may."""

    request: PendingRequest


class RequestTable:
    """All of one connection."""

    def __init__(self, line: ConnectionLine) -> None:
        """Nothing was asked yet."""
        self._line = line
        self.table: dict[RequestId, PendingRequest] = {}
        self.tokens: dict[str | int, PendingRequest] = {}
        self.wire: ClientWire | None = None
        self._followed: dict[str, PendingRequest] = {}
        """By their ids, the tasks whose progress is told to the calls that they were made of."""
        self.strays = 0
        """How many answers came that no request waits for: too late, twice, or to nothing that was asked."""
        self._needs: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self.table)

    def waiting_on(self, wire: Pid) -> bool:
        """Whether something is under way there."""
        return any(entry.wire == wire for entry in self.table.values())

    # --- out

    def take(self, entry: PendingRequest) -> None:
        """Send it, let it wait, or refuse it."""
        if entry.settled:
            return
        error = self.refusal(entry)
        if error is None and len(self.table) >= self._line.settings.max_pending:
            full = WireFull(f"{len(self.table)} requests are under way already")
            error = RequestLost(entry.method, full, maybe_done=False)
        if error is not None:
            entry.connection = None
            entry.settle(None, error)
        else:
            self.table[entry.id] = entry
            self._proceed(entry)

    def _proceed(self, entry: PendingRequest) -> None:
        if self.wire is not None:
            self.send(entry)
        else:
            self._limit_wait(entry)

    def _limit_wait(self, entry: PendingRequest) -> None:
        """It waits for the server to be ready, and no longer than requests may."""
        patience, process = self._line.patience, self._line.process
        if patience is None or process is None or type(entry) is not PendingRequest:
            return
        if entry.deadline is None or entry.deadline > process.node.loop.time() + patience:
            send_after(patience, process.pid, ReadyTimeout(entry))

    def on_ready_timeout(self, entry: PendingRequest) -> None:
        """It may not wait any longer; nothing when it was sent meanwhile."""
        line = self._line
        if self.table.get(entry.id) is not entry or entry.wire is not None or entry.held < 0 or self.wire is not None:
            return
        assert line.patience is not None
        slow = InitTimeout(f"it is still {line.phase.value} after {line.patience:g} s")
        self.end(entry, Unavailable(line.name, line.cause or slow, line.status.retry_in))

    def refusal(self, entry: PendingRequest) -> ClientError | None:
        """Why it can neither be sent nor wait in the present phase."""
        line = self._line
        phase = line.phase
        if self.wire is not None:
            return None
        if phase is Phase.PARKED:
            return parked(line)
        if phase in (Phase.CLOSING, Phase.CLOSED):
            return ClientClosed("the client is closed")
        if not entry.waits:
            return NotReady(f"{line.name} is {phase.value}")
        too_late = line.retry_at is not None and entry.deadline is not None and entry.deadline < line.retry_at
        if line.gone or too_late:
            return Unavailable(line.name, line.cause, line.status.retry_in)
        return None

    def send(self, entry: PendingRequest) -> None:
        """Give it to the wire, which is there."""
        wire = self.wire
        assert wire is not None
        method, params = entry.method, entry.params
        try:
            need = self._needs[method] if params is None or "task" not in params else self._need(method, params)
        except KeyError:
            need = self._needs[method] = self._need(method, {})
        if need is not None:
            self.end(entry, Unsupported(method, need))
            return
        if entry.token is not None:
            if self.tokens.setdefault(entry.token, entry) is not entry:
                taken = LocalProtocolError(f"the progress token {entry.token!r} is in use by another request")
                self.end(entry, taken)
                return
            meta = dict((params or {}).get("_meta") or {})
            params = {**(params or {}), "_meta": {**meta, "progressToken": entry.token}}
        try:
            frame = encode_request(entry.id, method, params)
            wire.send(frame, entry.id)
        except LocalProtocolError as error:
            self.end(entry, error)
        except WireFull as error:
            self.end(entry, RequestLost(method, error, maybe_done=False))
        else:
            entry.wire = wire.pid

    def _need(self, method: str, params: Mapping[str, Any]) -> str | None:
        welcome = self._line.welcome
        return (
            None
            if welcome is None
            else missing_capability(method, params, welcome.capabilities, PeerSide.SERVER, welcome.version)
        )

    def flush(self) -> None:
        """The wire is ready for what has waited, in the order in which it came."""
        self._needs.clear()
        waiting = [entry for entry in self.table.values() if entry.wire is None and entry.held >= 0]
        for entry in sorted(waiting, key=attrgetter("id")):
            self.send(entry)

    # --- in

    def on_reply(self, answer: JsonRpcResponse | JsonRpcError, wire: Pid) -> PendingRequest | None:
        """Settle the request that it answers; returns that request, if it was still open."""
        entry = self._pop_from(wire, answer.id)
        if entry is None:
            self.strays += 1
            return None
        self._look_for_task(entry, answer)
        if not (
            entry.settle(answer.result) if isinstance(answer, JsonRpcResponse) else entry.settle(None, answer.error)
        ):
            self.strays += 1
            return None
        return entry

    def _look_for_task(self, entry: PendingRequest, answer: JsonRpcResponse | JsonRpcError) -> None:
        """The token of a call stays good for as long as the task lives that the server has made of it."""
        if type(entry) is not PendingRequest or entry.params is None:
            return
        if entry.method in _ABOUT_A_TASK:
            if isinstance(answer, JsonRpcError) or entry.method == "tasks/result" or _has_ended(answer.result):
                self._unfollow(entry.params.get("taskId"))
        elif entry.token is not None and "task" in entry.params and isinstance(answer, JsonRpcResponse):
            task: Any = answer.result.get("task")
            about: dict[str, Any] = task if isinstance(task, dict) else {}  # pyright: ignore[reportUnknownVariableType]
            id = about.get("taskId")
            if isinstance(id, str) and not _has_ended(about):
                entry.task = id
                _ = self.tokens.setdefault(entry.token, entry)
                self._followed[id] = entry
                if len(self._followed) > FOLLOWED:
                    self._unfollow(next(iter(self._followed)))

    def on_task_status(self, params: Mapping[str, Any]) -> None:
        """The server tells how a task is doing."""
        if _has_ended(params):
            self._unfollow(params.get("taskId"))

    def _unfollow(self, task: object) -> None:
        entry = self._followed.pop(task, None) if isinstance(task, str) else None
        if entry is not None:
            if entry.token is not None and self.tokens.get(entry.token) is entry:
                del self.tokens[entry.token]
            entry.task_over()

    def on_broken_reply(self, error: RemoteProtocolError, wire: Pid) -> None:
        """An answer that is none: its request has no other."""
        entry = self._pop_from(wire, error.response_to)
        if entry is not None:
            entry.settle(None, BadAnswer(f"Invalid answer to {entry.method}: {error.message}"))

    def on_progress(self, params: Mapping[str, Any]) -> None:
        """How far a request of ours has come."""
        token, done, total = params.get("progressToken"), params.get("progress"), params.get("total")
        entry = self.tokens.get(token) if isinstance(token, str | int) else None
        if entry is None or not _is_number(done):
            return
        text = params.get("message")
        entry.tell(Progress(done, total if _is_number(total) else None, text if isinstance(text, str) else None))

    # --- the end

    def pop(self, id: RequestId) -> PendingRequest | None:
        """Take it out of the table."""
        entry = self.table.pop(id, None)
        if entry is not None:
            entry.connection = None
            if entry.token is not None and self.tokens.get(entry.token) is entry:
                del self.tokens[entry.token]
        return entry

    def _pop_from(self, wire: Pid, id: RequestId | None) -> PendingRequest | None:
        """The same, if it was asked on that wire: a number alone is easily guessed, and one that waits was not asked at all."""
        entry = None if id is None else self.table.get(id)
        return self.pop(entry.id) if entry is not None and entry.wire == wire else None

    def end(self, entry: PendingRequest, error: BaseException) -> None:
        """Take it out and settle it with that."""
        self.pop(entry.id)
        entry.settle(None, error)

    def on_withdrawn(self, message: RequestWithdrawn, wires: Mapping[Pid, ClientWire]) -> None:
        """Its caller does not wait any more: the server is told, if it may know of it."""
        entry = message.request
        if self.table.get(entry.id) is not entry:
            return
        self.pop(entry.id)
        wire = None if entry.wire is None else wires.get(entry.wire)
        if wire is None:
            return
        wire.forget(entry.id)
        params = {"requestId": entry.id} | ({"reason": message.reason} if message.reason else {})
        try:
            wire.send(encode_notification("notifications/cancelled", params))
        except WireFull:
            return  # the server will do it for nothing

    def lose(self, entry: PendingRequest, cause: TransportError, *, seen: bool) -> None:
        """It will not be answered where it was sent; it is sent again, or settled."""
        if entry.settled:
            self.pop(entry.id)
        elif type(entry) is not PendingRequest or not cause.is_temporary or (seen and not entry.idempotent):
            self.end(entry, request_lost(entry.method, cause, maybe_done=seen))
        elif isinstance(cause, HttpError) and (cause.status == _TOO_MANY or cause.retry_after is not None):
            self._hold(entry, cause, seen=seen)
        elif entry.resends < RESENDS:
            entry.resends += 1
            entry.wire = None
            self._again(entry)
        else:
            self.end(entry, RequestLost(entry.method, cause, maybe_done=seen))

    def _hold(self, entry: PendingRequest, cause: HttpError, *, seen: bool) -> None:
        """The server wants to be asked later: so it is, if that is before the deadline."""
        process = self._line.process
        assert process is not None
        now = process.node.loop.time()
        said = cause.retry_after
        pause = _PAUSES.most(entry.held) if said is None else said
        left = math.inf if entry.deadline is None else entry.deadline - now
        if entry.held >= HOLDS or pause >= left or (left == math.inf and pause > LONGEST):
            self.end(entry, RequestLost(entry.method, cause, maybe_done=seen))
            return
        more = min(pause * _SPREAD, (left - pause) / 2)
        entry.held = -entry.held - 1
        entry.wire = None
        send_after(pause + more * process.node.random.random(), process.pid, RetryDue(entry))

    def on_retry_due(self, entry: PendingRequest) -> None:
        """It has waited as long as the server wanted."""
        if self.table.get(entry.id) is not entry:
            return
        entry.held = -entry.held
        self._again(entry)

    def _again(self, entry: PendingRequest) -> None:
        """Send what is in the table once more, or let it wait, or say why not."""
        error = self.refusal(entry)
        if error is not None:
            self.end(entry, error)
        else:
            self._proceed(entry)

    def lose_all(self, wire: Pid, cause: TransportError) -> None:
        """That wire has ended."""
        seen = not isinstance(cause, ConnectFailed)
        for entry in [entry for entry in self.table.values() if entry.wire == wire]:
            self.lose(entry, cause, seen=seen)

    def refuse(self) -> None:
        """The phase has changed: what must not wait in it is told why."""
        for entry in [entry for entry in self.table.values() if entry.wire is None]:
            error = self.refusal(entry)
            if error is not None:
                self.end(entry, error)

    def end_all(self, why: Callable[[PendingRequest], BaseException]) -> None:
        """The connection is over."""
        for entry in tuple(self.table.values()):
            self.end(entry, why(entry))
        for task in tuple(self._followed):
            self._unfollow(task)


def parked(line: ConnectionLine) -> ClientError:
    """Why a parked connection answers nothing."""
    return line.cause if isinstance(line.cause, InitFailed) else Parked(line.name, line.cause)


def _has_ended(task: Mapping[str, Any]) -> bool:
    status = task.get("status")  # the server's own word for it, which may be anything
    return isinstance(status, str) and status in _ENDED


def _is_number(value: object) -> TypeGuard[float]:
    """A bool is none: it would be taken for 1, here and by whatever the number is passed on to."""
    return isinstance(value, int | float) and not isinstance(value, bool)
