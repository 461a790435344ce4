"""Writes the history of a node while it runs, without anything in the code under test: no wrapper, no other ref.

It sits before the mailboxes (`taps`) and behind the calls, whose class differs in the methods that settle them. A node
without a recorder has neither. While one is on, each call passes the callee's mailbox, as it does under a seed.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from greenroom.supervision.behaviours.caller import Caller
from greenroom.supervision.kernel import clock, describe
from greenroom.supervision.kernel.current import current, current_node
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, SYSTEM, TELL
from greenroom.supervision.kernel.process import DYING, GONE
from greenroom.supervision.kernel.reports import CrashReport, Leaked, LoopBlocked, Report
from greenroom.supervision.logs import tell

from .faults import AtDeath, tap
from .histories import OUTSIDE, History, Kind, Occurrence, stable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from greenroom.supervision.kernel.messages import Entry, ExitReason
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process

    from .faults import PassOn

_CALLS: Final = (CALL, ASK, SYSTEM)
_MESSAGES: Final = (CAST, TELL, INFO)


def recorder_of(node: Node) -> Recorder | None:
    """The recorder that records that node now, if there is one."""
    return vars(node).get("_recorder")  # in the node itself, so that it ends with it


class _Recorded(Caller[Any]):
    """A call that is recorded."""

    __slots__ = ()

    def exited(self, reason: ExitReason) -> None:
        with _naming(self._node, "exited"):
            super().exited(reason)

    def expire(self, seconds: float) -> None:
        with _naming(self._node, "expired"):
            super().expire(seconds)

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        settled = super()._settle(value, error)
        recorder = recorder_of(self._node)
        if recorder is not None and recorder.here():
            recorder.settled(self, error, in_time=settled)
        return settled

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from super().__await__())
        finally:
            recorder = recorder_of(self._node)
            if recorder is not None and (self._future.cancelled() or not self._future.done()):
                recorder.abandoned(self)


@contextmanager
def _naming(node: Node, kind: Kind) -> Generator[None]:
    recorder = recorder_of(node)
    if recorder is None:
        yield
        return
    before, recorder.ending = recorder.ending, kind
    try:
        yield
    finally:
        recorder.ending = before


class Recorder:
    """Records while it is open: ``with Recorder(node) as recorder``, or `start` and `stop`. `history` is what it wrote.

    `messages` also records what is sent without waiting: casts, tells, plain messages.
    """

    def __init__(self, node: Node | None = None, *, messages: bool = False) -> None:
        """`node` need not be open yet; by default it is the running one."""
        self.node = current_node() if node is None else node
        self.history = History()
        self.messages = messages
        self.ending: Kind | None = None
        self._numbers: dict[Caller[Any], int] = {}
        self._callees: dict[int, str] = {}
        self._given_up: set[int] = set()
        self._ends: list[Callable[[], None]] = []
        self._began: float | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- on and off

    def start(self) -> None:
        """Begin. Processes that are there already are recorded from now on."""
        node = self.node
        if recorder_of(node) is not None:
            raise ActorError(f"{node!r} has a recorder already: a run has one history")
        vars(node)["_recorder"] = self
        make = node.create

        def create(parent: Process | None, label: str) -> Process:
            process = make(parent, label)
            self._meet(process)
            self.note("born", str(process), by=None if parent is None else str(parent))
            return process

        vars(node)["create"] = create  # of this one node: its class, and all others, know nothing of it
        self._ends += [lambda: vars(node).pop("create"), node.reports.subscribe(self._reported)]
        if node.running:
            for process in tuple(node.processes.values()):
                self._meet(process)

    def stop(self) -> None:
        """End; what is under way is not followed any further."""
        if recorder_of(self.node) is self:
            del vars(self.node)["_recorder"]
            for end in self._ends:
                end()
        self._ends.clear()

    def here(self) -> bool:
        """Whether this is the node's own thread; what another one does comes here by itself."""
        try:
            self.node.check_thread("record")
        except ActorError:
            return False
        return True

    # --- what happens

    def note(self, kind: Kind, who: str, what: str = "", *, by: str | None = None, call: int | None = None) -> None:
        """Write a line."""
        if recorder_of(self.node) is not self:
            return
        now = clock.now(self.node.loop)
        if self._began is None:
            self._began = now
        events = self.history.events
        events.append(Occurrence(len(events) + 1, now - self._began, kind, who, stable(what), by, call))

    def _meet(self, process: Process) -> None:
        self._ends.append(tap(process, self._entering, first=True))
        process.await_death(AtDeath(lambda reason: self.note("died", str(process), str(reason))))

    def _entering(self, process: Process, entry: Entry, pass_on: PassOn) -> bool:
        kind = entry[0]
        if kind in _CALLS and isinstance(entry[-1], Caller):
            return self._called(process, entry, pass_on)
        if self.messages and kind in _MESSAGES:
            sender = current.get()
            self.note("sent", str(process), _words(entry), by=OUTSIDE if sender is None else str(sender))
        return pass_on(entry)

    def _called(self, process: Process, entry: Entry, pass_on: PassOn) -> bool:
        caller: Caller[Any] = entry[-1]
        if type(caller) is Caller:
            caller.__class__ = _Recorded
        number = len(self._numbers) + 1
        self._numbers[caller] = number
        self._callees[number] = str(process)
        by = OUTSIDE if caller.process is None else str(caller.process)
        self.note("called", str(process), _words(entry), by=by, call=number)
        delivered = pass_on(entry)
        if not delivered and process.life != DYING:
            why = "nobody is there" if process.life == GONE else "the mailbox is full"
            self._given_up.add(number)
            self.note("refused", str(process), why, call=number)
        return delivered

    def settled(self, caller: Caller[Any], error: BaseException | None, *, in_time: bool) -> None:
        """A call was answered, or was to be and is over already."""
        number = self._numbers.get(caller)
        if number is None or number in self._given_up:
            return
        if caller._future.cancelled():  # noqa: SLF001 - an answer to one that was given up is not its outcome
            self.abandoned(caller)
            return
        callee = self._callees[number]
        replier = current.get()
        kind = self.ending or ("answered" if error is None else "failed")
        by = None if self.ending else str(replier) if replier is not None else callee
        if in_time:
            self.note(kind, callee, caller.told(), by=by, call=number)
        elif self.ending is None:
            self.note("late", callee, "a reply that nobody waits for", by=by, call=number)

    def abandoned(self, caller: Caller[Any]) -> None:
        """The caller of that call waits no longer."""
        number = self._numbers.get(caller)
        if number is not None and number not in self._given_up:
            self._given_up.add(number)
            self.note("abandoned", self._callees[number], "its caller waits no longer", call=number)

    def _reported(self, report: Report) -> None:
        who = f"{report.label} {report.pid}"
        words = tell(report)[1].partition("\n")[0].removeprefix(who).lstrip(": ")
        self.note("report", who, f"{type(report).__name__}: {words}")


def _words(entry: Entry) -> str:
    if entry[0] == SYSTEM:
        asked: str = getattr(entry[1], "__qualname__", "message")
        return f"system {asked.partition('.<locals>')[0].strip('_')}"
    return describe.message(entry)


def record(node: Node | None = None, *, messages: bool = False) -> Recorder:
    """A recorder of the running node, to be used in a `with` block; its `history` is what happened in there."""
    return Recorder(node, messages=messages)


# --- All reports of a node, kept for a test to look at.

R = TypeVar("R", bound=Report)

WITHIN = 1.0
FAULTS = (CrashReport, Leaked, LoopBlocked)
"""Reports that say of a process that it did something wrong."""


class Collected(list[Report]):
    """A list of all reports since the node was opened, in order."""

    def __init__(self, node: Node) -> None:
        """Begin to collect."""
        super().__init__()
        self._node = node
        self._open: list[Report] = []
        self._times: list[float] = []
        self._news = asyncio.Event()
        self.end = node.reports.subscribe(self._collect)

    def _collect(self, report: Report) -> None:
        self.append(report)
        self._open.append(report)
        self._times.append(clock.now(self._node.loop))
        self._news.set()

    def of(self, kind: type[R]) -> list[R]:
        """Those of one kind."""
        return [report for report in self if isinstance(report, kind)]

    async def expect(self, kind: type[R], *where: Callable[[R], object], within: float = WITHIN) -> R:
        """The next report of a kind that fits and was not taken before; fails when none comes in time."""
        __tracebackhide__ = True
        deadline = clock.now(self._node.loop) + within
        while True:
            for index, report in enumerate(self._open):
                if isinstance(report, kind) and all(condition(report) for condition in where):
                    del self._open[index]
                    return report
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                came = "".join(f"\n  {_collected_words(report)}" for report in self._open) or " nothing"
                raise AssertionError(f"no {kind.__name__} came within {within:g} s; not expected:{came}") from None

    def unexpected(self, *kinds: type[Report]) -> list[Report]:
        """Those that no `expect` has taken: of the given kinds, or else all that tell of a fault."""
        return [report for report in self._open if isinstance(report, kinds or FAULTS)]

    def assert_all_expected(self, *kinds: type[Report]) -> None:
        """Fails when `unexpected` finds some."""
        __tracebackhide__ = True
        left = self.unexpected(*kinds)
        if left:
            raise AssertionError(
                "".join(["reports that nobody expected:", *(f"\n  {_collected_words(report)}" for report in left)])
            )

    def lines(self) -> list[str]:
        """All of them in words, with their times."""
        return [f"at {at:g} s: {_collected_words(report)}" for at, report in zip(self._times, self, strict=True)]


def _collected_words(report: Report) -> str:
    return tell(report)[1]
