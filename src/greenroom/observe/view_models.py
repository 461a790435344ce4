"""The views of a running program as plain data: what the pages, the terminal, the inspect socket and the parent of several workers show.

`Observatory.view(name, …)` makes them. Each is a struct of texts, numbers and lists: `msgspec.json.encode` writes it, and `msgspec.json.decode(…, type=VIEW_TYPES[name])`
reads it. Every list is bounded, and every text is shortened and escaped for display (`visible`); it is still a peer's text where it is a name, a reason or a
description, so a page escapes it for HTML. Nothing here is an id that opens anything: the ids of sessions and tasks are shortened. Times (`at`) are seconds since
1970, ages and durations are seconds. `worker` names the process of the operating system in a program with several workers, and is empty in others.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

PAGE_SIZE: Final = 200
"""The rows of a page."""

ViewName: TypeAlias = Literal[
    "now",
    "tree",
    "process",
    "crashes",
    "sessions",
    "upstreams",
    "calls",
    "call",
    "tools",
    "wire",
    "pools",
    "tasks",
    "questions",
    "loop",
    "faults",
]


class ViewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a viewer asks for. Each view reads those that it names, and ignores the others."""

    text: str = ""
    """Only rows that contain this text, upper case or lower."""
    page: int = 0
    """Which page of `PAGE_SIZE` rows, from 0."""
    worker: str = ""
    """Only this worker."""
    pid: str = ""
    """`process`: which one; `tree`: from which process down; `faults`: the prediction for which one."""
    call: int = 0
    """`call`: which one."""
    crash: str = ""
    """`crashes`: the group whose crashes are listed."""
    tool: str = ""
    """`tools`: the one whose curves and schema are given; `wire`: only messages about it."""
    session: str = ""
    """`calls`, `wire`: only of this session (its shortened id)."""
    program: str = ""
    """Only of this server or upstream."""
    ended: bool = False
    """`calls`: the newest that have ended, instead of those in flight."""
    kind: str = ""
    """`faults`: which fault to predict."""


# --- parts


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A line over time: one value for each `step` seconds, the last for the time before `ends_at`. None is a gap."""

    name: str
    unit: str
    step: float
    ends_at: float
    values: list[float | None]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How long calls took: from buckets, so each is the upper end of the bucket that holds it. None where no call ended."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    longest: float | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a line: for the list of what happened last, and for followers. `kind` is the name of its class, or `Gap`: events were left out for a slow follower."""

    number: int
    """Counts up; the next line of the same program has a higher one."""
    at: float
    kind: str
    level: Literal["info", "warning", "error"]
    text: str
    program: str = ""
    pid: str = ""
    """The process that it is about, for a link to it."""
    call: int = 0
    """The call that it is about, for a link to it."""
    worker: str = ""
    data: dict[str, Any] | None = None
    """The fields of the event; only for followers."""


class ProcessRef(msgspec.Struct, frozen=True, kw_only=True):
    """Another process, as a link to its view."""

    pid: str
    label: str
    is_alive: bool = True


class View(msgspec.Struct, kw_only=True):
    """The beginning of each view."""

    at: float
    """When the snapshot was taken."""
    program: str
    refresh: float = 1.0
    """A viewer needs no newer one before so many seconds."""
    workers: list[str] = []
    """The workers from which it was made; empty in a program without."""
    notes: list[str] = []
    """What a viewer should know of this view: a bound was reached, a worker did not answer, a switch is off. Plain sentences."""


class PagedView(View, kw_only=True):
    """The beginning of a view with pages."""

    page: int = 0
    pages: int = 1
    matching: int = 0
    """The rows that fit the query, on all pages."""
    total: int = 0
    """All rows."""


# --- now


class UpstreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many upstreams are in a state."""

    state: str
    count: int


class NowView(View, kw_only=True):
    """The program at one glance. Rates and percentiles are those of the last minute."""

    version: str = ""
    urls: list[str] = []
    process: int = 0
    """The operating system's process; of a program with workers the parent's."""
    up_seconds: float = 0.0
    state: Literal["starting", "serving", "draining", "gave_up"] = "serving"
    processes: int = 0
    supervisors: int = 0
    sessions: int = 0
    streams: int = 0
    listens: int = 0
    calls: int = 0
    """Calls in flight."""
    tasks: int = 0
    questions: int = 0
    pool_workers: int = 0
    upstreams: list[UpstreamCount] = []
    calls_total: int = 0
    failed_total: int = 0
    refused_total: int = 0
    crashes_total: int = 0
    restarts_total: int = 0
    gave_up_total: int = 0
    calls_per_second: float = 0.0
    failed_per_second: float = 0.0
    spread: Spread = Spread()
    lag: float = 0.0
    """The longest delay of the loop in the last minute."""
    memory: int = 0
    """Resident bytes of the process; 0 where the system does not tell."""
    curves: list[Curve] = []
    """`calls`, `failed`, `p95`, `lag`, `processes`, `restarts`."""
    notices: list[Notice] = []
    """What happened last, the newest first: crashes, restarts, changes of upstreams, refusals, acts. No single calls."""


# --- tree and process

ProcessState: TypeAlias = Literal["running", "stopping", "exited", "restarting", "undefined"]


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process, or a child that does not run, in the order of a drawing: each row is followed by those below it."""

    depth: int
    pid: str = ""
    """Empty for a child that does not run."""
    parent: str = ""
    id: str = ""
    """Its id among its supervisor's children."""
    label: str
    kind: str
    """The class that runs."""
    name: str = ""
    strategy: str = ""
    """Of a supervisor."""
    restart: str = ""
    state: ProcessState = "running"
    activity: str = ""
    """`idle`, `queued`, `held`, `running`, `working`, `unwinding`."""
    age: float | None = None
    mailbox: int = 0
    mailbox_bytes: int = 0
    mailbox_bound: int | None = None
    restarts: int = 0
    restarted: float | None = None
    """Seconds since its last restart, or since its process was found to be another one: fresh ones are shown in colour."""
    children: int = 0
    """How many are directly below it,"""
    hidden: int = 0
    """and how many of these are not shown here: ask for the tree from its pid."""
    calls: str = ""
    """The pid for whose reply it waits."""
    worker: str = ""


class TreeView(PagedView, kw_only=True):
    """The supervision tree. A page keeps the rows' depths, and `ancestors` leads to its first row. With `text` only the matching rows and those above them."""

    node: str = ""
    root: str = ""
    """The pid from which it is shown; empty for all."""
    ancestors: list[ProcessRef] = []
    rows: list[TreeRow] = []


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a process's state: its value shortened, and hidden where its name looks like a secret's."""

    name: str
    value: str


class MailboxLine(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits, its secrets hidden."""

    text: str


class CrashRow(msgspec.Struct, frozen=True, kw_only=True):
    """One crash."""

    at: float
    pid: str
    label: str
    kind: str
    reason: str
    during: str = ""
    last_message: str = ""
    state: str = ""
    stack: str = ""
    ancestors: list[str] = []
    worker: str = ""


class SupervisorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor does when a child ends."""

    strategy: str
    intensity: int
    period: float
    left: int
    """How many restarts it would still make now before it gives up."""
    children: int


class ProcessView(View, kw_only=True):
    """One process. `row` is None when there is none with that pid any more; then `crashes` may say why."""

    pid: str
    row: TreeRow | None = None
    names: list[str] = []
    traps_exit: bool = False
    ancestors: list[ProcessRef] = []
    """Its parent first."""
    children: list[ProcessRef] = []
    links: list[ProcessRef] = []
    monitors: list[ProcessRef] = []
    """The processes that watch it,"""
    watching: list[ProcessRef] = []
    """and those that it watches."""
    supervisor: SupervisorFacts | None = None
    mailbox: list[MailboxLine] = []
    """The first messages that wait."""
    report: str = ""
    """What it says of its state in reports."""
    state: list[Field] = []
    stack: str = ""
    """Where its code is, outermost line first; empty for an idle process."""
    threads: int = 0
    """Its tasks under way."""
    crashes: list[CrashRow] = []
    """The last crashes of its kind, the newest first."""
    acts: list[str] = []
    """The acts that are possible on it, if the viewer has the right: `kill`, `restart`."""


# --- crashes


class CrashGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Crashes of one kind of process for one reason."""

    group: str
    """Its key: `ViewQuery.crash` opens it."""
    kind: str
    reason: str
    count: int
    first_at: float
    last_at: float
    label: str = ""
    """Of the last one."""
    per_minute: list[int] = []
    """How many in each of the last minutes, the newest last."""
    worker: str = ""


class CrashesView(PagedView, kw_only=True):
    """Crashes by kind and reason, the last first."""

    groups: list[CrashGroup] = []
    crashes: list[CrashRow] = []
    """Those of the group that the query names, the newest first."""
    gave_up: list[Notice] = []
    """Supervisors that gave up, the newest first."""


# --- sessions


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a server, or a connection of a client. Exchanges of the stateless era have none: see `calls`."""

    session: str
    side: str
    program: str
    revision: str
    transport: str = ""
    peer: str = ""
    address: str = ""
    principal: str = ""
    principal_kind: str = ""
    state: str = ""
    age: float | None = None
    idle: float | None = None
    calls: int = 0
    questions: int = 0
    streams: int = 0
    pid: str = ""
    worker: str = ""


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stream to a client: a session's, a call's, or a listen of the stateless era."""

    stream: int
    kind: str
    program: str
    session: str = ""
    age: float = 0.0
    pid: str = ""
    worker: str = ""


class SessionsView(PagedView, kw_only=True):
    """Sessions, and the streams of all clients."""

    rows: list[SessionRow] = []
    streams: list[StreamRow] = []
    streams_total: int = 0
    evicted_total: int = 0
    curves: list[Curve] = []


# --- upstreams


class UpstreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A server of a host or a gateway."""

    upstream: str
    program: str
    """The host or gateway."""
    state: str
    since: float | None = None
    """Seconds in this state."""
    reason: str = ""
    next_attempt: float | None = None
    breaker: str = ""
    in_progress: int = 0
    waiting: int = 0
    revision: str = ""
    sign_in_url: str = ""
    process: int | None = None
    """The operating system's process of a server that is run by a command."""
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    calls: int = 0
    failed: int = 0
    spread: Spread = Spread()
    restarts: int = 0
    pid: str = ""
    """Its supervisor."""
    acts: list[str] = []
    """`retry`, `park`, `unpark`, `restart`: those that make sense in its state."""
    worker: str = ""


class UpstreamsView(PagedView, kw_only=True):
    """The servers of hosts and gateways."""

    rows: list[UpstreamRow] = []
    notices: list[Notice] = []
    """Their last changes, the newest first."""


# --- calls


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call: in flight, or ended (then `outcome` is set)."""

    call: int
    side: str
    program: str
    way: str
    method: str
    name: str = ""
    seconds: float = 0.0
    """Its age, or how long it took."""
    at: float = 0.0
    step: str = ""
    """The last step that is known."""
    outcome: str = ""
    code: int | None = None
    queued: float = 0.0
    isolation: str = ""
    request: str = ""
    session: str = ""
    revision: str = ""
    transport: str = ""
    address: str = ""
    principal: str = ""
    principal_kind: str = ""
    task: str = ""
    trace: str = ""
    """The trace id."""
    pid: str = ""
    """The process that runs it."""
    acts: list[str] = []
    """`cancel`, while it runs."""
    worker: str = ""


class CallsView(PagedView, kw_only=True):
    """Calls in flight, the oldest first; with `ended` those that ended last, the newest first."""

    is_ended: bool = False
    rows: list[CallRow] = []


class CallStepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a call, so many seconds after its beginning."""

    after: float
    step: Literal["accepted", "queued", "worker", "progress", "question", "answer", "log", "sent", "stream", "reply"]
    text: str = ""


class CallView(View, kw_only=True):
    """One call. `row` is None when it is not known any more."""

    call: int
    row: CallRow | None = None
    steps: list[CallStepRow] = []
    dropped: int = 0
    """Steps that were too many to keep."""
    arguments: str | None = None
    """Its arguments and its result as JSON, with secrets hidden; None unless the program captures them."""
    result: str | None = None
    frames: list[FrameRow] = []
    """Its messages, where they are captured."""


# --- tools


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, prompt or resource template of this program, or one of a server that it calls. Counts are since the start, rates of the last minute."""

    program: str
    side: str
    method: str
    """The method that calls it."""
    name: str
    """`_unknown` stands for all names that are not registered."""
    title: str = ""
    description: str = ""
    isolation: str = ""
    calls: int = 0
    in_flight: int = 0
    per_second: float = 0.0
    failed: int = 0
    """Ended otherwise than with a result or a question."""
    tool_errors: int = 0
    refused: int = 0
    crashes: int = 0
    spread: Spread = Spread()
    worker: str = ""


class ToolsView(PagedView, kw_only=True):
    """What can be called and how it fares, by calls; with `tool` also its curves, its schema, and whether it can be tried."""

    rows: list[ToolRow] = []
    curves: list[Curve] = []
    outcomes: dict[str, int] = {}
    """How the calls of the one tool ended."""
    schema: dict[str, Any] | None = None
    """The JSON schema of its arguments, for the form to try it. It is the author's own; texts in it are not shortened."""
    can_try: bool = False


# --- the wire


class FrameRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the protocol, with secrets hidden."""

    number: int
    at: float
    side: str
    program: str
    session: str = ""
    direction: Literal["in", "out"]
    transport: str = ""
    method: str = ""
    """Of a request or notification; for a reply, that of its request."""
    request: str = ""
    """The id of the request to which it belongs."""
    kind: Literal["request", "notification", "result", "error", "unreadable"]
    size: int
    body: str | None = None
    """JSON; params and results are left out unless the program captures them, and long texts are cut."""
    worker: str = ""


class WireGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its reply and the messages between them, or one message that belongs to no request."""

    method: str
    name: str = ""
    request: str = ""
    session: str = ""
    program: str = ""
    at: float
    seconds: float | None = None
    """From the request to its reply; None while there is none."""
    frames: list[FrameRow]
    can_replay: bool = False
    worker: str = ""


class WireView(PagedView, kw_only=True):
    """The messages that passed, grouped by request, the newest group first. `Observatory.recording()` gives all as lines for a file."""

    is_recording: bool = False
    """Whether messages are kept now: they are while this view is looked at, or always where the program captures them."""
    is_captured: bool = False
    """Whether params and results are shown."""
    frames: int = 0
    bytes: int = 0
    dropped: int = 0
    """Messages that were left out or forgotten, since the bounds are reached."""
    groups: list[WireGroup] = []


# --- pools, tasks, questions


class PoolWorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a pool."""

    process: int | None = None
    """The operating system's process, once it has started."""
    pid: str = ""
    state: Literal["starting", "idle", "busy", "leaving"]
    calls: int = 0
    """Calls given to it so far."""
    tool: str = ""
    """What it runs."""
    seconds: float = 0.0
    """For how long it has been doing this."""


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of processes."""

    pool: str
    program: str
    tools: list[str] = []
    most: int = 0
    warm: int = 0
    waiting: int = 0
    busy: int = 0
    workers: list[PoolWorkerRow] = []
    started: int = 0
    lost: dict[str, int] = {}
    """Processes lost, by signal or status."""
    why: str = ""
    """Why the last attempt to start one failed."""
    pid: str = ""
    acts: list[str] = []
    """`recycle`."""
    worker: str = ""


class PoolsView(PagedView, kw_only=True):
    """The pools."""

    rows: list[PoolRow] = []


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task."""

    task: str
    program: str
    method: str
    name: str = ""
    status: str
    age: float = 0.0
    """Or, once it has ended, how long it took."""
    is_ended: bool = False
    pid: str = ""
    acts: list[str] = []
    """`cancel_task`, while it runs."""
    worker: str = ""


class TasksView(PagedView, kw_only=True):
    """The tasks that this program works on, the oldest first, then those that ended last."""

    rows: list[TaskRow] = []
    counts: dict[str, int] = {}
    """By last status, since the start."""


class QuestionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for a person or a model."""

    question: int
    side: str
    program: str
    method: str
    age: float
    call: int = 0
    tool: str = ""
    session: str = ""
    peer: str = ""
    text: str = ""
    """What is asked; only where the program captures it."""
    worker: str = ""


class QuestionsView(PagedView, kw_only=True):
    """Questions without an answer, the oldest first."""

    rows: list[QuestionRow] = []
    outcomes: dict[str, int] = {}
    """How questions ended, since the start."""


# --- the loop


class BlockRow(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that blocked the event loop."""

    at: float
    label: str
    kind: str
    pid: str
    seconds: float
    stack: str = ""


class NodeLoop(msgspec.Struct, frozen=True, kw_only=True):
    """The event loop of one node, and its threads."""

    node: str
    lag: float = 0.0
    longest_lag: float = 0.0
    is_watched: bool = False
    """Whether a watchdog measures it; without one there are no lags."""
    runnable: int = 0
    """Processes that wait for their turn."""
    timers: int = 0
    workers: int = 0
    """Tasks of the engine that run coroutines of handlers,"""
    busy_workers: int = 0
    """and how many do."""
    leaked: int = 0
    threads: int = 0
    """Threads of this process of the operating system."""
    thread_names: list[str] = []
    threads_busy: int = 0
    threads_most: int = 0
    collections: int = 0
    """Garbage collections of the oldest generation."""
    lags: Curve | None = None
    blocks: list[BlockRow] = []
    """The newest first."""
    worker: str = ""


class LoopView(View, kw_only=True):
    """Event loops and threads."""

    loops: list[NodeLoop] = []


# --- faults


class FaultKindRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault that can be injected."""

    kind: str
    text: str
    """What it does."""
    why_not: str = ""
    """Why it cannot be applied to the chosen process."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault should do, from links and the supervisors' strategies."""

    dies: list[ProcessRef] = []
    """Including those below a supervisor that stops its children."""
    restarts: list[str] = []
    """The tree's paths of the children that come back."""
    gives_up: list[str] = []
    """The supervisors that reach their limit of restarts."""
    stays_away: list[str] = []
    """The children that do not come back."""
    uncertain: str = ""
    """What it depends on, where it depends on something that is not known: that a message comes, how code handles a signal."""


class FaultRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was injected, what was predicted and what happened."""

    number: int
    at: float
    kind: str
    target: str
    """The pid,"""
    label: str
    """and the label of the process then."""
    path: str = ""
    principal: str = ""
    seed: int = 0
    """The seed of the run; with `plan` the fault can be repeated in a test."""
    plan: str = ""
    """The fault as JSON, which `FaultPlan.load` reads."""
    predicted: Prediction
    died: list[ProcessRef] = []
    restarted: list[str] = []
    state: Literal["pending", "as_predicted", "otherwise", "missed"] = "pending"
    """`pending` until the tree is quiet again."""
    text: str = ""
    """The difference, or why it was missed."""
    worker: str = ""


class FaultsView(View, kw_only=True):
    """Injected faults, and what can be injected. All lists are empty unless the program allows faults."""

    is_allowed: bool = False
    kinds: list[FaultKindRow] = []
    target: TreeRow | None = None
    """The chosen process,"""
    prediction: Prediction | None = None
    """and what the chosen kind of fault would do to it."""
    faults: list[FaultRow] = []
    """The newest first."""


# --- acts


class ActOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an act ended, as a sentence for a person."""

    act: str
    target: str
    is_done: bool
    text: str
    worker: str = ""
    result: str | None = None
    """The result of a tool that was tried, or the reply to a message that was sent again, as JSON."""


VIEW_TYPES: Final[dict[str, type[View]]] = {
    "now": NowView,
    "tree": TreeView,
    "process": ProcessView,
    "crashes": CrashesView,
    "sessions": SessionsView,
    "upstreams": UpstreamsView,
    "calls": CallsView,
    "call": CallView,
    "tools": ToolsView,
    "wire": WireView,
    "pools": PoolsView,
    "tasks": TasksView,
    "questions": QuestionsView,
    "loop": LoopView,
    "faults": FaultsView,
}
"""The struct of each view by its name (`ViewName`)."""
