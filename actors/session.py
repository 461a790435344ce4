"""A session's process: one peer's agreed revision and capabilities, its calls in flight, its questions and its tasks.

Transports call it (`request`, `notify`, `respond`, `listen`, `end`); workers, task processes and timers send it messages. It never runs user code and never
waits: each request becomes a call in a worker, and each call gets one reply (`session_calls`). When the session dies, its workers are ended, its streams are
closed, and waiting callers get `ProcessExited`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.protocol import methods
from greenroom.protocol.dialect import ASSUMED_DIALECT, dialect_of
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, not_executed
from greenroom.protocol.jsonrpc import encode, encode_error, encode_notification, encode_result
from greenroom.protocol.methods import PeerSide, SessionEvent, SessionState, read_initialize
from greenroom.protocol.wire_shapes import LOG_LEVELS
from greenroom.supervision import (
    Down,
    Exit,
    GenServer,
    NoReply,
    Reject,
    Shutdown,
    Stop,
    demonitor,
    later,
    monitor,
    send_after,
    stopping,
)
from greenroom.supervision.event_bus import bus
from greenroom.transports.access_log import is_on, log_refusal
from greenroom.transports.interfaces import short_id

from .catalogue import MissingScopes, reached_entries
from .extensions import admitted_method
from .mounted_entries import callable_tool
from .peer_channels import (
    AskPeer,
    CallChannel,
    InterruptStream,
    PeerNotification,
    QuestionAbandoned,
    QuestionTimedOut,
    SessionQuestions,
    TaskQuestionsWithdrawn,
)
from .server_description import initialize_result, is_disabled
from .session_calls import CHECK_DEADLINES, CallWorkerLost, SessionCalls
from .subscriptions import ChangeAnnouncement, Subscriptions
from .task_record import ForwardedToTask, TaskDecided
from .tasks import TaskCalls
from .url_elicitations import ElicitationDone, ExpectElicitations
from .worker import answer_inline, handler_timeout
from .worker_interfaces import (
    HookDone,
    HookReturned,
    Job,
    JobError,
    JobReply,
    SessionFacts,
    request_observer,
    run_hook,
    run_job,
    run_notified_hook,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.dialect import Dialect
    from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
    from greenroom.protocol.methods import InitializeRequest
    from greenroom.supervision import Caller, ExitReason, Monitor, Ref, Timer
    from greenroom.transports.interfaces import Feed, Peer, SessionReply

    from .call_events import ObservedCall, ObservedSession
    from .company import Company
    from .process_names import SessionInfo
    from .reply_sinks import ReplySink
    from .session_calls import SessionCall

_DEFERRED: Any = object()
_MAX_INTRODUCTION_BYTES: Final = 64 * 1024
"""How many bytes `clientInfo` and `capabilities` may take together."""
REPLY_LATER: Final = object()
"""The reply comes later, and the channel takes no further request until then."""
JOIN_SUBSCRIPTIONS: Final = object()
_REJOIN_SECONDS: Final = 0.05
"""How many seconds to wait before looking again for the subscriptions' process."""
ENDED = Shutdown("the peer has ended the session")
IDLE = Shutdown("the session was idle for too long")
EXPIRED = Shutdown("the session has reached its lifetime")
REFUSED = Shutdown("the session could not be initialized")
_CHECK_IDLE, _LIFETIME_OVER, _DROP_STREAMS = object(), object(), object()
_CLAIM_SECONDS = 10.0
"""How long a session waits until its opener has taken it."""
FORBIDDEN = 403
FINISHED_STREAM_SECONDS = 30.0
"""How long the stream of a finished call is kept at least, and at most twice as long, for a reader that lost its end."""
_SUBSCRIPTION_METHODS = frozenset({"resources/subscribe", "resources/unsubscribe"})
_TASK_METHODS = frozenset({"tasks/get", "tasks/list", "tasks/result", "tasks/cancel"})


class TooManyRequests(McpError):
    """The peer has as many requests in flight as `max_in_flight` allows."""


class SessionProcess(GenServer):
    """The process of one session."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, company: Company, info: SessionInfo, reply_sink: ReplySink, *, gated: bool = True) -> None:
        """`reply_sink` takes all outgoing messages. With `gated`, the peer has to send `initialize` first."""
        self.company = company
        self.info = info
        self.reply_sink = reply_sink
        self.gated = gated and company.settings.gate
        self.calls = SessionCalls(self)
        self.questions = SessionQuestions(self)
        self.tasks = TaskCalls(self)
        self.level = LOG_LEVELS.index(company.settings.log_level)
        self.state: Any = None
        """The result of the server's `init` hook for this session."""
        self._facts: SessionFacts | None = None
        self._subscriptions_monitor: Monitor | None = None
        self._roots_hook_since: float | None = None  # when the running hook was started
        self._next_roots_params: Mapping[str, Any] | None = None
        self.own_ref: Ref[SessionProcess]
        self.last_used = 0.0
        self._stop_reason: Shutdown | None = None
        self._dropping_streams = False
        self._stream_after: float | None = None
        """The `quiet` of the request that is being handled."""
        self.observed: ObservedCall | None = None
        """The call of the request that is being handled; None while nothing hears of calls."""
        self._observed_session: ObservedSession | None = None
        self._shown_id = ""
        self._timers: dict[object, Timer] = {}

    def init(self) -> None:
        """Start the timers."""
        self.own_ref = self.ref()
        process = self.process
        # `on_exit` runs for every end, a kill included, where `terminate` would not: callers must never wait for the dead.
        process.add_exit_waiter(self)
        settings = self.company.settings
        self.last_used = self.now()
        self._set_timer(min(_CLAIM_SECONDS, max(1.0, settings.session_idle or _CLAIM_SECONDS)), _CHECK_IDLE)
        if settings.session_lifetime is not None:
            self._set_timer(settings.session_lifetime, _LIFETIME_OVER)

    def on_exit(self, reason: ExitReason) -> None:
        """Runs however the process ended: release everything that waits for it."""
        for timer in self._timers.values():
            timer.cancel()  # a pending timer would keep the ended session in memory
        if self.observed is not None:
            self.observed.end("peer_gone")  # unless it has ended, or is in the table: this process died in its middle
        self.calls.on_session_end("the session has ended", reason)
        if self._observed_session is not None:
            self._observed_session.end(reason)
        self.questions.on_session_end()
        self.tasks.on_session_end()
        if self.info.channel is not None:  # streams know which replies they owe, a channel does not
            for call in self.calls.table:
                self.reply_sink.reply(call, _session_ended_error(call.id))
        self.reply_sink.end(_session_ended_error)

    def report_state(self) -> str:
        """The state in a crash report, without anything that the peer sent."""
        return f"session {short_id(self.info.id)}, {len(self.calls.table)} calls in flight, {len(self.questions.table)} questions open"

    # --- called by transports

    def request(self, request: JsonRpcRequest, peer: Peer | None = None, quiet: float | None = None) -> SessionReply:
        """Reply to a request at once, or start a call. `peer` is the current caller, whose scopes may differ from those at the session's start.

        After `quiet` seconds without a message, the reply is a stream.
        """
        self.last_used = self.now()
        self._stream_after = quiet
        self._set_peer(peer)
        observed = self.observed = (
            self._observe(request)
            if bus.listener is not None or is_on()
            else None  # not a function: every call is here
        )
        try:
            body = self._answer_request(request)
        except MissingScopes as error:
            if observed is not None:
                observed.end("refused", error, detail=f"{FORBIDDEN}, needs {' '.join(error.scopes)}")
            return self.reply_sink.reply_now(request.id, encode_error(request.id, error), FORBIDDEN, error.scopes)
        except TooManyRequests as error:
            if observed is not None:
                observed.end("refused", error, is_logged=False)
            log_refusal(
                error.message,
                peer=self.facts.peer,
                setting="max_in_flight",
                method=request.method,
                program=self.company.program,
            )
            return self.reply_sink.reply_now(request.id, encode_error(request.id, error))
        except McpError as error:
            if observed is not None:
                observed.end("error", error)
            body = encode_error(request.id, error)
        except LocalProtocolError:  # a registration or setting that cannot be encoded fails one reply, not the session
            failure = McpError(ErrorCode.INTERNAL_ERROR, "Internal server error")
            if observed is not None:
                observed.end("error", failure)
            body = encode_error(request.id, failure)
        if body is _DEFERRED:
            return self.reply_sink.reply_later()  # type: ignore[no-any-return]
        if body is REPLY_LATER:
            return later()  # type: ignore[no-any-return]
        if observed is not None and body is None:
            observed.end("cancelled")
        elif observed is not None:
            observed.revision = self.info.version or ""  # `initialize` has agreed on one
            observed.reached("inline")
            observed.end("result")
        return self.reply_sink.reply_now(request.id, body)

    def _observe(self, request: JsonRpcRequest) -> ObservedCall:
        info, node = self.info, self.process.node
        if not self._shown_id and info.visible_to_peer:
            self._shown_id = short_id(info.id)
        peer, version = self.facts.peer, info.version or ""
        return request_observer()(node, self.company, "session", request, peer, version, self.last_used, self._shown_id)

    def notify(self, notification: JsonRpcNotification) -> None:
        """Handle a notification. Unknown ones are ignored."""
        self.last_used = self.now()
        name = methods.ALIASES.get(notification.method, notification.method)
        params = notification.params
        rule = methods.next_transition(self.info.state, notification, gate=self.gated)
        if not rule.is_accepted:
            return
        if name == "notifications/initialized":
            self._on_initialized()
        elif name == "notifications/cancelled":
            id, reason = params.get("requestId"), params.get("reason")
            if type(id) is str or type(id) is int:
                self.calls.cancel(id, reason if isinstance(reason, str) else "", self.last_used)
        elif name == "notifications/roots/list_changed":
            self._on_roots_changed(params)

    def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Take the peer's reply to one of our questions."""
        self.last_used = self.now()
        self.questions.on_reply(answer)

    def listen(self, last_event_id: str | None = None) -> Feed:
        """Open a reader for the general stream, or for the stream that the event was on."""
        self.last_used = self.now()
        return self.reply_sink.listen(last_event_id, self.dialect)

    def end(self) -> None:
        """End the session, as the peer asks."""
        return stopping(None, ENDED)

    def close(self, reason: Shutdown) -> None:
        """End the session, as the company asks."""
        return stopping(None, reason)

    # --- called by the company

    def snapshot(self) -> dict[str, Any]:
        """The session's state, for inspection."""
        return {
            "id": self.info.id,
            "version": self.info.version,
            "ready": self.info.ready,
            "client": dict(self.info.client_info),
            "capabilities": dict(self.info.client_capabilities),
            "level": LOG_LEVELS[self.level],
            "calls": [call.id for call in self.calls.table],
            "questions": [question.id for question in self.questions.table],
            "idle": self.now() - self.last_used,
        }

    def set_level(self, level: str) -> None:
        """Set the lowest level of log messages that the peer gets."""
        if level not in LOG_LEVELS:
            raise Reject(ValueError(f"a level is one of {', '.join(LOG_LEVELS)}, not {level!r}"))
        self.level = LOG_LEVELS.index(level)

    def abort_call(self, call: SessionCall, why: str) -> None:
        """End a call for an operator."""
        self.calls.abort(call, why)

    def notify_peer(self, body: bytes, level: str | None = None) -> bool:
        """Send a notification that belongs to no call. Whether it was accepted."""
        return self._send_notification(PeerNotification(None, body, level))

    # --- requests

    def _answer_request(self, request: JsonRpcRequest) -> Any:
        """The encoded reply, or None if the request was cancelled before it arrived.

        If the reply comes later, `_DEFERRED` or `REPLY_LATER`.
        """
        table = self.calls.table
        if table.has(request.id):
            raise McpError(
                ErrorCode.INVALID_REQUEST,
                f"The id {request.id!r} is in use by a request in flight: choose another",
            )
        if table.is_cancelled_early(request.id, self.last_used):
            return None
        name = request.method
        rule = methods.next_transition(self.info.state, request, gate=self.gated)
        if not rule.is_accepted:
            raise rule.error()
        method = methods.find_method(name, None if name == "initialize" else self.version, PeerSide.SERVER)
        if method is None:
            extended = admitted_method(self.company.catalogue_ref.current, name, request.params, self.facts)
            if extended is not None:
                return self._start_job(request, extended.handler.timeout)
        if (
            method is None
            or method.kind is not methods.MethodKind.REQUEST
            or is_disabled(self.company.settings, method)
        ):
            raise methods.method_not_found(name)
        params = methods.check_params(method, request.params)
        if name == "ping":
            return encode_result(request.id, {})
        if name == "initialize":
            return self._initialize(request)
        found = reached_entries(name, request.params, self.company.catalogue_ref.current, self.facts.peer)
        if name == "logging/setLevel":
            return self._set_level_requested(request, params.level) or _DEFERRED
        if name in _SUBSCRIPTION_METHODS and name not in self.company.method_handlers:
            self._subscribe(request)
            return _DEFERRED
        if name in _TASK_METHODS and name not in self.company.method_handlers:
            return self.tasks.take(request) or _DEFERRED
        if name == "tools/call":
            tool = callable_tool(self.company, request, found)
            if tool is not None and self.tasks.begin(request, tool):
                return _DEFERRED
        return answer_inline(request, self.facts, self.company) or self._start_job(
            request, handler_timeout(name, found)
        )

    def begin(
        self, request: JsonRpcRequest, timeout: float | None, *, fixed_deadline: bool = True, waits: bool = False
    ) -> SessionCall:
        """Add a call. On a channel no caller waits for the reply, unless the next message must wait for it (`waits`)."""
        settings = self.company.settings
        if len(self.calls.table) >= settings.max_in_flight:
            why = f"Too many requests at once: at most {settings.max_in_flight} may be in flight"
            raise TooManyRequests(ErrorCode.INTERNAL_ERROR, why, not_executed("too_many_requests"))
        caller = self.caller if waits or self.info.channel is None else None
        return self.calls.begin(request, caller, timeout, fixed_deadline=fixed_deadline, quiet=self._stream_after)

    def open_stream(self, call: SessionCall) -> None:
        """Give a call its stream, if it has none."""
        self.reply_sink.open_stream(call, self.dialect)

    def _start_job(self, request: JsonRpcRequest, own: float | None) -> Any:
        """Start a worker for the request. `own` is the handler's own timeout, if it has one."""
        company = self.company
        call = self.begin(
            request, company.settings.call_timeout if own is None else own, fixed_deadline=own is not None
        )
        peer_channel = call.peer_channel = CallChannel(
            self.own_ref, call.key, call.cancelled, mute=self.reply_sink.mute
        )
        job = Job(
            call.key,
            self.own_ref,
            request.id,
            request.method,
            request.params,
            self.facts,
            peer_channel,
            call.cancelled,
            company,
            catalogue=company.catalogue_ref.current,
            observed=call.observed,
        )
        if call.observed is not None:
            peer_channel.observed = call.observed
            call.observed.wait()
        self.calls.start(call, run_job, company.work, job)
        return _DEFERRED

    # --- the handshake: the revision, the client's identity and capabilities, its log level, and the server's state
    # for the session.
    # Where the server has a hook for one of them, a worker runs it (`run_hook`), and the value takes effect when the
    # hook has returned.

    @property
    def version(self) -> str:
        """The agreed revision, or the default one before the handshake."""
        return self.info.version or ASSUMED_DIALECT.version

    @property
    def dialect(self) -> Dialect:
        """The rules of that revision."""
        return dialect_of(self.version)

    @property
    def facts(self) -> SessionFacts:
        """The facts about this session that handlers may read."""
        if self._facts is None:
            info = self.info
            id = info.id if info.visible_to_peer else ""
            self._facts = SessionFacts(
                id, self.version, info.peer, info.client_info, info.client_capabilities, self.state
            )
        return self._facts

    def _set_peer(self, peer: Peer | None) -> None:
        """Note the peer of this request, which may have been granted more or less than at the session's start."""
        if peer is not None and peer.auth is not self.facts.peer.auth:
            self._facts = replace(self.facts, peer=peer)

    def _initialize(self, request: JsonRpcRequest) -> Any:
        """The reply to `initialize`, or a wait for the `init` hook. Further messages on a channel wait as well."""
        hello = check_introduction(request.params)
        hook = self.company.hooks.init
        if hook is None:
            return self._finish_initialize(request.id, hello, None)
        call = self.begin(request, self.company.settings.call_timeout, waits=True)
        call.hook_argument = hello
        info = self.info
        self._run_hook(
            call, hook, SessionFacts(info.id, hello.version, info.peer, hello.client_info, hello.capabilities)
        )
        return REPLY_LATER

    def _on_initialized(self) -> None:
        """Handle `notifications/initialized`."""
        if self.info.version is not None and self.info.state is not SessionState.READY:
            self.info.state = SessionState.READY
            self._join_subscriptions()

    def _on_roots_changed(self, params: Mapping[str, Any]) -> None:
        """Run the `roots_changed` hook, one at a time. Changes that arrive while it runs become one more run afterwards."""
        hook = self.company.hooks.roots_changed
        if hook is None or self.info.version is None:
            return
        now, patience = self.now(), self.company.settings.call_timeout
        if self._roots_hook_since is not None and (patience is None or now < self._roots_hook_since + patience):
            self._next_roots_params = params
        elif self.calls.run(run_notified_hook, self.own_ref, self.company.threads, hook, params, self.facts):
            self._roots_hook_since = now

    def _on_roots_hook_done(self) -> None:
        """The hook has ended: run it again if the roots changed meanwhile."""
        self._roots_hook_since = None
        again, self._next_roots_params = self._next_roots_params, None
        if again is not None:
            self._on_roots_changed(again)

    def _join_subscriptions(self) -> None:
        """Register with the subscriptions' process for changes, and again with its successor."""
        if self._subscriptions_monitor is not None:
            demonitor(self._subscriptions_monitor)
            self._subscriptions_monitor = None
        if self.company.subscriptions.cast(Subscriptions.join, self.pid):
            self._subscriptions_monitor = monitor(self.company.subscriptions)
        else:
            send_after(_REJOIN_SECONDS, self.own_ref, JOIN_SUBSCRIPTIONS)

    def _is_subscriptions_monitor(self, ref: Monitor) -> bool:
        """Whether this is the monitor on the subscriptions' process."""
        return ref is self._subscriptions_monitor

    def _set_level_requested(self, request: JsonRpcRequest, level: str) -> bytes | None:
        """Reply to `logging/setLevel`; None when the server's hook decides first."""
        hook = self.company.hooks.level
        if hook is None:
            self.level = LOG_LEVELS.index(level)
            return encode_result(request.id, {})
        call = self.begin(request, self.company.settings.call_timeout)
        call.hook_argument = level
        self._run_hook(call, hook, level, self.facts)
        return None

    def _subscribe(self, request: JsonRpcRequest) -> None:
        """Have a worker add or remove a subscription: the session does not wait for the subscriptions' process."""
        call = self.begin(request, self.company.settings.call_timeout)
        method = Subscriptions.subscribe if request.method == "resources/subscribe" else Subscriptions.unsubscribe
        self._run_hook(call, self.company.subscriptions.call, method, self.pid, request.params["uri"])

    def _apply_hook_result(self, call: SessionCall, value: Any) -> bytes:
        """The hook returned: what it decided takes effect, and this is the reply."""
        if call.method == "initialize":
            return self._finish_initialize(call.id, call.hook_argument, value)
        if call.method == "logging/setLevel":
            self.level = LOG_LEVELS.index(call.hook_argument)
        return encode_result(call.id, {})

    def _finish_initialize(self, id: str | int, hello: InitializeRequest, state: Any) -> bytes:
        info = self.info
        company = self.company
        answer = encode_result(id, initialize_result(company.settings, company.catalogue_ref.current, hello.version))
        if info.version is not None:
            company.subscriptions.cast(
                Subscriptions.leave, self.pid
            )  # a second `initialize`: the subscriptions of the first one end
        info.version = hello.version
        info.client_info = hello.client_info
        info.client_capabilities = hello.capabilities
        info.state = methods.next_transition(SessionState.NEW, SessionEvent.INITIALIZE).state
        self.state = state
        self._facts = None
        if bus.listener is not None and self._observed_session is None and info.visible_to_peer:
            from .call_events import ObservedSession  # noqa: PLC0415 - only a program with a listener loads the events

            version = "" if self.observed is None else self.observed.started.http_version
            self._observed_session = ObservedSession(self.process.node, company.program, info, version)
        return answer

    def _run_hook(self, call: SessionCall, hook: Callable[..., Any], *args: Any) -> None:
        self.calls.start(call, run_hook, self.own_ref, call.key, self.company.threads, hook, *args)

    # --- messages of workers and timers

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """Take a question for the peer; the peer's reply answers the caller."""
        if not isinstance(request, AskPeer):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        self.questions.ask(request, caller)
        return NoReply()

    def handle_info(self, message: Any) -> Stop | None:  # noqa: C901, PLR0912 - one line for each message there is
        """Handle every message that is not a transport's request."""
        calls = self.calls
        match message:
            case JobReply(key=key, body=body, outcome=outcome):
                calls.finish(key, body, outcome)
            case Exit():
                pass  # of a hook's worker, which has sent its result
            case CallWorkerLost(call=call, reason=reason):
                calls.on_worker_lost(call, reason)
            case PeerNotification():
                self._send_notification(message)
            case JobError(key=key, error=error, outcome=outcome):
                calls.fail(key, error, outcome)
            case ChangeAnnouncement(method=method, params=params):
                self._announce_change(method, params)
            case HookReturned(key=key, value=value):
                returned = calls.table.get(key)
                if returned is not None:
                    calls.finish(key, self._apply_hook_result(returned, value))
            case HookDone():
                self._on_roots_hook_done()
            case (
                QuestionTimedOut()
                | QuestionAbandoned()
                | TaskQuestionsWithdrawn()
                | ExpectElicitations()
                | ElicitationDone()
            ):
                self.questions.on_event(message)
            case InterruptStream(key=key, retry=retry):
                interrupted = calls.table.get(key)
                if interrupted is not None:
                    self.reply_sink.interrupt(interrupted, retry, self.dialect)
            case Down(ref=ref):
                if calls.is_supervisor_monitor(ref):
                    calls.on_supervisor_down()
                elif self._is_subscriptions_monitor(ref):
                    self._join_subscriptions()
                else:
                    self.tasks.on_process_down(ref)
            case TaskDecided():
                self.tasks.on_decided(message)
            case ForwardedToTask():
                self.tasks.on_forwarded(message)
            case _ if message is CHECK_DEADLINES:
                calls.check_deadlines()
            case _ if message is JOIN_SUBSCRIPTIONS:
                self._join_subscriptions()
            case _ if message is _CHECK_IDLE:
                self._check_idle()
            case _ if message is _DROP_STREAMS:
                self._dropping_streams = self.reply_sink.drop_finished()
                if self._dropping_streams:
                    self._set_timer(FINISHED_STREAM_SECONDS, _DROP_STREAMS)
            case _ if message is _LIFETIME_OVER:
                self._stop_reason = EXPIRED
            case _:
                super().handle_info(message)
        return None if self._stop_reason is None else Stop(self._stop_reason)

    def _send_notification(self, notification: PeerNotification) -> bool:
        call, peer_channel = None, notification.peer_channel
        if peer_channel is not None:
            peer_channel.queued -= 1
        if notification.key is not None:
            call = self.calls.table.get(notification.key)
            if call is None and peer_channel is None:
                return False  # the call has its reply, and no stream any more
            if call is not None and call.peer_channel is not None:
                call.peer_channel.queued -= 1
        if notification.level is not None and LOG_LEVELS.index(notification.level) < self.level:
            return False
        return self.reply_sink.notify(call, notification.body, self.dialect)

    def _announce_change(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            body = encode_notification(method, params)
        except LocalProtocolError as error:
            self.report_unexpected("announcement", f"{method}: {error}")
        else:
            self.reply_sink.notify(None, body, self.dialect)

    def on_stream_end(self) -> None:
        """A call's stream has ended: schedule its removal."""
        if not self._dropping_streams:
            self._dropping_streams = True
            self._set_timer(FINISHED_STREAM_SECONDS, _DROP_STREAMS)

    def _check_idle(self) -> None:
        """End the session if it has been idle too long. Calls in flight and open streams count as activity."""
        if not self.info.claimed:
            self._stop_reason = REFUSED
            return
        idle = self.company.settings.session_idle
        if idle is None or self.info.channel is not None:
            return
        now = self.now()
        if self.calls.table.is_busy or self.reply_sink.has_reader:
            self.last_used = now
        left = self.last_used + idle - now
        if left <= 0:
            self._stop_reason = IDLE
        else:
            self._set_timer(left, _CHECK_IDLE)

    def _set_timer(self, seconds: float, message: object) -> None:
        self._timers[message] = send_after(seconds, self.own_ref, message)

    def now(self) -> float:
        """The loop's clock."""
        return self.process.node.now()


def _session_ended_error(id: str | int) -> bytes:
    return encode_error(id, McpError(ErrorCode.INTERNAL_ERROR, "The session ended before this was answered"))


def check_introduction(params: dict[str, Any]) -> InitializeRequest:
    """Read the params of `initialize`.

    Raises `McpError` when they say too little, or more than may be kept as long as the session lives.
    """
    hello = read_initialize(params)
    if len(encode([hello.client_info, hello.capabilities])) > _MAX_INTRODUCTION_BYTES:
        raise McpError(
            ErrorCode.INVALID_PARAMS,
            f"clientInfo and capabilities may be {_MAX_INTRODUCTION_BYTES} bytes together, not more",
        )
    return hello
