"""All metrics: their names, kinds, units, labels and sources. `OpenTelemetry` and `PrometheusMetrics` both expose exactly this table.

Names are those of OpenTelemetry; `mcp.*` are those of its semantic conventions for MCP, with their buckets and attributes. Prometheus spells a name with
underscores, its unit and `_total` (`Metric.prometheus_name`), and labels without the prefix `greenroom.`. Labels are kinds: never ids, never URIs.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]

UNKNOWN: Final = "_unknown"
"""The label of a name that is not registered, and of a method that does not exist: a peer chooses those."""
OTHER: Final = "_other"
"""The label of all further values when a label has as many as it may have."""

_CONVENTIONAL_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SHORT_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_PREFIX: Final = "greenroom."


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of one metric."""

    name: str
    kind: MetricKind
    unit: str
    """In UCUM, as OpenTelemetry writes it: `s`, or what is counted in braces."""
    help: str
    labels: tuple[str, ...] = ()
    """The attributes, in the order of the values that `EventMeter` gives. An empty value means that the attribute is absent."""
    source: str
    """The event that it is made of; for a gauge also "processes", "threads" or "upstreams", which are looked at when it is read."""
    buckets: tuple[float, ...] = ()
    is_maximum: bool = False
    """Whether a gauge of several workers is the largest of theirs; otherwise it is their sum."""

    @property
    def prometheus_name(self) -> str:
        """The name of its family in Prometheus, without the `_total` that samples of counters end with."""
        name = self.name.replace(".", "_")
        return f"{name}_seconds" if self.unit == "s" else name

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """The names of its labels in Prometheus."""
        return tuple(label.removeprefix(_PREFIX).replace(".", "_") for label in self.labels)


_SIDE: Final = "greenroom.side"
PROGRAM: Final = "greenroom.program"
"""The label with the server that answers or is called."""
_WAY: Final = "greenroom.way"
_KIND: Final = "greenroom.kind"
_STATE: Final = "greenroom.state"
_OUTCOME: Final = "greenroom.outcome"
_TRANSPORT: Final = "greenroom.transport"
_UPSTREAM: Final = "greenroom.upstream"
_POOL: Final = "greenroom.pool"
_METHOD: Final = "mcp.method.name"
_CONNECTION: Final = ("mcp.protocol.version", "network.transport", "network.protocol.name", "network.protocol.version")
_SERVER: Final = ("server.address", "server.port")
_OPERATION: Final = (
    _METHOD,
    "error.type",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "gen_ai.operation.name",
    "rpc.response.status_code",
    *_CONNECTION,
    PROGRAM,
)

# --- the conventions' own

SERVER_OPERATION: Final = Metric(
    name="mcp.server.operation.duration",
    kind="histogram",
    unit="s",
    help="MCP request or notification duration as observed on the receiver from the time it was received until the result or ack is sent.",
    labels=_OPERATION,
    source="CallEnded",
    buckets=_CONVENTIONAL_BUCKETS,
)
CLIENT_OPERATION: Final = Metric(
    name="mcp.client.operation.duration",
    kind="histogram",
    unit="s",
    help="The duration of the MCP request or notification as observed on the sender from the time it was sent until the response or ack is received.",
    labels=(*_OPERATION, *_SERVER),
    source="CallEnded",
    buckets=_CONVENTIONAL_BUCKETS,
)
SERVER_SESSION: Final = Metric(
    name="mcp.server.session.duration",
    kind="histogram",
    unit="s",
    help="The duration of the MCP session as observed on the MCP server.",
    labels=("error.type", *_CONNECTION, PROGRAM),
    source="SessionClosed",
    buckets=_CONVENTIONAL_BUCKETS,
)
CLIENT_SESSION: Final = Metric(
    name="mcp.client.session.duration",
    kind="histogram",
    unit="s",
    help="The duration of the MCP session as observed on the MCP client.",
    labels=("error.type", *_CONNECTION, PROGRAM, *_SERVER),
    source="SessionClosed",
    buckets=_CONVENTIONAL_BUCKETS,
)

# --- calls, sessions and streams

CALLS: Final = Metric(
    name="greenroom.calls",
    kind="counter",
    unit="{call}",
    help="Calls that have ended, by way and outcome.",
    labels=(
        _SIDE,
        PROGRAM,
        _WAY,
        _METHOD,
        "greenroom.name",
        _OUTCOME,
        "greenroom.isolation",
        "greenroom.principal_kind",
    ),
    source="CallEnded",
)
CALLS_IN_FLIGHT: Final = Metric(
    name="greenroom.call.in_flight",
    kind="gauge",
    unit="{call}",
    help="Calls that have begun and not ended.",
    labels=(_SIDE, PROGRAM, _WAY),
    source="CallStarted",
)
CALL_QUEUE: Final = Metric(
    name="greenroom.call.queue.duration",
    kind="histogram",
    unit="s",
    help="How long a call waited before its handler ran, or before its request was sent.",
    labels=(_SIDE, PROGRAM, _WAY),
    source="CallEnded",
    buckets=_SHORT_BUCKETS,
)
REFUSALS: Final = Metric(
    name="greenroom.request.refusals",
    kind="counter",
    unit="{request}",
    help="Requests, connections and sessions that were refused, and the setting that would allow them.",
    labels=(PROGRAM, _KIND, "greenroom.setting", _TRANSPORT),
    source="RequestRefused",
)
SESSIONS_OPEN: Final = Metric(
    name="greenroom.session.open",
    kind="gauge",
    unit="{session}",
    help="Sessions that are open.",
    labels=(_SIDE, PROGRAM, _TRANSPORT),
    source="SessionOpened",
)
STREAMS_OPEN: Final = Metric(
    name="greenroom.stream.open",
    kind="gauge",
    unit="{stream}",
    help="Streams to clients that are open.",
    labels=(PROGRAM, _KIND),
    source="StreamOpened",
)
STREAMS_EVICTED: Final = Metric(
    name="greenroom.stream.evictions",
    kind="counter",
    unit="{stream}",
    help="Streams that were ended because their reader was too slow, or their place was needed.",
    labels=(PROGRAM, _KIND),
    source="StreamClosed",
)
QUESTIONS_OPEN: Final = Metric(
    name="greenroom.question.open",
    kind="gauge",
    unit="{question}",
    help="Questions to a user or a model that wait for their answer.",
    labels=(_SIDE, PROGRAM, _METHOD),
    source="QuestionAsked",
)
QUESTIONS: Final = Metric(
    name="greenroom.questions",
    kind="counter",
    unit="{question}",
    help="Questions to a user or a model that have ended.",
    labels=(_SIDE, PROGRAM, _METHOD, _OUTCOME),
    source="QuestionEnded",
)

# --- tasks, upstreams, sign-ins and pools

TASKS_OPEN: Final = Metric(
    name="greenroom.task.open",
    kind="gauge",
    unit="{task}",
    help="Tasks that have not ended.",
    labels=(PROGRAM,),
    source="TaskCreated",
)
TASKS: Final = Metric(
    name="greenroom.tasks",
    kind="counter",
    unit="{task}",
    help="Tasks that have ended, by their last status.",
    labels=(PROGRAM, "greenroom.status"),
    source="TaskEnded",
)
UPSTREAM_STATE: Final = Metric(
    name="greenroom.upstream.state",
    kind="gauge",
    unit="{upstream}",
    help="1 for the present state of an upstream, 0 for its earlier ones; of several workers the number of those in which it is in that state.",
    labels=(PROGRAM, _UPSTREAM, _STATE),
    source="UpstreamChanged",
)
UPSTREAM_CHANGES: Final = Metric(
    name="greenroom.upstream.changes",
    kind="counter",
    unit="{change}",
    help="How often an upstream came into a state.",
    labels=(PROGRAM, _UPSTREAM, _STATE),
    source="UpstreamChanged",
)
UPSTREAM_QUEUE: Final = Metric(
    name="greenroom.upstream.queue",
    kind="gauge",
    unit="{call}",
    help="Calls that wait until they may be sent to an upstream.",
    labels=(PROGRAM, _UPSTREAM),
    source="upstreams",
)
BREAKER_STATE: Final = Metric(
    name="greenroom.breaker.state",
    kind="gauge",
    unit="{breaker}",
    help="1 for the present state of an upstream's breaker, 0 for its earlier ones; of several workers their sum.",
    labels=(PROGRAM, _UPSTREAM, _STATE),
    source="BreakerChanged",
)
BREAKER_CHANGES: Final = Metric(
    name="greenroom.breaker.changes",
    kind="counter",
    unit="{change}",
    help="How often an upstream's breaker came into a state.",
    labels=(PROGRAM, _UPSTREAM, _STATE),
    source="BreakerChanged",
)
SIGN_INS: Final = Metric(
    name="greenroom.sign_ins",
    kind="counter",
    unit="{sign_in}",
    help="Sign-ins that have ended, and credentials that were refused.",
    labels=(_SIDE, PROGRAM, _KIND, _OUTCOME),
    source="SignInEnded",
)
POOL_WORKERS: Final = Metric(
    name="greenroom.pool.workers",
    kind="gauge",
    unit="{process}",
    help="Processes of the operating system that a pool has.",
    labels=(PROGRAM, _POOL),
    source="PoolWorkerStarted",
)
POOL_LOSSES: Final = Metric(
    name="greenroom.pool.losses",
    kind="counter",
    unit="{process}",
    help="Processes of the operating system that a pool lost, by the signal that ended them.",
    labels=(PROGRAM, _POOL, "greenroom.signal"),
    source="PoolWorkerEnded",
)

# --- processes and their loop

PROCESSES: Final = Metric(
    name="greenroom.processes",
    kind="gauge",
    unit="{process}",
    help="Processes of the tree, by the class or function that runs.",
    labels=(_KIND,),
    source="processes",
)
MAILBOX_MESSAGES: Final = Metric(
    name="greenroom.mailbox.messages",
    kind="gauge",
    unit="{message}",
    help="Messages that wait in the mailboxes of all processes of a kind.",
    labels=(_KIND,),
    source="processes",
)
MAILBOX_LONGEST: Final = Metric(
    name="greenroom.mailbox.longest",
    kind="gauge",
    unit="{message}",
    help="Messages in the longest mailbox of a kind.",
    labels=(_KIND,),
    source="processes",
    is_maximum=True,
)
CRASHES: Final = Metric(
    name="greenroom.process.crashes",
    kind="counter",
    unit="{crash}",
    help="Crashes of processes.",
    labels=(_KIND,),
    source="ProcessCrashed",
)
RESTARTS: Final = Metric(
    name="greenroom.process.restarts",
    kind="counter",
    unit="{restart}",
    help="Children that a supervisor started again.",
    labels=(_KIND,),
    source="ChildStarted",
)
START_FAILURES: Final = Metric(
    name="greenroom.process.start_failures",
    kind="counter",
    unit="{start}",
    help="Children that did not start.",
    labels=(_KIND,),
    source="ChildEnded",
)
LEAKS: Final = Metric(
    name="greenroom.process.leaks",
    kind="counter",
    unit="{process}",
    help="Processes that did not unwind in their time and were abandoned.",
    labels=(_KIND,),
    source="ProcessLeaked",
)
GAVE_UP: Final = Metric(
    name="greenroom.supervisor.gave_up",
    kind="counter",
    unit="{supervisor}",
    help="Supervisors that reached their restart intensity, and ended.",
    labels=(_KIND,),
    source="SupervisorGaveUp",
)
LOOP_LAG: Final = Metric(
    name="greenroom.loop.lag",
    kind="histogram",
    unit="s",
    help="How late the event loop was, as its watchdog measured.",
    source="LoopLagged",
    buckets=_SHORT_BUCKETS,
)
LOOP_BLOCKS: Final = Metric(
    name="greenroom.loop.blocks",
    kind="counter",
    unit="{block}",
    help="How often a handler blocked the event loop, by the class or function that did.",
    labels=(_KIND,),
    source="LoopBlocked",
)
THREADS_BUSY: Final = Metric(
    name="greenroom.thread.busy",
    kind="gauge",
    unit="{thread}",
    help="Threads for synchronous handlers that run one.",
    source="threads",
)
ACTS: Final = Metric(
    name="greenroom.acts",
    kind="counter",
    unit="{act}",
    help="Acts of persons on the running program.",
    labels=("greenroom.act", _OUTCOME),
    source="ActDone",
)

METRICS: Final[tuple[Metric, ...]] = (
    *(SERVER_OPERATION, CLIENT_OPERATION, SERVER_SESSION, CLIENT_SESSION),
    *(CALLS, CALLS_IN_FLIGHT, CALL_QUEUE, REFUSALS),
    *(SESSIONS_OPEN, STREAMS_OPEN, STREAMS_EVICTED, QUESTIONS_OPEN, QUESTIONS),
    *(TASKS_OPEN, TASKS, UPSTREAM_STATE, UPSTREAM_CHANGES, UPSTREAM_QUEUE, BREAKER_STATE, BREAKER_CHANGES, SIGN_INS),
    *(POOL_WORKERS, POOL_LOSSES),
    *(PROCESSES, MAILBOX_MESSAGES, MAILBOX_LONGEST, CRASHES, RESTARTS, START_FAILURES, LEAKS, GAVE_UP),
    *(LOOP_LAG, LOOP_BLOCKS, THREADS_BUSY, ACTS),
)
"""Every metric, in the order of its page."""
