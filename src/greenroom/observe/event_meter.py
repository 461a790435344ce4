"""`EventMeter`: from events to the numbers of the metric table, for every exposition of them.

It is a listener of `subscribe`. Each number goes to its series, a counter or a histogram; gauges are read. Labels are clean and bounded here: a name
that is not registered is `_unknown`, each label has a bound in the number of its values and each metric in that of its series, and control characters are
escaped. Of what peers choose, each program has a share.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom import event_types as events
from greenroom.supervision import visible
from greenroom.supervision.introspect import count_program

from . import metric_table as table
from .earlier_events import earlier_events, running_federations
from .fair_shares import FairShares
from .metric_table import OTHER, PROGRAM, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from greenroom.event_types import CallEnded, Event
    from greenroom.supervision.introspect import KindCount, ProgramCounts

    from .metric_table import Metric

    Series: TypeAlias = Callable[[float], object]
    FindSeries: TypeAlias = Callable[[Metric, tuple[str, ...]], Series]

_LONGEST: Final = 128
"""Characters of a label; a longer one is cut."""
_MOST_NAMES: Final = 2_000
"""Names of tools, prompts and pools of all programs, of which one program has up to 531."""
_MOST_CODES: Final = 128
"""Error codes of all programs, of which one program has up to 34."""
_MOST_SERIES: Final = 6_000
"""Combinations of labels of one metric, of which one program has up to 1,593; all further ones are counted together, with `_other` as each label."""
_MOST_VALUES: Final = 500
"""Values of one label that peers do not choose: programs, kinds of processes, upstreams."""
_FEW_VALUES: Final = 64
"""Values of a label that has a handful of them in practice: ports, revisions, acts."""
_MOST_CACHED: Final = 4096
_LONGEST_PORT: Final = 5
_LOOK_INTERVAL: Final = 1.0
_NAMED: Final[Mapping[str, str]] = {"tools/call": "tool", "prompts/get": "prompt"}
"""Methods whose name may be a label."""

_TRANSPORTS: Final[Mapping[str, tuple[str, str]]] = {"http": ("tcp", "http"), "stdio": ("pipe", "")}
"""By this program's word for a transport: the conventions' `network.transport` and `network.protocol.name`."""
_ERROR_TYPES: Final[Mapping[str, str]] = {"result": "", "asks": "", "error": "_OTHER", "deadline": "timeout"}


def error_type(ended: CallEnded) -> str:
    """The conventions' `error.type` of a call: the code of a JSON-RPC error, or else this program's word for the outcome. Empty for a call that did not fail."""
    if ended.code is not None:
        return str(ended.code)
    if ended.is_listen and (ended.outcome == "cancelled" or not ended.is_failure):
        return ""  # the ways in which one ends
    return _ERROR_TYPES.get(ended.outcome, ended.outcome)


def question_error_type(ended: events.QuestionEnded) -> str:
    """The same of a server's question to its client."""
    return {"error": "_OTHER", "lost": "lost"}.get(ended.outcome, "")


def address_parts(address: str) -> tuple[str, str]:
    """The host and the port of an address: `host:port`, or a host alone, as trusted proxies report it. An IPv6 address may be in brackets."""
    host, _, port = address.rpartition(":")
    is_port = 0 < len(port) <= _LONGEST_PORT and port.isascii() and port.isdecimal()
    if not host or not is_port or (":" in host and not host.endswith("]") and not _is_ipv6(host)):
        host, port = address, ""
    return host.removeprefix("[").removesuffix("]"), port


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


class LabelValues:
    """The values of one label: each clean and short, and `_other` when there are already as many as there may be."""

    __slots__ = ("_clean", "_most", "_shares")

    def __init__(self, most: int, *, is_shared: bool = False) -> None:
        """`is_shared`: peers choose the values, so that each program has a share of them."""
        self._most = most
        self._shares = FairShares(most) if is_shared else None
        self._clean: dict[str, str] = {"": ""}

    def __call__(self, value: str, program: str = "") -> str:
        """The value as a label, of this program where it is one that peers choose."""
        found = self._clean.get(value)
        if found is not None:
            return found
        if len(value) > _LONGEST:
            return self(_without_path(value)[:_LONGEST], program)
        if len(self._clean) > self._most if self._shares is None else not self._shares.take(program):
            return OTHER
        return self._clean.setdefault(value, visible(_without_path(value)))


def _without_path(name: str) -> str:
    """A name as it is; of a URL, which a server's name may be, the host and the port: the rest may hold credentials, also in a part that is cut."""
    _, is_url, rest = name.partition("://")
    return rest.partition("/")[0].rpartition("@")[2] if is_url else name


class _CallSeries(NamedTuple):
    """The series that a call is counted in."""

    operation: Series
    call: Series
    queue: Series


class EventMeter:
    """A listener that records what events count. It may be called from several threads."""

    def __init__(self, find_series: FindSeries) -> None:
        """`find_series` is called with a metric and the values of its labels in their order. What it returns is kept, and called with each number."""
        self._find_series = find_series
        self._series: dict[str, tuple[int, FairShares, set[tuple[str, ...]]]] = {
            metric.name: (metric.labels.index(PROGRAM), FairShares(_MOST_SERIES), set())
            for metric in table.METRICS
            if PROGRAM in metric.labels
        }
        """By metric: the place of the program in its labels, the shares of programs, and the series that they have. Others are bounded by their labels."""
        self._program = LabelValues(_MOST_VALUES)
        self._method = LabelValues(_MOST_VALUES)
        self._name = LabelValues(_MOST_NAMES, is_shared=True)
        self._kind = LabelValues(_MOST_VALUES)
        self._upstream = LabelValues(_MOST_VALUES)
        self._server = LabelValues(_MOST_VALUES)
        self._port = LabelValues(_FEW_VALUES)
        self._code = LabelValues(_MOST_CODES, is_shared=True)
        self._revision = LabelValues(_FEW_VALUES)
        self._act = LabelValues(_FEW_VALUES)
        self._word = LabelValues(_MOST_VALUES)
        """This program's own words: kinds of refusals, settings, states, signals."""
        self._call_series: dict[tuple[Any, ...], _CallSeries] = {}
        self._open: dict[str, dict[object, tuple[str, ...]]] = {metric.name: {} for metric in _COUNTED_WHILE_OPEN}
        """By gauge: what is open, with its labels. Each that is opened is closed once."""
        self._calls = self._open[table.CALLS_IN_FLIGHT.name]
        self._shown: dict[str, frozenset[tuple[str, ...]]] = {
            metric.name: frozenset() for metric in _COUNTED_WHILE_OPEN
        }
        """By gauge: the labels that were read, which are 0 when nothing is open any more."""
        self._states: dict[str, dict[tuple[str, str], dict[str, bool]]] = {
            table.UPSTREAM_STATE.name: {},
            table.BREAKER_STATE.name: {},
        }
        """By gauge and upstream: each state that it has had, and whether it has it now."""
        self._handlers: dict[type[Event], Callable[[Any], object]] = {
            events.CallStarted: self._call_started,
            events.CallEnded: self._call_ended,
            events.RequestRefused: self._request_refused,
            events.SessionOpened: self._session_opened,
            events.SessionClosed: self._session_closed,
            events.StreamOpened: self._stream_opened,
            events.StreamClosed: self._stream_closed,
            events.QuestionAsked: self._question_asked,
            events.QuestionEnded: self._question_ended,
            events.TaskCreated: self._task_created,
            events.TaskEnded: self._task_ended,
            events.UpstreamChanged: self._upstream_changed,
            events.BreakerChanged: self._breaker_changed,
            events.SignInEnded: self._sign_in_ended,
            events.PoolWorkerStarted: self._pool_worker_started,
            events.PoolWorkerEnded: self._pool_worker_ended,
            events.ChildStarted: self._child_started,
            events.ChildEnded: self._child_ended,
            events.ProcessCrashed: lambda event: self._count_kind(table.CRASHES, event.kind),
            events.SupervisorGaveUp: lambda event: self._count_kind(table.GAVE_UP, event.kind),
            events.ProcessLeaked: lambda event: self._count_kind(table.LEAKS, event.kind),
            events.LoopBlocked: lambda event: self._count_kind(table.LOOP_BLOCKS, event.kind),
            events.LoopLagged: lambda event: self._record(table.LOOP_LAG, (), event.seconds),
            events.ActDone: self._act_done,
        }
        self._counts: tuple[float, ProgramCounts] | None = None

    def __call__(self, event: Event) -> None:
        """Record an event. Those that no metric is made of are left out."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def take_up(self) -> None:
        """Show what began before it listened: it is open, and is counted no more. To be called once it listens."""
        for event in earlier_events():
            if isinstance(event, events.SessionOpened):
                self._session_opened(event)
            else:
                is_breaker = isinstance(event, events.BreakerChanged)
                self._set_state(table.BREAKER_STATE if is_breaker else table.UPSTREAM_STATE, event)

    def _record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        self._find(metric, labels)(value)

    def _find(self, metric: Metric, labels: tuple[str, ...]) -> Series:
        """The series of these labels, or the one for all that are too many."""
        if metric.name in self._series:
            place, shares, known = self._series[metric.name]
            if labels not in known:
                if not shares.take(labels[place]):
                    labels = (OTHER,) * len(labels)
                known.add(labels)
        return self._find_series(metric, labels)

    # --- gauges

    def gauges(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        """The present value of each gauge. Processes and threads are looked at once a second, however often this is called."""
        for metric in _COUNTED_WHILE_OPEN:
            # `list` of a dict's values is atomic, so that another thread may change the dict.
            present = Counter(list(self._open[metric.name].values()))
            shown = self._shown[metric.name]
            yield from ((metric, labels, present[labels]) for labels in [*present, *(shown - present.keys())])
            self._shown[metric.name] = shown | set(islice(present.keys() - shown, _MOST_SERIES - len(shown)))
        for metric in (table.UPSTREAM_STATE, table.BREAKER_STATE):
            yield from self._state_gauges(metric)
        counts = self._program_counts()
        by_kind: dict[str, KindCount] = {}
        for kind, count in counts.kinds.items():
            label = self._kind(kind)
            by_kind[label] = count if label not in by_kind else by_kind[label] + count
        for label, count in by_kind.items():
            for metric in (table.CRASHES, table.RESTARTS):
                self._record(metric, (label,), 0)  # a counter that begins at 1 has no first increase
            yield table.PROCESSES, (label,), count.processes
            yield table.MAILBOX_MESSAGES, (label,), count.waiting
            yield table.MAILBOX_LONGEST, (label,), count.longest
        yield table.THREADS_BUSY, (), counts.busy_threads
        queues: Counter[tuple[str, str]] = Counter()
        for program, upstream, waiting in _upstream_queues():
            queues[self._program(program), self._upstream(upstream)] += waiting
        for labels, waiting in queues.items():
            yield table.UPSTREAM_QUEUE, labels, waiting

    def _state_gauges(self, metric: Metric) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        total: dict[tuple[str, str, str], int] = {}
        for (program, upstream), states in list(self._states[metric.name].items()):
            for state, is_present in list(states.items()):
                labels = (self._program(program), self._upstream(upstream), self._word(state))
                total[labels] = total.get(labels, 0) + is_present
        for labels, count in total.items():
            yield metric, labels, count

    def _program_counts(self) -> ProgramCounts:
        now = time.monotonic()
        if self._counts is None or now - self._counts[0] >= _LOOK_INTERVAL:
            self._counts = (now, count_program())
        return self._counts[1]

    # --- calls

    def _call_started(self, event: events.CallStarted) -> None:
        self._calls[event.call] = (event.side, self._program(event.program), event.way)

    def _call_ended(self, event: events.CallEnded) -> None:
        self._calls.pop(event.call, None)
        is_client = event.side == "client"
        key = (
            is_client,
            event.program,
            event.way,
            event.method if event.is_method_known else None,
            event.name if event.is_known and event.method in _NAMED else event.is_known,
            event.outcome,
            event.code,
            event.isolation,
            event.revision,
            event.transport,
            event.http_version,
            event.principal_kind,
            event.address if is_client else "",
        )
        series = self._call_series.get(key)
        if series is None:
            if len(self._call_series) >= _MOST_CACHED:
                self._call_series.clear()
            series = self._call_series[key] = self._series_of(event)
        series.operation(event.seconds)
        series.call(1)
        series.queue(event.queued)

    def _series_of(self, event: CallEnded) -> _CallSeries:
        program = self._program(event.program)
        method = self._method(event.method) if event.is_method_known else UNKNOWN
        part = _NAMED.get(event.method)
        name = "" if part is None or not event.name else self._name(event.name, program) if event.is_known else UNKNOWN
        code = "" if event.code is None else self._code(str(event.code), program)
        operation: tuple[str, ...] = (
            method,
            code or error_type(event),
            name if part == "tool" else "",
            name if part == "prompt" else "",
            "execute_tool" if part == "tool" else "",
            code,
            *self._connection(event.revision, event.transport, event.http_version),
            program,
        )
        if event.side == "client":
            operation = (*operation, *self._server_labels(event.address))
        place = (event.side, program, event.way)
        call = (*place, method, name, event.outcome, event.isolation, event.principal_kind)
        metric = table.CLIENT_OPERATION if event.side == "client" else table.SERVER_OPERATION
        find = self._find
        return _CallSeries(find(metric, operation), find(table.CALLS, call), find(table.CALL_QUEUE, place))

    def _connection(self, revision: str, transport: str, http_version: str) -> tuple[str, str, str, str]:
        network, protocol = _TRANSPORTS.get(transport, ("", ""))
        return self._revision(revision), network, protocol, self._word(http_version)

    def _server_labels(self, address: str) -> tuple[str, str]:
        host, port = address_parts(address)
        return self._server(host), self._port(port)

    def _request_refused(self, event: events.RequestRefused) -> None:
        word = self._word
        labels = (self._program(event.program), word(event.kind), word(event.setting), word(event.transport))
        self._record(table.REFUSALS, labels, 1)

    # --- sessions, streams, questions and tasks

    def _session_opened(self, event: events.SessionOpened) -> None:
        labels = (event.side, self._program(event.program), self._word(event.transport))
        self._open[table.SESSIONS_OPEN.name][event.side, event.program, event.session] = labels

    def _session_closed(self, event: events.SessionClosed) -> None:
        self._open[table.SESSIONS_OPEN.name].pop((event.side, event.program, event.session), None)
        error = "_OTHER" if event.is_failure else ""
        labels = (
            error,
            *self._connection(event.revision, event.transport, event.http_version),
            self._program(event.program),
        )
        if event.side == "client":
            self._record(table.CLIENT_SESSION, (*labels, *self._server_labels(event.address)), event.seconds)
        else:
            self._record(table.SERVER_SESSION, labels, event.seconds)

    def _stream_opened(self, event: events.StreamOpened) -> None:
        self._open[table.STREAMS_OPEN.name][event.stream] = (self._program(event.program), event.kind)

    def _stream_closed(self, event: events.StreamClosed) -> None:
        self._open[table.STREAMS_OPEN.name].pop(event.stream, None)
        if event.is_evicted:
            self._record(table.STREAMS_EVICTED, (self._program(event.program), event.kind), 1)

    def _question_asked(self, event: events.QuestionAsked) -> None:
        labels = (event.side, self._program(event.program), self._method(event.method))
        self._open[table.QUESTIONS_OPEN.name][event.side, event.question] = labels

    def _question_ended(self, event: events.QuestionEnded) -> None:
        self._open[table.QUESTIONS_OPEN.name].pop((event.side, event.question), None)
        method, program = self._method(event.method), self._program(event.program)
        self._record(table.QUESTIONS, (event.side, program, method, event.outcome), 1)
        if event.request:  # an operation of the protocol, whose sender is the server
            connection = self._connection(event.revision, event.transport, event.http_version)
            operation = (method, question_error_type(event), "", "", "", "", *connection, program)
            if event.side == "server":
                self._record(table.CLIENT_OPERATION, (*operation, "", ""), event.seconds)
            else:
                self._record(table.SERVER_OPERATION, operation, event.seconds)

    def _task_created(self, event: events.TaskCreated) -> None:
        self._open[table.TASKS_OPEN.name][event.program, event.task] = (self._program(event.program),)

    def _task_ended(self, event: events.TaskEnded) -> None:
        self._open[table.TASKS_OPEN.name].pop((event.program, event.task), None)
        self._record(table.TASKS, (self._program(event.program), self._word(event.status)), 1)

    # --- upstreams, sign-ins and pools

    def _upstream_changed(self, event: events.UpstreamChanged) -> None:
        self._set_state(table.UPSTREAM_STATE, event)
        self._record(table.UPSTREAM_CHANGES, self._state_labels(event), 1)
        if event.state == _REMOVED:
            for by_upstream in self._states.values():
                by_upstream.pop((event.program, event.upstream), None)

    def _breaker_changed(self, event: events.BreakerChanged) -> None:
        self._set_state(table.BREAKER_STATE, event)
        self._record(table.BREAKER_CHANGES, self._state_labels(event), 1)

    def _state_labels(self, event: events.UpstreamChanged | events.BreakerChanged) -> tuple[str, str, str]:
        return self._program(event.program), self._upstream(event.upstream), self._word(event.state)

    def _set_state(self, gauge: Metric, event: events.UpstreamChanged | events.BreakerChanged) -> None:
        had = self._states[gauge.name].get((event.program, event.upstream), {})
        # A new dict, since another thread may read the old one.
        self._states[gauge.name][event.program, event.upstream] = {**dict.fromkeys(had, False), event.state: True}

    def _sign_in_ended(self, event: events.SignInEnded) -> None:
        outcome = "failure" if event.is_failure else "success"
        labels = (event.side, self._program(event.program), self._word(event.kind), outcome)
        self._record(table.SIGN_INS, labels, 1)

    def _pool_worker_started(self, event: events.PoolWorkerStarted) -> None:
        program = self._program(event.program)
        labels = (program, self._name(event.pool, program))
        self._open[table.POOL_WORKERS.name][event.program, event.pool, event.process] = labels

    def _pool_worker_ended(self, event: events.PoolWorkerEnded) -> None:
        self._open[table.POOL_WORKERS.name].pop((event.program, event.pool, event.process), None)
        if event.is_failure:
            program = self._program(event.program)
            labels = (program, self._name(event.pool, program), self._word(event.signal or "exit"))
            self._record(table.POOL_LOSSES, labels, 1)

    # --- processes

    def _child_started(self, event: events.ChildStarted) -> None:
        if event.is_restart:
            self._count_kind(table.RESTARTS, event.kind)

    def _child_ended(self, event: events.ChildEnded) -> None:
        if event.is_start:
            self._count_kind(table.START_FAILURES, event.kind)

    def _count_kind(self, metric: Metric, kind: str) -> None:
        self._record(metric, (self._kind(kind),), 1)

    def _act_done(self, event: events.ActDone) -> None:
        # Why an act was not done is a text of its own each time, and its name is a viewer's.
        self._record(table.ACTS, (self._act(event.act), "done" if event.outcome == "done" else "not_done"), 1)


def _upstream_queues() -> Iterator[tuple[str, str, int]]:
    """Each upstream that is attached, and how many calls wait for it. Any thread may ask."""
    for _, federation in running_federations():
        for upstream in list(federation.members.values()):
            yield federation.key.name, upstream.name, upstream.limiter.waiting


_COUNTED_WHILE_OPEN: Final = (
    table.CALLS_IN_FLIGHT,
    table.SESSIONS_OPEN,
    table.STREAMS_OPEN,
    table.QUESTIONS_OPEN,
    table.TASKS_OPEN,
    table.POOL_WORKERS,
)
_REMOVED: Final = "stopped"
"""The last state of an upstream."""
