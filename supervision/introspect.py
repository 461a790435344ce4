"""Introspection of running servers, as OTP's `sys`: state, suspension, status, snapshots, traces and statistics.

Reading or replacing a state is a system message, handled between two messages of the server. It waits behind earlier messages, but a suspended server handles
it; no callback sees it, and an event timeout is not affected. It is made for debugging, tests and repairs, not for programs to rely on.

The state of a server is its instance's fields: `vars()` and its slots. A state machine also has `state`.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from .behaviours.gen_server import CallbackServer
from .behaviours.refs import DEFAULT_TIMEOUT
from .behaviours.replies import Caller, Reject, absence_error, send_call
from .behaviours.threads import busy_threads
from .kernel import api, clock, safe_repr
from .kernel.api import resolve
from .kernel.clock import check_seconds
from .kernel.errors import ActorError, NotRegistered
from .kernel.links import linked
from .kernel.process import (
    ALIVE,
    DOZING,
    GONE,
    HELD,
    IDLE,
    INLINE,
    QUEUED,
    RUNNING,
    UNWOUND,
    WORKING,
    Behaviour,
    Process,
)
from .kernel.process_lookup import current, current_node, open_nodes
from .kernel.process_messages import ASK, CALL, NO_PROCESS, SYSTEM
from .kernel.tracebacks import log_error

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from .kernel.node import Node
    from .kernel.process_messages import ExitReason, MailboxEntry, Pid
    from .kernel.watchdog import Lag

# ruff: noqa: SLF001 - this file reads the private state of servers


__all__ = ["ServerStatus", "get_state", "replace_state", "resume", "snapshot", "status", "suspend", "watch"]

T = TypeVar("T")

_ENGINE = ("greenroom.supervision.behaviours.", "greenroom.supervision.kernel.", "greenroom.supervision.statem.")


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Facts about a server besides its state; `waiting` is the number of messages in its mailbox."""

    pid: Pid
    label: str
    behaviour: type[CallbackServer]
    names: tuple[Hashable, ...]
    parent: Pid | None
    suspended: bool
    waiting: int


async def get_state(target: object, timeout: float | None = DEFAULT_TIMEOUT) -> dict[str, Any]:
    """The fields of a server by name: a new dict of the same objects."""
    return await _ask(target, _get_fields, timeout)


async def replace_state(
    target: object,
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    timeout: float | None = DEFAULT_TIMEOUT,
) -> dict[str, Any]:
    """Replace the fields of a server by those that `function` returns for the current ones, and return them.

    Fields that `function` leaves out are deleted. Its error is raised here; then the server keeps its state and goes on.
    """

    def replace(server: CallbackServer) -> dict[str, Any]:
        before = _get_fields(server)
        try:
            after = dict(function(dict(before)))
            _set_fields(server, before, after)
        except Exception as error:
            raise Reject(error) from error
        return after

    return await _ask(target, replace, timeout)


async def suspend(target: object, timeout: float | None = DEFAULT_TIMEOUT) -> None:
    """Make a server defer its messages until `resume`. It can still be stopped and inspected."""
    await _ask(target, lambda server: server._otp_suspend(), timeout)


async def resume(target: object, timeout: float | None = DEFAULT_TIMEOUT) -> None:
    """Make a suspended server go on with the deferred messages, in order."""
    await _ask(target, lambda server: server._otp_resume(), timeout)


async def status(target: object, timeout: float | None = DEFAULT_TIMEOUT) -> ServerStatus:
    """The status of a server."""

    def look(server: CallbackServer) -> ServerStatus:
        process = server._otp_process
        return ServerStatus(
            pid=process.pid,
            label=process.label,
            behaviour=type(server),
            names=tuple(process.names or ()),
            parent=None if process.parent is None else process.parent.pid,
            suspended=server._otp_deferred is not None,
            waiting=len(process.mailbox or ()) + len(server._otp_deferred or ()),
        )

    return await _ask(target, look, timeout)


async def _ask(target: object, look: Callable[[CallbackServer], T], timeout: float | None) -> T:
    """Call `look` with the server, as a system message in the server's own context."""
    check_seconds(timeout)
    node = current_node()
    process, pid, name = resolve(node, target)
    if process is None:
        raise absence_error(node, pid, name)
    if process.is_remote:
        raise ActorError(f"{process} is on another node: inspect it there")
    if not isinstance(process.behaviour.inner, CallbackServer) and not process.life:
        message = f"{process} is no server: it has no state to inspect, and takes no system messages"
        raise ActorError(message)
    caller: Caller[T] = Caller(node, process, current.get())
    return await send_call(process, (SYSTEM, look, caller), caller, timeout)


def _slots(cls: type) -> tuple[str, ...]:
    slots: Any = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _fields(server: CallbackServer) -> list[str]:
    """The names of its fields, without the engine's own."""
    theirs = [cls for cls in reversed(type(server).__mro__) if not cls.__module__.startswith(_ENGINE)]
    slots = [name for cls in theirs for name in _slots(cls) if name not in ("__dict__", "__weakref__")]
    return [
        *server._otp_shown_fields,
        *(name for name in slots if hasattr(server, name)),
        *getattr(server, "__dict__", {}),
    ]


def _get_fields(server: CallbackServer) -> dict[str, Any]:
    return {name: getattr(server, name) for name in _fields(server)}


def _set_fields(server: CallbackServer, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    real = server._otp_shown_fields
    try:
        for name in before.keys() - after.keys():
            delattr(server, real.get(name, name))
        for name, value in after.items():
            setattr(server, real.get(name, name), value)
    except AttributeError:  # no such slot: all or nothing
        for name in _fields(server):
            if name not in before:
                delattr(server, name)
        for name, value in before.items():
            setattr(server, real.get(name, name), value)
        raise


# --- Snapshots of a whole node as data, for a live view or a bug report.
# A snapshot is taken without sending messages, so it works while a server hangs; it holds no live objects.

ACTIVITIES: Final = {
    IDLE: "idle",
    DOZING: "idle",
    QUEUED: "queued",
    HELD: "held",
    RUNNING: "running",
    INLINE: "running",
    WORKING: "working",
    UNWOUND: "unwinding",
}
_SAMPLE: Final = 100  # the size of a longer mailbox is estimated from so many entries


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process. `waiting` is the length of its mailbox and `waiting_bytes` its approximate shallow size."""

    pid: Pid
    label: str
    behaviour: str
    names: tuple[str, ...]
    parent: Pid | None
    activity: str
    dying: bool
    trap_exit: bool
    waiting: int
    waiting_bytes: int
    bound: int | None
    links: int
    monitors: int
    watching: int
    tasks: int
    calls: Pid | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A node at one moment. `lags` are the newest measurements of the loop's lag; there are none without a watchdog."""

    time: float
    node: str
    incarnation: int
    processes: tuple[ProcessInfo, ...]
    queued: int
    workers: int
    busy_workers: int
    deadlines: int
    leaked: int
    lags: tuple[Lag, ...]

    @property
    def lag(self) -> float:
        """The longest of `lags`, in seconds."""
        return max((lag.seconds for lag in self.lags), default=0.0)


def snapshot(node: Node | None = None) -> Snapshot:
    """Take a snapshot, by default of the running node."""
    node = current_node() if node is None else node
    watchdog = node.watchdog
    return Snapshot(
        time=clock.now(node.loop),
        node=node.name,
        incarnation=node.incarnation,
        processes=tuple([process_info(process) for process in node.processes.values()]),
        queued=len(node.run_queue),
        workers=len(node.workers),
        busy_workers=node.workers.busy,
        deadlines=len(node.deadlines),
        leaked=node.leaks,
        lags=() if watchdog is None else tuple(watchdog.lags),
    )


def process_info(process: Process) -> ProcessInfo:
    """Facts of one process, for a view that shows few of many."""
    mailbox = process.mailbox
    parent = process.parent
    calls = process.waiting_on
    return ProcessInfo(
        process.pid,
        process.label,
        type(process.behaviour.inner).__qualname__,
        tuple([str(name) for name in process.names]) if process.names else (),
        None if parent is None else parent.pid,
        ACTIVITIES[process.activity],
        ALIVE < process.life < GONE,
        process.trap_exit,
        0 if mailbox is None else len(mailbox),
        0 if mailbox is None else _weight(mailbox),
        process.limit,
        len(tuple(linked(process))) if process.links is not None else 0,
        0 if process.monitors is None else len(process.monitors),
        0 if process.watching is None else len(process.watching),
        0 if process.tasks is None else len(process.tasks),
        None if calls is None else calls.pid,
    )


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many processes of a kind there are, how many messages wait for them, and how many for the one with the most."""

    processes: int = 0
    waiting: int = 0
    longest: int = 0

    def __add__(self, other: KindCount) -> KindCount:
        return KindCount(
            self.processes + other.processes, self.waiting + other.waiting, max(self.longest, other.longest)
        )


@dataclass(frozen=True, slots=True)
class ProgramCounts:
    """The processes of all nodes of this program by kind, and the threads that run a synchronous function."""

    kinds: dict[str, KindCount]
    busy_threads: int


def count_program() -> ProgramCounts:
    """Count the processes of all nodes of this program. Any thread may call it; it takes some milliseconds for 10,000 processes."""
    totals: dict[str, list[int]] = {}
    for node in open_nodes():
        # A copy, which is atomic: other threads may go on changing the table. The rest reads one attribute at a time.
        for process in list(node.processes.values()):
            behaviour = getattr(process, "behaviour", None)
            if behaviour is None:
                continue  # just being made, in another thread
            total = totals.setdefault(behaviour.inner._otp_kind(), [0, 0, 0])
            total[0] += 1
            mailbox = process.mailbox
            if mailbox:
                waiting = len(mailbox)
                total[1] += waiting
                total[2] = max(total[2], waiting)
    return ProgramCounts({kind: KindCount(*total) for kind, total in totals.items()}, busy_threads())


def peek_state(process: Process) -> tuple[str, Mapping[str, Any]]:
    """What a server says of its state in reports, and its fields: the objects themselves, read without a message, so that it works while the server hangs.

    The server may be in the middle of a change. For a person who looks at one process: reading the fields costs CPython the fast path to them from then on.
    """
    server = process.behaviour.inner
    return _state_of(server), _get_fields(server) if isinstance(server, CallbackServer) else {}


def _weight(mailbox: Any) -> int:
    """The approximate size of a mailbox in bytes: each entry with the objects directly in it."""
    size = sys.getsizeof
    weighed = 0
    for count, entry in enumerate(mailbox, 1):
        weighed += size(entry) + sum(size(part) for part in entry)
        if count == _SAMPLE:
            return weighed * len(mailbox) // count
    return weighed + size(mailbox)


# --- Watching servers: traces and statistics, OTP's `sys:trace` and `sys:statistics`.
# Watching replaces the behaviour of a process by an observer, which records each invocation and passes it on. Other
# servers have no observer, so watching costs them nothing; a watched server handles every call through its
# mailbox, one message at a time.

# ruff: noqa: SLF001 - an observer takes the place of a behaviour


_log = logging.getLogger("greenroom.supervision")

TraceKind: TypeAlias = Literal["message", "reply", "state", "crash", "exit"]
TRACE_KINDS: tuple[TraceKind, ...] = ("message", "reply", "state", "crash", "exit")


@dataclass(frozen=True, slots=True)
class Trace:
    """One note about one process: number `number` of this watch, at `time` on the node's clock.

    `what` is a short text of the message, the reply, the new state, the error or the exit reason, by `kind`. `seconds` is
    how long a message took.
    """

    number: int
    time: float
    pid: Pid
    label: str
    kind: TraceKind
    what: str
    seconds: float | None = None


@dataclass(slots=True)
class Statistics:
    """The statistics of a watched process since the watch began; `busy` is the real time spent between the beginnings and ends of messages."""

    since: float
    messages: int = 0
    replies: int = 0
    crashes: int = 0
    busy: float = 0.0
    longest: float = 0.0
    longest_message: str = ""


@dataclass(slots=True)
class Watch:
    """An active watch. It keeps the newest `limit` notes; `dropped` counts the others."""

    limit: int
    _process: Process
    notes: deque[Trace] = field(init=False)
    dropped: int = 0
    statistics: Statistics = field(init=False)
    _subscriber: Callable[[Trace], None] | None = None
    _kinds: frozenset[str] = frozenset(TRACE_KINDS)
    _count: int = 0

    def __post_init__(self) -> None:
        self.notes = deque(maxlen=self.limit)
        self.statistics = Statistics(clock.now(self._process.node.loop))

    @property
    def on(self) -> bool:
        """Whether the process lives and this watch is active."""
        return any(observer.watch is self for observer in _observers(self._process))

    def stop(self) -> None:
        """End the watch; its notes stay."""
        process = self._process
        observers = [each for each in _observers(process) if each.watch is not self]
        behaviour = process.behaviour.inner
        if process.life == GONE:
            return
        for each in reversed(observers):
            each.next = behaviour
            behaviour = each
        process.behaviour = behaviour
        if not observers and isinstance(behaviour, CallbackServer):
            process.idle_activity = behaviour._otp_idle_activity() if behaviour._otp_deferred is None else DOZING

    def _note(self, kind: TraceKind, what: str, seconds: float | None = None) -> None:
        if kind not in self._kinds:
            return
        process = self._process
        if len(self.notes) == self.limit:
            self.dropped += 1
        note = Trace(self._count, clock.now(process.node.loop), process.pid, process.label, kind, what, seconds)
        self._count += 1
        if self.limit:
            self.notes.append(note)
        if self._subscriber is not None:
            try:
                self._subscriber(note)
            except Exception:  # noqa: BLE001 - it is logged, and must not affect the watched server
                log_error(_log, "a subscriber of a watch raised on %r; the watch goes on without it", note)
                self._subscriber = None


class _Observer(Behaviour):
    """Takes the place of a behaviour, or of another observer, and passes everything on to it."""

    __slots__ = ("_began", "_entry", "_notes_states", "_state", "next", "watch")

    def __init__(self, behaviour: Behaviour, watch: Watch) -> None:
        self.next = behaviour
        self.watch = watch
        self._began = 0.0
        self._entry: MailboxEntry | None = None
        # Only if states are wanted: reading `__dict__` makes CPython build the object's dict, after which it no longer keeps the
        # attributes inline, and access to them stays slower for the life of the object.
        self._notes_states = "state" in watch._kinds
        self._state = _state_of(behaviour.inner) if self._notes_states else ""

    @property
    def inner(self) -> Behaviour:
        return self.next.inner

    def _otp_handle(self, entry: MailboxEntry) -> object:
        self._entry = entry
        self._began = clock.real_seconds()
        return self.next._otp_handle(entry)

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        self._otp_note_message(entry)
        caller = entry[-1] if entry[0] in (CALL, ASK) else None
        before = caller is not None and caller.over
        self.next._otp_on_return(entry, value)
        if caller is not None and caller.over and not before:
            self.watch.statistics.replies += 1
            self.watch._note("reply", caller.answer_text())
        self._note_state()

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        self._otp_note_message(entry)
        self.watch.statistics.crashes += 1
        self.watch._note("crash", f"{type(error).__name__}: {error}")
        self.next._otp_on_error(entry, error)
        self._note_state()

    def _otp_report(self, error: BaseException) -> None:
        self.next._otp_report(error)

    def _otp_on_exit(self, reason: ExitReason) -> None:
        during = "" if self._entry is None else f", in the middle of {safe_repr.message(self._entry)}"
        self.watch._note("exit", f"{reason}{during}")
        self.next._otp_on_exit(reason)

    def _otp_note_message(self, entry: MailboxEntry) -> None:
        self._entry = None
        seconds = clock.real_seconds() - self._began
        text = safe_repr.message(entry)
        statistics = self.watch.statistics
        statistics.messages += 1
        statistics.busy += seconds
        if seconds > statistics.longest:
            statistics.longest, statistics.longest_message = seconds, text
        self.watch._note("message", text, seconds)

    def _note_state(self) -> None:
        if self._notes_states:
            state = _state_of(self.next.inner)
            if state != self._state:
                self._state = state
                self.watch._note("state", state)
        process = self.watch._process
        process.idle_activity = max(
            process.idle_activity, DOZING
        )  # the behaviour may have reset it, not knowing of the observer


def _state_of(behaviour: Behaviour) -> str:
    """The state of a machine, or the `report_state` of a server."""
    state = getattr(behaviour, "state", None)
    if state is not None and hasattr(state, "name"):
        return str(state.name)
    if isinstance(behaviour, CallbackServer):
        try:
            return behaviour.report_state()
        except Exception as error:  # noqa: BLE001 - an inspection must not end the server
            return f"(report_state raised {type(error).__name__}: {error})"
    return ""


def _observers(process: Process) -> list[_Observer]:
    found: list[_Observer] = []
    behaviour = process.behaviour
    while isinstance(behaviour, _Observer):
        found.append(behaviour)
        behaviour = behaviour.next
    return found


def watch(
    target: object,
    subscriber: Callable[[Trace], None] | None = None,
    *,
    kinds: Iterable[TraceKind] = TRACE_KINDS,
    limit: int = 1000,
) -> Watch:
    """Watch a server: `subscriber` is called with every note, and the newest `limit` notes are kept.

    The subscriber is called synchronously and must be quick, or send the note to a process. Several watches of one server
    are independent. A watch ends by `stop`, or with its process.
    """
    if limit < 0:
        message = f"limit must be 0 notes or more, not {limit!r}"
        raise ValueError(message)
    wanted = frozenset(kinds)
    if unknown := wanted - set(TRACE_KINDS):
        message = f"kinds must be some of {', '.join(TRACE_KINDS)}, not {', '.join(map(repr, sorted(unknown)))}"
        raise ValueError(message)
    process, pid, name = api.resolve(current_node(), target)
    if process is None or process.life:
        raise NotRegistered(NO_PROCESS, name or pid)
    if process.is_remote:
        raise ActorError(f"{process} is on another node: watch it there")
    if not isinstance(process.behaviour.inner, CallbackServer):
        message = f"{process} is no server: it receives its messages itself, so it cannot be watched"
        raise ActorError(message)
    watching = Watch(limit, process, _subscriber=subscriber, _kinds=wanted)
    process.behaviour = _Observer(process.behaviour, watching)
    process.idle_activity = DOZING
    if not process.activity:
        process.activity = DOZING
    return watching
