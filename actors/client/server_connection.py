"""The connection to a server: a state machine process that keeps a wire open and owns the requests under way on it.

It runs no user code and never blocks. Requests arrive as messages from a `ConnectionLine`; they go to the wire while the connection is ready, and
are held while it is not. Replies from the wire settle them. When the wire ends, each request fails at once, or is sent again if it is
idempotent; the next wire is opened at once, later ones with growing pauses. Handlers run in processes of their own (`server_requests`).
When this process dies its requests fail with `RequestLost`, unread ones pass to the successor that its supervisor starts, and the line stays valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.envelope import PROTOCOL_VERSION_KEY
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError, RemoteProtocolError
from greenroom.protocol.input_required import INPUT_REQUIRED
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    encode_notification,
    encode_request,
    encode_result,
)
from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    ActorError,
    Exit,
    Shutdown,
    exit,
    is_orderly,
    kill,
    register,
    send_after,
    wait_down,
)
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
    NOT_FOUND,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    SessionGone,
    SilentTooLong,
    TransportError,
    WireFull,
)
from greenroom.transports.client.interfaces import Inbound, InvalidMessage, StreamGap, UnansweredRequest, endpoint_of

from .errors import ClientClosed, InitFailed, InitTimeout, NotReady, RequestLost
from .handshake import (
    DISCOVER,
    INITIALIZE,
    Disconnected,
    HandshakeSucceeded,
    InvalidMessageReceived,
    NotificationsDropped,
    RestoreRefused,
    ToolLeftOut,
    initialize_error,
    initialize_params,
    is_final,
    names_stateless,
    read_discovery,
    read_welcome,
)
from .input_rounds import InputRounds, RoundDue
from .interfaces import Phase
from .outgoing_envelope import OutgoingEnvelope, mirrored_headers, stateless_capabilities
from .pending_requests import (
    LONGEST,
    InternalRequest,
    PendingRequest,
    ReadyTimeout,
    RequestTable,
    RequestWithdrawn,
    RetryDue,
)
from .server_requests import HandlerReply, HandlerTimeout, NotificationDispatcher, ServerRequests
from .settings import AUTO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ExitReason, Pid
    from greenroom.transports.client.interfaces import ClientWire, InboundItem, Route

    from .client_handler import ClientHandler
    from .connection_line import ConnectionLine
    from .handshake import ConnectionReport
    from .interfaces import ServerWelcome
    from .pending_requests import OutcomeCallback

_SAMPLE: Final = 60
"""Characters of an invalid message that an error quotes."""
_PING: Final = GenericTimeout("ping")
_PONG: Final = GenericTimeout("pong")
_PROBE: Final = GenericTimeout("probe")
_LEGACY_STATUSES: Final = frozenset({400, 404, 405})
"""Statuses with which a server of the handshake era answers a request that stands alone. The first and the last say that it was not executed."""


class WireCloseTimeout(NamedTuple):
    """To the connection: a wire was told to end, and its grace is over."""

    wire: Pid


class ServerConnection(GenStatem[Phase]):
    """The process that keeps one server connected."""

    traps_exit: ClassVar[bool] = True
    initial: ClassVar[Any] = Phase.CONNECTING

    def __init__(self, line: ConnectionLine, route: Route, handler: ClientHandler) -> None:
        """`line` is the handle that its callers hold; `route` opens wires to the server."""
        self.line = line
        self.settings = line.settings
        self.requests = RequestTable(line)
        self.server_requests = ServerRequests(self.process, handler, line.settings)
        self.dispatcher = NotificationDispatcher(self.process, handler, line)
        self._route = route
        self.rounds = InputRounds(self.process, self.requests, self.server_requests, line.settings.max_rounds)
        self._initialize_params = initialize_params(line.settings, handler.capabilities())
        self._envelope = OutgoingEnvelope(
            line.settings.client_info,
            stateless_capabilities(self._initialize_params["capabilities"], tasks=line.settings.follow_tasks),
        )
        self._endpoint = endpoint_of(route)
        self._may_discover = line.settings.may_discover and not getattr(route, "old", False)
        self._asked: set[str] = set()
        """The methods by which the present attempt has tried to open the connection."""
        self._opening: InternalRequest | None = None
        """The request that opens the connection, while it is not answered."""
        self._wire: ClientWire | None = None
        """The wire in use, or in its handshake."""
        self._wires: dict[Pid, ClientWire] = {}
        """All wires that have not ended yet, those that were replaced included."""
        self._invalid_input = (0, "")
        """How many invalid messages came on the wire, and the beginning of the last one."""
        self._pending_transition: Next[Phase] | Stop | None = None
        """The transition to make when the current event is handled."""
        self._timer_actions: list[Action] = []
        """Timers to start or cancel with that transition."""
        self._proven = False
        """Whether the server has answered anything since the handshake."""
        self._failures = 0
        """Failures in a row, of attempts and of connections that were ready; sets the backoff."""
        self._ready_at: float | None = None
        self._missed_pings = 0

    def init(self) -> Next[Phase]:
        """Take over the line and the requests that it held, and start to connect."""
        process, line = self.process, self.line
        encode_request(
            0, "initialize", self._initialize_params
        )  # settings that cannot be encoded raise here, and not at each attempt
        register(line.key)
        line.process = process
        line.move(Phase.CONNECTING)
        process.add_exit_waiter(self)
        self.dispatcher.begin()
        self.requests.on_interim = self._on_interim
        self.requests.on_refused = self._on_refused
        if line.era is None:
            line.era = line.verdicts.of(self._endpoint)
        held, line.held = line.held, []
        for pending in held:
            pending.connection = process
            self.requests.take(pending)
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def on_exit(self, reason: ExitReason) -> None:
        """Called when the process has ended, for any reason: settle its requests, or pass them on to the successor."""
        line = self.line
        line.process = None
        if is_orderly(reason):
            line.move(Phase.CLOSED)
        else:
            line.move(Phase.CONNECTING if line.supervised else Phase.CLOSED, _connection_lost(reason))
        self._settle_all(reason)  # after `move`: a handshake that ends here is not a failed attempt
        self._pass_on(reason)

    def _pass_on(self, reason: ExitReason) -> None:
        """Requests that were still unread in the mailbox were never sent, so the successor may send them."""
        line = self.line
        coming, line.unread = line.unread, {}
        for pending in coming:
            pending.connection = None
            if is_orderly(reason):
                pending.settle(None, ClientClosed("the client was closed"))
            elif line.supervised and pending.waits and pending.deadline is not None:
                line.held.append(pending)  # its deadline bounds the wait, also when no successor comes
            else:
                pending.settle(None, RequestLost(pending.method, _connection_lost(reason), maybe_done=False))

    def _settle_all(self, reason: ExitReason) -> None:
        self.requests.wire = None
        if is_orderly(reason):
            self.requests.end_all(lambda _: ClientClosed("the client was closed"))
        else:
            cause = _connection_lost(reason)
            self.requests.end_all(lambda entry: RequestLost(entry.method, cause, maybe_done=entry.wire is not None))

    async def terminate(self, reason: ExitReason) -> None:
        """Settle all requests and close all wires."""
        self._wind_up(reason)
        self._settle_all(reason)
        for wire in tuple(self._wires.values()):
            try:
                await wait_down(wire.pid, self.settings.close_grace)
            except ActorError:
                kill(wire.pid)

    def report_state(self) -> str:
        """The state for crash reports, without any content of messages."""
        return (
            f"connection {self.line.name}, {len(self.requests)} requests, {len(self.server_requests)} server requests"
        )

    def _report(self, kind: type[ConnectionReport], **fields: Any) -> None:
        """Emit a report on the node's bus."""
        process = self.process
        process.node.reports.emit(kind(pid=process.pid, label=process.label, server=self.line.name, **fields))

    # --- events by reference

    @event
    def send_notification(self, frame: bytes) -> None:
        """Send an encoded notification to the server."""

    @event
    def retry(self) -> None:
        """Leave backoff or parked, and connect now."""

    @event
    def close(self) -> None:
        """Close the connection in order."""

    # --- states

    @state(Phase.CONNECTING, to=(Phase.INITIALIZING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END))
    def connecting(self, event: Event) -> Result[Phase]:
        """A wire is being opened."""
        return self._open() if type(event) is Internal else self._common(event)

    @state(
        Phase.INITIALIZING,
        to=(Phase.READY, Phase.CONNECTING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END),
    )
    def initializing(self, event: Event) -> Result[Phase]:
        """`server/discover` or `initialize` was sent, and is not answered yet."""
        if type(event) is GenericTimeout and event.name == _PROBE.name:
            if self._opening is not None and self._opening.method == DISCOVER:
                self._greet(INITIALIZE)
            return self._take_transition()
        if type(event) is not StateTimeout:
            return self._common(event)
        method = INITIALIZE if self._opening is None else self._opening.method
        text = f"{method}: no answer within {self.settings.init_timeout:g} s"
        times, sample = self._invalid_input
        if times:
            often = f"{times} times" if times > 1 else "once"
            text += f"; it sent an invalid message {often}, such as {sample!r}: does the server print to its standard output?"
        return self._fail(InitTimeout(text))

    @state(Phase.READY, to=(Phase.CONNECTING, Phase.BACKOFF, Phase.PARKED, Phase.CLOSING, END))
    def ready(self, event: Event) -> Result[Phase]:
        """The handshake is done: requests are sent as they come."""
        if type(event) is not GenericTimeout:
            return self._common(event)
        if event.name == _PING.name:
            self._timer_actions.append(After(self.settings.ping_timeout, _PONG))
            self.requests.take(self._internal_request("ping", None, self._on_pong))
            return self._take_transition()
        self._missed_pings += 1
        if self._missed_pings >= self.settings.ping_failure_threshold:
            return self._fail(SilentTooLong(f"no answer to {self._missed_pings} pings in a row"))
        self._ping_later()
        return self._take_transition()

    @state(Phase.BACKOFF, to=(Phase.CONNECTING, Phase.CLOSING, END))
    def backoff(self, event: Event) -> Result[Phase]:
        """Waiting for the time of the next attempt."""
        if type(event) is StateTimeout or (type(event) is Cast and event.method == ServerConnection.retry):
            return self._again()
        return self._common(event)

    @state(Phase.PARKED, to=(Phase.CONNECTING, Phase.CLOSING, END))
    def parked(self, event: Event) -> Result[Phase]:
        """Given up: no attempt is made until `retry`."""
        if type(event) is Cast and event.method == ServerConnection.retry:
            self._failures = 0
            return self._again()
        return self._common(event)

    @state(Phase.CLOSING, Phase.CLOSED, to=(END,))
    def closing(self, event: Event) -> Result[Phase]:
        """The wires were told to end, and have the grace to do so."""
        if type(event) is StateTimeout:
            for pid in self._wires:
                kill(pid)
            return Stop(NORMAL)
        return self._common(event)

    # --- events of any state

    def _common(self, event: Event) -> Result[Phase]:
        if type(event) is Call:
            return self._on_call(event)
        if type(event) is Cast:
            if event.method == ServerConnection.close:
                self._close()
        elif type(event) not in (StateTimeout, GenericTimeout):
            return self.unexpected(event)
        return self._take_transition()

    def _take_transition(self) -> Result[Phase]:
        """The transition and the timers that the handlers of this event have set."""
        turn, acts = self._pending_transition, self._timer_actions
        if turn is None and not acts:
            return None
        self._pending_transition, self._timer_actions = None, []
        if turn is None:
            return Keep(*acts)
        return Next(turn.state, *turn.actions, *acts) if isinstance(turn, Next) else turn

    def handle_info(self, message: Any) -> Result[Phase]:
        """Messages from the line, the wires, timers and the handler's processes."""
        kind = message.__class__
        if kind is PendingRequest:
            self.line.unread.pop(message, None)
            self.requests.take(message)
        elif kind is Inbound:
            self._on_inbound(message)
        elif kind is RequestWithdrawn:
            self.requests.on_withdrawn(message, self._wires)
            self.rounds.drop(message.request)
            self._release(message.request.wire)
        elif kind is HandlerReply:
            self._answer(message.request.wire, self.server_requests.on_reply(message))
        elif kind is HandlerTimeout:
            self._answer(message.request.wire, self.server_requests.on_timeout(message.request))
        elif kind is Exit:
            if self._on_wire_exit(message.pid, message.reason):
                self.server_requests.abandon(message.pid)
            else:
                self.dispatcher.on_exit(message.pid)
        elif kind is RetryDue:
            self.requests.on_retry_due(message.request)
        elif kind is ReadyTimeout:
            self.requests.on_ready_timeout(message.request)
        elif kind is RoundDue:
            self.rounds.on_due(message.request)
        elif kind is WireCloseTimeout:
            if message.wire in self._wires:  # it has had its grace
                kill(message.wire)
        else:
            self.report_unexpected("message", f"a {kind.__name__}")
        return self._take_transition()

    def _on_call(self, call: Call) -> Result[Phase]:
        if call.method == ServerConnection.send_notification:
            wire = self.requests.wire
            if wire is None:
                raise Reject(NotReady(f"{self.line.name} is {self.line.phase.value}"))
            try:
                wire.send(call.args[0])
            except WireFull as error:
                raise Reject(RequestLost("notification", error, maybe_done=False)) from None
            return Keep(Reply(call.caller))
        return self.unexpected(call)

    # --- the end

    def _close(self) -> None:
        if self.line.phase is Phase.CLOSING:
            return
        self._wind_up(SHUTDOWN)
        grace = After(self.settings.close_grace, StateTimeout())
        self._pending_transition = Next(Phase.CLOSING, grace) if self._wires else Stop(NORMAL)

    def _wind_up(self, reason: ExitReason) -> None:
        if self.line.phase is not Phase.CLOSING:
            self.line.move(Phase.CLOSING)  # first: a handshake that is broken off now is not a failed attempt
            self._settle_all(reason)
            self.server_requests.abandon()
            for pid in self._wires:
                exit(pid, SHUTDOWN)

    # --- messages from the server

    def _on_inbound(self, inbound: Inbound) -> None:
        wire = self._wires.get(inbound.wire)
        if wire is None:
            return
        requests = self.requests
        for item in inbound.items:
            if type(item) is JsonRpcResponse or type(item) is JsonRpcError:
                if item.id is None and self._opening is not None and wire is self._wire and type(item) is JsonRpcError:
                    item = JsonRpcError(
                        self._opening.id, item.error
                    )  # the server could not read the id of the only request that it has
                if type(item) is JsonRpcResponse and wire.is_http and requests.envelope is not None:
                    self._learn_tool_headers(item, wire.pid)
                entry = requests.on_reply(item, wire.pid)
                if entry is not None and entry.method not in (INITIALIZE, DISCOVER):
                    self._proven = True
                    if entry.method == "logging/setLevel" and type(item) is JsonRpcResponse:
                        self.line.level = (entry.params or {}).get("level")
            else:
                self._on_server_message(wire, item)
        if wire is not self._wire:
            self._release(wire.pid)

    def _on_server_message(self, wire: ClientWire, item: InboundItem) -> None:
        if isinstance(item, JsonRpcRequest):
            if self.requests.envelope is not None and wire is self._wire:
                stray = RemoteProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    f"a server of this revision sends no requests, and sent {item.method:.40}",
                )
                self._report(InvalidMessageReceived, error=stray, sample="")
                return
            ping = item.method == "ping"
            self._answer(wire, encode_result(item.id, {}) if ping else self.server_requests.take(item, wire))
        elif isinstance(item, JsonRpcNotification):
            self._notified(wire, item)
        elif isinstance(item, UnansweredRequest):
            self._lost(wire, item)
        elif isinstance(item, StreamGap):
            self.line.readers.gap()
        elif isinstance(item, InvalidMessage):
            self.requests.on_broken_reply(item.error, wire.pid)
            self._report(InvalidMessageReceived, error=item.error, sample=item.sample)
            if wire is self._wire:
                self._invalid_input = self._invalid_input[0] + 1, item.sample[:_SAMPLE]

    def _notified(self, wire: ClientWire, notification: JsonRpcNotification) -> None:
        method, params = notification.method, notification.params
        if method == "notifications/progress":
            self.requests.on_progress(params)
        elif method == "notifications/tasks/status":
            self.requests.on_task_status(params)
        elif method == "notifications/cancelled":
            self.server_requests.cancel(wire.pid, params.get("requestId"))
        elif method == "notifications/tools/list_changed" and self.line.tools_changed is not None:
            self.line.tools_changed()
        self.line.readers.tell(method, params)
        if not self.dispatcher.tell(method, params):
            self._report(NotificationsDropped, method=method)

    def _answer(self, wire: ClientWire, frame: bytes | None) -> None:
        if frame is None or wire.pid not in self._wires:
            return
        try:
            wire.send(frame)
        except WireFull:
            return  # the server sends requests without reading the replies: drop the reply

    # --- attempts

    def _again(self) -> Result[Phase]:
        """Start the next attempt."""
        self.line.move(Phase.CONNECTING, self.line.cause, self.line.attempts)
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def _open(self) -> Result[Phase]:
        """Open a wire, and send the request that opens the connection."""
        line = self.line
        try:
            wire = self._wire = self._route.open(self.pid)
        except Exception as error:  # noqa: BLE001 - a route may be a user's code, and this is one failure of many
            cause = error if isinstance(error, TransportError) else ConnectFailed(f"{type(error).__name__}: {error}")
            return self._fail(cause)
        self._wires[wire.pid] = wire
        self._invalid_input = (0, "")
        self._asked.clear()
        self.requests.envelope = None
        line.move(Phase.INITIALIZING, line.cause, line.attempts)
        self._pending_transition = Next(Phase.INITIALIZING, After(self.settings.init_timeout, StateTimeout()))
        known = line.era is not None and not dialect_of(line.era).is_stateless
        self._greet(DISCOVER if self._may_discover and not (known and self.settings.may_initialize) else INITIALIZE)
        return self._take_transition()

    def _greet(self, method: str) -> None:
        """Send the request that opens the connection."""
        wire = self._wire
        assert wire is not None
        self._asked.add(method)
        if self._opening is not None:  # it was not answered in time
            self.requests.pop(self._opening.id)
        if method == DISCOVER:
            hello = self._internal_request(method, None, self._on_discovered)
            frame = self._envelope.request(hello.id, method, None)
            mirrored = mirrored_headers(method, None) if wire.is_http else ()
            if self.settings.may_initialize and not wire.is_http:
                self._timer_actions.append(After(self.settings.probe_timeout, _PROBE))
        else:
            hello = self._internal_request(method, self._initialize_params, self._on_initialize_result)
            frame, mirrored = encode_request(hello.id, method, hello.params), ()
        hello.wire = wire.pid
        self._opening = self.requests.table[hello.id] = hello
        try:
            wire.send(frame, hello.id, mirrored=mirrored)
        except WireFull as error:
            self._on_failure(error)

    def _on_discovered(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        """The outcome of `server/discover`."""
        if self.line.phase is not Phase.INITIALIZING or self._opening is None or self._opening.method != DISCOVER:
            return
        self._opening = None
        found = read_discovery(result, error)
        if found.welcome is not None:
            self.requests.envelope = self._envelope
            self._on_welcome(found.welcome)
        elif found.may_initialize and self.settings.may_initialize and INITIALIZE not in self._asked:
            self._greet(INITIALIZE)
        else:
            assert found.error is not None
            self._on_failure(found.error)

    def _on_initialize_result(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        """The outcome of `initialize`."""
        if self.line.phase is not Phase.INITIALIZING or self._opening is None or self._opening.method != INITIALIZE:
            return
        self._opening = None
        wire = self._wire
        try:
            if result is None:
                raise initialize_error(error or InitFailed("no answer"))  # noqa: TRY301 - one way to fail for both
            welcome = read_welcome(result)
        except Exception as cause:  # noqa: BLE001 - what `initialize_error` made of it
            probes = self._is_worth_a_probe(error)
            if self._may_discover and not isinstance(cause, ConnectFailed):
                self._forget_era()  # the guess may have been wrong: the next attempt asks
            if probes:
                self._greet(DISCOVER)
            else:
                self._on_failure(cause)
            return
        assert wire is not None
        wire.on_negotiated(welcome.version)
        try:
            wire.send(encode_notification("notifications/initialized"), ordered=True)
        except WireFull as full:  # the server asks more than it reads
            self._on_failure(full)
            return
        self._on_welcome(welcome, negotiated=True)

    def _is_worth_a_probe(self, error: BaseException | None) -> bool:
        """Whether a server that refuses `initialize` may answer `server/discover`: it says so, or was not asked."""
        if not self._may_discover or not isinstance(error, PeerError):
            return False
        if DISCOVER not in self._asked:
            return True
        asked_again, self._asked = "again" in self._asked, self._asked | {"again"}
        return names_stateless(error) and not asked_again

    def _forget_era(self) -> None:
        self.line.era = None
        self.line.verdicts.forget(self._endpoint)

    def _on_welcome(self, welcome: ServerWelcome, *, negotiated: bool = False) -> None:
        """The server has said what it is: the connection is ready."""
        line, wire = self.line, self._wire
        assert wire is not None
        if not negotiated:
            wire.on_negotiated(welcome.version)
        line.welcome = welcome
        if self.settings.mode == AUTO:  # elsewhere the settings have decided, which says nothing of what else it speaks
            line.era = welcome.version
            line.verdicts.learn(self._endpoint, welcome.version)
        line.generation += 1
        self.requests.wire = wire
        self._proven, self._ready_at, self._missed_pings = False, self.now, 0
        line.move(Phase.READY)
        self._report(HandshakeSucceeded, version=welcome.version, generation=line.generation)
        self._pending_transition = Next(Phase.READY)
        self._timer_actions.append(Cancel(_PROBE))
        self._ping_later()
        if line.generation > 1:
            self._restore()
        self.requests.flush()

    # --- replies of the stateless era

    def _learn_tool_headers(self, item: JsonRpcResponse, wire: Pid) -> None:
        entry = self.requests.table.get(item.id)
        if entry is not None and entry.method == "tools/list" and entry.wire == wire:
            for name, why in self.line.tool_headers.learn(item.result).items():
                self._report(ToolLeftOut, name=name, why=why)

    def _on_interim(self, entry: PendingRequest, answer: JsonRpcResponse) -> None:
        """A result that is not complete."""
        result = answer.result
        kind = result.get("resultType")
        if kind == INPUT_REQUIRED and self._wire is not None:
            self.rounds.begin(entry, result, self._wire)
        elif kind == "task" and entry.method == "tools/call" and self.settings.follow_tasks:
            entry.settle(result)
        else:
            entry.settle(
                None,
                BadAnswer(f"Invalid answer to {entry.method}: its resultType {kind!r:.60} is none that it may have"),
            )

    def _on_refused(self, entry: PendingRequest, error: PeerError) -> bool:
        """An error answer. Returns whether the request goes on, since the reason can be mended."""
        if entry.refused or self._wire is None or self.line.phase is not Phase.READY:
            return False
        alone = self.requests.envelope is not None
        if alone and error.code == ErrorCode.HEADER_MISMATCH and entry.method == "tools/call" and self._wire.is_http:
            entry.refused += 1
            self.requests.suspend(entry)
            self._list_tools_for(entry, None, self.settings.max_pages)
            return True
        if not self.settings.may_initialize or not self._may_discover or not _is_of_other_era(error, alone=alone):
            return False
        entry.refused += 1
        self.requests.suspend(entry)
        entry.suspended = False
        self._reopen(error)
        return True

    def _list_tools_for(self, entry: PendingRequest, cursor: str | None, pages: int) -> None:
        """List the tools again, page by page, and then send a call again whose headers were wrong."""

        def then(result: dict[str, Any] | None, error: BaseException | None) -> None:
            following = None if result is None else result.get("nextCursor")
            if isinstance(following, str) and pages > 1:
                self._list_tools_for(entry, following, pages - 1)
            elif error is None:
                self.requests.resume(entry)
            elif self.requests.table.get(entry.id) is entry:
                self.requests.end(entry, error)

        params = None if cursor is None else {"cursor": cursor}
        self.requests.take(self._internal_request("tools/list", params, then))

    def _reopen(self, cause: Exception) -> None:
        """The server seems to be of the other era by now: ask it again. Other requests may still be answered on the present wire."""
        self._forget_era()
        self._wire = self.requests.wire = None
        self.line.move(Phase.CONNECTING, cause)
        self._pending_transition = Next(Phase.CONNECTING, NextEvent(Internal()))

    def _restore(self) -> None:
        """Ask again for what an earlier session had: the log level and the subscriptions."""
        if self.line.level is not None and self.requests.envelope is None:
            self._ask_again("logging/setLevel", {"level": self.line.level})
        for uri in () if self.requests.envelope is not None else tuple(self.line.readers.granted):
            self._ask_again("resources/subscribe", {"uri": uri})
        self.line.readers.gap()

    def _ask_again(self, method: str, params: dict[str, Any]) -> None:
        def outcome(_: object, error: BaseException | None) -> None:
            if error is not None and not isinstance(
                error, RequestLost
            ):  # a lost request is followed by another handshake, which asks again
                self._report(RestoreRefused, method=method, error=error)

        self.requests.take(self._internal_request(method, params, outcome))

    # --- failures

    def _fail(self, cause: Exception) -> Result[Phase]:
        """Handle a failure, and return the transition that it leads to."""
        self._on_failure(cause)
        return self._take_transition()

    def _on_failure(self, cause: Exception) -> None:
        """An attempt failed, or a ready connection was lost: decide between another attempt now, backoff, and parking."""
        line, settings = self.line, self.settings
        now = self.now
        was_ready = line.phase is Phase.READY
        opening, self._opening = self._opening, None
        if opening is not None and self._asked == {opening.method} and not isinstance(cause, ConnectFailed):
            if opening.method == DISCOVER and self._died_of_probe(cause):
                return
            if opening.method == INITIALIZE and self._may_discover:
                self._forget_era()
        if self._ready_at is not None and now - self._ready_at >= settings.backoff.quiet:
            self._failures = 0
        self._failures += 1
        attempts = line.attempts + (not was_ready)
        wire, self._wire = self._wire, None
        self.requests.wire = None
        self._ready_at = None
        delay: float | None = 0.0
        if is_final(cause) or (settings.park_after is not None and attempts >= settings.park_after):
            delay = None
        elif not was_ready or self._failures > 1:
            delay = settings.backoff.delay(max(0, self._failures - 1 - was_ready), self.process.node.random)
        if delay is not None and isinstance(cause, HttpError) and cause.retry_after is not None:
            delay = max(delay, min(cause.retry_after, LONGEST))
        if delay is None:
            line.move(Phase.PARKED, cause, attempts)
            self._pending_transition = Next(Phase.PARKED)
        elif was_ready and not delay:
            line.move(Phase.CONNECTING, cause, attempts)
            self._pending_transition = Next(Phase.CONNECTING, NextEvent(Internal()))
        else:
            line.move(Phase.BACKOFF, cause, attempts, now + delay)
            self._pending_transition = Next(Phase.BACKOFF, After(delay, StateTimeout()))
        self._report(Disconnected, cause=cause, attempts=attempts, retry_in=delay)
        if wire is not None and wire.pid in self._wires:
            if isinstance(cause, SessionGone):
                self._release(wire.pid)
            else:
                self._end(wire, cause)
        self.requests.refuse()

    def _died_of_probe(self, cause: Exception) -> bool:
        """Try `initialize` at once with a new process, where the old one has ended at `server/discover`; it is no failed attempt."""
        wire, line = self._wire, self.line
        if wire is None or wire.is_http or not self.settings.may_initialize or line.era is not None:
            return False
        if isinstance(cause, WireFull):
            return False
        self._wire = None
        line.era = self.settings.handshake_version
        line.move(Phase.CONNECTING, cause, line.attempts)
        self._pending_transition = Next(Phase.CONNECTING, NextEvent(Internal()))
        if wire.pid in self._wires:
            self._end(wire, cause)
        return True

    def _end(self, wire: ClientWire, cause: Exception) -> None:
        """End a wire that failed; the requests under way on it are lost."""
        lost = cause if isinstance(cause, TransportError) else ConnectionLost(str(cause))
        self.requests.lose_all(wire.pid, lost)
        exit(wire.pid, SHUTDOWN)
        send_after(self.settings.close_grace, self.pid, WireCloseTimeout(wire.pid))

    def _lost(self, wire: ClientWire, lost: UnansweredRequest) -> None:
        """One request will not be answered on this wire. If that is because its session is gone, the others may still be answered."""
        entry = self.requests.table.get(lost.id)
        if entry is None or entry.wire != wire.pid:
            return
        if self._is_legacy_refusal(wire, lost.error) and not entry.refused:
            entry.refused += 1
            seen = not lost.resend and isinstance(lost.error, HttpError) and lost.error.status == NOT_FOUND
            self._reopen(lost.error)
            self.requests.lose(entry, SessionGone(400, str(lost.error)), seen=seen)
            return
        gone = isinstance(lost.error, SessionGone) and wire is self._wire and self.line.phase is Phase.READY
        if gone or (lost.ending and wire is self._wire):
            self.requests.wire = None
        self.requests.lose(entry, lost.error, seen=not lost.resend)
        if not gone:
            return
        if self._proven:  # the server forgot a session that worked: a new handshake, which is not a failed attempt
            self._wire = None
            self.line.move(Phase.CONNECTING, lost.error)
            self._pending_transition = Next(Phase.CONNECTING, NextEvent(Internal()))
        else:  # the session was refused before it ever worked: back off
            self._on_failure(lost.error)

    def _is_legacy_refusal(self, wire: ClientWire, error: TransportError) -> bool:
        """Whether a request that stands alone was refused as a server of the handshake era would."""
        return (
            self.requests.envelope is not None
            and wire is self._wire
            and self.line.phase is Phase.READY
            and self.settings.may_initialize
            and isinstance(error, HttpError)
            and error.status in _LEGACY_STATUSES
        )

    # --- the end of wires

    def _on_wire_exit(self, pid: Pid, reason: ExitReason) -> bool:
        """Handle the end of a linked process. Returns whether it was a wire."""
        if self._wires.pop(pid, None) is None:
            return False
        detail = reason.detail if isinstance(reason, Shutdown) else None
        cause = detail if isinstance(detail, TransportError) else ConnectionLost(f"the wire has ended: {reason}")
        if self.line.phase is Phase.CLOSING:
            if not self._wires:
                self._pending_transition = Stop(NORMAL)
            return True
        if self._wire is not None and self._wire.pid == pid:
            self._on_failure(cause)
        self.requests.lose_all(pid, cause)
        return True

    def _release(self, pid: Pid | None) -> None:
        """End a replaced wire as soon as no request is under way on it."""
        if pid is None or (self._wire is not None and self._wire.pid == pid) or pid not in self._wires:
            return
        if not self.requests.waiting_on(pid):
            exit(pid, SHUTDOWN)

    # --- requests of its own

    def _internal_request(
        self, method: str, params: Mapping[str, Any] | None, then: OutcomeCallback
    ) -> InternalRequest:
        return InternalRequest(self.process.node.loop, next(self.line.ids), method, params, then)

    def _ping_later(self) -> None:
        if self.settings.ping_interval is not None:
            self._timer_actions += [Cancel(_PONG), After(self.settings.ping_interval, _PING)]

    def _on_pong(self, _: object, error: BaseException | None) -> None:
        if not isinstance(error, RequestLost):  # an error is an answer too: the server is alive
            self._missed_pings = 0
            self._ping_later()


def _is_of_other_era(error: PeerError, *, alone: bool) -> bool:
    """Whether this error answer is one of a server of the other era, to a request that it did not execute."""
    if alone:
        return error.code in (ErrorCode.UNSUPPORTED_PROTOCOL_VERSION, ErrorCode.INVALID_REQUEST)
    return names_stateless(error) or (error.code == ErrorCode.INVALID_PARAMS and PROTOCOL_VERSION_KEY in error.message)


def _connection_lost(reason: ExitReason) -> ConnectionLost:
    return ConnectionLost(f"the connection's process has ended: {reason}")
