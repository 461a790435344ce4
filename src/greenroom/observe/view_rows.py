"""The rows and parts of views (`view_models`): one process, one session, one call, one upstream, and so on.

Texts are shortened and escaped for display (`visible`), and are still a peer's: a page escapes them for HTML. Times (`at`) are seconds since 1970, ages and durations
are seconds. `worker` names the process of the operating system in a program with several workers, and is empty in others.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

ProcessState: TypeAlias = Literal["running", "stopping", "exited", "restarting", "undefined"]


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


# --- now


class UpstreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many upstreams are in a state."""

    state: str
    count: int


# --- tree and process


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
    """`retry`, `park`, `restart`: those that make sense in its state."""
    worker: str = ""


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


class CallStepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a call, so many seconds after its beginning."""

    after: float
    step: Literal["accepted", "queued", "worker", "progress", "question", "answer", "log", "sent", "stream", "reply"]
    text: str = ""


# --- tools


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, prompt or resource template of this program, or one of a server that it calls. Counts are since the start, rates of the last minute."""

    program: str
    side: str
    method: str
    """The method that calls it."""
    name: str
    """`_unknown` stands for all names that are not registered."""
    host: str = ""
    """The host or the gateway, where it is one of a server that this calls."""
    title: str = ""
    description: str = ""
    isolation: str = ""
    """Where its handler runs: "loop", "thread" or "process". Empty where that is another program's."""
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

    @property
    def place(self) -> str:
        """The program, after its host if it has one: `ViewQuery.program` finds it by this."""
        return f"{self.host}/{self.program}" if self.host else self.program


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
