"""Stopping children: the part of a supervisor that nothing may hang.

What is waited for is the child's end itself and not an exit signal along the link, so a child that unlinked from its
supervisor is stopped like any other. A child that is gone already has left its reason in the supervisor's mailbox.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.kernel import clock, exits, links
from greenroom.supervision.kernel.messages import SIGNAL, Exit
from greenroom.supervision.kernel.reasons import NO_PROCESS, SHUTDOWN, ExitReason, Killed, Shutdown, is_orderly

from .spec import BRUTAL_KILL, PERMANENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.supervision.kernel.pid import Pid
    from greenroom.supervision.kernel.process import Process

    from .spec import ChildSpec, Patience

GAVE_UP: Final = Shutdown("reached max restart intensity")
"""What a supervisor ends of when its children fail too often: a shutdown, as in OTP, that says which."""

AT_ONCE: Final = 256
"""How many children are stopped before the loop gets its turn: one that ends at once lets nobody else run."""


def is_expected(reason: ExitReason, spec: ChildSpec[Any]) -> bool:
    """Whether a child that was told to stop ended as it should, so that there is nothing to report."""
    if spec.restart != PERMANENT and is_orderly(reason):
        return True
    if spec.shutdown == BRUTAL_KILL:
        return isinstance(reason, Killed)
    return isinstance(reason, Shutdown) and (reason.detail is None or reason == GAVE_UP)


class LateExits:
    """Reasons of children that died before anybody stopped them: their exits lie in the supervisor's mailbox.

    For one invocation of the supervisor, in which its mailbox only grows. The exits stay there; the supervisor knows
    nobody of that pid when it comes to them.
    """

    __slots__ = ("_found", "_seen", "_supervisor")

    def __init__(self, supervisor: Process) -> None:
        """Nothing is looked at before it is needed."""
        self._supervisor = supervisor
        self._seen = 0
        self._found: dict[Pid, ExitReason] = {}

    def reason(self, pid: Pid) -> ExitReason:
        """Why that one died; nobody knows when it had unlinked."""
        mailbox = self._supervisor.mailbox
        if pid not in self._found and mailbox:
            for entry in islice(mailbox, self._seen, None):
                if entry[0] == SIGNAL and type(entry[1]) is Exit:
                    self._found[entry[1].pid] = entry[1].reason
            self._seen = len(mailbox)
        return self._found.get(pid, NO_PROCESS)


class _Leaving:
    """Waits for the end of one child, and unties it then: no exit of it reaches the supervisor's mailbox."""

    __slots__ = ("_crowd", "process")

    def __init__(self, process: Process, crowd: _Crowd) -> None:
        self.process = process
        self._crowd = crowd

    def exited(self, reason: ExitReason) -> None:
        links.part(self._crowd.supervisor, self.process)
        self._crowd.one_less()


class _Crowd:
    """Those that are stopped together, and a future for when the last is gone."""

    __slots__ = ("_future", "_left", "_waiters", "supervisor")

    def __init__(self, supervisor: Process, processes: Iterable[Process]) -> None:
        self.supervisor = supervisor
        self._future: asyncio.Future[None] | None = None
        self._waiters = [_Leaving(process, self) for process in processes]
        self._left = len(self._waiters)
        for waiter in self._waiters:
            waiter.process.await_death(waiter)

    def one_less(self) -> None:
        self._left -= 1
        if not self._left and self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def gone(self, seconds: float | None = None) -> bool:
        if not self._left:
            return True
        self._future = self.supervisor.node.loop.create_future()
        await asyncio.wait((self._future,), timeout=seconds)
        return not self._left

    def forget(self) -> None:
        if self._left:
            for waiter in self._waiters:
                waiter.process.forget(waiter)


async def stop_together(
    supervisor: Process, children: Iterable[tuple[Pid, Patience]], late: LateExits | None = None
) -> list[ExitReason]:
    """Stop children, all at the same time, and return why each ended. Never fails.

    Each is told to shut down (or killed, if that is how it wants to be stopped); who is not gone when its time is over
    is killed.
    """
    node = supervisor.node
    late = LateExits(supervisor) if late is None else late
    asked = [(node.process(pid), pid, patience) for pid, patience in children]
    crowd = _Crowd(supervisor, [process for process, _, _ in asked if process is not None])
    bounded: dict[float, list[Process]] = {}
    try:
        for count, (process, _, patience) in enumerate(asked, 1):
            if process is not None:
                if patience == BRUTAL_KILL:
                    exits.kill(process)
                else:
                    exits.signal(process, supervisor.pid, SHUTDOWN)
                    if not isinstance(patience, str) and not process.reason:
                        bounded.setdefault(patience, []).append(process)
            if not count % AT_ONCE:
                await asyncio.sleep(0)
        began = clock.now(node.loop)
        for seconds in sorted(bounded):
            if await crowd.gone(max(0.0, began + seconds - clock.now(node.loop))):
                break
            for process in bounded[seconds]:
                exits.kill(process)
        await crowd.gone()
    finally:
        crowd.forget()
    return [_ended(process, pid, late) for process, pid, _ in asked]


def _ended(process: Process | None, pid: Pid, late: LateExits) -> ExitReason:
    if process is None:
        return late.reason(pid)
    if process.away and process.reason == NO_PROCESS:  # it had died before it was asked, and its exit is here
        return late.reason(pid)
    return process.reason or NO_PROCESS


async def stop_child(supervisor: Process, pid: Pid, patience: Patience, late: LateExits) -> ExitReason:
    """Stop one child."""
    process = supervisor.node.process(pid)
    if process is None:
        return late.reason(pid)
    # The supervisor waits for the child as if it had called it, so that a call the other way round, which could not
    # be answered before the child's time is over, is refused at once.
    supervisor.waiting_on = process
    try:
        return (await stop_together(supervisor, ((pid, patience),), late))[0]
    finally:
        supervisor.waiting_on = None
