"""The connection: one process that keeps a way to a server open, and owns what is under way on it.

It never runs a user's code and never waits. Requests come from lines; it gives them to the wire when it is ready, and keeps them while it
is not. Answers settle them. When the wire ends they are settled at once, or sent again where that cannot do harm; then another wire is
opened: at once, and with pauses that grow. The handler's work is done by processes of its own (`errands`, `attendant`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.messages import (
    Failure,
    Notification,
    Request,
    Response,
    encode_notification,
    encode_request,
    encode_result,
)
from greenroom.supervision import NORMAL, SHUTDOWN, Exit, Shutdown, exit, kill, send_after, wait_down
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.names import enter
from greenroom.supervision.kernel.reasons import is_orderly
from greenroom.supervision.statem import (
    END,
    Action,
    After,
    Call,
    Cancel,
    Cast,
    Event,
    GenericTimeout,
    GenStatem,
    Info,
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
from greenroom.transports.client.errors import (
    ConnectFailed,
    ConnectionLost,
    SessionGone,
    SilentTooLong,
    TransportError,
    WireFull,
)
from greenroom.transports.client.seam import Broken, Gap, Inbound, Lost

from .attendant import Attendant
from .errands import Answered, Errands, Overdue
from .errors import ClientClosed, InitFailed, InitTimeout, NotReady, RequestLost
from .greeting import greeting, is_final, read_welcome, refused
from .pending import PendingRequest, Withdrawn
from .reports import Connected, Disconnected, NotRestored, Overheard, Quarantined
from .requests import OwnRequest, Requests
from .seam import Phase

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason, Pid
    from greenroom.transports.client.seam import Heard, Route, Wire

    from .handler import ClientHandler
    from .line import ConnectionLine

PING: Final = GenericTimeout("ping")
PONG: Final = GenericTimeout("pong")


class _Overlong(NamedTuple):
    """A wire that was told to end should have."""

    wire: Pid


class Connection(GenStatem[Phase]):
    """One server's."""

    traps_exit: ClassVar[bool] = True
    initial: ClassVar[Any] = Phase.CONNECTING

    def __init__(self, line: ConnectionLine, route: Route, handler: ClientHandler) -> None:
        """`line` is who is answered for; `route` says where the server is."""
        self.line = line
        self.board = line.board
        self.settings = self.board.settings
        self.route = route
        self.handler = handler
        self.requests = Requests(self.board)
        self.wire: Wire | None = None
        """The one that is in use, or about to be."""
        self.wires: dict[Pid, Wire] = {}
        """All that have not ended yet."""
        self.errands: Errands
        self.attendant: Attendant
        self._greeting: dict[str, Any]
        self._turn: Next[Phase] | Stop | None = None
        self._acts: list[Action] = []
        self._streak = 0
        self._ready_at: float | None = None
        self._proven = False
        self._missed_pings = 0

    def init(self) -> Next[Phase]:
        """Take the line over, and begin."""
        process, board = self._otp_process, self.board
        self._greeting = greeting(self.settings, self.handler.capabilities())
        encode_request(0, "initialize", self._greeting)  # what cannot be said raises now, and not at each attempt
        enter(process, board.key)
        board.process = process
        board.tell(Phase.CONNECTING)
        process.await_death(self)
        self.errands = Errands(process, self.handler, self.settings)
        self.attendant = Attendant(process, self.handler, self.line, self.settings)
        self.attendant.begin()
        held, board.held = board.held, []
        for pending in held:
            pending.handed_to(process)
            self.requests.take(pending)
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def exited(self, reason: ExitReason) -> None:
        """The process is gone, however that came: nobody may wait for it any more."""
        board = self.board
        board.process = None
        self._settle_all(reason)
        self._pass_on(reason)
        if is_orderly(reason):
            board.tell(Phase.CLOSED)
            board.readers.end()
        else:
            board.tell(Phase.CONNECTING if board.supervised else Phase.CLOSED, _cause(reason))

    def _pass_on(self, reason: ExitReason) -> None:
        """What nobody has read of the mailbox: surely not sent, so a successor may have it."""
        board = self.board
        coming, board.coming = board.coming, {}
        for pending in coming:
            pending.forgotten()
            if is_orderly(reason):
                pending.settle(None, ClientClosed("the client was closed"))
            elif board.supervised and pending.waits:
                board.held.append(pending)
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
        """Nobody is left waiting, and no wire open."""
        self._settle_all(reason)
        self._wind_up()
        for wire in tuple(self.wires.values()):
            try:
                await wait_down(wire.pid, self.settings.close_grace)
            except ActorError:
                kill(wire.pid)

    def report_state(self) -> str:
        """What a crash report says: nothing that anybody has said."""
        return f"connection {self.board.name}, {len(self.requests)} requests, {len(self.errands)} errands"

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
        return self._open() if type(event) is Internal else self._common(event)

    @state(
        Phase.INITIALIZING,
        to=(Phase.READY, Phase.CONNECTING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END),
    )
    def initializing(self, event: Event) -> Result[Phase]:
        """The server was greeted, and has not answered."""
        if type(event) is StateTimeout:
            return self._fail(InitTimeout(f"initialize: no answer within {self.settings.init_timeout:g} s"))
        return self._common(event)

    @state(Phase.READY, to=(Phase.CONNECTING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END))
    def ready(self, event: Event) -> Result[Phase]:
        """Requests go out, and answers come in."""
        if type(event) is GenericTimeout:
            return self._ping() if event.name == PING.name else self._no_pong()
        return self._common(event)

    @state(Phase.BACKOFF, to=(Phase.CONNECTING, Phase.CLOSING, END))
    def backoff(self, event: Event) -> Result[Phase]:
        """The next attempt is some time off."""
        if type(event) is StateTimeout or (type(event) is Cast and event.method == Connection.retry):
            return self._reopen()
        return self._common(event)

    @state(Phase.PARKED, to=(Phase.CONNECTING, Phase.CLOSING, END))
    def parked(self, event: Event) -> Result[Phase]:
        """Nobody tries any more."""
        if type(event) is Cast and event.method == Connection.retry:
            self._streak = 0
            return self._reopen()
        return self._common(event)

    @state(Phase.CLOSING, Phase.CLOSED, to=(END,))
    def closing(self, event: Event) -> Result[Phase]:
        """The wires are told to end."""
        if type(event) is StateTimeout:
            for pid in self.wires:
                kill(pid)
            return Stop(NORMAL)
        return self._common(event)

    # --- what comes in any state

    def _common(self, event: Event) -> Result[Phase]:
        if type(event) is Info:
            self._message(event.message)
        elif type(event) is Call:
            return self._called(event)
        elif type(event) is Cast:
            if event.method == Connection.close:
                self._close()
        elif type(event) not in (StateTimeout, GenericTimeout):
            return self.unexpected(event)
        turn, acts = self._turn, self._acts
        if turn is None and not acts:
            return None
        self._turn, self._acts = None, []
        if turn is None:
            return Keep(*acts)
        return Next(turn.state, *turn.actions, *acts) if isinstance(turn, Next) else turn

    def _message(self, message: Any) -> None:
        kind: type[Any] = type(message)
        if kind is PendingRequest:
            self.board.coming.pop(message, None)
            self.requests.take(message)
        elif kind is Inbound:
            self._hear(message)
        elif kind is Withdrawn:
            self.requests.withdrawn(message, self.wires)
            self._release(message.request.wire)
        elif kind is Answered:
            self._answer(message.errand.wire, self.errands.answered(message))
        elif kind is Overdue:
            self._answer(message.errand.wire, self.errands.late(message.errand))
        elif kind is Exit:
            self._gone(message)
        elif kind is _Overlong:
            if message.wire in self.wires:
                kill(message.wire)
        else:
            self._otp_unexpected("message", f"a {kind.__name__}")

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
            "wires": [wire.description for wire in self.wires.values()],
            "waiting": [entry.id for entry in requests.table.values() if entry.wire is None],
            "under_way": {entry.id: entry.method for entry in requests.table.values() if entry.wire is not None},
            "strays": requests.strays,
            "errands": self.errands.methods,
        }

    # --- the wire

    def _reopen(self) -> Result[Phase]:
        self.board.tell(Phase.CONNECTING, self.board.cause, self.board.attempts)
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def _open(self) -> Result[Phase]:
        board, settings = self.board, self.settings
        try:
            wire = self.wire = self.route.open(self.pid)
        except Exception as error:  # noqa: BLE001 - a route is anybody's code, and this is one failure of many
            cause = error if isinstance(error, TransportError) else ConnectFailed(f"{type(error).__name__}: {error}")
            return self._fail(cause)
        self.wires[wire.pid] = wire
        board.tell(Phase.INITIALIZING, board.cause, board.attempts)
        hello = OwnRequest(next(board.ids), "initialize", self._greeting, self._greeted)
        hello.wire = wire.pid
        self.requests.table[hello.id] = hello
        wire.send(encode_request(hello.id, hello.method, hello.params), hello.id)
        return Next(Phase.INITIALIZING, After(settings.init_timeout, StateTimeout()))

    def _greeted(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        """The outcome of `initialize`."""
        if self.board.phase is not Phase.INITIALIZING:
            return
        try:
            if result is None:
                raise refused(error or InitFailed("no answer"))  # noqa: TRY301 - one way to fail for both
            welcome = read_welcome(result)
        except Exception as cause:  # noqa: BLE001 - what `refused` made of it
            self._fall(cause)
            return
        board, wire, requests = self.board, self.wire, self.requests
        assert wire is not None
        board.welcome = welcome
        board.generation += 1
        wire.agreed(welcome.version)
        wire.send(encode_notification("notifications/initialized"), ordered=True)
        requests.wire = wire
        self._proven, self._ready_at, self._missed_pings = False, self.now, 0
        board.tell(Phase.READY)
        process = self._otp_process
        process.node.reports.emit(
            Connected(
                pid=process.pid,
                label=process.label,
                server=board.name,
                version=welcome.version,
                generation=board.generation,
            )
        )
        self._turn = Next(Phase.READY)
        if self.settings.ping_interval is not None:
            self._acts += [Cancel(PONG), After(self.settings.ping_interval, PING)]
        if board.generation > 1:
            self._restore()
        requests.flush()

    def _restore(self) -> None:
        """What the server was asked for in an earlier session."""
        board = self.board
        if board.level is not None:
            self._ask_again("logging/setLevel", {"level": board.level})
        for uri in tuple(board.readers.granted):
            self._ask_again("resources/subscribe", {"uri": uri})
        board.readers.gap()

    def _ask_again(self, method: str, params: dict[str, Any]) -> None:
        def outcome(_: object, error: BaseException | None) -> None:
            if error is not None:
                process = self._otp_process
                report = NotRestored(
                    pid=process.pid, label=process.label, server=self.board.name, method=method, error=error
                )
                process.node.reports.emit(report)

        self.requests.take(OwnRequest(next(self.board.ids), method, params, outcome))

    def _fail(self, cause: Exception) -> Result[Phase]:
        """An attempt, or a connection, has come to nothing: what now."""
        self._fall(cause)
        turn, self._turn = self._turn, None
        return turn

    def _fall(self, cause: Exception) -> None:
        board, settings = self.board, self.settings
        was_ready = board.phase is Phase.READY
        if was_ready and self._ready_at is not None and self.now - self._ready_at >= settings.backoff.quiet:
            self._streak = 0
        self._streak += 1
        attempts = board.attempts + (not was_ready)
        wire, self.wire = self.wire, None
        self.requests.wire = None
        self._ready_at = None
        delay: float | None = 0.0
        if is_final(cause) or (settings.park_after is not None and attempts >= settings.park_after):
            delay = None
        elif not was_ready or self._streak > 1:
            delay = settings.backoff.delay(max(0, self._streak - 1 - was_ready), self._otp_process.node.random)
        if delay is None:
            board.tell(Phase.PARKED, cause, attempts)
            self._turn = Next(Phase.PARKED)
        elif was_ready and not delay:
            board.tell(Phase.CONNECTING, cause, attempts)
            self._turn = Next(Phase.CONNECTING, NextEvent(Internal()))
        else:
            board.tell(Phase.BACKOFF, cause, attempts, self.now + delay)
            self._turn = Next(Phase.BACKOFF, After(delay, StateTimeout()))
        process = self._otp_process
        process.node.reports.emit(
            Disconnected(
                pid=process.pid, label=process.label, server=board.name, cause=cause, attempts=attempts, retry_in=delay
            )
        )
        if wire is not None and wire.pid in self.wires:
            if isinstance(cause, SessionGone):
                self._release(wire.pid)
            else:
                self._end_wire(wire, cause)
        self.requests.refuse()

    def _end_wire(self, wire: Wire, cause: Exception) -> None:
        """It is of no use any more; what is under way on it is lost."""
        lost = cause if isinstance(cause, TransportError) else ConnectionLost(str(cause))
        self.requests.lose_all(wire.pid, lost)
        exit(wire.pid, SHUTDOWN)
        send_after(self.settings.close_grace, self.pid, _Overlong(wire.pid))

    def _gone(self, message: Exit) -> None:
        pid, reason = message
        if self.wires.pop(pid, None) is None:
            self.attendant.gone(pid)
            return
        self.errands.abandon(pid)
        detail = reason.detail if isinstance(reason, Shutdown) else None
        cause = detail if isinstance(detail, TransportError) else ConnectionLost(f"the wire has ended: {reason}")
        if self.board.phase is Phase.CLOSING:
            if not self.wires:
                self._turn = Stop(NORMAL)
            return
        if self.wire is not None and self.wire.pid == pid:
            self._fall(cause)
        self.requests.lose_all(pid, cause)

    def _release(self, pid: Pid | None) -> None:
        """A wire whose session is over can go as soon as nothing is under way on it."""
        if pid is None or (self.wire is not None and self.wire.pid == pid) or pid not in self.wires:
            return
        if not self.requests.waiting_on(pid):
            exit(pid, SHUTDOWN)

    def _close(self) -> None:
        if self.board.phase is Phase.CLOSING:
            return
        self._wind_up()
        if self.wires:
            self._turn = Next(Phase.CLOSING, After(self.settings.close_grace, StateTimeout()))
        else:
            self._turn = Stop(NORMAL)

    def _wind_up(self) -> None:
        if self.board.phase is not Phase.CLOSING:
            self.board.tell(Phase.CLOSING)
            self._settle_all(SHUTDOWN)
            self.errands.abandon()
            for pid in self.wires:
                exit(pid, SHUTDOWN)

    # --- what the server says

    def _hear(self, inbound: Inbound) -> None:
        wire = self.wires.get(inbound.wire)
        if wire is None:
            return
        requests = self.requests
        for heard in inbound.heard:
            if type(heard) is Response or type(heard) is Failure:
                entry = requests.answered(heard)
                if entry is not None and entry.method != "initialize":
                    self._proven = True
                    if entry.method == "logging/setLevel" and type(heard) is Response:
                        self.board.level = (entry.params or {}).get("level")
            else:
                self._hear_other(wire, heard)
        if wire is not self.wire:
            self._release(wire.pid)

    def _hear_other(self, wire: Wire, heard: Heard) -> None:
        if isinstance(heard, Request):
            if heard.method == "ping":
                self._answer(wire, encode_result(heard.id, {}))
            else:
                self._answer(wire, self.errands.take(heard, wire))
        elif isinstance(heard, Notification):
            self._notified(wire, heard)
        elif isinstance(heard, Lost):
            self._lost(wire, heard)
        elif isinstance(heard, Gap):
            self.board.readers.gap()
        elif isinstance(heard, Broken):
            self.requests.broken(heard.error)
            process = self._otp_process
            process.node.reports.emit(
                Quarantined(
                    pid=process.pid, label=process.label, server=self.board.name, error=heard.error, sample=heard.sample
                )
            )

    def _notified(self, wire: Wire, notification: Notification) -> None:
        method, params = notification.method, notification.params
        if method == "notifications/progress":
            self.requests.progressed(params)
        elif method == "notifications/cancelled":
            self.errands.cancel(wire.pid, params.get("requestId"))
        self.board.readers.tell(method, params)
        if not self.attendant.tell(method, params):
            process = self._otp_process
            report = Overheard(pid=process.pid, label=process.label, server=self.board.name, method=method)
            process.node.reports.emit(report)

    def _lost(self, wire: Wire, lost: Lost) -> None:
        entry = self.requests.table.get(lost.id)
        if entry is None or entry.wire != wire.pid:
            return
        gone = isinstance(lost.error, SessionGone) and wire is self.wire and self.board.phase is Phase.READY
        if gone:
            self.requests.wire = None
        self.requests.lose(entry, lost.error, seen=not lost.resend)
        if gone:
            self._session_gone(lost.error)

    def _session_gone(self, error: TransportError) -> None:
        """The server has forgotten us: once, we introduce ourselves again; what is under way elsewhere may still be answered."""
        if not self._proven:
            self._fall(error)
            return
        self.wire = None
        self.board.tell(Phase.CONNECTING, error)
        self._turn = Next(Phase.CONNECTING, NextEvent(Internal()))

    def _answer(self, wire: Wire, frame: bytes | None) -> None:
        if frame is None or wire.pid not in self.wires:
            return
        try:
            wire.send(frame)
        except WireFull:
            return  # the server asks more than it reads

    # --- pings

    def _ping(self) -> Result[Phase]:
        self.requests.take(OwnRequest(next(self.board.ids), "ping", None, self._ponged))
        return Keep(After(self.settings.ping_timeout, PONG))

    def _ponged(self, _: object, error: BaseException | None) -> None:
        if not isinstance(error, RequestLost):  # an error is an answer, too
            self._missed_pings = 0
            if self.settings.ping_interval is not None:
                self._acts += [Cancel(PONG), After(self.settings.ping_interval, PING)]

    def _no_pong(self) -> Result[Phase]:
        self._missed_pings += 1
        if self._missed_pings >= self.settings.ping_failure_threshold:
            return self._fail(SilentTooLong(f"no answer to {self._missed_pings} pings in a row"))
        assert self.settings.ping_interval is not None
        return Keep(After(self.settings.ping_interval, PING))


def _cause(reason: ExitReason) -> ConnectionLost:
    return ConnectionLost(f"the connection's process has ended: {reason}")
