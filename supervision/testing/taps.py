"""Taps: whoever wants to see, hold back or change what is put into a process's mailbox, without the process knowing.

A tapped process is of a class of its own that differs in one method, so nobody else pays for it. While anything in a
node is tapped, all its calls go through mailboxes, as they do under a seed: a call that is answered on the spot passes
none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from greenroom.supervision.kernel.process import GONE, Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.messages import Entry
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.reasons import ExitReason

PassOn: TypeAlias = "Callable[[Entry], bool]"
Tap: TypeAlias = "Callable[[Process, Entry, PassOn], bool]"
"""Called with each entry, and with a function that passes it on; returns what the sender is told: whether it was taken."""


class _Taps:
    """All taps of one node, and what the node was like before."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.by_process: dict[Process, tuple[Tap, ...]] = {}
        self._budget: int | None = None

    def hold(self) -> None:
        """From now on each call passes a mailbox."""
        if self._budget is None:
            self._budget = self.node.inline_budget
            self.node.inline_budget = self.node.inline_left = 0

    def let_go(self) -> None:
        """As before, if nothing is tapped."""
        if self._budget is not None and not self.by_process:
            self.node.inline_budget = self.node.inline_left = self._budget
            self._budget = None


def _of(node: Node) -> _Taps:
    taps: _Taps | None = vars(node).get("_taps")
    if taps is None:
        taps = vars(node)["_taps"] = _Taps(node)  # in the node itself, so that it ends with it
    return taps


class _Tapped(Process):
    """A process whose mailbox somebody sits before."""

    __slots__ = ()

    def deliver(self, entry: Entry) -> bool:
        return _pass(self, _of(self.node).by_process.get(self, ()), entry)


def _pass(process: Process, taps: tuple[Tap, ...], entry: Entry) -> bool:
    if taps:
        return taps[0](process, entry, lambda passed: _pass(process, taps[1:], passed))
    delivered = Process.deliver(process, entry)
    process.quick = None  # the short way for casts, which knows of no tap
    return delivered


class _Death:
    """Takes the taps from a process that is gone."""

    __slots__ = ("_process",)

    def __init__(self, process: Process) -> None:
        self._process = process

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - as the kernel calls it
        taps = _of(self._process.node)
        taps.by_process.pop(self._process, None)
        taps.let_go()


def tap(process: Process, by: Tap, *, first: bool = False) -> Callable[[], None]:
    """Have `by` called with each entry for that mailbox, behind those who came before it; the returned function ends that."""
    if process.life == GONE:
        return lambda: None
    taps = _of(process.node)
    before = taps.by_process.get(process)
    if before is None:
        process.__class__ = _Tapped
        process.quick = None
        process.await_death(_Death(process))
        before = ()
    taps.by_process[process] = (by, *before) if first else (*before, by)
    taps.hold()

    def untap() -> None:
        left = tuple(each for each in taps.by_process.get(process, ()) if each is not by)
        if left:
            taps.by_process[process] = left
        elif taps.by_process.pop(process, None) is not None:
            taps.let_go()

    return untap
