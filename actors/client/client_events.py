"""The events of a client's connection: its calls, its sessions, the questions of its server, and the frames of its wires.

Imported when the first of them has a listener, so that a program without listeners does not load the events.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.process_names import short_task_id
from greenroom.auth.errors import SignInError
from greenroom.event_types import (
    LISTEN,
    CallEnded,
    CallStarted,
    CallStep,
    FramePassed,
    QuestionAsked,
    QuestionEnded,
    RequestRefused,
    SessionClosed,
    SessionOpened,
)
from greenroom.protocol.errors import BadAnswer, LocalProtocolError, McpError, PeerError, RequestCancelled
from greenroom.protocol.input_required import QUESTION_METHODS
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    is_object,
)
from greenroom.protocol.methods import EXTENSION_METHODS, METHODS
from greenroom.supervision.event_bus import bus, next_call, next_question, trace_context
from greenroom.transports.client.errors import HttpError, NodeEnded, ProcessDied, WireFull
from greenroom.transports.client.interfaces import InvalidMessage

from .errors import ClientClosed, ClientError, InitTimeout, InputRefused, RequestLost, RequestTimeout, TaskLost

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from greenroom.event_types import CallWay, Outcome
    from greenroom.transports.client.interfaces import InboundItem

    from .connection_line import ConnectionLine

_LISTS: Final = {"tools/list": ("tools", "tools/call"), "prompts/list": ("prompts", "prompts/get")}
"""Where the lists have their entries, and by which method those are called."""
_NAMED: Final = frozenset(method for _, method in _LISTS.values())
"""Methods whose requests have the name of something that the server announces."""
_OF_A_TOOL: Final = frozenset({"tools/call", "tasks/result"})
_TRACE_STATE: Final = "tracestate"
_LONGEST_NAME: Final = 2048
"""Characters of a name or URI in an event,"""
_LONGEST_TEXT: Final = 500
"""and of another text."""
_LARGEST_CODE: Final = 2**53 - 1
"""A server may send larger integers, which not every reader of events can take."""
_sessions: Final = count(1)


# --- calls


class ClientCall:
    """The events of one request to a server. It is made once for each request, however often that is sent, and ends once."""

    __slots__ = (
        "_began",
        "_host",
        "_is_over",
        "_line",
        "_loop",
        "_method",
        "_name",
        "_program",
        "_sent_at",
        "_task",
        "_way",
        "carried",
        "number",
    )

    def __init__(  # noqa: PLR0913 - what a call has
        self,
        program: str,
        line: ConnectionLine | None,
        loop: AbstractEventLoop,
        method: str,
        params: Mapping[str, Any] | None,
        id: int = 0,
        *,
        host: str = "",
    ) -> None:
        """Announce it, in the caller's context. `program` is the server's name, and `line` leads to it, if that is known; `id` is the request's, if it has one.

        `host` is the name of the host or the gateway that makes it, where the line does not tell.
        """
        self.number = next_call()
        self._program = program
        self._way: CallWay = "upstream" if line is None else line.way
        self._host = host if line is None else line.host
        self._line = line
        self._loop = loop
        self._method = method
        # The query of a URI may be a secret.
        self._name = (_text(params, "name") or _text(params, "uri").partition("#")[0])[:_LONGEST_NAME].partition("?")[0]
        task = _text(params, "taskId")
        self._task = short_task_id(task) if task else ""
        self._began = loop.time()
        self._sent_at: float | None = None
        self._is_over = False
        self.carried: Mapping[str, str] = {}
        """The trace context that the request takes along."""
        revision, transport, http_version, address = _server(line)
        if bus.listener is not None:
            bus.listener(
                CallStarted(
                    self.number,
                    "client",
                    program,
                    self._way,
                    method,
                    self._name,
                    str(id) if id else "",
                    "" if line is None or line.session is None else line.session.id,
                    revision,
                    transport,
                    address,
                    "",
                    "anonymous",
                    http_version,
                    self._task,
                    0,
                    None,
                    None,
                    self._host,
                )
            )
        if bus.tracer is not None:
            self.carried = bus.tracer.carrier(self.number)

    def on_sent(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Note that the request is sent. Returns its params with the trace context."""
        if bus.detail_listener is not None:
            self.step("sent", "" if self._sent_at is None else "again")
        if self._sent_at is None:
            self._sent_at = self._loop.time()
        return with_trace_context(params, self.carried) if self.carried else params

    def step(self, step: Literal["queued", "sent", "progress", "question", "answer"], text: str = "") -> None:
        """Emit a step of its timeline, if there is a listener for details."""
        if not self._is_over and bus.detail_listener is not None:
            bus.detail_listener(CallStep(call=self.number, step=step, text=text[:_LONGEST_TEXT]))

    def end(self, result: Mapping[str, Any] | None, error: BaseException | None = None) -> None:
        """Announce the outcome. A no-op when that was done before."""
        if self._is_over:
            return
        self._is_over = True
        listener = bus.listener
        if listener is None:
            return
        was_sent = self._sent_at is not None
        outcome, code = outcome_of(self._method, result, error, was_sent=was_sent)
        revision, transport, http_version, address = _server(self._line)
        now = self._loop.time()
        listener(
            CallEnded(
                self.number,
                "client",
                self._program,
                self._way,
                self._method,
                outcome,
                now - self._began,
                self._name,
                self._is_known(result if outcome == "result" else None),
                self._method in METHODS or self._method in EXTENSION_METHODS,
                code,
                error.message[:_LONGEST_TEXT] if code is not None and isinstance(error, McpError) else "",
                "" if code is not None else reason_text(error),
                (now if self._sent_at is None else self._sent_at) - self._began,
                "",
                revision,
                transport,
                http_version,
                address,
                "",
                "anonymous",
                self._task,
                self._host,
            )
        )

    def _is_known(self, result: Mapping[str, Any] | None) -> bool:
        """Whether the name is one of the server's, which the result may show."""
        names = None if self._line is None else self._line.known_names
        if names is not None and result is not None:
            if self._method in _LISTS:
                part, method = _LISTS[self._method]
                names.learn(method, result.get(part))
            elif self._method in _NAMED:
                names.add(self._method, self._name)
        return not self._name or (names is not None and (self._method, self._name) in names)


def _server(line: ConnectionLine | None) -> tuple[str, str, str, str]:
    """What is known of the server by now: its revision, transport, version of HTTP and address."""
    if line is None:
        return "", "", "", ""
    welcome = line.welcome
    return "" if welcome is None else welcome.version, line.transport, line.http_version, line.address


def outcome_of(
    method: str, result: Mapping[str, Any] | None, error: BaseException | None, *, was_sent: bool
) -> tuple[Outcome, int | None]:
    """How a request ended, and the code of a JSON-RPC error. `was_sent` tells whether it ever left this program."""
    outcome: Outcome
    match error:
        case None:
            is_tool_error = method in _OF_A_TOOL and result is not None and result.get("isError") is True
            outcome = "tool_error" if is_tool_error else "result"
        case BadAnswer():  # its code is of this program's making
            outcome = "error"
        case PeerError():
            return "error", int(error.code) if abs(error.code) <= _LARGEST_CODE else None
        case RequestTimeout() | InitTimeout():
            outcome = "deadline"
        case RequestCancelled() | TaskLost(status="cancelled"):
            outcome = "cancelled"
        case RequestLost(cause=ProcessDied() | NodeEnded()):
            outcome = "process_ended"
        case RequestLost(cause=WireFull()) | RequestLost(cause=HttpError(), maybe_done=False):
            outcome = "refused"
        case RequestLost():
            outcome = "peer_gone"
        case ClientClosed() if was_sent:
            outcome = "cancelled" if method == LISTEN else "peer_gone"
        case InputRefused() | TaskLost():
            outcome = "error"
        case ClientError() | LocalProtocolError() | SignInError():
            outcome = "refused"
        case _:
            outcome = "error"
    return outcome, None


def with_trace_context(params: Mapping[str, Any] | None, carried: Mapping[str, str]) -> Mapping[str, Any]:
    """These params with the trace context in their `_meta`. The caller's own keys stay as they are."""
    given: Any = {} if params is None else params.get("_meta", {})
    if not is_object(given):
        return params or {}
    # A state belongs to its parent: to the caller's own parent none is added.
    own = {name: text for name, text in carried.items() if name != _TRACE_STATE or "traceparent" not in given}
    return {**(params or {}), "_meta": {**own, **given}}


def reason_text(error: BaseException | None) -> str:
    """The first line of an error, which has no output of the server, shortened; empty for None."""
    if error is None:
        return ""
    first, _, _ = str(error).partition("\n")
    return (first or type(error).__name__)[:_LONGEST_TEXT]


def _text(values: Mapping[str, Any] | None, name: str) -> str:
    found = None if values is None else values.get(name)
    if not isinstance(found, str):
        return ""
    return found if found.isascii() else found.encode(errors="replace").decode()


# --- sessions


class ClientSession:
    """The events of one time in which a connection is ready, in either era."""

    __slots__ = ("_began", "_line", "_loop", "_revision", "id", "opened")

    def __init__(self, line: ConnectionLine, loop: AbstractEventLoop, age: float | None = None) -> None:
        """Announce that the connection has become ready. With `age` it did so that many seconds ago, and nothing is announced."""
        self.id = f"client-{next(_sessions)}"
        """The id in events, which is no secret of the protocol."""
        self._line = line
        self._loop = loop
        self._began = loop.time() - (age or 0.0)
        self._revision, transport, _, address = _server(line)
        self.opened: Final = SessionOpened(
            at=time.time() - (age or 0.0),
            side="client",
            program=line.name,
            session=self.id,
            revision=self._revision,
            transport=transport,
            peer=_text(line.welcome.server_info, "name")[:_LONGEST_TEXT] if line.welcome is not None else "",
            address=address,
        )
        """The event that tells of it."""
        if age is None and bus.listener is not None:
            bus.listener(self.opened)

    def close(self, cause: BaseException | None) -> None:
        """Announce that it is over; without a cause, because this program closes it."""
        listener = bus.listener
        if listener is not None:
            line = self._line
            listener(
                SessionClosed(
                    side="client",
                    program=line.name,
                    session=self.id,
                    revision=self._revision,
                    transport=line.transport,
                    http_version=line.http_version,
                    address=line.address,
                    seconds=self._loop.time() - self._began,
                    reason=reason_text(cause),
                    is_failure=cause is not None,
                )
            )


# --- questions


class ClientQuestion:
    """The events of one question that a server asks this client."""

    __slots__ = ("_began", "_call", "_line", "_loop", "_method", "_program", "_request", "number")

    def __init__(
        self,
        line: ConnectionLine,
        loop: AbstractEventLoop,
        method: str,
        call: ClientCall | None,
        request: JsonRpcRequest | None,
    ) -> None:
        """Announce it. `call` is the request that it belongs to, if that is certain; `request` is its own, if it is not part of a reply."""
        self.number = next_question()
        self._line = line
        self._program = line.name
        self._loop = loop
        self._method = method
        self._request = "" if request is None else str(request.id)[:_LONGEST_TEXT]
        meta = None if request is None else request.params.get("_meta")
        revision, transport, http_version, _ = _server(line)
        self._call = call
        self._began = loop.time()
        if bus.listener is not None:
            bus.listener(
                QuestionAsked(
                    side="client",
                    program=self._program,
                    question=self.number,
                    call=0 if call is None else call.number,
                    method=method,
                    request=self._request,
                    revision=revision,
                    transport=transport,
                    http_version=http_version,
                    trace=trace_context(meta) if is_object(meta) else None,
                )
            )
        if call is not None:
            call.step("question", method)

    def end(self, result: object, error: BaseException | None, *, is_lost: bool = False) -> None:
        """Announce the answer; `is_lost` tells that none is wanted any more."""
        outcome: Literal["accept", "decline", "cancel", "answered", "error", "lost"] = "answered"
        if is_lost:
            outcome = "lost"
        elif error is not None:
            outcome = "error"
        elif self._method == "elicitation/create" and is_object(result):
            action = result.get("action")
            outcome = action if action in ("accept", "decline", "cancel") else "answered"
        revision, transport, http_version, _ = _server(self._line)
        if bus.listener is not None:
            bus.listener(
                QuestionEnded(
                    side="client",
                    program=self._program,
                    question=self.number,
                    call=0 if self._call is None else self._call.number,
                    method=self._method,
                    request=self._request,
                    revision=revision,
                    transport=transport,
                    http_version=http_version,
                    outcome=outcome,
                    seconds=self._loop.time() - self._began,
                )
            )
        if self._call is not None:
            self._call.step("answer", outcome)


def start_question(
    line: ConnectionLine, loop: AbstractEventLoop, request: JsonRpcRequest, call: ClientCall | None, *, is_request: bool
) -> ClientQuestion | None:
    """Announce a request of the server, if it is a question for the user, the model or the program. Without `is_request` it is part of a reply."""
    if request.method not in QUESTION_METHODS:
        return None
    return ClientQuestion(line, loop, request.method, call, request if is_request else None)


# --- refusals


def announce_refusal(line: ConnectionLine, kind: str, setting: str, method: str) -> None:
    """Emit that a bound of the connection has refused a request, of this program or of the server. `setting` is the one of the bound."""
    if bus.listener is not None:
        bus.listener(
            RequestRefused(
                program=line.name,
                kind=kind,
                setting=f"ClientSettings({setting}=…)",
                method=method if method in METHODS or method in EXTENSION_METHODS else "",
                transport=line.transport,
            )
        )


# --- frames


def report_sent(line: ConnectionLine, frame: bytes) -> None:
    """Emit a frame that was sent."""
    _report_frame(line, "out", frame)


def report_received(line: ConnectionLine, items: Iterable[InboundItem]) -> None:
    """Emit the messages that came, encoded again; of an invalid one its beginning."""
    for item in items:
        try:
            frame = _encoded(item)
        except LocalProtocolError as error:  # JSON that can be read, and not written
            frame = str(error).encode()
        if frame is not None:
            _report_frame(line, "in", frame)


def _encoded(item: InboundItem) -> bytes | None:
    match item:
        case JsonRpcResponse():
            return encode_result(item.id, item.result)
        case JsonRpcError():
            return encode_error(item.id, item.error)
        case JsonRpcRequest():
            return encode_request(item.id, item.method, item.params)
        case JsonRpcNotification():
            return encode_notification(item.method, item.params)
        case InvalidMessage():
            return item.sample.encode()
        case _:
            return None


def _report_frame(line: ConnectionLine, direction: Literal["in", "out"], frame: bytes) -> None:
    if bus.detail_listener is not None:
        bus.detail_listener(
            FramePassed(
                side="client",
                program=line.name,
                session="" if line.session is None else line.session.id,
                direction=direction,
                transport=line.transport,
                body=frame,
            )
        )
