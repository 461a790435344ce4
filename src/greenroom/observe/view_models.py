"""The views of a running program as plain data: what the pages, the terminal, the inspect socket and the parent of several workers show.

`Observatory.view(name, …)` makes them. Each is a struct of texts, numbers and lists: `msgspec.json.encode` writes it, and `msgspec.json.decode(…, type=VIEW_TYPES[name])`
reads it. Every list is bounded, and every text is shortened and escaped for display (`visible`); it is still a peer's text where it is a name, a reason or a
description, so a page escapes it for HTML. Nothing here is an id that opens anything: the ids of sessions and tasks are shortened. Times (`at`) are seconds since
1970, ages and durations are seconds. `worker` names the process of the operating system in a program with several workers, and is empty in others.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from .view_rows import (
    CallRow,
    CallStepRow,
    CrashGroup,
    CrashRow,
    Curve,
    FaultKindRow,
    FaultRow,
    Field,
    FrameRow,
    MailboxLine,
    NodeLoop,
    Notice,
    PoolRow,
    Prediction,
    ProcessRef,
    QuestionRow,
    SessionRow,
    Spread,
    StreamRow,
    SupervisorFacts,
    TaskRow,
    ToolRow,
    TreeRow,
    UpstreamCount,
    UpstreamRow,
    WireGroup,
)

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


class NowView(View, kw_only=True):
    """The program at one glance. Rates and percentiles are those of the last minute."""

    version: str = ""
    urls: list[str] = []
    process: int = 0
    """The operating system's process; of a program with workers the parent's."""
    up_seconds: float = 0.0
    state: Literal["starting", "serving", "drained", "draining", "gave_up"] = "serving"
    processes: int = 0
    supervisors: int = 0
    sessions: int = 0
    streams: int = 0
    """Streams to clients, but those that listen for changes,"""
    listens: int = 0
    """and these."""
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


class TreeView(PagedView, kw_only=True):
    """The supervision tree. A page keeps the rows' depths, and `ancestors` leads to its first row. With `text` only the matching rows and those above them."""

    node: str = ""
    root: str = ""
    """The pid from which it is shown; empty for all."""
    ancestors: list[ProcessRef] = []
    rows: list[TreeRow] = []


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


class CrashesView(PagedView, kw_only=True):
    """Crashes by kind and reason, the last first."""

    groups: list[CrashGroup] = []
    crashes: list[CrashRow] = []
    """Those of the group that the query names, the newest first."""
    gave_up: list[Notice] = []
    """Supervisors that gave up, the newest first."""


# --- sessions


class SessionsView(PagedView, kw_only=True):
    """Sessions, and the streams of all clients; as curves how many of each were open."""

    rows: list[SessionRow] = []
    streams: list[StreamRow] = []
    streams_total: int = 0
    evicted_total: int = 0
    curves: list[Curve] = []


# --- upstreams


class UpstreamsView(PagedView, kw_only=True):
    """The servers of hosts and gateways."""

    rows: list[UpstreamRow] = []
    notices: list[Notice] = []
    """Their last changes, the newest first."""


# --- calls


class CallsView(PagedView, kw_only=True):
    """Calls in flight, the oldest first; with `ended` those that ended last, the newest first."""

    is_ended: bool = False
    rows: list[CallRow] = []


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


class PoolsView(PagedView, kw_only=True):
    """The pools."""

    rows: list[PoolRow] = []


class TasksView(PagedView, kw_only=True):
    """The tasks that this program works on, the oldest first, then those that ended last."""

    rows: list[TaskRow] = []
    counts: dict[str, int] = {}
    """By last status, since the start."""


class QuestionsView(PagedView, kw_only=True):
    """Questions without an answer, the oldest first."""

    rows: list[QuestionRow] = []
    outcomes: dict[str, int] = {}
    """How questions ended, since the start."""


# --- the loop


class LoopView(View, kw_only=True):
    """Event loops and threads."""

    loops: list[NodeLoop] = []


# --- faults


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

LONGEST_TRY: Final = 60.0
"""Seconds that a tool which is tried, or a request that is sent again, may take."""


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
