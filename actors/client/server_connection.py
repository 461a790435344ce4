"""The connection to a server: a state machine process that keeps a wire open and owns the requests under way on it.

It runs no user code and never blocks. Requests arrive as messages from a `ConnectionLine`; they go to the wire while the connection is ready, and
are held while it is not. Replies from the wire settle them. When the wire ends, each request fails at once, or is sent again if it is
idempotent; the next wire is opened at once, later ones with growing pauses. Handlers run in processes of their own (`server_requests`).
When this process dies its requests fail with `RequestLost`, unread ones pass to the successor that its supervisor starts, and the line stays valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, encode_result
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
from greenroom.supervision.event_bus import bus
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
    ConnectFailed,
    ConnectionLost,
    HttpError,
    SessionGone,
    SilentTooLong,
    TransportError,
    WireFull,
)
from greenroom.transports.client.interfaces import (
    Inbound,
    InvalidMessage,
    StreamGap,
    UnansweredRequest,
    address_of,
    http_version_of,
    transport_of,
)

from .connection_opening import ConnectionOpening
from .errors import ClientClosed, ClientError, InitTimeout, RequestLost
from .followed_tasks import FollowedTasks, TaskReport
from .handshake import (
    DISCOVER,
    INITIALIZE,
    Disconnected,
    HandshakeSucceeded,
    InvalidMessageReceived,
    NotificationsDropped,
    RestoreRefused,
    is_final,
)
from .input_rounds import InputRounds, RoundDue
from .interfaces import Phase
from .listening import ListenDue, Listening
from .pending_requests import InternalRequest, PendingRequest, RequestWithdrawn
from .request_table import LONGEST, ReadyTimeout, RequestTable, RetryDue
from .response_cache import CHANGES
from .server_requests import HandlerReply, HandlerTimeout, NotificationDispatcher, ServerRequests
from .stateless_replies import StatelessReplies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        line.transport, line.address, line.http_version = transport_of(route), address_of(route), http_version_of(route)
        self.settings = line.settings
        self.requests = RequestTable(line)
        self.server_requests = ServerRequests(self.process, handler, line)
        self.dispatcher = NotificationDispatcher(self.process, handler, line)
        self._route = route
        self._handler_wants_logs = handler.wants_logs()
        self.rounds = InputRounds(self.process, self.requests, self.server_requests, line.settings.max_rounds)
        self.tasks = FollowedTasks(self.process, line, self.requests, self.server_requests)
        self.listening = Listening(self.process, line, handler, self.requests, self._report)
        self.requests.on_abandoned = self._drop
        self.replies = StatelessReplies(line, self.requests, self.rounds, self.tasks, self._report, self._reopen)
        self.opening = ConnectionOpening(
            line, self.requests, route, handler.capabilities(), self._on_welcome, self._on_failure
        )
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
        self.opening.check()
        register(line.key)
        line.process = process
        line.readers.listening = self.listening
        line.move(Phase.CONNECTING)
        process.add_exit_waiter(self)
        self.dispatcher.begin()
        self.opening.recall()
        line.handler_wants_logs = self._handler_wants_logs
        held, line.held = line.held, []
        for pending in held:
            pending.connection = process
            self.requests.take(pending)
        self.tasks.resume()
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def on_exit(self, reason: ExitReason) -> None:
        """Called when the process has ended, for any reason: settle its requests, or pass them on to the successor."""
        line = self.line
        line.process = line.readers.listening = None
        self.listening.close()
        if is_orderly(reason):
            line.move(Phase.CLOSED)
        else:
            line.move(Phase.CONNECTING if line.supervised else Phase.CLOSED, _connection_lost(reason))
            self.tasks.hand_over()
        self.server_requests.end_questions()
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
            self.requests.end_all(lambda entry: entry.lost_with(cause))

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
    def send_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification to the server."""

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
            self.opening.on_silence()
            return self._take_transition()
        if type(event) is not StateTimeout:
            return self._common(event)
        text = f"{self.opening.method}: no answer within {self.settings.init_timeout:g} s"
        times, sample = self._invalid_input
        if times:
            often = f"{times} times" if times > 1 else "once"
            text += f"; it sent an invalid message {often}, such as {sample!r}: does the server print to its standard output?"
        elif self.opening.had_probe:
            text += f', after {DISCOVER}: if the server does not survive that question, write mode="legacy"'
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
            self._drop(message.request)
            self._release(message.request.wire)
        elif kind is HandlerReply:
            self._answer(message.request.wire, self.server_requests.on_reply(message))
        elif kind is HandlerTimeout:
            self._answer(message.request.wire, self.server_requests.on_timeout(message.request))
        elif kind is Exit:
            if self._on_wire_exit(message.pid, message.reason):
                self.server_requests.abandon(message.pid)
            elif not self.listening.on_exit(message.pid):
                self.dispatcher.on_exit(message.pid)
        elif kind is ListenDue:
            self.listening.begin()
        elif kind is RetryDue:
            self.requests.on_retry_due(message.request)
        elif kind is ReadyTimeout:
            self.requests.on_ready_timeout(message.request)
        elif kind is TaskReport:
            self.tasks.on_report(message)
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
            try:
                self.requests.notify(*call.args)
            except (ClientError, LocalProtocolError) as error:
                raise Reject(error) from None
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
            self.tasks.abandon()
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
        if bus.detail_listener is not None:
            self._report_received(inbound.items)
        for item in inbound.items:
            if type(item) is JsonRpcResponse or type(item) is JsonRpcError:
                if item.id is None and wire is self._wire and self.opening.id is not None:
                    item = JsonRpcError(self.opening.id, item.error)  # noqa: PLW2901 - the server could not read the id of its only request
                if type(item) is JsonRpcResponse and wire.is_http and requests.envelope is not None:
                    self.replies.learn_tools(item, wire.pid)
                entry = requests.on_reply(item, wire.pid)
                if entry is None and type(item) is JsonRpcResponse:
                    self.tasks.on_stray(item)
                if entry is not None and entry.method not in (INITIALIZE, DISCOVER):
                    self._proven = True
                    if entry.method == "logging/setLevel" and type(item) is JsonRpcResponse:
                        self.line.level = (entry.params or {}).get("level")
            else:
                self._on_server_message(wire, item)
        if wire is not self._wire:
            self._release(wire.pid)

    def _report_received(self, items: Sequence[InboundItem]) -> None:
        from .client_events import report_received  # noqa: PLC0415 - only a program with a listener loads the events

        report_received(self.line, items)

    def _on_server_message(self, wire: ClientWire, item: InboundItem) -> None:
        if isinstance(item, JsonRpcRequest):
            if self.requests.envelope is not None and wire is self._wire:
                stray = RemoteProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    f"a server of this revision sends no requests, and sent {item.method:.40}",
                )
                self._report(InvalidMessageReceived, error=stray, sample="")
                return
            if item.method == "ping":
                self._answer(wire, encode_result(item.id, {}))
            else:
                self._answer(wire, self.server_requests.take(item, wire, self.requests.asked_by(item, wire)))
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
        if self.requests.envelope is not None:
            counted = self.listening.filtered(wire, method, params)
            if counted is None:
                return
            params = counted
        if self.line.cache is not None and method in CHANGES:  # before callers are told, who may fetch at once
            self.line.cache.on_notification(method, params)
        if method == "notifications/progress":
            self.requests.on_progress(params)
        elif method == "notifications/tasks/status":
            self.requests.on_task_status(params)
        elif method == "notifications/tasks":
            self.tasks.on_notification(params)
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
            self.line.transmit(wire, frame)
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
        self._wires[wire.pid] = line.wire = wire
        self._invalid_input = (0, "")
        line.move(Phase.INITIALIZING, line.cause, line.attempts)
        self._pending_transition = Next(Phase.INITIALIZING, After(self.settings.init_timeout, StateTimeout()))
        self.opening.begin(wire)
        if self.opening.is_probe:
            self._timer_actions.append(After(self.settings.probe_timeout, _PROBE))
        return self._take_transition()

    def _on_welcome(self, welcome: ServerWelcome) -> None:
        """The server has said what it is: the connection is ready."""
        line = self.line
        line.welcome = welcome
        line.generation += 1
        self.requests.wire = self._wire
        self._proven, self._ready_at, self._missed_pings = False, self.now, 0
        line.move(Phase.READY)
        if bus.listener is not None:
            line.start_session(self.process.node.loop)
        self._report(HandshakeSucceeded, version=welcome.version, generation=line.generation)
        self._pending_transition = Next(Phase.READY)
        self._timer_actions.append(Cancel(_PROBE))
        self._ping_later()
        if line.generation > 1:
            self._restore()
        self.listening.on_ready()
        self.requests.flush()

    def _reopen(self, cause: Exception, refused_by: Pid | None) -> bool:
        """The server seems to be of the other era by now: ask it again. Other requests may still be answered on the present wire.

        It was asked already if the request was refused by a wire that was replaced. Returns False for a connection that speaks one era only.
        """
        if not self.opening.may_change or self.line.phase is Phase.CLOSING:
            return False
        if self._wire is None or self._wire.pid != refused_by:
            return True
        self.opening.forget()
        self._wire = self.requests.wire = None
        self.line.move(Phase.CONNECTING, cause)
        self._pending_transition = Next(Phase.CONNECTING, NextEvent(Internal()))
        return True

    def _restore(self) -> None:
        """Ask again for what an earlier session had: the log level and the subscriptions. Without sessions a listen does that."""
        if self.requests.envelope is not None:
            return
        if self.line.level is not None:
            self._ask_again("logging/setLevel", {"level": self.line.level})
        for uri in tuple(self.line.readers.granted):
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
        if not was_ready and self.opening.on_failure(cause):
            self._open_anew(cause)
            return
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

    def _open_anew(self, cause: Exception) -> None:
        """Make another attempt at once, which is not for a failure."""
        wire, self._wire = self._wire, None
        self.line.move(Phase.CONNECTING, cause, self.line.attempts)
        self._pending_transition = Next(Phase.CONNECTING, NextEvent(Internal()))
        if wire is not None and wire.pid in self._wires:
            self._end(wire, cause)

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
        if self.replies.on_lost(entry, lost):
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

    def _drop(self, entry: PendingRequest) -> None:
        """The request has ended: so have its questions, and its task."""
        self.rounds.drop(entry)
        self.tasks.drop(entry)

    def _internal_request(
        self, method: str, params: Mapping[str, Any] | None, then: OutcomeCallback
    ) -> InternalRequest:
        return InternalRequest(self.line, self.process.node.loop, method, params, then)

    def _ping_later(self) -> None:
        if self.settings.ping_interval is not None:
            self._timer_actions += [Cancel(_PONG), After(self.settings.ping_interval, _PING)]

    def _on_pong(self, _: object, error: BaseException | None) -> None:
        if not isinstance(error, RequestLost):  # an error is an answer too: the server is alive
            self._missed_pings = 0
            self._ping_later()


def _connection_lost(reason: ExitReason) -> ConnectionLost:
    return ConnectionLost(f"the connection's process has ended: {reason}")
