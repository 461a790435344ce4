"""`Observatory`: what a running program shows to its pages, to the terminal and to its inspect socket, as the structs of `view_models`.

It is a plain object in the loop of the node that it shows. While it is started it adds up the program's events, which takes some microseconds each; a view is made when
a viewer asks for it, in slices that leave the loop to the calls, and then is the same for all viewers for a second. Messages of the protocol and steps of calls are heard
only while a viewer looks at them, or where the program captures them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import msgspec

from greenroom import event_types as events
from greenroom.errors import GreenroomError
from greenroom.supervision import current_node
from greenroom.supervision.event_bus import bus
from greenroom.supervision.kernel.process_lookup import shared_task

from . import event_views, process_views, program_views
from .earlier_events import earlier_events
from .event_record import EventRecord
from .time_windows import MINUTE, STEP, CountWindow
from .view_models import (
    VIEW_TYPES,
    CallsView,
    CallView,
    CrashesView,
    FaultsView,
    LoopView,
    NowView,
    PoolsView,
    ProcessView,
    QuestionsView,
    SessionsView,
    TasksView,
    ToolsView,
    TreeView,
    UpstreamsView,
    ViewQuery,
    WireView,
)
from .view_rows import UpstreamCount
from .wire_record import PageRoom, WireRecord

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence

    from greenroom.event_types import Event
    from greenroom.supervision.kernel.node import Node

    from .acts import Acts
    from .event_record import SeenCall
    from .fault_trials import FaultTrials
    from .process_views import ProcessIndex
    from .view_models import ActOutcome, View

REFRESH: Final = 1.0
"""For how many seconds a view is the same for all viewers."""
MOST_VIEWS: Final = 64
"""The views of a second that are kept: as many different ones can be looked at without being made more than once."""
_DETAIL_SECONDS: Final = 30.0
"""For how long details are heard after a view that shows them."""
_DETAILED: Final = frozenset({"calls", "call", "wire", "questions"})
_MOST_ROWS: Final = 50
"""The rows of a list that stands beside another one."""
_QUERIES: Final = msgspec.json.Encoder()


class BadQuery(GreenroomError, ValueError):
    """A viewer has asked for a view that does not exist, or in a way that has no meaning."""


class _MadeView(NamedTuple):
    """A view, or one that is being made."""

    at: float
    making: asyncio.Task[View]


class Observatory:
    """The views of one program, and the acts on it."""

    def __init__(  # noqa: PLR0913 - all optional and by keyword
        self,
        program: str,
        *,
        version: str = "",
        urls: Callable[[], Sequence[str]] = tuple,
        state: Callable[[], str] | None = None,
        drain: Callable[[], object] | None = None,
        undrain: Callable[[], object] | None = None,
        capture: bool | Collection[str] = False,
        acts: bool = False,
        faults: bool = False,
    ) -> None:
        """`urls` says where the program serves, and `state` what `NowView.state` shows.

        `drain` makes it not ready, so that new work is sent elsewhere, and `undrain` makes it ready again.
        `capture`: whether arguments and results are shown, of all calls or of these tools. `acts` and `faults`: whether the program allows them; which viewer may is
        the caller's to check.
        """
        self.program = program
        self.version = version
        self.capture = capture
        self.may_act = acts
        self.may_inject = faults
        self.drain = drain
        self.undrain = undrain
        self._urls = urls
        self._state = state
        self._epoch: tuple[asyncio.AbstractEventLoop, float] | None = None
        self.record = EventRecord(self.now)
        """What the program's events add up to."""
        self.wire = WireRecord(self.now, capture=capture)
        """The messages of the protocol that passed."""
        self.node: Node
        self._subscriptions: list[Callable[[], None]] = []
        self._details: Callable[[], None] | None = None
        self._details_until = 0.0
        self._views: OrderedDict[tuple[str, ViewQuery], _MadeView] = OrderedDict()
        self._index: tuple[float, asyncio.Task[ProcessIndex]] | None = None
        self._walking = asyncio.Lock()
        """Held for a walk over the tree: one alone leaves the loop to the calls, many at once would not."""
        self._viewers: set[asyncio.Event] = set()
        self._beat = 0
        self._beating: asyncio.TimerHandle | None = None
        self._sampling: asyncio.TimerHandle | None = None
        self._started_at = 0.0
        self._processes, self._sessions, self._streams = CountWindow(STEP), CountWindow(STEP), CountWindow(STEP)
        self._acts: Acts | None = None
        self._trials: FaultTrials | None = None

    def __repr__(self) -> str:
        return f"<Observatory of {self.program}, {len(self._viewers)} viewers>"

    def now(self) -> float:
        """Seconds since 1970, by the clock of the loop: it never goes back. Any thread may read it."""
        if self._epoch is None:
            return time.time()
        loop, epoch = self._epoch
        return epoch + loop.time()

    # --- starting and stopping

    def start(self) -> None:
        """Begin to add up events. Call it in the loop of the node that is shown."""
        if self._subscriptions:
            return
        self.node = current_node()
        loop = self.node.loop
        if self._epoch is None or self._epoch[0] is not loop:
            self._epoch = loop, time.time() - loop.time()
        self._started_at = loop.time()
        self.record.forget_open()
        self.record.begin()
        self._subscriptions = [bus.subscribe(self.record.take)]
        for event in earlier_events():
            if isinstance(event, events.SessionOpened):
                self.record.take_up(event)
        if self.capture:
            self._subscriptions.append(bus.subscribe(self._take_detail, details=True))
        self._sample()

    def stop(self) -> None:
        """Add up no more, and let all viewers go. What happened stays known; what was in progress is forgotten at the next start."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions.clear()
        self._end_details()
        for timer in (self._beating, self._sampling):
            if timer is not None:
                timer.cancel()
        self._beating = self._sampling = None
        for made in self._views.values():
            made.making.cancel()
        if self._index is not None:
            self._index[1].cancel()
        self.forget()
        self._index = None
        self._beat = -1
        for each in self._viewers:
            each.set()
        if self._trials is not None:
            self._trials.stop()

    @property
    def is_started(self) -> bool:
        """Whether it adds up events."""
        return bool(self._subscriptions)

    def _sample(self) -> None:
        now = self.now()
        self._processes.raise_to(now, len(self.node.processes))
        self._sessions.raise_to(now, program_views.count_sessions(self.node, self.record))
        self._streams.raise_to(now, len(self.record.streams))
        self._sampling = self.node.loop.call_later(STEP, self._sample, context=self.node.context)

    def _take_detail(self, event: Event) -> None:
        kind = type(event)
        if kind is events.FramePassed:
            self.wire.take(event)
        elif kind is events.CallStep:
            self.record.take(event)

    def _watch_details(self) -> None:
        """Hear details from now on, for a while."""
        self._details_until = self.node.loop.time() + _DETAIL_SECONDS
        if self._details is None and not self.capture:
            self._details = bus.subscribe(self._take_detail, details=True)
            self._check_details()

    def _check_details(self) -> None:
        left = self._details_until - self.node.loop.time()
        if self._details is not None:
            if left <= 0:
                self._end_details()
            else:
                self.node.loop.call_later(left, self._check_details, context=self.node.context)

    def _end_details(self) -> None:
        if self._details is not None:
            self._details()
            self._details = None
            self.wire.clear()

    # --- viewers

    async def changes(self) -> AsyncGenerator[int, None]:
        """A number now, and another one each `REFRESH` seconds: the moments to ask for views again, the same for all viewers. It ends with the observatory."""
        wakeup = asyncio.Event()
        self._viewers.add(wakeup)
        try:
            if self._beating is None and self.is_started:
                self._beat = max(0, self._beat)
                self._beating = self.node.loop.call_later(REFRESH, self._tick, context=self.node.context)
            while self.is_started:
                yield self._beat
                await wakeup.wait()
                wakeup.clear()
        finally:
            self._viewers.discard(wakeup)
            if not self._viewers and self._beating is not None:
                self._beating.cancel()
                self._beating = None

    def _tick(self) -> None:
        self._beat += 1
        self._beating = self.node.loop.call_later(REFRESH, self._tick, context=self.node.context)
        self.forget()
        for each in self._viewers:
            each.set()

    def forget(self) -> None:
        """Make each view anew when it is asked for next, as after an act."""
        self._views.clear()
        self._index = None

    async def view(self, name: str, /, **query: Any) -> View:
        """A view, at most `REFRESH` seconds old. Raises `BadQuery`."""
        asked = read_query(name, query)
        if not self.is_started:
            raise BadQuery("the program is not observed: its observatory was stopped")
        if name in _DETAILED:
            self._watch_details()
        key, now = (name, asked), self.node.loop.time()
        made = self._views.get(key)
        if made is None or now - made.at >= REFRESH:
            made = self._views[key] = _MadeView(now, shared_task(self._make(name, asked)))
            self._views.move_to_end(key)
            if len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        return await asyncio.shield(made.making)

    async def _make(self, name: str, query: ViewQuery) -> View:
        maker: Callable[[ViewQuery], Any] = getattr(self, f"_{name}_view")
        view: View = await maker(query)
        return view

    async def indexed(self) -> ProcessIndex:
        """All processes by their parents: made once for all views of the same second."""
        now = self.node.loop.time()
        if self._index is None or now - self._index[0] >= REFRESH:
            self._index = now, shared_task(_index_of(self.node))
        return await asyncio.shield(self._index[1])

    def _head(self) -> dict[str, Any]:
        return {"at": self.now(), "program": event_views.shown(self.program)}

    def _page(self, page: program_views.ViewPage, query: ViewQuery) -> dict[str, Any]:
        return {
            **self._head(),
            "page": max(0, query.page),
            "pages": page.pages,
            "matching": page.matching,
            "total": page.total,
        }

    def shows(self, name: str) -> bool:
        """Whether arguments and results of the tool with this name are shown."""
        return self.capture if isinstance(self.capture, bool) else name in self.capture

    # --- acts

    async def act(self, act: str, target: str, *, principal: str = "", **query: Any) -> ActOutcome:
        """Do something to the program. The outcome says in a sentence how it went; it is logged with the principal."""
        return await self._acting().act(act, target, principal=principal, **query)

    async def try_tool(self, program: str, tool: str, arguments: dict[str, Any], *, principal: str = "") -> ActOutcome:
        """Call a tool of this program, as a client in it would."""
        return await self._acting().try_tool(program, tool, arguments, principal=principal)

    def _acting(self) -> Acts:
        if self._acts is None:
            from .acts import Acts  # noqa: PLC0415 - most programs are only looked at

            self._acts = Acts(self)
        return self._acts

    @property
    def trials(self) -> FaultTrials | None:
        """The faults that are injected; None unless the program allows them. They load a part of the test kit, so only then."""
        if self._trials is None and self.may_inject:
            from .fault_trials import FaultTrials  # noqa: PLC0415 - as the docstring says

            self._trials = FaultTrials(self)
        return self._trials

    def recording(self) -> Iterator[bytes]:
        """The messages that passed as lines of JSON for a file, without secrets."""
        return self.wire.lines()

    # --- the views

    async def _now_view(self, query: ViewQuery) -> NowView:  # noqa: ARG002 - the signature of all
        node, record, now = self.node, self.record, self.now()
        found = program_views.upstreams_of(node)
        states: dict[str, int] = {}
        for _, upstream in found:
            state = upstream.status.state.value
            states[state] = states.get(state, 0) + 1
        supervisors = await process_views.count_supervisors(node)
        sessions = program_views.count_sessions(node, record)
        tasks = len(program_views.tasks_of(node))
        pools = program_views.pools_of(node)
        side = record.sides[_own_side(node)]
        with record.lock:
            totals = record.totals
            listens = sum(event.kind == "listen" for _, event in record.streams.entries.values())
            curves = [
                side.rate.curve("calls", "1/s", now, is_rate=True),
                side.failures.curve("failed", "1/s", now, is_rate=True),
                record.lag.curve("lag", "s", now),
                self._processes.curve("processes", "1", now),
                record.restarts.curve("restarts", "1", now),
            ]
            return NowView(
                **self._head(),
                version=self.version,
                urls=[event_views.shown(each) for each in self._urls()],
                process=os.getpid(),
                up_seconds=node.loop.time() - self._started_at,
                state=cast("Any", "serving" if self._state is None else self._state()),
                processes=len(node.processes),
                supervisors=supervisors,
                sessions=sessions,
                streams=len(record.streams) - listens,
                listens=listens,
                calls=side.in_flight,
                tasks=tasks,
                questions=len(record.questions),
                pool_workers=sum(len(facts.workers) for _, _, facts in pools),
                upstreams=[UpstreamCount(state=state, count=count) for state, count in sorted(states.items())],
                calls_total=side.calls,
                failed_total=side.failed,
                refused_total=totals["refused"],
                crashes_total=totals["crashes"],
                restarts_total=totals["restarts"],
                gave_up_total=totals["gave_up"],
                calls_per_second=side.rate.per_second(now),
                failed_per_second=side.failures.per_second(now),
                spread=side.window.spread(now),
                lag=record.lag.highest(now, MINUTE),
                memory=_resident_bytes(),
                curves=curves,
                notices=event_views.notices(record, _MOST_ROWS),
            )

    async def _tree_view(self, query: ViewQuery) -> TreeView:
        async with self._walking:
            index = await self.indexed()
            page = await index.page(query)
        shown = program_views.ViewPage(page.rows, page.matching, page.total)
        notes = [f"there is no process {event_views.shown(query.pid)} any more"] if query.pid and not page.total else []
        return TreeView(
            **self._page(shown, query),
            node=self.node.name,
            root=event_views.shown(query.pid),
            ancestors=page.ancestors,
            rows=page.rows,
            notes=notes,
        )

    async def _process_view(self, query: ViewQuery) -> ProcessView:
        process = process_views.find_process(self.node, query.pid)
        pid = event_views.shown(query.pid)
        if process is None:
            with self.record.lock:
                groups = self.record.crashes.values()
                found = [each for group in groups for each in group.latest if each[1].pid == query.pid]
            return ProcessView(
                **self._head(), pid=pid, crashes=[event_views.crash_row(at, event) for at, event in found]
            )
        index = await self.indexed()
        above = index.supervisor_of(process)
        place = process_views.TreePlace(process, None if above is None else above[1])
        row = process_views.tree_row(place, 0, index)
        report, state = process_views.state_of(process)
        below = index.below(process, _MOST_ROWS)
        children = [process_views.ref_of(each.process) for each in below if each.process is not None]
        return ProcessView(
            **self._head(),
            pid=pid,
            row=row,
            names=[process_views.text_of(each) for each in list(process.names or ())[:_MOST_ROWS]],
            traps_exit=process.trap_exit,
            ancestors=process_views.ancestors_of(process, index),
            children=children,
            links=process_views.links_of(process),
            monitors=process_views.watchers_of(process),
            watching=process_views.watched_by(process),
            supervisor=process_views.supervisor_facts(process),
            mailbox=process_views.mailbox_of(process),
            report=report,
            state=state,
            stack=process_views.stack_of(process),
            threads=len(process.tasks or ()),
            crashes=event_views.crashes_of_kind(self.record, process.kind),
            acts=process_views.acts_on(process, index) if self.may_act else [],
        )

    async def _crashes_view(self, query: ViewQuery) -> CrashesView:
        record, now = self.record, self.now()
        with record.lock:
            groups = list(reversed(record.crashes.values()))
            gave_up = list(record.gave_up)
        page = await program_views.paged(
            groups,
            query,
            lambda each: (each.kind, each.reason, each.latest[0][1].label),
            lambda each: event_views.crash_group(each, now),
        )
        with record.lock:
            chosen = [each for group in groups if group.group == query.crash and query.crash for each in group.latest]
        return CrashesView(
            **self._page(page, query),
            groups=page.rows,
            crashes=[event_views.crash_row(at, event) for at, event in chosen],
            gave_up=[event_views.notice(number, at, event) for number, at, event in gave_up],
        )

    async def _sessions_view(self, query: ViewQuery) -> SessionsView:
        node, record, now = self.node, self.record, self.now()
        streams = program_views.streams_by_session(record)
        found = program_views.sessions_of(node, record, query.program)
        page = await program_views.paged(
            found,
            query,
            program_views.texts_of_session,
            lambda each: program_views.session_row(each, now, node.loop.time(), streams),
        )
        return SessionsView(
            **self._page(page, query),
            rows=page.rows,
            streams=program_views.stream_rows(record, now, _MOST_ROWS),
            streams_total=len(record.streams),
            evicted_total=record.totals["evicted"],
            curves=[self._sessions.curve("sessions", "1", now), self._streams.curve("streams", "1", now)],
        )

    async def _upstreams_view(self, query: ViewQuery) -> UpstreamsView:
        node, record, now = self.node, self.record, self.now()
        page = await program_views.paged(
            program_views.upstreams_of(node, query.program),
            query,
            lambda each: (each[1].name, str(each[0].key), each[1].status.state.value),
            lambda each: program_views.upstream_row(each[0], each[1], node, record, now, acts=self.may_act),
        )
        kinds = (events.UpstreamChanged, events.BreakerChanged, events.SignInEnded)
        changes = event_views.notices(record, _MOST_ROWS, *kinds)
        return UpstreamsView(**self._page(page, query), rows=page.rows, notices=changes)

    async def _calls_view(self, query: ViewQuery) -> CallsView:
        record, now = self.record, self.now()
        with record.lock:
            found: list[SeenCall] = list(record.ended) if query.ended else list(record.calls.values())
            left_out = 0 if query.ended else sum(each.in_flight for each in record.sides.values()) - len(found)
        if query.session:
            found = [each for each in found if each.started.session == query.session]
        if query.program:
            found = [each for each in found if each.started.program == query.program]
        workers = {} if query.ended else await program_views.call_processes(self.node)
        page = await program_views.paged(
            found,
            query,
            event_views.texts_of_call,
            lambda each: event_views.call_row(each, now, pid=workers.get(each.started.call, ""), acts=self.may_act),
        )
        notes = (
            [f"{left_out} more calls are in flight: details of no more than {len(found)} are kept"]
            if left_out > 0
            else []
        )
        return CallsView(**self._page(page, query), is_ended=query.ended, rows=page.rows, notes=notes)

    async def _call_view(self, query: ViewQuery) -> CallView:
        record, now = self.record, self.now()
        with record.lock:
            seen = record.find_call(query.call)
        if seen is None:
            return CallView(**self._head(), call=query.call)
        workers = {} if seen.ended else await program_views.call_processes(self.node)
        started = seen.started
        group = self.wire.of_call(started.session, started.request, started.name) if started.request else None
        arguments = result = None
        if group is not None and self.wire.shows(group):
            arguments, result = self.wire.bodies(group)
        return CallView(
            **self._head(),
            call=query.call,
            row=event_views.call_row(seen, now, pid=workers.get(query.call, ""), acts=self.may_act),
            steps=event_views.call_steps(seen),
            dropped=seen.dropped,
            arguments=arguments,
            result=result,
            frames=[] if group is None else self.wire.row(group, PageRoom()).frames,
        )

    async def _tools_view(self, query: ViewQuery) -> ToolsView:
        node, record, now = self.node, self.record, self.now()
        found = program_views.tools_of(node, record, query)
        in_flight = program_views.calls_in_flight(record)
        page = await program_views.paged(
            found,
            query,
            program_views.texts_of_tool,
            lambda each: program_views.tool_row(each, record, in_flight, now),
        )
        view = ToolsView(**self._page(page, query), rows=page.rows)
        if query.tool and found:
            view.curves, view.outcomes, view.schema = program_views.tool_details(found[0], record, now)
            side, _, method, *_ = found[0].key
            view.can_try = self.may_act and side == "server" and method == "tools/call" and found[0].entry is not None
        return view

    async def _wire_view(self, query: ViewQuery) -> WireView:
        wire = self.wire
        groups = [
            each
            for each in wire.groups()
            if (not query.session or each.owner[2] == query.session)
            and (not query.program or each.owner[1] == query.program)
            and (not query.tool or each.name == query.tool)
        ]
        room = PageRoom()
        page = await program_views.paged(
            groups,
            query,
            lambda each: (each.method, each.name, each.request, *each.owner),
            lambda each: wire.row(each, room),
        )
        return WireView(
            **self._page(page, query),
            is_recording=True,
            is_captured=bool(self.capture),
            frames=len(wire),
            bytes=wire.bytes,
            dropped=wire.dropped,
            groups=page.rows,
        )

    async def _pools_view(self, query: ViewQuery) -> PoolsView:
        node, record = self.node, self.record
        page = await program_views.paged(
            program_views.pools_of(node),
            query,
            lambda each: (each[0].settings.name, *each[2].tools),
            lambda each: program_views.pool_row(each[0], each[1], each[2], node, record, acts=self.may_act),
        )
        return PoolsView(**self._page(page, query), rows=page.rows)

    async def _tasks_view(self, query: ViewQuery) -> TasksView:
        record = self.record
        page = await program_views.paged(
            program_views.tasks_of(self.node),
            query,
            lambda each: (each[2].record.name, each[2].record.status, each[0].settings.name),
            lambda each: program_views.task_row(each[0], each[1], each[2], acts=self.may_act),
        )
        ended = [] if query.page else program_views.ended_tasks(record, _MOST_ROWS)
        counts = event_views.total_of(record.task_statuses)
        return TasksView(**self._page(page, query), rows=[*page.rows, *ended], counts=counts)

    async def _questions_view(self, query: ViewQuery) -> QuestionsView:
        record, now = self.record, self.now()
        with record.lock:
            found = list(record.questions.entries.values())
        page = await program_views.paged(
            found,
            query,
            lambda each: (each[1].method, each[1].program),
            lambda each: program_views.question_row(each[0], each[1], record, now, shows_text=self.shows),
        )
        outcomes = event_views.total_of(record.question_outcomes)
        return QuestionsView(**self._page(page, query), rows=page.rows, outcomes=outcomes)

    async def _loop_view(self, query: ViewQuery) -> LoopView:  # noqa: ARG002 - the signature of all
        return LoopView(**self._head(), loops=[program_views.node_loop(self.node, self.record, self.now())])

    async def _faults_view(self, query: ViewQuery) -> FaultsView:
        trials = self.trials
        if trials is None:
            return FaultsView(**self._head())
        return await trials.view(query, self._head(), await self.indexed())


async def _index_of(node: Node) -> ProcessIndex:
    index = process_views.ProcessIndex(node)
    await index.build()
    return index


def read_query(name: str, query: dict[str, Any]) -> ViewQuery:
    """The query of a view, from values or from the texts of an address. Raises `BadQuery`."""
    if name not in VIEW_TYPES:
        raise BadQuery(f"there is no view {name[:100]!r}: there are {', '.join(VIEW_TYPES)}")
    try:
        return msgspec.convert({key: each for key, each in query.items() if each is not None}, ViewQuery, strict=False)
    except msgspec.ValidationError as error:
        raise BadQuery(f"this query of the view {name} has no meaning: {str(error)[:200]}") from None


def _own_side(node: Node) -> Literal["server", "client"]:
    """Whose calls are the program's: of a server or a gateway those that it answers, of a host those that it makes, also to servers in its memory."""
    companies = program_views.companies(node)
    if not program_views.federations(node):
        return "server" if companies else "client"
    doors = (node.named(each.name("listeners")) for each in companies)
    found: list[Any] = [each.behaviour.inner for each in doors if each is not None and not each.life]
    return "server" if any(each.children() for each in found) else "client"


def _resident_bytes() -> int:
    """The resident memory of this process; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
