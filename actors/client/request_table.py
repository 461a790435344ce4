"""`RequestTable`: the requests of one connection, by id and by progress token. `wire` is set while requests may be sent."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from greenroom.protocol.errors import BadAnswer, ErrorCode, LocalProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcResponse, encode_notification, encode_request, is_object
from greenroom.protocol.methods import EXTENSION_METHODS, TASKS_EXTENSION, PeerSide, missing_capability
from greenroom.supervision import Backoff, send_after
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, HttpError, TransportError, WireFull
from greenroom.transports.client.interfaces import RelatedRequest

from .client_handler import AskingCall
from .errors import (
    ClientClosed,
    InitFailed,
    InitTimeout,
    NotReady,
    Parked,
    RequestLost,
    Unavailable,
    Unsupported,
    request_lost,
)
from .handshake import DISCOVER
from .interfaces import Phase, Progress
from .outgoing_envelope import mirrored_headers
from .pending_requests import PendingRequest, RequestWithdrawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.errors import PeerError, RemoteProtocolError
    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import ClientWire

    from .connection_line import ConnectionLine
    from .errors import ClientError
    from .outgoing_envelope import OutgoingEnvelope

_SUBSCRIPTIONS: Final = frozenset(("resources/subscribe", "resources/unsubscribe"))
PING: Final = "ping"
COMPLETE: Final = "complete"
"""The `resultType` of a result that is the last one. In the handshake era no result says so."""
RESENDS: Final = 1
"""How often a lost request is sent again."""
HOLDS: Final = 8
"""How often a request is sent again after retry-later errors."""
_TOO_MANY: Final = 429
LONGEST: Final = 60.0
"""The longest pause in seconds before another handshake, also when the server asks for more."""
_PAUSES: Final = Backoff(first=1.0, longest=LONGEST)
"""The pauses after a retry-later error that names no time."""
_SPREAD: Final = 0.25
"""Jitter: the part by which a pause may be longer, so that requests refused together do not return together."""
_OF_A_SESSION: Final = frozenset({"notifications/initialized", "notifications/roots/list_changed"})
"""Notifications that only a session can use: a server of the stateless era asks for the roots when it needs them."""
_SURE: Final = 60.0
"""Seconds for which a server that has answered with a doubtful error is not asked for its era because of such an error again."""
FOLLOWED: Final = 256
"""How many tasks of one connection are followed at once; the oldest is dropped first."""
_ABOUT_A_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests in whose course a server may ask."""
_QUIET: Final = frozenset(
    (
        *("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
        *("tasks/list", "tasks/get", "tasks/cancel"),
    )
)
"""Requests for which a server has no reason to ask. Any other may be the one that a question belongs to."""


class RetryDue(NamedTuple):
    """To the connection: the pause of a request that the server put off is over."""

    request: PendingRequest


class ReadyTimeout(NamedTuple):
    """To the connection: a request has waited for the handshake as long as `patience` allows."""

    request: PendingRequest


class RequestTable:
    """The requests of one connection, by id and by progress token."""

    # Set by the parts of the connection that are made after the table.
    on_interim: Callable[[PendingRequest, JsonRpcResponse], object]
    """Called with a result of the stateless era that is not complete. The request may be settled: its caller has left a moment ago."""
    on_refused: Callable[[PendingRequest, PeerError], bool]
    """Called with an error answer. Returns whether the request goes on."""
    on_subscription: Callable[[PendingRequest], bool]
    """Called with requests of the handshake era about subscriptions, before they would be sent in the other era. Returns whether they are settled elsewhere."""
    on_task_result: Callable[[PendingRequest], object]
    """Called with a `tasks/result` that would be sent in the stateless era, which has no such method."""
    on_abandoned: Callable[[PendingRequest], object]
    """Called with a suspended request that ends, since it can neither be sent nor wait."""

    def __init__(self, line: ConnectionLine) -> None:
        self._line = line
        self.table: dict[RequestId, PendingRequest] = {}
        self.tokens: dict[str | int, PendingRequest] = {}
        self.wire: ClientWire | None = None
        self._followed: dict[str, PendingRequest] = {}
        """Tasks by id whose progress goes to the call that they were made of."""
        self.envelope: OutgoingEnvelope | None = None
        """The envelope of each request, while the connection is of the stateless era."""
        self.sure_until = 0.0
        """Until when an error that another era also has is taken for the server's answer, on the loop's clock."""
        self._given_up_on: Pid | None = None
        """The last wire on which a request was given up that the server may still work on."""
        self.strays = 0
        """Replies that no request waits for: late, duplicate, or with an unknown id."""
        self._needs: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self.table)

    def waiting_on(self, wire: Pid) -> bool:
        """Whether a request is under way on this wire whose reply counts. Pings, listens and what restores a session are for the present wire, and may wait for ever."""
        return any(
            entry.wire == wire and (type(entry) is PendingRequest or entry.deadline is not None)
            for entry in self.table.values()
        )

    def asked_by(self, question: JsonRpcRequest, wire: ClientWire) -> AskingCall | None:
        """The request that a server's own request of the handshake era belongs to, where that is certain.

        Over HTTP its stream says so. Elsewhere it is the only one under way, unless one was given up before: the server may still work on that.
        """
        if "io.modelcontextprotocol/related-task" in question.meta:
            return None  # of a task, whose call may have been answered long ago
        if wire.is_http:
            found = self.table.get(question.during) if isinstance(question, RelatedRequest) else None  # type: ignore[arg-type]
            working = [] if found is None else [found]
        else:
            given_up = wire.pid == self._given_up_on
            working = [] if given_up else [each for each in self.table.values() if each.method not in _QUIET]
        if len(working) != 1 or working[0].wire != wire.pid or working[0].method not in _ASKING:
            return None
        (entry,) = working
        return AskingCall(entry.method, entry.params or {}, entry.id, entry.call)

    # --- outgoing

    def take(self, entry: PendingRequest) -> None:
        """Send the request, hold it, or refuse it."""
        if entry.settled:
            return
        error = self.refusal(entry)
        if error is None and len(self.table) >= self._line.settings.max_pending and not self._has_room(entry):
            full = WireFull(f"{len(self.table)} requests are under way already")
            error = RequestLost(entry.method, full, maybe_done=False)
            self._line.announce_refusal("max_pending", "max_pending", entry.method)
        if error is not None:
            entry.connection = None
            entry.settle(None, error)
        else:
            self.table[entry.id] = entry
            self._proceed(entry)

    def _has_room(self, entry: PendingRequest) -> bool:
        return (
            entry.open_ended
            or sum(not each.open_ended for each in self.table.values()) < self._line.settings.max_pending
        )

    def _proceed(self, entry: PendingRequest) -> None:
        if self.wire is not None:
            self.send(entry)
        else:
            if entry.call is not None:
                entry.call.step("queued", self._line.phase.value)
            self._limit_wait(entry)

    def _limit_wait(self, entry: PendingRequest) -> None:
        """Bound how long a held request waits for the server to be ready."""
        patience, process = self._line.patience, self._line.process
        if patience is None or process is None or type(entry) is not PendingRequest:
            return
        if entry.deadline is None or entry.deadline > process.node.loop.time() + patience:
            send_after(patience, process.pid, ReadyTimeout(entry))

    def on_ready_timeout(self, entry: PendingRequest) -> None:
        """Fail a request that waited too long; a no-op when it was sent meanwhile."""
        line = self._line
        if self.table.get(entry.id) is not entry or entry.wire is not None or self.wire is not None:
            return
        if entry.held < 0 or entry.suspended:
            return
        assert line.patience is not None
        slow = InitTimeout(f"it is still {line.phase.value} after {line.patience:g} s")
        self._end_refused(entry, Unavailable(line.name, line.cause or slow, line.status.retry_in))

    def refusal(self, entry: PendingRequest) -> ClientError | None:
        """The error for a request that can neither be sent nor wait in the present phase; None if it can."""
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
        if (line.gone or too_late) and not entry.follows:
            return Unavailable(line.name, line.cause, line.status.retry_in)
        return None

    def send(self, entry: PendingRequest) -> None:
        """Send the request on the wire, which must be ready."""
        wire, envelope = self.wire, self.envelope
        assert wire is not None
        if entry.doubted is not None and self._was_answered(entry, entry.doubted):
            return
        try:
            if envelope is None:
                self._send_in_session(entry, wire)
            else:
                self._send_enveloped(entry, wire, envelope)
        except (LocalProtocolError, Unsupported) as error:
            self.end(entry, error)
        except WireFull as error:
            self.end(entry, RequestLost(entry.method, error, maybe_done=entry.is_begun))

    def _was_answered(self, entry: PendingRequest, doubted: tuple[Exception, bool]) -> bool:
        """Settle a request with an error that only looked like one of the other era: the server may have acted on the request."""
        error, alone = doubted
        entry.doubted = None
        if alone is not (self.envelope is not None):
            return False
        assert self._line.process is not None
        self.sure_until = self._line.process.node.loop.time() + _SURE
        self.end(entry, error)
        return True

    def _check_declared(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Raise `Unsupported` for a request that the server's capabilities do not allow. `params` are those of a call that asks for a task."""
        if params is not None:
            need = self._need(method, params)
        elif method in self._needs:
            need = self._needs[method]
        else:
            need = self._needs[method] = self._need(method, {})
        if need is not None:
            raise Unsupported(method, need)

    def _take_token(self, entry: PendingRequest) -> None:
        """Register the request for its progress. Raises `LocalProtocolError` if another request has the token."""
        if entry.token is not None and self.tokens.setdefault(entry.token, entry) is not entry:
            raise LocalProtocolError(f"the progress token {entry.token!r} is in use by another request")

    def _send_in_session(self, entry: PendingRequest, wire: ClientWire) -> None:
        if entry.rounds and not entry.idempotent:
            gone = ConnectionLost("the server has sessions now, and knows of no call that it has begun without one")
            self.end(entry, RequestLost(entry.method, gone))
            return
        method, params = entry.method, entry.params
        self._check_declared(method, None if params is None or "task" not in params else params)
        if entry.token is not None:
            self._take_token(entry)
            meta = dict((params or {}).get("_meta") or {})
            params = {**(params or {}), "_meta": {**meta, "progressToken": entry.token}}
        if entry.call is not None:
            params = entry.call.on_sent(params)
        self._line.transmit(wire, encode_request(entry.id, method, params), entry.id)
        entry.wire, entry.envelope = wire.pid, None

    def _send_enveloped(self, entry: PendingRequest, wire: ClientWire, envelope: OutgoingEnvelope) -> None:
        """Send a request that stands alone."""
        line, method, params = self._line, entry.method, entry.params
        if method == PING:
            method = DISCOVER  # it has no ping, and every server answers this
        elif method == "logging/setLevel":
            assert line.welcome is not None
            if "logging" not in line.welcome.capabilities:
                raise Unsupported(method, "logging")
            line.level = (params or {}).get("level")  # each later request names it
            self.pop(entry.id)
            entry.settle({})
            return
        elif method == "tasks/result":
            self.on_task_result(entry)
            return
        elif params is not None and "task" in params:
            params = {name: value for name, value in params.items() if name != "task"}
        self._check_declared(method)
        if method in _SUBSCRIPTIONS and self.on_subscription(entry):
            return
        self._take_token(entry)
        if entry.call is not None:
            params = entry.call.on_sent(params)
        frame = envelope.request(entry.id, method, params, token=entry.token, level=line.wanted_level, more=entry.retry)
        if wire.is_http:
            plan = line.tool_headers.plan_of(params) if method == "tools/call" else None
            line.transmit(wire, frame, entry.id, mirrored=mirrored_headers(method, params, plan))
        else:
            line.transmit(wire, frame, entry.id)
        entry.wire, entry.envelope = wire.pid, envelope

    def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification, except one that the server's era has no use for. Raises `NotReady`, `RequestLost` and `LocalProtocolError`."""
        if self.wire is None:
            raise NotReady(f"{self._line.name} is {self._line.phase.value}")
        if self.envelope is not None:
            if method in _OF_A_SESSION:
                return
            params = {**(params or {}), "_meta": self.envelope.meta((params or {}).get("_meta"))}
        try:
            self._line.transmit(self.wire, encode_notification(method, params or None))
        except WireFull as error:
            raise RequestLost(method, error, maybe_done=False) from None

    def suspend(self, entry: PendingRequest) -> None:
        """Keep a request that was answered, under a new id, until it is resumed."""
        line = self._line
        entry.id = next(line.ids)
        entry.wire = None
        entry.suspended = True
        entry.connection = line.process
        self.table[entry.id] = entry

    def resume(self, entry: PendingRequest) -> None:
        """Send a suspended request again, unless it has ended meanwhile."""
        if self.table.get(entry.id) is entry and entry.suspended:
            entry.suspended = False
            self._again(entry)

    def send_again(self, entry: PendingRequest) -> None:
        """Send a request that was refused before anything was done, under a new id."""
        self.suspend(entry)
        self.resume(entry)

    def _need(self, method: str, params: Mapping[str, Any]) -> str | None:
        welcome = self._line.welcome
        if welcome is None:
            return None
        if welcome.is_stateless and method in EXTENSION_METHODS:
            declared = welcome.capabilities.get("extensions")
            there = is_object(declared) and TASKS_EXTENSION in declared
            return None if there else f"extensions[{TASKS_EXTENSION!r}]"
        return missing_capability(method, params, welcome.capabilities, PeerSide.SERVER, welcome.version)

    def flush(self) -> None:
        """Send all held requests, in the order in which they were made."""
        self._needs.clear()
        waiting = [
            entry
            for entry in self.table.values()
            if entry.wire is None and entry.held >= 0 and not entry.suspended and not entry.settled
        ]
        for entry in sorted(waiting, key=attrgetter("id")):
            self.send(entry)

    # --- incoming

    def on_reply(self, answer: JsonRpcResponse | JsonRpcError, wire: Pid) -> PendingRequest | None:
        """Settle the request of this reply. Returns that request, if it was still open."""
        entry = self._pop_from(wire, answer.id)
        if entry is None:
            self.strays += 1
            return None
        if isinstance(answer, JsonRpcResponse):
            alone = entry.envelope is not None
            if alone and answer.result.get("resultType", COMPLETE) != COMPLETE:
                self.on_interim(entry, answer)
                return entry
            if alone and entry.method == PING:
                answer = JsonRpcResponse(answer.id, {})
        elif not entry.settled and self.on_refused(entry, answer.error):
            return entry
        self._look_for_task(entry, answer)
        if not (
            entry.settle(answer.result) if isinstance(answer, JsonRpcResponse) else entry.settle(None, answer.error)
        ):
            self.strays += 1
            return None
        return entry

    def _look_for_task(self, entry: PendingRequest, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Keep a call's progress token for as long as the task lives that the server made of the call."""
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
        """A task's status changed: stop following it when it has ended."""
        if _has_ended(params):
            self._unfollow(params.get("taskId"))

    def _unfollow(self, task: object) -> None:
        entry = self._followed.pop(task, None) if isinstance(task, str) else None
        if entry is not None:
            if entry.token is not None and self.tokens.get(entry.token) is entry:
                del self.tokens[entry.token]
            entry.task_over()

    def on_broken_reply(self, error: RemoteProtocolError, wire: Pid) -> None:
        """Settle the request of an invalid reply: no other one will come."""
        entry = self._pop_from(wire, error.response_to)
        if entry is not None:
            entry.settle(None, BadAnswer(f"Invalid answer to {entry.method}: {error.message}"))

    def on_progress(self, params: Mapping[str, Any]) -> None:
        """Pass a progress notification to its request."""
        token, done, total = params.get("progressToken"), params.get("progress"), params.get("total")
        entry = self.tokens.get(token) if isinstance(token, str | int) else None
        if entry is None or not _is_number(done):
            return
        text = params.get("message")
        entry.tell(Progress(done, total if _is_number(total) else None, text if isinstance(text, str) else None))

    # --- the end

    def pop(self, id: RequestId) -> PendingRequest | None:
        """Remove the request from the table."""
        entry = self.table.pop(id, None)
        if entry is not None:
            entry.connection = None
            if entry.token is not None and self.tokens.get(entry.token) is entry:
                del self.tokens[entry.token]
        return entry

    def _pop_from(self, wire: Pid, id: RequestId | None) -> PendingRequest | None:
        """The same, if the request was sent on that wire: ids are easily guessed, and a held request was not sent at all."""
        entry = None if id is None else self.table.get(id)
        return self.pop(entry.id) if entry is not None and entry.wire == wire else None

    def end(self, entry: PendingRequest, error: BaseException) -> None:
        """Remove the request, and settle it with this error."""
        self.pop(entry.id)
        entry.settle(None, error)

    def on_withdrawn(self, message: RequestWithdrawn, wires: Mapping[Pid, ClientWire]) -> None:
        """The caller stopped waiting: notify the server, if the request may have reached it."""
        entry = message.request
        if self.table.get(entry.id) is not entry:
            return
        self.pop(entry.id)
        wire = None if entry.wire is None else wires.get(entry.wire)
        if wire is None:
            return
        wire.forget(entry.id)
        if entry.method not in _QUIET:
            self._given_up_on = wire.pid
        if entry.envelope is not None and wire.is_http:
            return  # the end of its stream has told the server
        params = {"requestId": entry.id} | ({"reason": message.reason} if message.reason else {})
        try:
            self._line.transmit(wire, encode_notification("notifications/cancelled", params))
        except WireFull:
            return  # the wire is full: the server will answer in vain

    def lose(self, entry: PendingRequest, cause: TransportError, *, seen: bool) -> None:
        """The request will not be answered on its wire: send it again if that is safe, or fail it."""
        if entry.settled:
            self.pop(entry.id)
        elif isinstance(cause, HttpError) and cause.answer is not None and not entry.open_ended:
            self.end(entry, cause.answer)
        elif type(entry) is not PendingRequest or not cause.is_temporary or (seen and not entry.idempotent):
            self.end(entry, self._lost_error(entry, cause, maybe_done=seen))
        elif isinstance(cause, HttpError) and (cause.status == _TOO_MANY or cause.retry_after is not None):
            self._hold(entry, cause, seen=seen)
        elif entry.resends < RESENDS:
            entry.resends += 1
            self._renew(entry)
            self._again(entry)
        else:
            self.end(entry, self._lost_error(entry, cause, maybe_done=seen))

    def _lost_error(self, entry: PendingRequest, cause: TransportError, *, maybe_done: bool) -> Exception:
        begun = entry.is_begun
        return request_lost(
            entry.method, cause, maybe_done=maybe_done or begun, alone=begun or entry.envelope is not None
        )

    def _end_refused(self, entry: PendingRequest, error: ClientError) -> None:
        """End a request that can neither be sent nor wait. Of one that the server has begun it is not known what became."""
        if entry.suspended:
            self.on_abandoned(entry)
        doubted = None if entry.doubted is None else entry.doubted[0]
        if doubted is not None and getattr(doubted, "code", None) != ErrorCode.UNSUPPORTED_PROTOCOL_VERSION:
            self.end(
                entry, doubted
            )  # it may be the request's own; with the code above, the server has surely not begun
            return
        is_lost = entry.is_begun and not isinstance(error, ClientClosed | RequestLost)
        self.end(entry, RequestLost(entry.method, error) if is_lost else error)

    def _hold(self, entry: PendingRequest, cause: HttpError, *, seen: bool) -> None:
        """The server wants to be asked later: hold the request until then, if that is before its deadline."""
        process = self._line.process
        assert process is not None
        now = process.node.loop.time()
        seconds = cause.retry_after
        pause = _PAUSES.most(entry.held) if seconds is None else seconds
        left = math.inf if entry.deadline is None else entry.deadline - now
        if entry.held >= HOLDS or pause >= left or (left == math.inf and pause > LONGEST):
            self.end(entry, self._lost_error(entry, cause, maybe_done=seen))
            return
        more = min(pause * _SPREAD, (left - pause) / 2)
        entry.held = -entry.held - 1
        entry.wire = None
        send_after(pause + more * process.node.random.random(), process.pid, RetryDue(entry))

    def on_retry_due(self, entry: PendingRequest) -> None:
        """The pause that the server asked for is over: send the request again."""
        if self.table.get(entry.id) is not entry:
            return
        entry.held = -entry.held
        self._renew(entry)
        self._again(entry)

    def _renew(self, entry: PendingRequest) -> None:
        """Prepare to send the request again. One that stands alone gets a new id."""
        entry.wire = None
        if self.envelope is not None and self.table.get(entry.id) is entry:
            connection = entry.connection
            self.pop(entry.id)
            entry.id, entry.connection = next(self._line.ids), connection
            self.table[entry.id] = entry

    def _again(self, entry: PendingRequest) -> None:
        """Send a request of the table again, hold it, or fail it. One whose caller has left is dropped."""
        if entry.settled:
            self.pop(entry.id)
            return
        error = self.refusal(entry)
        if error is not None:
            self._end_refused(entry, error)
        else:
            self._proceed(entry)

    def lose_all(self, wire: Pid, cause: TransportError) -> None:
        """Lose every request of a wire that has ended."""
        seen = not isinstance(cause, ConnectFailed)
        for entry in [entry for entry in self.table.values() if entry.wire == wire]:
            self.lose(entry, cause, seen=seen)

    def refuse(self) -> None:
        """After a change of phase: fail the held requests that may not wait in it."""
        for entry in [entry for entry in self.table.values() if entry.wire is None]:
            error = self.refusal(entry)
            if error is not None:
                self._end_refused(entry, error)

    def end_all(self, why: Callable[[PendingRequest], BaseException]) -> None:
        """Fail every request: the connection has ended."""
        for entry in tuple(self.table.values()):
            self.end(entry, why(entry))
        for task in tuple(self._followed):
            self._unfollow(task)


def parked(line: ConnectionLine) -> ClientError:
    """The error for requests to a parked connection."""
    return line.cause if isinstance(line.cause, InitFailed) else Parked(line.name, line.cause)


def _has_ended(task: Mapping[str, Any]) -> bool:
    status = task.get("status")  # as the server sent it: any JSON value
    return isinstance(status, str) and status in _ENDED


def _is_number(value: object) -> TypeGuard[float]:
    """Whether this is a number. A bool is not: Python and the receivers of the number would take it for 1."""
    return isinstance(value, int | float) and not isinstance(value, bool)
