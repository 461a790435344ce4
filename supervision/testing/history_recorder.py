"""Recorder: writes the history of a node while it runs, without changes in the code under test.

It taps mailboxes, and replaces the class of `Caller` objects by one whose methods report outcomes. A node without a recorder has neither. While a recorder is
active, every call goes through the callee's mailbox, as it does with a seed.
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
    """The active recorder of that node, if there is one."""
    return vars(node).get("_recorder")  # stored in the node, so that it is freed with it


class _RecordedCall(Caller[Any]):
    """The `Caller` of a recorded call; an existing object gets this class by `__class__` assignment, since the code under test holds references to it."""

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
    """Records while it is open: ``with Recorder(node) as recorder``, or `start` and `stop`. The result is in `history`.

    With `messages`, casts, tells and plain messages are recorded too.

    """

    def __init__(self, node: Node | None = None, *, messages: bool = False) -> None:
        """`node` defaults to the running one, and need not be open yet."""
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

    # --- start and stop

    def start(self) -> None:
        """Start recording; existing processes are recorded from now on."""
        node = self.node
        if recorder_of(node) is not None:
            raise ActorError(f"{node!r} has a recorder already: use that one's history")
        vars(node)["_recorder"] = self
        make = node.create

        def create(parent: Process | None, label: str) -> Process:
            process = make(parent, label)
            self._follow(process)
            self.write("born", str(process), by=None if parent is None else str(parent))
            return process

        vars(node)["create"] = (
            create  # set on this one node instead of patching the class, which would affect all nodes
        )
        self._ends += [lambda: vars(node).pop("create"), node.reports.subscribe(self._on_report)]
        if node.running:
            for process in tuple(node.processes.values()):
                self._follow(process)

    def stop(self) -> None:
        """Stop recording; calls in progress get no outcome."""
        if recorder_of(self.node) is self:
            del vars(self.node)["_recorder"]
            for end in self._ends:
                end()
        self._ends.clear()

    def is_own_thread(self) -> bool:
        """Whether this is the node's thread. Events of other threads arrive here through the loop."""
        try:
            self.node.check_thread("record")
        except ActorError:
            return False
        return True

    # --- events

    def write(self, kind: Kind, who: str, what: str = "", *, by: str | None = None, call: int | None = None) -> None:
        """Append an event."""
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
            why = "no such process" if process.life == GONE else "the mailbox is full"
            self._abandoned.add(number)
            self.write("refused", str(process), why, call=number)
        return delivered

    def on_settled(self, caller: Caller[Any], error: BaseException | None, *, in_time: bool) -> None:
        """Record the reply to a call, or a reply that came too late."""
        number = self._numbers.get(caller)
        if number is None or number in self._abandoned:
            return
        if caller._future.cancelled():  # noqa: SLF001 - a reply to an abandoned call is not its outcome
            self.on_abandoned(caller)
            return
        callee = self._callees[number]
        replier = current.get()
        kind = self.ending or ("answered" if error is None else "failed")
        by = None if self.ending else str(replier) if replier is not None else callee
        if in_time:
            self.write(kind, callee, caller.answer_text(), by=by, call=number)
        elif self.ending is None:
            self.write("late", callee, "a reply after the call had ended", by=by, call=number)

    def on_abandoned(self, caller: Caller[Any]) -> None:
        """Record that the caller no longer waits."""
        number = self._numbers.get(caller)
        if number is not None and number not in self._abandoned:
            self._abandoned.add(number)
            self.write("abandoned", self._callees[number], "its caller stopped waiting", call=number)

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
    """A recorder of the running node for a `with` block."""
    return Recorder(node, messages=messages)


# --- The reports of a node, collected for assertions.

R = TypeVar("R", bound=Report)

WITHIN = 1.0
FAULTS = (CrashReport, Leaked, LoopBlocked)
"""Reports of misbehaviour."""


class CollectedReports(list[Report]):
    """All reports since the node was opened, in order."""

    def __init__(self, node: Node) -> None:
        """Start collecting."""
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
        """The reports of a class."""
        return [report for report in self if isinstance(report, kind)]

    async def expect(self, kind: type[R], *where: Callable[[R], object], within: float = WITHIN) -> R:
        """The next matching report that no earlier `expect` returned; fails after `within` seconds without one."""
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
        """The reports that no `expect` returned: of the given classes, by default those of misbehaviour."""
        return [report for report in self._pending if isinstance(report, kinds or FAULTS)]

    def assert_all_expected(self, *kinds: type[Report]) -> None:
        """Fail if `unexpected` returns any."""
        __tracebackhide__ = True
        left = self.unexpected(*kinds)
        if left:
            raise AssertionError("".join(["unexpected reports:", *(f"\n  {_report_text(report)}" for report in left)]))

    def lines(self) -> list[str]:
        """One line per report, with its time."""
        return [f"at {at:g} s: {_report_text(report)}" for at, report in zip(self._times, self, strict=True)]


def _report_text(report: Report) -> str:
    return describe_report(report)[1]
