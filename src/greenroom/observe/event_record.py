"""What a program's events add up to: counts, rates, how long calls took, calls in flight, crashes by kind and reason, and what happened last.

`EventRecord.take` is a listener of the bus. It may be called in any thread, takes some microseconds, and keeps a bounded amount whatever happens: every table has a
most, and a log gives each principal, program or kind a share. Nothing in it waits, and it makes no view: `Observatory` does.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, get_origin

import msgspec

from greenroom import event_types as events

from .fair_shares import FairShares
from .metric_table import OTHER, UNKNOWN
from .time_windows import CountWindow, SharedLog, SpreadWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from greenroom.event_types import CallEnded, CallStarted, Event

E = TypeVar("E", bound=events.Event)
NameKey: TypeAlias = tuple[str, str, str, str, str]
"""Side, program, method, name, and the host of an upstream."""

MOST_OPEN_CALLS: Final = 2_000
"""Calls in flight of which details are kept; more are only counted."""
MOST_ENDED_CALLS: Final = 1_000
_SHARE_OF_CALLS: Final = 250
MOST_STEPS: Final = 100
"""The steps of one call: the first ones, and then only the last."""
_MOST_STEPS_IN_ALL: Final = 50_000
MOST_NAMES: Final = 2_000
"""Tools, prompts and resource templates of all programs that are counted by themselves, of which one program has up to 531."""
_MOST_PROGRAMS: Final = 500
"""Servers that are called, and pools."""
MOST_GROUPS: Final = 100
"""Groups of crashes; the one that has been quiet for longest gives way."""
MOST_CRASHES: Final = 5
"""The crashes of a group that are kept whole."""
MOST_NOTICES: Final = 400
_SHARE_OF_NOTICES: Final = 200
MOST_OPEN: Final = 2_000
"""Sessions, streams, questions and tasks that are open, of each kind."""
MOST_BLOCKS: Final = 50
_LONGEST_STACK: Final = 4_096
"""The longest stack in characters; its end is what matters."""
_LONGEST_FIELD: Final = 512
"""The longest other text of an event in characters."""
_MOST_PARTS: Final = 10
_LONGEST_PART: Final = 128

_VARIABLE: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")

_NOTICED: Final = frozenset(
    {
        events.RequestRefused,
        events.UpstreamChanged,
        events.BreakerChanged,
        events.SignInEnded,
        events.PoolWorkerEnded,
        events.ProcessCrashed,
        events.SupervisorGaveUp,
        events.ProcessLeaked,
        events.LoopBlocked,
        events.ActDone,
    }
)
"""Events that the list of what happened last has. Restarts, children that did not start, and failures of sessions are there as well."""


@dataclass(slots=True, eq=False)
class SeenCall:
    """A call: in flight, or ended."""

    started: CallStarted
    at: float
    ended: CallEnded | None = None
    steps: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])
    """When, which, and its text."""
    dropped: int = 0


@dataclass(slots=True, eq=False)
class SideCounts:
    """All calls that this program answers, or all that it makes."""

    in_flight: int = 0
    calls: int = 0
    failed: int = 0
    rate: CountWindow = field(default_factory=CountWindow)
    failures: CountWindow = field(default_factory=CountWindow)
    window: SpreadWindow = field(default_factory=SpreadWindow)


@dataclass(slots=True, eq=False)
class NameCounts:
    """The counts of one tool, prompt or resource of one program."""

    side: str
    program: str
    method: str
    name: str
    host: str = ""
    calls: int = 0
    failed: int = 0
    refused: int = 0
    crashes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    isolation: str = ""
    rate: CountWindow = field(default_factory=CountWindow)
    failures: CountWindow = field(default_factory=CountWindow)
    window: SpreadWindow = field(default_factory=SpreadWindow)


@dataclass(slots=True, eq=False)
class SeenCrashes:
    """The crashes of one kind of process for one reason."""

    group: str
    kind: str
    reason: str
    first_at: float
    last_at: float = 0.0
    count: int = 0
    latest: deque[tuple[float, events.ProcessCrashed]] = field(
        default_factory=lambda: deque["tuple[float, events.ProcessCrashed]"](maxlen=MOST_CRASHES)
    )
    minutes: CountWindow = field(default_factory=lambda: CountWindow(60.0, 16))


@dataclass(slots=True, eq=False)
class PoolCounts:
    """The processes of one pool."""

    started: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])


class OpenTable:
    """Things that have begun and not ended, by key. When it is full, more are only counted."""

    __slots__ = ("_most", "entries", "left_out")

    def __init__(self, most: int) -> None:
        self._most = most
        self.entries: dict[Hashable, tuple[float, Any]] = {}
        self.left_out = 0

    def open(self, key: Hashable, at: float, event: Any) -> None:
        """It has begun."""
        if len(self.entries) >= self._most and key not in self.entries:
            self.left_out += 1
        else:
            self.entries[key] = at, event

    def close(self, key: Hashable) -> Any:
        """It has ended. Returns what it began with; None if that is not known."""
        found = self.entries.pop(key, None)
        if found is None:
            self.left_out = max(0, self.left_out - 1)
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget all."""
        self.entries.clear()
        self.left_out = 0

    def __len__(self) -> int:
        return len(self.entries) + self.left_out


class EventRecord:
    """The sum of all events since it was made."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a clock in seconds since 1970, which may be read in any thread."""
        self._now = now
        # An event may be emitted by code that the garbage collector runs in the middle of this, so the lock is one that its thread can take again.
        self.lock = threading.RLock()
        """Held while an event is taken, and by readers while they copy."""
        self.totals: Counter[str] = Counter()
        self.calls: dict[int, SeenCall] = {}
        self.sides = {"server": SideCounts(), "client": SideCounts()}
        self._left_out: set[int] = set()
        """The calls in flight of which no details are kept."""
        self._steps = 0
        self.ended: SharedLog[SeenCall] = SharedLog(MOST_ENDED_CALLS, _SHARE_OF_CALLS)
        self._ended_calls: OrderedDict[int, SeenCall] = OrderedDict()
        self.names: dict[NameKey, NameCounts] = {}
        self._name_shares = FairShares(MOST_NAMES)
        self.programs: dict[tuple[str, str], NameCounts] = {}
        """All calls to a server together, by its host, which is empty for a client, and its name."""
        self.crashes: OrderedDict[tuple[str, str], SeenCrashes] = OrderedDict()
        """By kind and reason, the newest last."""
        self.notices: SharedLog[tuple[int, float, Event]] = SharedLog(MOST_NOTICES, _SHARE_OF_NOTICES)
        self.sessions = OpenTable(MOST_OPEN)
        self.streams = OpenTable(MOST_OPEN)
        self.questions = OpenTable(MOST_OPEN)
        self.tasks = OpenTable(MOST_OPEN)
        self.ended_tasks: SharedLog[tuple[float, events.TaskEnded]] = SharedLog(200, 100)
        self.task_statuses: Counter[str] = Counter()
        self.question_outcomes: Counter[str] = Counter()
        self.pools: dict[tuple[str, str], PoolCounts] = {}
        self.blocks: deque[tuple[float, events.LoopBlocked]] = deque(maxlen=MOST_BLOCKS)
        self.gave_up: deque[tuple[int, float, Event]] = deque(maxlen=MOST_BLOCKS)
        self.restarts, self.lag = CountWindow(), CountWindow()
        self._number = 0
        self._began_at: float | None = None
        self._takers: dict[type[Event], Callable[[Any, float], None]] = {
            events.CallStarted: self._call_started,
            events.CallEnded: self._call_ended,
            events.CallStep: self._call_step,
            events.RequestRefused: self._refused,
            events.SessionOpened: self._session_opened,
            events.SessionClosed: self._session_closed,
            events.StreamOpened: self._stream_opened,
            events.StreamClosed: self._stream_closed,
            events.QuestionAsked: self._question_asked,
            events.QuestionEnded: self._question_ended,
            events.TaskCreated: self._task_created,
            events.TaskEnded: self._task_ended,
            events.PoolWorkerStarted: self._pool_worker_started,
            events.PoolWorkerEnded: self._pool_worker_ended,
            events.ChildStarted: self._child_started,
            events.ChildEnded: self._child_ended,
            events.ProcessCrashed: self._crashed,
            events.SupervisorGaveUp: self._supervisor_gave_up,
            events.LoopBlocked: self._loop_blocked,
            events.LoopLagged: self._loop_lagged,
        }

    def take(self, event: Event) -> None:
        """Take one event."""
        kind = type(event)
        taker = self._takers.get(kind)
        with self.lock:
            now = self._now()
            if taker is not None:
                taker(event, now)
            if kind in _NOTICED:
                self._note(event, now)

    def _note(self, event: Any, now: float) -> None:
        self._number += 1
        owner = getattr(event, "program", "") or getattr(event, "kind", "")
        self.notices.add((cast("Any", type(event)), owner), (self._number, now, bounded(event)))

    def forget_open(self) -> None:
        """Forget what has begun and not ended, as before events are taken again: the ends that came meanwhile were not heard. What happened stays."""
        with self.lock:
            self.calls.clear()
            self._left_out.clear()
            self._steps = sum(len(each.steps) for each in self._ended_calls.values())
            for side in self.sides.values():
                side.in_flight = 0
            for table in (self.sessions, self.streams, self.questions, self.tasks):
                table.clear()

    def begin(self) -> None:
        """Events are taken from now on: rates are means since then, else the first call or failure, however late, would have a high one."""
        with self.lock:
            if self._began_at is None:
                self._began_at = self._now()
                for window in (
                    self.restarts,
                    *(each for side in self.sides.values() for each in (side.rate, side.failures)),
                ):
                    window.add(self._began_at, 0.0)

    def take_up(self, event: events.SessionOpened) -> None:
        """Take a session that began before events were taken, and is open."""
        with self.lock:
            at = min(self._now(), event.at)
            self.sessions.open((event.side, event.program, event.session), at, bounded(event))

    # --- calls

    def _call_started(self, event: CallStarted, now: float) -> None:
        self.sides[event.side].in_flight += 1
        if len(self.calls) < MOST_OPEN_CALLS:
            self.calls[event.call] = SeenCall(bounded(event), now)
        else:
            self._left_out.add(event.call)

    def _call_ended(self, event: CallEnded, now: float) -> None:
        side, failed = self.sides[event.side], event.is_failure
        has_duration = not event.is_listen
        seen = self.calls.pop(event.call, None)
        if seen is not None or event.call in self._left_out:
            self._left_out.discard(event.call)
            side.in_flight -= 1
        side.calls += 1
        side.rate.add(now)
        if has_duration:
            side.window.add(now, event.seconds)
        if failed:
            side.failed += 1
            side.failures.add(now)
        own = self._counts_of(event)
        for counts in (own,) if event.side == "server" else (own, self._counts_of_program(event)):
            counts.calls += 1
            counts.outcomes[event.outcome] += 1
            counts.isolation = event.isolation or counts.isolation
            counts.rate.add(now)
            if has_duration:
                counts.window.add(now, event.seconds)
            if failed:
                counts.failed += 1
                counts.failures.add(now)
            if event.outcome in ("worker_crashed", "process_ended"):
                counts.crashes += 1
            elif event.outcome == "refused":
                counts.refused += 1
        if seen is not None:
            seen.ended = bounded(event)
            self._keep_ended(seen)

    def _keep_ended(self, seen: SeenCall) -> None:
        started = seen.started
        self.ended.add(started.principal or started.address or started.program, seen)
        self._ended_calls[started.call] = seen
        if len(self._ended_calls) > MOST_ENDED_CALLS:
            _, old = self._ended_calls.popitem(last=False)
            self._steps -= len(old.steps)

    def find_call(self, number: int) -> SeenCall | None:
        """The call of that number, if it is in flight or among those that ended last."""
        return self.calls.get(number) or self._ended_calls.get(number)

    def _counts_of(self, event: CallEnded) -> NameCounts:
        method = event.method[:_LONGEST_PART] if event.is_method_known else UNKNOWN
        name = template_of(event)[:_LONGEST_FIELD] if event.is_known else UNKNOWN
        key = (event.side, event.program, method, name, event.host)
        found = self.names.get(key)
        if found is None:
            if not self._name_shares.take(f"{event.side} {event.host} {event.program}"):
                key = (event.side, OTHER, OTHER, OTHER, "")
                found = self.names.get(key)
            if found is None:
                found = self.names[key] = NameCounts(*key)
                if self._began_at is not None:
                    for window in (found.rate, found.failures):
                        window.add(self._began_at, 0.0)  # the same time as the program's
        return found

    def _counts_of_program(self, event: CallEnded) -> NameCounts:
        key = (event.host, event.program)
        found = self.programs.get(key)
        if found is None:
            if len(self.programs) >= _MOST_PROGRAMS:
                key = ("", OTHER)
            found = self.programs.setdefault(key, NameCounts(event.side, key[1], "", "", key[0]))
        return found

    def _call_step(self, event: events.CallStep, now: float) -> None:
        seen = self.calls.get(event.call)
        if seen is None:
            return
        step = now, event.step, event.text[:_LONGEST_FIELD]
        if len(seen.steps) < MOST_STEPS and self._steps < _MOST_STEPS_IN_ALL:
            seen.steps.append(step)
            self._steps += 1
        else:
            seen.dropped += 1
            if seen.steps:
                seen.steps[-1] = step

    def _refused(self, event: events.RequestRefused, now: float) -> None:  # noqa: ARG002 - the signature of all
        self.totals["refused"] += 1

    # --- sessions, streams, questions, tasks

    def _session_opened(self, event: events.SessionOpened, now: float) -> None:
        self.totals["sessions"] += 1
        self.sessions.open((event.side, event.program, event.session), now, bounded(event))

    def _session_closed(self, event: events.SessionClosed, now: float) -> None:
        self.sessions.close((event.side, event.program, event.session))
        if event.is_failure:
            self._note(event, now)

    def _stream_opened(self, event: events.StreamOpened, now: float) -> None:
        self.totals["streams"] += 1
        self.streams.open(event.stream, now, bounded(event))

    def _stream_closed(self, event: events.StreamClosed, now: float) -> None:
        self.streams.close(event.stream)
        if event.is_evicted:
            self.totals["evicted"] += 1
            self._note(event, now)

    def _question_asked(self, event: events.QuestionAsked, now: float) -> None:
        self.questions.open((event.side, event.program, event.question), now, bounded(event))

    def _question_ended(self, event: events.QuestionEnded, now: float) -> None:  # noqa: ARG002 - as above
        self.questions.close((event.side, event.program, event.question))
        self.question_outcomes[event.outcome] += 1

    def _task_created(self, event: events.TaskCreated, now: float) -> None:
        self.tasks.open((event.program, event.task), now, bounded(event))

    def _task_ended(self, event: events.TaskEnded, now: float) -> None:
        self.tasks.close((event.program, event.task))
        self.task_statuses[event.status[:_LONGEST_PART] if len(self.task_statuses) < _MOST_PARTS else OTHER] += 1
        self.ended_tasks.add(event.program, (now, bounded(event)))

    # --- pools

    def _pool(self, program: str, pool: str) -> PoolCounts:
        key = (program, pool) if len(self.pools) < _MOST_PROGRAMS or (program, pool) in self.pools else (OTHER, OTHER)
        return self.pools.setdefault(key, PoolCounts())

    def _pool_worker_started(self, event: events.PoolWorkerStarted, now: float) -> None:  # noqa: ARG002 - as above
        self._pool(event.program, event.pool).started += 1

    def _pool_worker_ended(self, event: events.PoolWorkerEnded, now: float) -> None:  # noqa: ARG002 - as above
        if event.is_failure:
            how = event.signal or ("lost" if event.status is None else f"status {event.status}")
            self._pool(event.program, event.pool).lost[how] += 1

    # --- processes

    def _child_started(self, event: events.ChildStarted, now: float) -> None:
        if event.is_restart:
            self.totals["restarts"] += 1
            self.restarts.add(now)
            self._note(event, now)

    def _child_ended(self, event: events.ChildEnded, now: float) -> None:
        if event.is_start:  # otherwise a crash or a restart tells it
            self._note(event, now)

    def _crashed(self, event: events.ProcessCrashed, now: float) -> None:
        self.totals["crashes"] += 1
        reason = _VARIABLE.sub("#", event.reason[:_LONGEST_FIELD].partition("\n")[0])
        key = (event.kind, reason)
        group = self.crashes.pop(key, None)
        if group is None:
            group = SeenCrashes(f"{self.totals['groups']}", event.kind, reason, now)
            self.totals["groups"] += 1
            if len(self.crashes) >= MOST_GROUPS:
                self.crashes.popitem(last=False)
        self.crashes[key] = group
        group.count += 1
        group.last_at = now
        group.minutes.add(now)
        group.latest.appendleft((now, bounded(event)))

    def _supervisor_gave_up(self, event: events.SupervisorGaveUp, now: float) -> None:
        self.totals["gave_up"] += 1
        self.gave_up.appendleft((self._number + 1, now, bounded(event)))

    def _loop_blocked(self, event: events.LoopBlocked, now: float) -> None:
        self.blocks.appendleft((now, bounded(event)))
        self.lag.raise_to(now, event.seconds)

    def _loop_lagged(self, event: events.LoopLagged, now: float) -> None:
        self.lag.raise_to(now, event.seconds)


def template_of(event: CallStarted | CallEnded) -> str:
    """The name under which a call is counted: URIs are too many, so those of one scheme are one."""
    if event.method.startswith("resources/") and event.name:
        scheme, colon, _ = event.name.partition(":")
        return f"{scheme}{colon}…" if colon else event.name
    return event.name


@lru_cache(maxsize=len(events.EVENT_TYPES))
def _texts_of(kind: type[Event]) -> Callable[[Event], tuple[str, ...]] | None:
    """Reads all texts of an event of this kind; None where it has lists, or fewer than two texts."""
    fields = msgspec.structs.fields(kind)
    names = [each.name for each in fields if each.type is str or get_origin(each.type) is Literal]
    has_more = any(each.name in ("ancestors", "stack", "body") for each in fields)
    return None if has_more or len(names) < 2 else attrgetter(*names)  # noqa: PLR2004 - with one name it returns no tuple


def bounded(event: E) -> E:
    """The event with its texts cut: a peer's name or a crash's state may have megabytes, and very many of them are kept."""
    texts = _texts_of(type(event))
    if texts is not None and len("".join(texts(event))) <= _LONGEST_FIELD and getattr(event, "trace", None) is None:
        return event  # nearly all are, and this costs a quarter of what follows
    cut: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value: Any = getattr(event, name)
        kind = cast("Any", type(value))
        if kind is str:
            if len(value) > _LONGEST_FIELD:
                cut[name] = value[-_LONGEST_STACK:] if name == "stack" else value[:_LONGEST_FIELD]
        elif kind is tuple:
            cut[name] = tuple([str(each)[:_LONGEST_PART] for each in value[:_MOST_PARTS]])
        elif kind is dict:  # a trace: its id is all that a view shows
            cut[name] = {key: value[key][:_LONGEST_FIELD] for key in ("traceparent",) if key in value}
    return msgspec.structs.replace(event, **cut) if cut else event
