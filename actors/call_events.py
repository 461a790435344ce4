"""The events of a server's calls: `CallStarted` when a request arrives, and exactly one `CallEnded`, which the access log reads as well.

A session, an exchange, a task and a local call each make an `ObservedCall` if there is a reader, a listener of events or the access log, and end it with the cause
that they know: no response is decoded for it. Without a reader nothing is made, and this module is not loaded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from greenroom.event_types import (
    CallEnded,
    CallStarted,
    CallStep,
    QuestionAsked,
    QuestionEnded,
    SessionClosed,
    SessionOpened,
    TaskCreated,
    TaskEnded,
)
from greenroom.protocol.methods import METHODS
from greenroom.supervision import Crash, Normal, Shutdown
from greenroom.supervision.event_bus import bus, next_call, next_question, trace_context
from greenroom.transports.access_log import is_on, log_call, name_in, principal_kind, principal_text
from greenroom.transports.interfaces import short_id

from .process_names import short_task_id

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from greenroom.event_types import CallWay, Isolation, Outcome, PrincipalKind
    from greenroom.protocol.errors import McpError
    from greenroom.protocol.jsonrpc import CarriedByHttp, JsonRpcRequest
    from greenroom.supervision import ExitReason, Node
    from greenroom.transports.interfaces import Peer

    from .process_names import SessionInfo
    from .task_record import TaskRecord
    from .worker_interfaces import SessionFacts, WorkerServices

_LONGEST_NAME: Final = 2048
"""Characters of a method, a name or a URI in an event: a peer may send megabytes."""
_LONGEST_ID: Final = 128
_ANONYMOUS: Final[tuple[str, PrincipalKind]] = ("", "anonymous")
_FAILURES: Final = frozenset({"tool_error", "error"})


class ObservedCall:
    """A call that something hears of. The first ending counts."""

    __slots__ = (
        "_began_at",
        "_blame",
        "_is_known",
        "_is_method_known",
        "_is_over",
        "_loop",
        "_queued",
        "_waits",
        "isolation",
        "number",
        "revision",
        "started",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - what a call has
        self,
        node: Node,
        services: WorkerServices,
        way: CallWay,
        method: str,
        params: Mapping[str, Any],
        peer: Peer,
        revision: str,
        began_at: float | None = None,
        request_id: str = "",
        session: str = "",
        carried: CarriedByHttp | None = None,
        task: str = "",
        creator: int = 0,
    ) -> None:
        """It begins now, and the listener is told; `began_at` is an earlier moment on the node's clock, `session` an id as it may be shown."""
        self._loop = node.loop
        name, self._is_known, self._is_method_known = _subject(services, method, params)
        method = method[:_LONGEST_NAME]
        self.revision = revision
        self._began_at = node.loop.time() if began_at is None else began_at
        self._queued = 0.0
        self._waits = False
        self._is_over = False
        self._blame: Outcome | None = None
        self.isolation: Isolation = ""
        """Where the handler runs; empty before."""
        listener = bus.listener
        self.number = 0 if listener is None else next_call()
        """The number in its events; 0 where there is no listener for them."""
        principal, kind = _ANONYMOUS if peer.principal is None else _named(peer.principal)
        http_trace, http_version = (None, "") if carried is None else carried
        meta: Any = params.get("_meta")
        self.started = started = CallStarted(
            self.number,
            "server",
            services.settings.name,
            way,
            method,
            name,
            request_id,
            session,
            revision,
            peer.transport,
            peer.forwarded or peer.address,
            principal,
            kind,
            http_version,
            task,
            creator,
            trace_context(meta) if meta.__class__ is dict else None,
            http_trace,
        )
        if listener is not None:
            listener(started)

    def wait(self) -> None:
        """A worker will run the handler: until then the call is queued."""
        self._waits = True
        if bus.detail_listener is not None:
            self.step("queued")

    def reached(self, isolation: Isolation) -> None:
        """The handler begins to run, there. Any thread may call it."""
        self.isolation = isolation
        if self._waits:
            self._waits = False
            self._queued = self._loop.time() - self._began_at
        if bus.detail_listener is not None:
            self.step("worker", isolation)

    def blame(self, outcome: Outcome) -> None:
        """A failure of the handler, as the code sees it, has this cause."""
        self._blame = outcome

    def in_thread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which notes that it begins in a thread."""

        def noted(**arguments: Any) -> Any:
            self.reached("thread")
            return function(**arguments)

        return noted

    def step(self, step: Step, text: str = "") -> None:
        """Emit a step of the timeline, if there is a listener for details."""
        listener = bus.detail_listener
        if listener is not None and self.number and not self._is_over:
            listener(CallStep(call=self.number, step=step, text=text))

    def note_message(self, method: str, params: Mapping[str, Any]) -> None:
        """The handler sends its client a notification."""
        if bus.detail_listener is None:
            return
        if method == "notifications/progress":
            done, total = params.get("progress"), params.get("total")
            self.step("progress", f"{done}" if total is None else f"{done}/{total}")
        elif method == "notifications/message":
            self.step("log", str(params.get("level")))  # what it says may be a secret

    def end(self, outcome: Outcome, error: McpError | None = None, *, detail: str = "", is_logged: bool = True) -> None:
        """The call has ended so; `error` is the one that was sent. `is_logged` is False for a refusal that the access log has already."""
        if self._is_over:
            return
        self._is_over = True
        if self._blame is not None and outcome in _FAILURES:
            outcome = self._blame
        seconds = self._loop.time() - self._began_at
        started = self.started
        code, message = (None, "") if error is None else (error.code, error.message)
        ended = CallEnded(
            self.number,
            "server",
            started.program,
            started.way,
            started.method,
            outcome,
            seconds,
            started.name,
            self._is_known,
            self._is_method_known,
            code,
            message,
            detail,
            seconds if self._waits else self._queued,
            self.isolation,
            self.revision,
            started.transport,
            started.http_version,
            started.address,
            started.principal,
            started.principal_kind,
            started.task,
        )
        if is_logged and is_on():
            log_call(ended)  # while the call has its span: the line names it
        listener = bus.listener
        if listener is not None and self.number:
            listener(ended)


if TYPE_CHECKING:
    Step: TypeAlias = Literal["queued", "worker", "progress", "question", "answer", "log", "sent", "stream"]


def observe_request(  # noqa: PLR0913, PLR0917 - what a request has
    node: Node,
    services: WorkerServices,
    way: CallWay,
    request: JsonRpcRequest,
    peer: Peer,
    revision: str,
    began_at: float | None = None,
    session: str = "",
) -> ObservedCall:
    """Begin the call of a request. Call it only if there is a reader."""
    return ObservedCall(
        node,
        services,
        way,
        request.method,
        request.params,
        peer,
        revision,
        began_at,  # by position: keywords cost a class's call a microsecond
        str(request.id)[:_LONGEST_ID],
        session,
        request.carried,
    )


# --- questions to a client


class ObservedQuestion:
    """A question to a client that a listener hears of. The first ending counts."""

    __slots__ = (
        "_began_at",
        "_call",
        "_is_over",
        "_method",
        "_node",
        "_program",
        "_request",
        "_revision",
        "_transport",
        "number",
    )

    def __init__(  # noqa: PLR0913 - what a question has
        self,
        node: Node,
        program: str,
        method: str,
        call: ObservedCall | None,
        *,
        request: str = "",
        facts: SessionFacts | None = None,
        trace: dict[str, str] | None = None,
    ) -> None:
        """It is asked now, by the handler of this call; None where a program asks outside of calls.

        A question that is a `request` of its own has the session's facts, and the trace of the code that asks.
        """
        self._node = node
        self._program = program
        self._method = method
        self._call = call
        self._request = request
        self._revision = "" if facts is None else facts.version
        self._transport = "" if facts is None else facts.peer.transport
        self.number = next_question()
        self._began_at = node.now()
        self._is_over = False
        if bus.listener is not None:
            bus.listener(
                QuestionAsked(
                    side="server",
                    program=program,
                    question=self.number,
                    call=self._call_number,
                    method=method,
                    request=request,
                    revision=self._revision,
                    transport=self._transport,
                    http_version=self._http_version,
                    trace=trace,
                )
            )
        if call is not None:
            call.step("question", method)

    @property
    def _call_number(self) -> int:
        return 0 if self._call is None else self._call.number

    @property
    def _http_version(self) -> str:
        return "" if self._call is None or not self._request else self._call.started.http_version

    def answered(self, result: Mapping[str, Any]) -> None:
        """The client has answered it."""
        action = result.get("action") if self._method == "elicitation/create" else None
        self.end(action if action in ("accept", "decline", "cancel") else "answered")

    def end(self, outcome: Literal["accept", "decline", "cancel", "answered", "error", "lost"]) -> None:
        """It was answered so, or will not be ("lost")."""
        if self._is_over:
            return
        self._is_over = True
        if self._call is not None:
            self._call.step("answer", outcome)
        if bus.listener is not None:
            bus.listener(
                QuestionEnded(
                    side="server",
                    program=self._program,
                    question=self.number,
                    call=self._call_number,
                    method=self._method,
                    request=self._request,
                    revision=self._revision,
                    transport=self._transport,
                    http_version=self._http_version,
                    outcome=outcome,
                    seconds=self._node.now() - self._began_at,
                )
            )


# --- sessions


class ObservedSession:
    """A session that a listener hears of."""

    __slots__ = ("_http_version", "_info", "_node", "_program")

    def __init__(self, node: Node, program: str, info: SessionInfo, http_version: str) -> None:
        """Its handshake is done."""
        self._node = node
        self._program = program
        self._info = info
        self._http_version = http_version
        peer, client = info.peer, info.client_info.get("name")
        principal, kind = _principal(peer)
        if bus.listener is not None:
            bus.listener(
                SessionOpened(
                    side="server",
                    program=program,
                    session=short_id(info.id),
                    revision=info.version or "",
                    transport=peer.transport,
                    peer=client[:_LONGEST_ID] if isinstance(client, str) else "",
                    address=peer.forwarded or peer.address,
                    principal=principal,
                    principal_kind=kind,
                )
            )

    def end(self, reason: ExitReason) -> None:
        """It has ended."""
        listener = bus.listener
        if listener is None:
            return
        info = self._info
        is_failure = not isinstance(reason, Normal | Shutdown)
        listener(
            SessionClosed(
                side="server",
                program=self._program,
                session=short_id(info.id),
                revision=info.version or "",
                transport=info.peer.transport,
                http_version=self._http_version,
                address=info.peer.forwarded or info.peer.address,
                seconds=self._node.now() - info.created,
                # Without the text of an exception, which may have anything in it.
                reason=f"crash: {type(reason.error).__name__}" if isinstance(reason, Crash) else str(reason),
                is_failure=is_failure,
            )
        )


# --- tasks


def emit_task_created(services: WorkerServices, record: TaskRecord) -> None:
    """Emit `TaskCreated`, if there is a listener."""
    listener = bus.listener
    if listener is not None:
        name, is_known, _ = _subject(services, record.method, {"name": record.name})
        program, task = services.settings.name, short_task_id(record.id)
        listener(TaskCreated(program=program, task=task, method=record.method, name=name, is_known=is_known))


def emit_task_ended(services: WorkerServices, record: TaskRecord) -> None:
    """Emit `TaskEnded`, if there is a listener."""
    listener = bus.listener
    if listener is not None:
        name, is_known, _ = _subject(services, record.method, {"name": record.name})
        listener(
            TaskEnded(
                program=services.settings.name,
                task=short_task_id(record.id),
                method=record.method,
                name=name,
                is_known=is_known,
                status=record.status,
                seconds=record.updated - record.created,
            )
        )


def _subject(services: WorkerServices, method: str, params: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """The name or URI that a request is about, whether that is registered, and whether the method is served. The params are not checked yet."""
    catalogue = services.catalogue_ref.current
    is_method_known = method in METHODS or catalogue.method(method) is not None
    name = name_in(params)
    if not name:
        return "", True, is_method_known
    mounted = catalogue.mounted
    is_announced = mounted is not None and mounted.announces(method, name)
    match method:
        case "tools/call":
            return name[:_LONGEST_NAME], is_announced or catalogue.tool(name) is not None, True
        case "prompts/get":
            return name[:_LONGEST_NAME], is_announced or catalogue.prompt(name) is not None, True
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            is_known = is_announced or catalogue.resource(name) is not None or catalogue.matching(name) is not None
            # As in the access log: the query of a URI may be a secret.
            return name[:_LONGEST_NAME].partition("?")[0].partition("#")[0], is_known, True
        case _:
            return name[:_LONGEST_NAME].partition("?")[0], False, is_method_known


@lru_cache(maxsize=1024)
def _named(principal: Hashable) -> tuple[str, PrincipalKind]:
    return principal_text(principal), principal_kind(principal)


def _principal(peer: Peer) -> tuple[str, PrincipalKind]:
    return _ANONYMOUS if peer.principal is None else _named(peer.principal)
