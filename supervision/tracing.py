"""Watching servers at work: traces to a subscriber, and statistics. OTP's `sys:trace` and `sys:statistics`.

Whoever is watched gets an observer put before its behaviour, which passes everything on and takes notes. A server that
nobody watches has no such thing, so looking on costs nobody else anything; a watched one handles every call through its
mailbox, one message at a time.
"""

# ruff: noqa: SLF001 - an observer stands where the engine expects a behaviour
from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from .behaviours.server import Server
from .kernel import api, clock, describe
from .kernel.behaviour import Behaviour
from .kernel.current import current_node
from .kernel.errors import ActorError, NotRegistered
from .kernel.messages import ASK, CALL
from .kernel.process import DOZING, GONE, Process
from .kernel.reasons import NO_PROCESS
from .kernel.tracebacks import log_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .kernel.messages import Entry
    from .kernel.pid import Pid
    from .kernel.reasons import ExitReason

_log = logging.getLogger("greenroom.supervision")

Kind: TypeAlias = Literal["message", "reply", "state", "crash", "exit"]
KINDS: tuple[Kind, ...] = ("message", "reply", "state", "crash", "exit")


@dataclass(frozen=True, slots=True)
class Trace:
    """One note about one process: number `number` of this watch, at `time` on the node's clock.

    `what` is a short text: the message that it begins with, the value that it answered, the state that it is in now, the
    error that it raised, the reason that it ended of. `seconds` is how long a message took.
    """

    number: int
    time: float
    pid: Pid
    label: str
    kind: Kind
    what: str
    seconds: float | None = None


@dataclass(slots=True)
class Statistics:
    """What a watched process has done since the watch began; `busy` is real time between the beginning of a message and its end."""

    since: float
    messages: int = 0
    replies: int = 0
    crashes: int = 0
    busy: float = 0.0
    longest: float = 0.0
    longest_message: str = ""


@dataclass(slots=True)
class Watch:
    """A watch that is on. The notes are kept here as well, the newest `limit` of them; `dropped` tells how many are not."""

    limit: int
    _process: Process
    notes: deque[Trace] = field(init=False)
    dropped: int = 0
    statistics: Statistics = field(init=False)
    _subscriber: Callable[[Trace], None] | None = None
    _kinds: frozenset[str] = frozenset(KINDS)
    _count: int = 0

    def __post_init__(self) -> None:
        self.notes = deque(maxlen=self.limit)
        self.statistics = Statistics(clock.now(self._process.node.loop))

    @property
    def on(self) -> bool:
        """Whether the process lives and is still watched by this."""
        return any(observer.watch is self for observer in _observers(self._process))

    def stop(self) -> None:
        """End the watch; what was noted stays."""
        process = self._process
        observers = [each for each in _observers(process) if each.watch is not self]
        behaviour = process.behaviour.inner
        if process.life == GONE:
            return
        for each in reversed(observers):
            each.next = behaviour
            behaviour = each
        process.behaviour = behaviour
        if not observers and isinstance(behaviour, Server):
            process.resting = behaviour._otp_rests() if behaviour._otp_kept is None else DOZING

    def _note(self, kind: Kind, what: str, seconds: float | None = None) -> None:
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
            except Exception:  # noqa: BLE001 - it is logged whole, and must not hurt who is watched
                log_error(_log, "a subscriber of a watch raised on %r; the watch goes on without it", note)
                self._subscriber = None


class _Observer(Behaviour):
    """Stands before a behaviour, or before another observer."""

    __slots__ = ("_began", "_entry", "_looks", "_state", "next", "watch")

    def __init__(self, behaviour: Behaviour, watch: Watch) -> None:
        self.next = behaviour
        self.watch = watch
        self._began = 0.0
        self._entry: Entry | None = None
        # Only for who wants it: to read the fields of an object makes its attributes slower for good, in Python.
        self._looks = "state" in watch._kinds
        self._state = _state_of(behaviour.inner) if self._looks else ""

    @property
    def inner(self) -> Behaviour:
        return self.next.inner

    def _otp_handle(self, entry: Entry) -> object:
        self._entry = entry
        self._began = clock.real()
        return self.next._otp_handle(entry)

    def _otp_done(self, entry: Entry, value: object) -> None:
        self._otp_finished(entry)
        caller = entry[-1] if entry[0] in (CALL, ASK) else None
        before = caller is not None and caller.over
        self.next._otp_done(entry, value)
        if caller is not None and caller.over and not before:
            self.watch.statistics.replies += 1
            self.watch._note("reply", caller.told())
        self._look()

    def _otp_failed(self, entry: Entry, error: BaseException) -> None:
        self._otp_finished(entry)
        self.watch.statistics.crashes += 1
        self.watch._note("crash", f"{type(error).__name__}: {error}")
        self.next._otp_failed(entry, error)
        self._look()

    def _otp_report(self, error: BaseException) -> None:
        self.next._otp_report(error)

    def _otp_exiting(self, reason: ExitReason) -> None:
        during = "" if self._entry is None else f", in the middle of {describe.message(self._entry)}"
        self.watch._note("exit", f"{reason}{during}")
        self.next._otp_exiting(reason)

    def _otp_finished(self, entry: Entry) -> None:
        self._entry = None
        seconds = clock.real() - self._began
        text = describe.message(entry)
        statistics = self.watch.statistics
        statistics.messages += 1
        statistics.busy += seconds
        if seconds > statistics.longest:
            statistics.longest, statistics.longest_message = seconds, text
        self.watch._note("message", text, seconds)

    def _look(self) -> None:
        if self._looks:
            state = _state_of(self.next.inner)
            if state != self._state:
                self._state = state
                self.watch._note("state", state)
        process = self.watch._process
        process.resting = max(
            process.resting, DOZING
        )  # the behaviour let go of it, and does not know that somebody looks on


def _state_of(behaviour: Behaviour) -> str:
    """A machine's state; what a server says of its state in reports."""
    state = getattr(behaviour, "state", None)
    if state is not None and hasattr(state, "name"):
        return str(state.name)
    if isinstance(behaviour, Server):
        try:
            return behaviour.report_state()
        except Exception as error:  # noqa: BLE001 - a look must not end who is looked at
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
    who: object,
    subscriber: Callable[[Trace], None] | None = None,
    *,
    kinds: Iterable[Kind] = KINDS,
    limit: int = 1000,
) -> Watch:
    """Watch a server: every note goes to `subscriber` on the spot, and the newest `limit` are kept.

    Give a subscriber that is quick, or one that sends the note to a process. Several watches of one server do not know
    of each other. A watch ends by `stop`, or with its process.
    """
    if limit < 0:
        message = f"limit must be 0 notes or more, not {limit!r}"
        raise ValueError(message)
    wanted = frozenset(kinds)
    if unknown := wanted - set(KINDS):
        message = f"kinds must be some of {', '.join(KINDS)}, not {', '.join(map(repr, sorted(unknown)))}"
        raise ValueError(message)
    process, pid, name = api.resolve(current_node(), who)
    if process is None or process.life:
        raise NotRegistered(NO_PROCESS, name or pid)
    if process.away:
        raise ActorError(f"{process} is on another node: look on there")
    if not isinstance(process.behaviour.inner, Server):
        message = f"{process} is no server: it takes its messages by itself, where nobody can look on"
        raise ActorError(message)
    watching = Watch(limit, process, _subscriber=subscriber, _kinds=wanted)
    process.behaviour = _Observer(process.behaviour, watching)
    process.resting = DOZING
    if not process.activity:
        process.activity = DOZING
    return watching
