"""`ClientCall`: one request to a server in the events of the program, from its caller to its outcome.

Imported by the first request that a listener hears of, so that a program without listeners does not load the events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.errors import SignInError
from greenroom.event_types import CallEnded, CallStarted
from greenroom.protocol.errors import BadAnswer, LocalProtocolError, PeerError, RequestCancelled
from greenroom.protocol.jsonrpc import is_object
from greenroom.supervision.event_bus import bus, next_call
from greenroom.transports.client.errors import HttpError, NodeEnded, ProcessDied, WireFull

from .errors import ClientClosed, ClientError, InitTimeout, InputRefused, RequestLost, RequestTimeout, TaskLost

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping

    from greenroom.event_types import CallWay, Outcome

    from .connection_line import ConnectionLine

_LISTS: Final = {"tools/list": ("tools", "tools/call"), "prompts/list": ("prompts", "prompts/get")}
"""Where the lists have their entries, and by which method those are called."""
_NAMED: Final = frozenset(method for _, method in _LISTS.values())
"""Methods whose requests have the name of something that the server announces."""
_OF_A_TOOL: Final = frozenset({"tools/call", "tasks/result"})
_TRACE_STATE: Final = "tracestate"


class ClientCall:
    """The events of one request to a server. It is made once for each request, however often that is sent, and ends once."""

    __slots__ = (
        "_began",
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

    def __init__(
        self,
        program: str,
        line: ConnectionLine | None,
        loop: AbstractEventLoop,
        method: str,
        params: Mapping[str, Any] | None,
        id: int = 0,
    ) -> None:
        """Announce it, in the caller's context. `program` is the server's name, and `line` leads to it, if that is known; `id` is the request's, if it has one."""
        self.number = next_call()
        self._program = program
        self._way: CallWay = "upstream" if line is None else line.way
        self._line = line
        self._loop = loop
        self._method = method
        self._name = _text(params, "name") or _text(params, "uri")
        self._task = _text(params, "taskId")
        self._began = loop.time()
        self._sent_at: float | None = None
        self._is_over = False
        self.carried: Mapping[str, str] = {}
        """The trace context that the request takes along."""
        revision, transport, address = self._server()
        if bus.listener is not None:
            bus.listener(
                CallStarted(
                    call=self.number,
                    side="client",
                    program=program,
                    way=self._way,
                    method=method,
                    name=self._name,
                    request=str(id) if id else "",
                    task=self._task,
                    revision=revision,
                    transport=transport,
                    address=address,
                )
            )
        if bus.tracer is not None:
            self.carried = bus.tracer.carrier(self.number)

    def _server(self) -> tuple[str, str, str]:
        """What is known of the server by now: its revision, transport and address."""
        line = self._line
        if line is None:
            return "", "", ""
        welcome = line.welcome
        return "" if welcome is None else welcome.version, line.transport, line.address

    def on_sent(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Note that the request is sent. Returns its params with the trace context."""
        if self._sent_at is None:
            self._sent_at = self._loop.time()
        return with_trace_context(params, self.carried) if self.carried else params

    def end(self, result: Mapping[str, Any] | None, error: BaseException | None = None) -> None:
        """Announce the outcome. A no-op when that was done before."""
        if self._is_over:
            return
        self._is_over = True
        if bus.listener is None:
            return
        was_sent = self._sent_at is not None
        outcome, code = outcome_of(self._method, result, error, was_sent=was_sent)
        revision, transport, address = self._server()
        now = self._loop.time()
        bus.listener(
            CallEnded(
                call=self.number,
                side="client",
                program=self._program,
                way=self._way,
                method=self._method,
                name=self._name,
                is_known=self._is_known(result if outcome == "result" else None),
                outcome=outcome,
                code=code,
                seconds=now - self._began,
                queued=(now if self._sent_at is None else self._sent_at) - self._began,
                task=self._task,
                revision=revision,
                transport=transport,
                address=address,
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
            return "error", int(error.code)
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
            outcome = "peer_gone"
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


def _text(params: Mapping[str, Any] | None, name: str) -> str:
    found = None if params is None else params.get(name)
    return found if isinstance(found, str) else ""
