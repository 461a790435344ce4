"""The views of what a program serves and calls: its sessions, tools, upstreams, pools and tasks, read from the companies and federations that run.

Nothing is loaded here that the program does not use: a server's modules only where there is a server. Reading sends no message, and gives way to the loop in slices.
"""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from greenroom.actors.process_names import short_task_id
from greenroom.actors.running_trees import running_trees
from greenroom.supervision import visible
from greenroom.supervision.behaviours.threads import is_idle_pool_thread
from greenroom.transports.access_log import principal_kind, principal_text
from greenroom.transports.interfaces import short_id

from .event_record import template_of
from .event_views import shown, total_of
from .process_views import Turns
from .secret_masks import masked
from .time_windows import SpreadWindow
from .view_models import PAGE_SIZE
from .view_rows import (
    BlockRow,
    Curve,
    NodeLoop,
    PoolRow,
    PoolWorkerRow,
    QuestionRow,
    SessionRow,
    StreamRow,
    TaskRow,
    ToolRow,
    UpstreamRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from greenroom.actors.company import Company
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.upstream import Upstream
    from greenroom.actors.pools.scheduler import PoolFacts, PoolScheduler
    from greenroom.actors.session import SessionProcess
    from greenroom.actors.task_process import TaskProcess
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.supervisors.supervisor_base import BaseSupervisor

    from .event_record import EventRecord, NameCounts, NameKey
    from .view_models import ViewQuery

_LONGEST_DESCRIPTION: Final = 500
_MOST_WORKERS: Final = 100
_MOST_THREADS: Final = 100
_MOST_TOOLS_OF_POOL: Final = 20


class ViewPage(NamedTuple):
    """The rows of one page, and how many there are on all."""

    rows: list[Any]
    matching: int
    total: int

    @property
    def pages(self) -> int:
        """The number of pages."""
        return max(1, -(-self.matching // PAGE_SIZE))


async def paged(
    found: Sequence[Any], query: ViewQuery, texts: Callable[[Any], Iterable[str]], row: Callable[[Any], Any]
) -> ViewPage:
    """One page of what was found: what has the query's text in one of its `texts`, each as a `row`."""
    turns, text = Turns(), query.text.lower()
    fitting: list[Any] = []
    for each in found if text else ():
        if any(text in part.lower() for part in texts(each)):
            fitting.append(each)
        if turns.is_over():
            await turns.rest()
    matching = fitting if text else found
    first = max(0, query.page) * PAGE_SIZE
    rows: list[Any] = []
    for each in matching[first : first + PAGE_SIZE]:
        rows.append(row(each))
        if turns.is_over():
            await turns.rest()
    return ViewPage(rows, len(matching), len(found))


def companies(node: Node) -> list[Company]:
    """The servers that run on this node, by name."""
    module: Any = sys.modules.get("greenroom.actors.company")
    found: list[Company] = [] if module is None else running_trees(node, module.Company)
    return sorted(found, key=lambda each: str(each.key))


def federations(node: Node) -> list[Federation]:
    """The hosts and gateways that run on this node, by name."""
    module: Any = sys.modules.get("greenroom.actors.federation.federation")
    found: list[Federation] = [] if module is None else running_trees(node, module.Federation)
    return sorted(found, key=lambda each: str(each.key))


def children_of(node: Node, name: Any) -> list[Process]:
    """The processes below the supervisor of that name; none while it does not run."""
    process = node.named(name)
    supervisor: Any = None if process is None else process.behaviour.inner
    if not hasattr(supervisor, "children"):
        return []
    records = list(cast("BaseSupervisor", supervisor).children())
    found = (None if each.pid is None else node.process(each.pid) for each in records)
    return [each for each in found if each is not None and not each.life]


# --- sessions and streams


@dataclass(slots=True, eq=False)
class _Session:
    """A session of a company, or a connection that events told of."""

    company: Company | None
    process: Process | None
    event: Any = None
    at: float = 0.0


def sessions_of(node: Node, record: EventRecord, program: str = "") -> list[Any]:
    """All sessions of this node's servers, and the connections of its clients."""
    found: list[_Session] = []
    for company in companies(node):
        if not program or company.settings.name == program:
            found += [_Session(company, each) for each in children_of(node, company.name("sessions"))]
    with record.lock:
        clients = [
            (at, event)
            for at, event in record.sessions.entries.values()
            if event.side == "client" and (not program or event.program == program)
        ]
    return [*found, *(_Session(None, None, event, at) for at, event in clients)]


def count_sessions(node: Node, record: EventRecord) -> int:
    """How many sessions and connections there are."""
    supervisors = (node.named(company.name("sessions")) for company in companies(node))
    own = sum(_size(each.behaviour.inner) for each in supervisors if each is not None and not each.life)
    with record.lock:
        keys: list[Any] = list(record.sessions.entries)
    return own + sum(1 for key in keys if key[0] == "client")


def _size(supervisor: Any) -> int:
    size: int = len(supervisor)
    return size


def texts_of_session(session: _Session) -> tuple[str, ...]:
    """What a filter looks at."""
    row = session.event
    if row is not None:
        return row.program, row.peer, row.session, row.address, row.principal, row.side
    info = _behaviour(session).info
    client = info.client_info.get("name")
    name = client if isinstance(client, str) else ""
    return (
        name,
        short_id(info.id),
        info.peer.address,
        "" if info.peer.principal is None else principal_text(info.peer.principal),
        session.company.settings.name if session.company is not None else "",
        info.peer.transport,
    )


def _behaviour(session: _Session) -> SessionProcess:
    assert session.process is not None
    return cast("SessionProcess", session.process.behaviour.inner)


def session_row(session: _Session, now: float, loop_time: float, streams: Mapping[str, int]) -> SessionRow:
    """A session as a row."""
    if session.process is None:
        event = session.event
        return SessionRow(
            session=shown(event.session),
            side=event.side,
            program=shown(event.program),
            revision=shown(event.revision),
            transport=shown(event.transport),
            peer=shown(event.peer),
            address=shown(event.address),
            principal=shown(event.principal),
            principal_kind=event.principal_kind,
            state="ready",
            age=max(0.0, now - session.at),
        )
    behaviour = _behaviour(session)
    info = behaviour.info
    client: Any = info.client_info.get("name")
    peer, id = info.peer, short_id(info.id)
    assert session.company is not None
    return SessionRow(
        session=id,
        side="server",
        program=shown(session.company.settings.name),
        revision=info.version or "",
        transport=peer.transport,
        peer=shown(client) if isinstance(client, str) else "",
        address=shown(peer.forwarded or peer.address),
        principal="" if peer.principal is None else shown(principal_text(peer.principal)),
        principal_kind=principal_kind(peer.principal),
        state=str(info.state.value),
        age=max(0.0, loop_time - info.created),
        idle=max(0.0, loop_time - behaviour.last_used),
        calls=len(behaviour.calls.table),
        questions=len(behaviour.questions.table),
        streams=streams.get(id, 0),
        pid=str(session.process.pid),
    )


def stream_rows(record: EventRecord, now: float, most: int) -> list[StreamRow]:
    """The streams that are open, the oldest first."""
    with record.lock:
        found = list(record.streams.entries.values())[:most]
    return [
        StreamRow(
            stream=event.stream,
            kind=event.kind,
            program=shown(event.program),
            session=shown(event.session),
            age=max(0.0, now - at),
        )
        for at, event in found
    ]


def streams_by_session(record: EventRecord) -> dict[str, int]:
    """How many streams each session has."""
    counts: dict[str, int] = {}
    with record.lock:
        for _, event in record.streams.entries.values():
            counts[event.session] = counts.get(event.session, 0) + 1
    return counts


# --- upstreams


def upstreams_of(node: Node, program: str = "") -> list[tuple[Federation, Upstream]]:
    """All servers of this node's hosts and gateways, including those that come and go."""
    return [
        (federation, upstream)
        for federation in federations(node)
        if not program or str(federation.key) == program
        for some in (federation.members, federation.arriving, federation.leaving)
        for upstream in some.values()
    ]


def acts_on_upstream(upstream: Upstream) -> list[str]:
    """What makes sense in its state."""
    match upstream.status.state.value:
        case "stopped" | "stopping":
            return []
        case "parked":
            is_held = upstream.parked is not None and upstream.revive_at is None
            return ["retry"] if is_held else ["retry", "park"]
        case "ready":
            return ["restart", "park"]
        case _:
            return ["retry", "park"]


def upstream_row(
    federation: Federation, upstream: Upstream, node: Node, record: EventRecord, now: float, *, acts: bool
) -> UpstreamRow:
    """A server of a host as a row."""
    status, program = upstream.status, str(federation.key)
    with record.lock:
        counts = record.programs.get((federation.key.name, upstream.name))
        spread = (SpreadWindow() if counts is None else counts.window).spread(now)
    offering, process = upstream.offering, None if upstream.pid is None else node.process(upstream.pid)
    is_running = process is not None and not process.life
    return UpstreamRow(
        upstream=shown(upstream.name),
        program=shown(program),
        state=status.state.value,
        since=status.since,
        reason=shown(status.reason, _LONGEST_DESCRIPTION),
        next_attempt=status.next_attempt,
        breaker=upstream.breaker.state.value,
        in_progress=status.in_progress,
        waiting=upstream.limiter.waiting,
        revision=shown(status.revision),
        sign_in_url=shown(status.sign_in_url, _LONGEST_DESCRIPTION),
        process=status.process,
        tools=len(offering.tools),
        resources=len(offering.resources),
        prompts=len(offering.prompts),
        calls=0 if counts is None else counts.calls,
        failed=0 if counts is None else counts.failed,
        spread=spread,
        restarts=status.restarts,
        pid=str(upstream.pid) if is_running else "",
        acts=acts_on_upstream(upstream) if acts else [],
    )


# --- calls


def jobs_of(node: Node) -> Iterator[tuple[Company, Process, Any]]:
    """The processes of this node's calls, each with the call that it runs for."""
    for company in companies(node):
        for role in ("workers", "exchanges"):
            process = node.named(company.name(role))
            supervisor: Any = None if process is None else process.behaviour.inner
            for record in list(supervisor.children()) if hasattr(supervisor, "children") else ():
                job = None if record.pid is None else node.process(record.pid)
                observed = getattr(getattr(record, "waiter", None), "observed", None)
                if job is not None and observed is not None:
                    yield company, job, record.waiter


async def call_processes(node: Node) -> dict[int, str]:
    """The pids of the processes that run calls, by the numbers of the calls."""
    turns = Turns()
    found: dict[int, str] = {}
    for _, process, call in jobs_of(node):
        found[call.observed.number] = str(process.pid)
        if turns.is_over():
            await turns.rest()
    return found


def calls_in_flight(record: EventRecord) -> dict[NameKey, int]:
    """How many calls of each name are in flight."""
    counts: dict[NameKey, int] = {}
    with record.lock:
        started = [each.started for each in record.calls.values()]
    for each in started:
        key = (each.side, each.program, each.method, template_of(each), each.host)
        counts[key] = counts.get(key, 0) + 1
    return counts


# --- tools

_OWN_LOOP: Final = "own loop"
"""The mode of a handler that runs in a thread with a loop of its own."""
_METHODS: Final = {"tool": "tools/call", "prompt": "prompts/get"}


class _Tool(NamedTuple):
    """Something that can be called, as its owner registered it or its server announced it, with its counts."""

    key: NameKey
    wire: Mapping[str, Any]
    entry: Any
    counts: NameCounts | None


def tools_of(node: Node, record: EventRecord, query: ViewQuery) -> list[Any]:
    """What can be called here and at upstreams, and what was called: the most called first."""
    known: dict[NameKey, tuple[Mapping[str, Any], Any]] = {}
    for company in companies(node):
        for kind, method in _METHODS.items():
            for name, entry in company.catalogue_ref.current.all(cast("Any", kind)).items():
                known["server", company.settings.name, method, str(name), ""] = entry.wire, entry  # type: ignore[union-attr]  # completions have none
    for federation, upstream in upstreams_of(node):
        host = federation.key.name
        for method, offered in (("tools/call", upstream.offering.tools), ("prompts/get", upstream.offering.prompts)):
            for name, wire in offered.items():
                known["client", upstream.name, method, name, host] = wire, None
    with record.lock:
        counts = {key: each for key, each in record.names.items() if each.name}
    nothing: tuple[Mapping[str, Any], Any] = ({}, None)
    found = [_Tool(key, *known.get(key, nothing), counts.get(key)) for key in {**counts, **known}]
    if query.program:
        found = [each for each in found if query.program in (each.key[1], f"{each.key[4]}/{each.key[1]}")]
    if query.tool:
        found = [each for each in found if each.key[3] == query.tool]
    # A tool by its name is this program's own: those of upstreams and clients may have the same name, and more calls.
    return sorted(
        found,
        key=lambda each: (
            bool(query.tool) and each.entry is None,
            -(each.counts.calls if each.counts else 0),
            each.key,
        ),
    )


def texts_of_tool(tool: _Tool) -> tuple[str, ...]:
    """What a filter looks at."""
    return (*tool.key, _text(tool.wire, "title"), _text(tool.wire, "description"))


def tool_row(tool: _Tool, record: EventRecord, in_flight: Mapping[NameKey, int], now: float) -> ToolRow:
    """A tool as a row."""
    side, program, method, name, host = tool.key
    counts = tool.counts
    handler = getattr(tool.entry, "handler", None)
    isolation = ("" if counts is None else counts.isolation) if handler is None else handler.mode.value
    row = ToolRow(
        program=shown(program),
        side=side,
        method=shown(method),
        name=shown(name),
        host=shown(host),
        title=shown(_text(tool.wire, "title")),
        description=shown(_text(tool.wire, "description"), _LONGEST_DESCRIPTION),
        isolation="thread" if isolation == _OWN_LOOP else isolation,
        in_flight=in_flight.get(tool.key, 0),
    )
    if counts is None:
        return row
    with record.lock:
        return msgspec.structs.replace(
            row,
            calls=counts.calls,
            per_second=counts.rate.per_second(now),
            failed=counts.failed,
            tool_errors=counts.outcomes["tool_error"],
            refused=counts.refused,
            crashes=counts.crashes,
            spread=counts.window.spread(now),
        )


def _text(wire: Mapping[str, Any], name: str) -> str:
    value = wire.get(name)
    return value if isinstance(value, str) else ""


def tool_details(
    tool: _Tool, record: EventRecord, now: float
) -> tuple[list[Curve], dict[str, int], dict[str, Any] | None]:
    """The curves of one tool, how its calls ended, and the schema of its arguments."""
    schema: Any = tool.wire.get("inputSchema")
    shown_schema = masked(dict(cast("dict[str, Any]", schema)), hides_names=False) if isinstance(schema, dict) else None
    if tool.counts is None:
        return [], {}, shown_schema
    with record.lock:
        curves = [
            tool.counts.rate.curve("calls", "1/s", now, is_rate=True),
            tool.counts.failures.curve("failed", "1/s", now, is_rate=True),
        ]
        return curves, total_of(tool.counts.outcomes), shown_schema


# --- pools


def pools_of(node: Node) -> list[tuple[Company, Process, PoolFacts]]:
    """The pools that run."""
    found: list[tuple[Company, Process, PoolFacts]] = []
    for company in companies(node):
        for supervisor in children_of(node, company.name("pool_supervisors")):
            for record in cast("BaseSupervisor", supervisor.behaviour.inner).children():
                process = None if record.pid is None else node.process(record.pid)
                if process is not None and hasattr(process.behaviour.inner, "recycle"):
                    found.append((company, process, cast("PoolScheduler", process.behaviour.inner).facts()))
    return found


def pool_id(facts: PoolFacts) -> str:
    """The name of a pool in views and events."""
    return str(facts.pool.serial)


def pool_row(
    company: Company, process: Process, facts: PoolFacts, node: Node, record: EventRecord, *, acts: bool
) -> PoolRow:
    """A pool as a row."""
    id = pool_id(facts)
    with record.lock:
        counts = record.pools.get((company.settings.name, id))
    workers = [
        PoolWorkerRow(
            process=_os_pid(node, each.proxy),
            pid=str(each.proxy),
            state=each.state,
            calls=each.calls,
            tool=shown(each.tool),
            seconds=each.seconds,
        )
        for each in facts.workers[:_MOST_WORKERS]
    ]
    return PoolRow(
        pool=id,
        program=shown(company.settings.name),
        tools=[shown(each) for each in facts.tools[:_MOST_TOOLS_OF_POOL]],
        most=facts.pool.most,
        warm=facts.pool.warm,
        waiting=facts.waiting,
        busy=sum(each.state == "busy" for each in facts.workers),
        workers=workers,
        started=0 if counts is None else counts.started,
        lost={} if counts is None else total_of(counts.lost),
        why=shown(facts.why, _LONGEST_DESCRIPTION),
        pid=str(process.pid),
        acts=["recycle"] if acts and facts.workers else [],
    )


def _os_pid(node: Node, pid: Any) -> int | None:
    process = None if pid is None else node.process(pid)
    return None if process is None else getattr(process.behaviour.inner, "os_pid", None)


# --- tasks and questions


def tasks_of(node: Node) -> list[tuple[Company, Process, TaskProcess]]:
    """The tasks that are worked on, the oldest first."""
    return [
        (company, process, cast("TaskProcess", process.behaviour.inner))
        for company in companies(node)
        for process in children_of(node, company.name("task_processes"))
        if hasattr(process.behaviour.inner, "record")
    ]


def task_row(company: Company, process: Process, task: TaskProcess, *, acts: bool) -> TaskRow:
    """A task that is worked on."""
    record = task.record
    return TaskRow(
        task=short_task_id(record.id),
        program=shown(company.settings.name),
        method=shown(record.method),
        name=shown(record.name),
        status=record.status,
        age=max(0.0, company.tasks.now() - record.created),
        pid=str(process.pid),
        acts=["cancel_task"] if acts and not record.terminal else [],
    )


def ended_tasks(record: EventRecord, most: int) -> list[TaskRow]:
    """The tasks that ended last, the newest first."""
    with record.lock:
        found = list(record.ended_tasks)[:most]
    return [
        TaskRow(
            task=shown(event.task),
            program=shown(event.program),
            method=shown(event.method),
            name=shown(event.name),
            status=shown(event.status),
            age=event.seconds,
            is_ended=True,
        )
        for _, event in found
    ]


def question_row(
    at: float, event: Any, record: EventRecord, now: float, *, shows_text: Callable[[str], bool]
) -> QuestionRow:
    """A question without an answer. `shows_text` tells of which tools it is shown what they ask."""
    seen = record.find_call(event.call) if event.call else None
    started = None if seen is None else seen.started
    texts = [text for _, step, text in seen.steps if step == "question"] if seen is not None else []
    name = "" if started is None else started.name
    return QuestionRow(
        question=event.question,
        side=event.side,
        program=shown(event.program),
        method=shown(event.method),
        age=max(0.0, now - at),
        call=event.call,
        tool=shown(name),
        session="" if started is None else shown(started.session),
        peer="" if started is None else shown(started.principal or started.address),
        text=shown(texts[-1], _LONGEST_DESCRIPTION) if texts and shows_text(name) else "",
    )


# --- the loop


def node_loop(node: Node, record: EventRecord, now: float) -> NodeLoop:
    """The event loop of a node, and the threads of the program."""
    watchdog = node.watchdog
    lags = [] if watchdog is None else list(watchdog.lags)
    threads = threading.enumerate()
    pooled = [each for each in threads if each.name.startswith("greenroom-thread-")]
    busy = sum(not is_idle_pool_thread(each) for each in pooled)
    with record.lock:
        blocks = [(at, event) for at, event in record.blocks if event.node == node.name]
        curve = record.lag.curve("lag", "s", now)
        longest = record.lag.highest(now)
    return NodeLoop(
        node=node.name,
        lag=lags[-1].seconds if lags else 0.0,
        longest_lag=max([longest, *(each.seconds for each in lags)]),
        is_watched=watchdog is not None,
        runnable=len(node.run_queue),
        timers=len(node.deadlines),
        workers=len(node.workers),
        busy_workers=node.workers.busy,
        leaked=node.leaks,
        threads=len(threads),
        thread_names=[
            shown(f"{each.name}{'' if each not in pooled or is_idle_pool_thread(each) else ' (busy)'}")
            for each in threads[:_MOST_THREADS]
        ],
        threads_busy=busy,
        threads_most=len(pooled),
        collections=gc.get_stats()[-1]["collections"],
        lags=curve,
        blocks=[
            BlockRow(
                at=at,
                label=shown(event.label),
                kind=shown(event.kind),
                pid=shown(event.pid),
                seconds=event.seconds,
                stack=visible(event.stack, lines=True),
            )
            for at, event in blocks
        ],
    )
