"""The connection: one process that keeps a way to a server open, and owns what is under way on it.

It never runs a user's code and never waits. Requests come from lines; it gives them to the wire when it is ready, and keeps them while it
is not. Answers settle them. When the wire ends they are settled at once, or sent again where that cannot do harm; then another wire is
opened: at once, and with pauses that grow. The handler's work is done by processes of its own (`errands`, `attendant`).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, not_done
from greenroom.protocol.messages import (
    Failure,
    Notification,
    Request,
    Response,
    encode_error,
    encode_request,
    encode_result,
    id_key,
)
from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    ActorError,
    Exit,
    current_process,
    is_orderly,
    kill,
    receive,
    register,
    send_after,
    spawn_link,
    trap_exit,
    wait_down,
)
from greenroom.supervision.statem import (
    END,
    After,
    Call,
    Cast,
    Event,
    GenericTimeout,
    GenStatem,
    Internal,
    Keep,
    Next,
    NextEvent,
    Reject,
    Reply,
    Result,
    StateTimeout,
    Stop,
    event,
    state,
)
from greenroom.transports.client.errors import ConnectionLost, WireFull
from greenroom.transports.client.seam import Broken, Gap, Inbound, Lost

from .errors import ClientClosed, InitTimeout, NotReady, RequestLost
from .handler import ClientHandler, Deferred
from .reach import PING, Overheard, Overlong, Quarantined, Reach, greeting
from .requests import Due, Impatient, PendingRequest, Requests, Withdrawn
from .seam import Phase, Told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import ExitReason, Pid, Process, Timer
    from greenroom.transports.client.seam import Heard, Route, Wire

    from .line import ConnectionLine
    from .reach import ConnectionReport
    from .seam import Line
    from .settings import ClientSettings

_SAMPLE: Final = 60
"""So much is shown of what a server says that is no message."""


class Connection(GenStatem[Phase]):
    """One server's."""

    traps_exit: ClassVar[bool] = True
    initial: ClassVar[Any] = Phase.CONNECTING

    def __init__(self, line: ConnectionLine, route: Route, handler: ClientHandler) -> None:
        """`line` is the handle whose requests it answers; `route` says where the server is."""
        self.line = line
        self.board = line.board
        self.settings = self.board.settings
        self.route = route
        self.handler = handler
        self.requests = Requests(self.board)
        self.reach: Reach
        self.errands: Errands
        self.attendant: Attendant
        self._noise: tuple[Pid, int, str] | None = None
        """By which wire how often something came that was no message, and how the last one began."""

    def init(self) -> Next[Phase]:
        """Take the line over, and begin."""
        process, board = self.process, self.board
        hello = greeting(self.settings, self.handler.capabilities())
        encode_request(0, "initialize", hello)  # what cannot be said raises now, and not at each attempt
        register(board.key)
        board.process = process
        board.tell(Phase.CONNECTING)
        process.await_death(self)
        self.reach = Reach(self, self.route, hello)
        self.errands = Errands(process, self.handler, self.settings)
        self.attendant = Attendant(process, self.handler, self.line, self.settings)
        self.attendant.begin()
        held, board.held = board.held, []
        for pending in held:
            pending.handed_to(process)
            self.requests.take(pending)
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def exited(self, reason: ExitReason) -> None:
        """The process has ended, for whatever reason: settle its requests, or pass them on to a successor."""
        board = self.board
        board.process = None
        if is_orderly(reason):
            board.tell(Phase.CLOSED)
        else:
            board.tell(Phase.CONNECTING if board.supervised else Phase.CLOSED, _cause(reason))
        self._settle_all(reason)  # after that: a handshake that ends so is no failed attempt
        self._pass_on(reason)

    def _pass_on(self, reason: ExitReason) -> None:
        """Requests still unread in the mailbox: certainly not sent, so a successor may have them."""
        board = self.board
        coming, board.coming = board.coming, {}
        for pending in coming:
            pending.forgotten()
            if is_orderly(reason):
                pending.settle(None, ClientClosed("the client was closed"))
            elif board.supervised and pending.waits and pending.deadline is not None:
                board.held.append(pending)  # a successor is not certain, but its deadline is
            else:
                pending.settle(None, RequestLost(pending.method, _cause(reason), maybe_done=False))

    def _settle_all(self, reason: ExitReason) -> None:
        self.requests.wire = None
        if is_orderly(reason):
            self.requests.end_all(lambda _: ClientClosed("the client was closed"))
        else:
            cause = _cause(reason)
            self.requests.end_all(lambda entry: RequestLost(entry.method, cause, maybe_done=entry.wire is not None))

    async def terminate(self, reason: ExitReason) -> None:
        """Settle all requests and close all wires."""
        self._wind_up(reason)
        self._settle_all(reason)
        for wire in tuple(self.reach.wires.values()):
            try:
                await wait_down(wire.pid, self.settings.close_grace)
            except ActorError:
                kill(wire.pid)

    def report_state(self) -> str:
        """What a crash report says: nothing of what client or server have said."""
        return f"connection {self.board.name}, {len(self.requests)} requests, {len(self.errands)} errands"

    @property
    def random(self) -> Random:
        """What decides where chance is wanted."""
        return self.process.node.random

    def report(self, kind: type[ConnectionReport], **fields: Any) -> None:
        """Emit a report on the node's bus."""
        process = self.process
        process.node.reports.emit(kind(pid=process.pid, label=process.label, server=self.board.name, **fields))

    # --- events by reference

    @event
    def say(self, frame: bytes) -> None:
        """A notification for the server."""

    @event
    def retry(self) -> None:
        """Try now."""

    @event
    def close(self) -> None:
        """End in order."""

    @event
    def snapshot(self) -> dict[str, Any]:
        """What it is at."""
        raise NotImplementedError

    # --- states

    @state(Phase.CONNECTING, to=(Phase.INITIALIZING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END))
    def connecting(self, event: Event) -> Result[Phase]:
        """A wire is about to be opened."""
        return self.reach.open() if type(event) is Internal else self._common(event)

    @state(
        Phase.INITIALIZING,
        to=(Phase.READY, Phase.CONNECTING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END),
    )
    def initializing(self, event: Event) -> Result[Phase]:
        """The server was greeted, and has not answered."""
        if type(event) is StateTimeout:
            return self.reach.fail(InitTimeout(self._no_answer()))
        return self._common(event)

    def _no_answer(self) -> str:
        text = f"initialize: no answer within {self.settings.init_timeout:g} s"
        wire, noise = self.reach.wire, self._noise
        if noise is None or wire is None or wire.pid != noise[0]:
            return text
        times = f"{noise[1]} times" if noise[1] > 1 else "once"
        return (
            f"{text}; what came instead was no message, {times}, as {noise[2]!r}: does the server print to its output?"
        )

    @state(Phase.READY, to=(Phase.CONNECTING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END))
    def ready(self, event: Event) -> Result[Phase]:
        """Requests go out, and answers come in."""
        if type(event) is GenericTimeout:
            return self.reach.ping() if event.name == PING.name else self.reach.no_pong()
        return self._common(event)

    @state(Phase.BACKOFF, to=(Phase.CONNECTING, Phase.CLOSING, END))
    def backoff(self, event: Event) -> Result[Phase]:
        """The next attempt is some time off."""
        if type(event) is StateTimeout or (type(event) is Cast and event.method == Connection.retry):
            return self.reach.again()
        return self._common(event)

    @state(Phase.PARKED, to=(Phase.CONNECTING, Phase.CLOSING, END))
    def parked(self, event: Event) -> Result[Phase]:
        """No attempt is made until `retry`."""
        if type(event) is Cast and event.method == Connection.retry:
            return self.reach.again(patient=False)
        return self._common(event)

    @state(Phase.CLOSING, Phase.CLOSED, to=(END,))
    def closing(self, event: Event) -> Result[Phase]:
        """The wires are told to end."""
        if type(event) is StateTimeout:
            for pid in self.reach.wires:
                kill(pid)
            return Stop(NORMAL)
        return self._common(event)

    # --- what comes in any state

    def _common(self, event: Event) -> Result[Phase]:
        if type(event) is Call:
            return self._called(event)
        if type(event) is Cast:
            if event.method == Connection.close:
                self._close()
        elif type(event) not in (StateTimeout, GenericTimeout):
            return self.unexpected(event)
        return self._decided()

    def _decided(self) -> Result[Phase]:
        """Where to go, and which timers run, as `reach` has left it."""
        reach = self.reach
        turn, acts = reach.turn, reach.acts
        if turn is None and not acts:
            return None
        reach.turn, reach.acts = None, []
        if turn is None:
            return Keep(*acts)
        return Next(turn.state, *turn.actions, *acts) if isinstance(turn, Next) else turn

    def handle_info(self, message: Any) -> Result[Phase]:
        """What lines, the wire, timers and the handler's processes say."""
        kind = message.__class__
        if kind is PendingRequest:
            self.board.coming.pop(message, None)
            self.requests.take(message)
        elif kind is Inbound:
            self._hear(message)
        elif kind is Withdrawn:
            self.requests.withdrawn(message, self.reach.wires)
            self.reach.release(message.request.wire)
        elif kind is Answered:
            self._answer(message.errand.wire, self.errands.answered(message))
        elif kind is Overdue:
            self._answer(message.errand.wire, self.errands.late(message.errand))
        elif kind is Exit:
            if self.reach.gone(message.pid, message.reason):
                self.errands.abandon(message.pid)
            else:
                self.attendant.gone(message.pid)
        elif kind is Due:
            self.requests.due(message.request)
        elif kind is Impatient:
            self.requests.impatient(message.request)
        elif kind is Overlong:
            self.reach.overlong(message.wire)
        else:
            self.report_unexpected("message", f"a {kind.__name__}")
        return self._decided()

    def _called(self, call: Call) -> Result[Phase]:
        if call.method == Connection.say:
            wire = self.requests.wire
            if wire is None:
                raise Reject(NotReady(f"{self.board.name} is {self.board.phase.value}"))
            try:
                wire.send(call.args[0])
            except WireFull as error:
                raise Reject(RequestLost("notification", error, maybe_done=False)) from None
            return Keep(Reply(call.caller))
        if call.method == Connection.snapshot:
            return Keep(Reply(call.caller, self._snapshot()))
        return self.unexpected(call)

    def _snapshot(self) -> dict[str, Any]:
        requests = self.requests
        return {
            "server": self.board.name,
            "phase": self.board.phase.value,
            "generation": self.board.generation,
            "wires": [wire.description for wire in self.reach.wires.values()],
            "waiting": [entry.id for entry in requests.table.values() if entry.wire is None],
            "under_way": {entry.id: entry.method for entry in requests.table.values() if entry.wire is not None},
            "strays": requests.strays,
            "errands": self.errands.methods,
        }

    # --- the end

    def _close(self) -> None:
        if self.board.phase is Phase.CLOSING:
            return
        self._wind_up(SHUTDOWN)
        grace = After(self.settings.close_grace, StateTimeout())
        self.reach.turn = Next(Phase.CLOSING, grace) if self.reach.wires else Stop(NORMAL)

    def _wind_up(self, reason: ExitReason) -> None:
        if self.board.phase is not Phase.CLOSING:
            self.board.tell(Phase.CLOSING)  # first: a handshake that is broken off now is no failed attempt
            self._settle_all(reason)
            self.errands.abandon()
            self.reach.end_all()

    # --- what the server says

    def _hear(self, inbound: Inbound) -> None:
        wire = self.reach.wires.get(inbound.wire)
        if wire is None:
            return
        requests = self.requests
        for heard in inbound.heard:
            if type(heard) is Response or type(heard) is Failure:
                entry = requests.answered(heard, wire.pid)
                if entry is not None and entry.method != "initialize":
                    self.reach.proven = True
                    if entry.method == "logging/setLevel" and type(heard) is Response:
                        self.board.level = (entry.params or {}).get("level")
            else:
                self._hear_other(wire, heard)
        if wire is not self.reach.wire:
            self.reach.release(wire.pid)

    def _hear_other(self, wire: Wire, heard: Heard) -> None:
        if isinstance(heard, Request):
            if heard.method == "ping":
                self._answer(wire, encode_result(heard.id, {}))
            else:
                self._answer(wire, self.errands.take(heard, wire))
        elif isinstance(heard, Notification):
            self._notified(wire, heard)
        elif isinstance(heard, Lost):
            self.reach.lost(wire, heard)
        elif isinstance(heard, Gap):
            self.board.readers.gap()
        elif isinstance(heard, Broken):
            self.requests.broken(heard.error, wire.pid)
            self.report(Quarantined, error=heard.error, sample=heard.sample)
            before = self._noise[1] if self._noise is not None and self._noise[0] == wire.pid else 0
            self._noise = (wire.pid, before + 1, heard.sample[:_SAMPLE])

    def _notified(self, wire: Wire, notification: Notification) -> None:
        method, params = notification.method, notification.params
        if method == "notifications/progress":
            self.requests.progressed(params)
        elif method == "notifications/tasks/status":
            self.requests.task_changed(params)
        elif method == "notifications/cancelled":
            self.errands.cancel(wire.pid, params.get("requestId"))
        elif method == "notifications/tools/list_changed" and self.board.tools_changed is not None:
            self.board.tools_changed()
        self.board.readers.tell(method, params)
        if not self.attendant.tell(method, params):
            self.report(Overheard, method=method)

    def _answer(self, wire: Wire, frame: bytes | None) -> None:
        if frame is None or wire.pid not in self.reach.wires:
            return
        try:
            wire.send(frame)
        except WireFull:
            return  # the server asks more than it reads


def _cause(reason: ExitReason) -> ConnectionLost:
    return ConnectionLost(f"the connection's process has ended: {reason}")


# --- What the server asks of the client: each request is worked on in a process of its own, bounded in number and in time.
# Whatever the handler does, the server is answered once: its result, its `McpError`, or an internal error when it crashes, hangs, is killed
# or answers with what cannot be said. A crash is in the reports; the connection never notices.

INTERNAL = McpError(ErrorCode.INTERNAL_ERROR, "Internal error")
LATE = McpError(ErrorCode.INTERNAL_ERROR, "The client did not answer in time")


class Answered(NamedTuple):
    """To the connection: the answer to an errand, or that it has to be told that there is none."""

    errand: Errand
    result: Any
    error: BaseException | None = None


class Overdue(NamedTuple):
    """To the connection: an errand takes too long."""

    errand: Errand


class Errand:
    """One request of the server's."""

    __slots__ = ("_connection", "_spoken", "id", "method", "timer", "wire", "worker")

    def __init__(self, connection: Process, wire: Wire, request: Request) -> None:
        """`wire` is where it came from, and where its answer belongs."""
        self._connection = connection
        self.wire = wire
        self.id: RequestId = request.id
        self.method = request.method
        self.worker: Pid | None = None
        self.timer: Timer | None = None
        self._spoken = False

    def answer(self, result: Any, error: BaseException | None) -> None:
        """Tell the connection, from any thread. Once is enough: it ignores what comes later."""
        self._spoken = True
        process = self._connection
        answered = Answered(self, result, error)
        if threading.get_ident() == process.node.thread:
            process.send(answered)  # before the worker's end, which would be taken for no answer
        else:
            process.node.from_thread(process.send, answered)

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The worker is gone: if it has not answered, answer with an internal error."""
        self.worker = None
        if not self._spoken:
            self._connection.send(Answered(self, None, INTERNAL))


class Errands:
    """All of one connection."""

    def __init__(self, connection: Process, handler: ClientHandler, settings: ClientSettings) -> None:
        """They run on behalf of `connection`, and end with it."""
        self._connection = connection
        self._handler = handler
        self._settings = settings
        self._open: dict[tuple[Pid, RequestId | bytes], Errand] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def methods(self) -> list[str]:
        """What is worked on."""
        return [errand.method for errand in self._open.values()]

    def take(self, request: Request, wire: Wire) -> bytes | None:
        """Have it worked on, or the refusal at once."""
        key = wire.pid, id_key(request.id)
        if key in self._open:
            return encode_error(
                request.id, McpError(ErrorCode.INVALID_REQUEST, "This id is in use by a request that is under way")
            )
        if len(self._open) >= self._settings.max_errands:
            limit = self._settings.max_errands
            return encode_error(
                request.id,
                McpError(
                    ErrorCode.INTERNAL_ERROR,
                    f"Too many requests at once: at most {limit} may be under way",
                    not_done("too_many_requests"),
                ),
            )
        errand = Errand(self._connection, wire, request)
        try:
            errand.worker = spawn_link(_work, errand, self._handler, request)
        except ActorError:  # the node is closing
            return encode_error(request.id, INTERNAL)
        self._open[key] = errand
        worker = self._connection.node.process(errand.worker)
        assert worker is not None
        worker.await_death(errand)
        if self._settings.errand_timeout is not None:
            errand.timer = send_after(self._settings.errand_timeout, self._connection.pid, Overdue(errand))
        return None

    def answered(self, answered: Answered) -> bytes | None:
        """The words for the server, unless it was answered, or does not want to be."""
        errand = answered.errand
        if isinstance(answered.result, Deferred) and answered.error is None:
            if self._has(errand):
                answered.result.deliver_to(errand.answer)
            return None
        if not self._drop(errand):
            return None
        if answered.error is not None:
            error = answered.error
            return encode_error(errand.id, error if isinstance(error, McpError) else INTERNAL)
        try:
            return encode_result(errand.id, {} if answered.result is None else answered.result)
        except LocalProtocolError:
            return encode_error(errand.id, INTERNAL)

    def late(self, errand: Errand) -> bytes | None:
        """It takes too long: the server is told, and its worker ended."""
        return encode_error(errand.id, LATE) if self._drop(errand) else None

    def cancel(self, wire: Pid, id: Any) -> None:
        """The server does not want it any more, and no answer."""
        errand = self._open.get((wire, id_key(id))) if isinstance(id, str | int) else None
        if errand is not None:
            self._drop(errand)

    def abandon(self, wire: Pid | None = None) -> None:
        """Drop the errands whose wire is gone: those of one wire, or all."""
        for errand in tuple(self._open.values()):
            if wire is None or errand.wire.pid == wire:
                self._drop(errand)

    def _has(self, errand: Errand) -> bool:
        return self._open.get((errand.wire.pid, id_key(errand.id))) is errand

    def _drop(self, errand: Errand) -> bool:
        """Forget the errand, and end its worker; False when that was done already."""
        if not self._has(errand):
            return False
        del self._open[errand.wire.pid, id_key(errand.id)]
        if errand.timer is not None:
            errand.timer.cancel()
        worker, errand.worker = errand.worker, None
        if worker is not None:
            process = self._connection.node.process(worker)
            if process is not None:
                process.forget(errand)
            kill(worker)
        return True


async def _work(errand: Errand, handler: ClientHandler, request: Request) -> None:
    process = current_process("work")
    try:
        result: Any = handler.handle_request(request.method, request.params)
        if inspect.isawaitable(result):
            result = await result
    except BaseException as error:
        if process.life:
            raise  # ended from outside: the task that did so has answered
        errand.answer(None, error)
        if not isinstance(error, McpError):
            raise
    else:
        errand.answer(result, None)


# --- The attendant takes notifications to the handler: one process, in the order in which they were said, with a bounded mailbox.
# It begins with the handler's `init` and ends with its `terminate`. What the handler raises is this process's crash: it is reported, and
# the next notification finds a new one.

_HEARD = ("init", "handle_notification", "terminate")


class Attendant:
    """The connection's side of it. Without a handler that listens there is no process."""

    def __init__(self, connection: Process, handler: ClientHandler, line: Line, settings: ClientSettings) -> None:
        """Nothing runs yet."""
        self._connection = connection
        self._handler = handler
        self._line = line
        self._settings = settings
        self._process: Process | None = None
        kind = type(handler)
        self.wanted = any(getattr(kind, name) is not getattr(ClientHandler, name) for name in _HEARD)
        """Whether the handler listens at all."""
        self.full = False
        """Whether the last one had to be dropped."""

    def begin(self) -> None:
        """Run, in the connection's process."""
        if self.wanted:
            pid = spawn_link(_attend, self._handler, self._line, self._settings.close_grace)
            self._process = self._connection.node.process(pid)
            assert self._process is not None
            self._process.limit = self._settings.max_updates

    def tell(self, method: str, params: Mapping[str, Any]) -> bool:
        """Pass it on. False when it had to be dropped, and the one before it had not."""
        if not self.wanted:
            return True
        if self._process is None:
            self.begin()
        assert self._process is not None
        before, self.full = self.full, not self._process.send(Told(method, params))
        return before or not self.full

    def gone(self, pid: Pid) -> bool:
        """A linked process has ended; whether it was this one."""
        if self._process is None or self._process.pid != pid:
            return False
        self._process = None
        return True


async def _attend(handler: ClientHandler, line: Line, grace: float) -> None:
    trap_exit()
    await _done(handler.init(line))
    while True:
        message = await receive()
        if isinstance(message, Told):
            await _done(handler.handle_notification(message.method, dict(message.params)))
        elif isinstance(message, Exit):
            async with asyncio.timeout(grace):
                await _done(handler.terminate())
            return


async def _done(value: Any) -> None:
    if inspect.isawaitable(value):
        await value
