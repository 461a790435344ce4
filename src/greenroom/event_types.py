"""All events of a program: what happens to its calls, sessions, upstreams, pools, tasks and processes, as plain values.

`greenroom.observe.subscribe` delivers them to a listener. An event is a frozen struct of texts and numbers, `at` is its time in seconds since 1970, and
`msgspec.json.encode` writes it. The texts `name`, `reason`, `text` and the like may be a peer's: shorten and escape them (`visible`) before a person reads them.
"""

from __future__ import annotations

import time
from typing import Final, Literal, TypeAlias

import msgspec

Side: TypeAlias = Literal["server", "client"]
"""Whether this program answers the call, or makes it."""
CallWay: TypeAlias = Literal["session", "exchange", "task", "local", "client", "upstream"]
"""How a call goes: through a session, as an exchange of the stateless era, as the work of a task, from a function of this program, or to a server by a client's
connection or a federation's."""
Isolation: TypeAlias = Literal["", "inline", "loop", "thread", "process"]
"""Where the handler ran; empty where no handler was reached, or the handler is another program's."""
Outcome: TypeAlias = Literal[
    "result",
    "tool_error",
    "error",
    "asks",
    "deadline",
    "cancelled",
    "peer_gone",
    "worker_crashed",
    "process_ended",
    "refused",
]
"""How a call ended:

- `result`, `tool_error` (a result with `isError`), `error` (a JSON-RPC error that the handler or the peer has chosen);
- `asks`: the request ended with questions, and the call goes on with the next request;
- `deadline`; `cancelled` by its caller; `peer_gone`: its session, its stream or its connection was lost;
- `worker_crashed`: its handler raised, or ended, without a reply; `process_ended`: the operating system's process or the supervisor that ran it is gone;
- `refused` by a bound, before anything was done.
"""
FAILED_OUTCOMES: Final[frozenset[Outcome]] = frozenset(
    {"error", "deadline", "peer_gone", "worker_crashed", "process_ended", "refused"}
)
"""Outcomes that an operator looks for. A tool that reports an error, and a caller that cancels, are no failures of the program."""
LISTEN: Final = "subscriptions/listen"
"""The method of calls that are open until one side goes."""
_ENDS_OF_LISTENS: Final = frozenset({"peer_gone", "process_ended"})
PrincipalKind: TypeAlias = Literal["anonymous", "unnamed", "token", "named"]
"""What is known of the caller: nothing, credentials without a name, a token of an issuer, or a name."""


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something happened, at this time."""

    at: float = msgspec.field(default_factory=time.time)


# --- calls
# There are two of these for each call, and msgspec takes keywords in quadratic time: 4 us for twenty of them, and 0.35 us by position. So these two can be made by
# position, and are on the path of every call.


class CallStarted(Event, frozen=True, gc=False):
    """A request or the work of a task began. `call` is the number by which `CallEnded` and `CallStep` refer to it; numbers are this program's own.

    `program` is the name of the server that answers, or of the server that is called. `trace` has the W3C trace context of `params._meta`, and `http_trace` the
    one of the HTTP request that brought it. A client's call is one however often its request is sent, and with all its rounds of questions; a result that the
    client has kept is no call.
    """

    call: int
    side: Side
    program: str
    way: CallWay
    method: str
    name: str = ""
    """The tool or prompt, or the URI of the resource."""
    request: str = ""
    """The id of the request, as text."""
    session: str = ""
    revision: str = ""
    transport: str = ""
    address: str = ""
    principal: str = ""
    principal_kind: PrincipalKind = "anonymous"
    http_version: str = ""
    """The version of HTTP: "1.1" or "2". Empty for other transports."""
    task: str = ""
    creator: int = 0
    """For the work of a task: the number of the call that created the task."""
    trace: dict[str, str] | None = None
    http_trace: dict[str, str] | None = None
    host: str = ""
    """Of a call of the way `upstream`: the host or the gateway that makes it. Two may each have a server of the same name."""


class CallEnded(Event, frozen=True, gc=False):
    """A call ended; there is exactly one for each `CallStarted`, with the same `call`."""

    call: int
    side: Side
    program: str
    way: CallWay
    method: str
    outcome: Outcome
    seconds: float
    name: str = ""
    is_known: bool = True
    """Whether `name` is registered, or was announced by the server that is called. A label may only have names that are."""
    is_method_known: bool = True
    """Whether `method` is one of the protocol, or of a registered extension. A label may only have methods that are."""
    code: int | None = None
    """The code of a JSON-RPC error."""
    message: str = ""
    """The message of a JSON-RPC error, as it was sent."""
    detail: str = ""
    """What operators may know beside that, and the peer may not."""
    queued: float = 0.0
    """How many of the seconds passed before the handler ran, or before the request was sent; all, where that was never reached."""
    isolation: Isolation = ""
    revision: str = ""
    transport: str = ""
    http_version: str = ""
    address: str = ""
    principal: str = ""
    principal_kind: PrincipalKind = "anonymous"
    task: str = ""
    host: str = ""

    @property
    def is_listen(self) -> bool:
        """Whether it was a stream of changes: `seconds` is for how long it was open, and tells nothing of a speed."""
        return self.method == LISTEN

    @property
    def is_failure(self) -> bool:
        """Whether an operator looks for it. A listen has not failed when it, its client or its server has gone."""
        outcome = self.outcome
        return outcome in FAILED_OUTCOMES and not (outcome in _ENDS_OF_LISTENS and self.method == LISTEN)


class CallStep(Event, frozen=True, gc=False, kw_only=True):
    """A step of a call's timeline; only for listeners that ask for details."""

    call: int
    step: Literal["queued", "worker", "progress", "question", "answer", "log", "sent", "stream"]
    text: str = ""


class FramePassed(Event, frozen=True, gc=False, kw_only=True):
    """A message of the protocol, in or out; only for listeners that ask for details. `body` may hold secrets."""

    side: Side
    program: str
    session: str = ""
    direction: Literal["in", "out"]
    transport: str = ""
    body: bytes


class ServerWrote(Event, frozen=True, gc=False, kw_only=True):
    """A server that is run by a command wrote a line to its standard error; only for listeners that ask for details."""

    process: int
    """The operating system's process of the server."""
    command: str
    text: str
    """The line, whose length is bounded."""


class RequestRefused(Event, frozen=True, gc=False, kw_only=True):
    """A request, a connection or a session was refused. `kind` is one of this program's own words, and `setting` would allow it."""

    program: str = ""
    kind: str
    status: int | None = None
    setting: str = ""
    method: str = ""
    transport: str = ""
    principal_kind: PrincipalKind = "anonymous"


# --- sessions and streams


class SessionOpened(Event, frozen=True, gc=False, kw_only=True):
    """A session began: the handshake was done, or a connection became ready."""

    side: Side
    program: str
    session: str
    revision: str
    transport: str = ""
    peer: str = ""
    """The name that the peer gives itself."""
    address: str = ""
    principal: str = ""
    principal_kind: PrincipalKind = "anonymous"


class SessionClosed(Event, frozen=True, gc=False, kw_only=True):
    """A session ended. `is_failure` tells whether it ended otherwise than asked for."""

    side: Side
    program: str
    session: str
    revision: str
    transport: str = ""
    http_version: str = ""
    address: str = ""
    seconds: float
    reason: str = ""
    is_failure: bool = False


class StreamOpened(Event, frozen=True, gc=False, kw_only=True):
    """A stream to a client began."""

    program: str
    stream: int
    kind: Literal["session", "call", "listen"]
    session: str = ""


class StreamClosed(Event, frozen=True, gc=False, kw_only=True):
    """A stream to a client ended; `is_evicted` tells that its reader was too slow, or its place was needed."""

    program: str
    stream: int
    kind: Literal["session", "call", "listen"]
    session: str = ""
    seconds: float
    is_evicted: bool = False


class QuestionAsked(Event, frozen=True, gc=False, kw_only=True):
    """A handler asks the user or the model of its caller, or a server asks this client. `question` is a number of the same sequence as those of calls."""

    side: Side
    program: str
    question: int
    call: int = 0
    method: str
    request: str = ""
    """The id of the request that asks it; empty for a question that is part of a reply, or of a task."""
    revision: str = ""
    transport: str = ""
    http_version: str = ""
    trace: dict[str, str] | None = None


class QuestionEnded(Event, frozen=True, gc=False, kw_only=True):
    """A question was answered, or given up."""

    side: Side
    program: str
    question: int
    call: int = 0
    method: str
    request: str = ""
    revision: str = ""
    transport: str = ""
    http_version: str = ""
    outcome: Literal["accept", "decline", "cancel", "answered", "error", "lost"]
    seconds: float


# --- tasks


class TaskCreated(Event, frozen=True, gc=False, kw_only=True):
    """A call became a task."""

    program: str
    task: str
    method: str
    name: str = ""
    is_known: bool = True


class TaskEnded(Event, frozen=True, gc=False, kw_only=True):
    """A task has its last status."""

    program: str
    task: str
    method: str
    name: str = ""
    is_known: bool = True
    status: str
    seconds: float


# --- upstreams


class UpstreamChanged(Event, frozen=True, gc=False, kw_only=True):
    """A server of a host or a gateway has another state."""

    program: str
    upstream: str
    before: str
    state: str
    reason: str = ""
    next_attempt: float | None = None
    """Seconds until the next attempt."""
    revision: str = ""
    process: int | None = None
    """The operating system's process of a server that is run by a command."""


class BreakerChanged(Event, frozen=True, gc=False, kw_only=True):
    """The breaker of an upstream opened, half opened or closed."""

    program: str
    upstream: str
    state: str
    reason: str = ""


class SignInEnded(Event, frozen=True, gc=False, kw_only=True):
    """A sign-in to a server ended, or a caller's credentials were refused (`side` is then "server")."""

    side: Side
    program: str
    kind: str
    """The kind of the sign-in or of the refusal: one of this program's own words."""
    is_failure: bool
    reason: str = ""


# --- pools


class PoolWorkerStarted(Event, frozen=True, gc=False, kw_only=True):
    """A pool has a process of the operating system more."""

    program: str
    pool: str
    process: int


class PoolWorkerEnded(Event, frozen=True, gc=False, kw_only=True):
    """A pool lost a process of the operating system, or has ended it. `signal` is the name of the signal, empty where none ended it."""

    program: str
    pool: str
    process: int
    signal: str = ""
    status: int | None = None
    is_failure: bool = False


# --- processes of the tree


class ChildStarted(Event, frozen=True, gc=False, kw_only=True):
    """A supervisor started a child; `is_restart` tells that an earlier one had ended.

    Children that callers start one by one, as sessions and workers of calls are, have an event when they are restarted only.
    """

    node: str
    supervisor: str
    child: str
    kind: str
    """The class that runs, which is a label; `child` is an id."""
    pid: str
    is_restart: bool = False


class ProcessCrashed(Event, frozen=True, gc=False, kw_only=True):
    """Code of a process raised, or asked to stop with a reason that is not orderly."""

    node: str
    label: str
    kind: str
    pid: str
    reason: str
    during: str = ""
    last_message: str = ""
    state: str = ""
    stack: str = ""
    ancestors: tuple[str, ...] = ()


class ChildEnded(Event, frozen=True, gc=False, kw_only=True):
    """A child ended abnormally, or has to be restarted, or did not start (`is_start`)."""

    node: str
    supervisor: str
    child: str
    kind: str
    pid: str = ""
    reason: str
    is_start: bool = False


class SupervisorGaveUp(Event, frozen=True, gc=False, kw_only=True):
    """A supervisor reached its restart intensity, and ended with all its children."""

    node: str
    supervisor: str
    kind: str
    child: str
    reason: str
    intensity: int
    period: float


class ProcessLeaked(Event, frozen=True, gc=False, kw_only=True):
    """A process did not unwind in its time and was abandoned."""

    node: str
    label: str
    kind: str
    pid: str
    reason: str
    stack: str = ""


class LoopBlocked(Event, frozen=True, gc=False, kw_only=True):
    """A handler blocks the event loop; `stack` is where it is. `kind` is `_outside` for code outside of processes. It is emitted in the watchdog's thread."""

    node: str
    label: str
    kind: str
    pid: str
    seconds: float
    """For how long by now: the block goes on. `LoopLagged` tells how late the loop was in the end."""
    stack: str = ""


class LoopLagged(Event, frozen=True, gc=False, kw_only=True):
    """The loop was late by so many seconds at most since the last event, as its watchdog measured. It is emitted in the watchdog's thread, about twice a second."""

    node: str
    seconds: float


class ActDone(Event, frozen=True, gc=False, kw_only=True):
    """A person acted on the running program through its admin listener or its socket."""

    act: str
    target: str
    principal: str
    outcome: str = "done"
    """Otherwise why it was not done."""


EVENT_TYPES: Final[tuple[type[Event], ...]] = (
    CallStarted,
    CallEnded,
    CallStep,
    FramePassed,
    ServerWrote,
    RequestRefused,
    SessionOpened,
    SessionClosed,
    StreamOpened,
    StreamClosed,
    QuestionAsked,
    QuestionEnded,
    TaskCreated,
    TaskEnded,
    UpstreamChanged,
    BreakerChanged,
    SignInEnded,
    PoolWorkerStarted,
    PoolWorkerEnded,
    ChildStarted,
    ProcessCrashed,
    ChildEnded,
    SupervisorGaveUp,
    ProcessLeaked,
    LoopBlocked,
    LoopLagged,
    ActDone,
)
"""Every event, in the order of its page."""
