"""Writes the history of a node while it runs, without anything in the code under test: no wrapper, no other ref.

It sits before the mailboxes (`taps`) and behind the calls, whose class differs in the methods that settle them. A node
without a recorder has neither. While one is on, each call passes the callee's mailbox, as it does under a seed.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from greenroom.supervision.behaviours.replies import Caller
from greenroom.supervision.kernel import clock, safe_repr
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.process import DYING, GONE
from greenroom.supervision.kernel.process_lookup import current, current_node
from greenroom.supervision.kernel.process_messages import ASK, CALL, CAST, INFO, SYSTEM, TELL
from greenroom.supervision.kernel.reports import CrashReport, Leaked, LoopBlocked, Report
from greenroom.supervision.logs import describe_report

from .fault_actions import ExitCallback, tap_mailbox
from .histories import OUTSIDE, History, HistoryEvent, Kind, without_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import ExitReason, MailboxEntry

    from .fault_actions import PassOn

_CALLS: Final = (CALL, ASK, SYSTEM)
_MESSAGES: Final = (CAST, TELL, INFO)


def recorder_of(node: Node) -> Recorder | None:
    """The recorder that records that node now, if there is one."""
    return vars(node).get("_recorder")  # in the node itself, so that it ends with it


class _RecordedCall(Caller[Any]):
    """A call that is recorded."""

    __slots__ = ()

    def on_exit(self, reason: ExitReason) -> None:
        with _outcome_kind(self._node, "exited"):
            super().on_exit(reason)

    def expire(self, seconds: float) -> None:
        with _outcome_kind(self._node, "expired"):
            super().expire(seconds)

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        settled = super()._settle(value, error)
        recorder = recorder_of(self._node)
        if recorder is not None and recorder.is_own_thread():
            recorder.on_settled(self, error, in_time=settled)
        return settled

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from super().__await__())
        finally:
            recorder = recorder_of(self._node)
            if recorder is not None and (self._future.cancelled() or not self._future.done()):
                recorder.on_abandoned(self)


@contextmanager
def _outcome_kind(node: Node, kind: Kind) -> Generator[None]:
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
        self._abandoned: set[int] = set()
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
            self._follow(process)
            self.write("born", str(process), by=None if parent is None else str(parent))
            return process

        vars(node)["create"] = create  # of this one node: its class, and all others, know nothing of it
        self._ends += [lambda: vars(node).pop("create"), node.reports.subscribe(self._on_report)]
        if node.running:
            for process in tuple(node.processes.values()):
                self._follow(process)

    def stop(self) -> None:
        """End; what is under way is not followed any further."""
        if recorder_of(self.node) is self:
            del vars(self.node)["_recorder"]
            for end in self._ends:
                end()
        self._ends.clear()

    def is_own_thread(self) -> bool:
        """Whether this is the node's own thread; what another one does comes here by itself."""
        try:
            self.node.check_thread("record")
        except ActorError:
            return False
        return True

    # --- what happens

    def write(self, kind: Kind, who: str, what: str = "", *, by: str | None = None, call: int | None = None) -> None:
        """Write a line."""
        if recorder_of(self.node) is not self:
            return
        now = clock.now(self.node.loop)
        if self._began is None:
            self._began = now
        events = self.history.events
        events.append(HistoryEvent(len(events) + 1, now - self._began, kind, who, without_addresses(what), by, call))

    def _follow(self, process: Process) -> None:
        self._ends.append(tap_mailbox(process, self._on_entry, first=True))
        process.add_exit_waiter(ExitCallback(lambda reason: self.write("died", str(process), str(reason))))

    def _on_entry(self, process: Process, entry: MailboxEntry, pass_on: PassOn) -> bool:
        kind = entry[0]
        if kind in _CALLS and isinstance(entry[-1], Caller):
            return self._on_call(process, entry, pass_on)
        if self.messages and kind in _MESSAGES:
            sender = current.get()
            self.write("sent", str(process), _entry_text(entry), by=OUTSIDE if sender is None else str(sender))
        return pass_on(entry)

    def _on_call(self, process: Process, entry: MailboxEntry, pass_on: PassOn) -> bool:
        caller: Caller[Any] = entry[-1]
        if type(caller) is Caller:
            caller.__class__ = _RecordedCall
        number = len(self._numbers) + 1
        self._numbers[caller] = number
        self._callees[number] = str(process)
        by = OUTSIDE if caller.process is None else str(caller.process)
        self.write("called", str(process), _entry_text(entry), by=by, call=number)
        delivered = pass_on(entry)
        if not delivered and process.life != DYING:
            why = "nobody is there" if process.life == GONE else "the mailbox is full"
            self._abandoned.add(number)
            self.write("refused", str(process), why, call=number)
        return delivered

    def on_settled(self, caller: Caller[Any], error: BaseException | None, *, in_time: bool) -> None:
        """A call was answered, or was to be and is over already."""
        number = self._numbers.get(caller)
        if number is None or number in self._abandoned:
            return
        if caller._future.cancelled():  # noqa: SLF001 - an answer to one that was given up is not its outcome
            self.on_abandoned(caller)
            return
        callee = self._callees[number]
        replier = current.get()
        kind = self.ending or ("answered" if error is None else "failed")
        by = None if self.ending else str(replier) if replier is not None else callee
        if in_time:
            self.write(kind, callee, caller.answer_text(), by=by, call=number)
        elif self.ending is None:
            self.write("late", callee, "a reply that nobody waits for", by=by, call=number)

    def on_abandoned(self, caller: Caller[Any]) -> None:
        """The caller of that call waits no longer."""
        number = self._numbers.get(caller)
        if number is not None and number not in self._abandoned:
            self._abandoned.add(number)
            self.write("abandoned", self._callees[number], "its caller waits no longer", call=number)

    def _on_report(self, report: Report) -> None:
        who = f"{report.label} {report.pid}"
        words = describe_report(report)[1].partition("\n")[0].removeprefix(who).lstrip(": ")
        self.write("report", who, f"{type(report).__name__}: {words}")


def _entry_text(entry: MailboxEntry) -> str:
    if entry[0] == SYSTEM:
        asked: str = getattr(entry[1], "__qualname__", "message")
        return f"system {asked.partition('.<locals>')[0].strip('_')}"
    return safe_repr.message(entry)


def record(node: Node | None = None, *, messages: bool = False) -> Recorder:
    """A recorder of the running node, to be used in a `with` block; its `history` is what happened in there."""
    return Recorder(node, messages=messages)


# --- All reports of a node, kept for a test to look at.

R = TypeVar("R", bound=Report)

WITHIN = 1.0
FAULTS = (CrashReport, Leaked, LoopBlocked)
"""Reports that say of a process that it did something wrong."""


class CollectedReports(list[Report]):
    """A list of all reports since the node was opened, in order."""

    def __init__(self, node: Node) -> None:
        """Begin to collect."""
        super().__init__()
        self._node = node
        self._pending: list[Report] = []
        self._times: list[float] = []
        self._arrived = asyncio.Event()
        self.end = node.reports.subscribe(self._collect)

    def _collect(self, report: Report) -> None:
        self.append(report)
        self._pending.append(report)
        self._times.append(clock.now(self._node.loop))
        self._arrived.set()

    def of(self, kind: type[R]) -> list[R]:
        """Those of one kind."""
        return [report for report in self if isinstance(report, kind)]

    async def expect(self, kind: type[R], *where: Callable[[R], object], within: float = WITHIN) -> R:
        """The next report of a kind that fits and was not taken before; fails when none comes in time."""
        __tracebackhide__ = True
        deadline = clock.now(self._node.loop) + within
        while True:
            for index, report in enumerate(self._pending):
                if isinstance(report, kind) and all(condition(report) for condition in where):
                    del self._pending[index]
                    return report
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
            except TimeoutError:
                came = "".join(f"\n  {_report_text(report)}" for report in self._pending) or " nothing"
                raise AssertionError(f"no {kind.__name__} came within {within:g} s; not expected:{came}") from None

    def unexpected(self, *kinds: type[Report]) -> list[Report]:
        """Those that no `expect` has taken: of the given kinds, or else all that tell of a fault."""
        return [report for report in self._pending if isinstance(report, kinds or FAULTS)]

    def assert_all_expected(self, *kinds: type[Report]) -> None:
        """Fails when `unexpected` finds some."""
        __tracebackhide__ = True
        left = self.unexpected(*kinds)
        if left:
            raise AssertionError(
                "".join(["reports that nobody expected:", *(f"\n  {_report_text(report)}" for report in left)])
            )

    def lines(self) -> list[str]:
        """All of them in words, with their times."""
        return [f"at {at:g} s: {_report_text(report)}" for at, report in zip(self._times, self, strict=True)]


def _report_text(report: Report) -> str:
    return describe_report(report)[1]
