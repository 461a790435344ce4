"""How a process dies, and how other processes hear of it.

Two steps. `condemn`: from now on nothing is delivered and nothing new begins; code that is still running is
cancelled and gets the node's kill grace to unwind. `bury`: the code is done (or was abandoned), so names are free,
callers are answered, links and monitors fire. No process hears of a death before the unwinding is over, so a successor
never meets its predecessor's lock or socket.

Burying one process can condemn the next, down a chain of any length: the graves are a queue, not a recursion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import links
from . import process as cell
from . import watchdog as stacks
from .behaviour import Behaviour
from .current import current
from .errors import InternalError
from .messages import KILLED, Normal, make_down, make_exit
from .names import leave
from .reports import Leaked

if TYPE_CHECKING:
    from .messages import Entry, ExitReason, Pid
    from .process import Process


def condemn(process: Process, reason: ExitReason) -> None:
    """The process is to end for this reason. The first reason stands."""
    if process.life:
        return
    process.life = cell.DYING
    process.quick = None
    process.reason = reason
    if process.mailbox:
        process.mailbox.clear()  # nothing new begins; waiting callers are told at the burial
    activity = process.activity
    if activity < cell.RUNNING:
        unwound(process)
    elif activity == cell.WORKING:
        worker = process.worker
        if worker is not None:  # else it has just ended, or not begun: its worker finds the process dying
            worker.cancel()
            _arm_grace(process)
    # Else its code is below us on the stack; `settle` finds it dying.


def unwound(process: Process) -> None:
    """The process's own code is done; what tasks it started are cancelled and awaited too."""
    if not process.tasks:
        bury(process)
    elif process.activity != cell.UNWOUND:
        process.activity = cell.UNWOUND
        _arm_grace(process)
        for task in tuple(process.tasks):
            task.cancel()


def _arm_grace(process: Process) -> None:
    grace = process.node.kill_grace if process.grace is None else process.grace
    process.node.loop.call_later(grace, abandon, process, context=process.node.context)


def abandon(process: Process) -> None:
    """The grace is over and something of the process still runs: go on without it, and say so."""
    if process.life != cell.DYING:
        return
    stuck = [task for task in (process.worker, *(process.tasks or ())) if task is not None and not task.done()]
    stack = "".join(map(stacks.of_task, stuck))
    assert process.reason is not None
    process.node.leaks += 1
    process.node.quick_thread = 0
    process.node.reports.emit(Leaked(pid=process.pid, label=process.label, reason=process.reason, stack=stack))
    bury(process)


def bury(process: Process) -> None:
    """Tell callers, links and monitors. Iterative: a process that dies of it is queued behind."""
    node = process.node
    process.life = cell.GONE
    process.activity = cell.DEAD
    graves = node.graves
    graves.append(process)
    if node.burying:
        return
    node.burying = True
    # What is told of a death is told by no process, the dead one least of all: it could say nothing once a process has leaked.
    before = current.set(None)
    try:
        while graves:
            _bury(graves.popleft())
    finally:
        current.reset(before)
        node.burying = False


def _bury(process: Process) -> None:
    node, pid, reason = process.node, process.pid, process.reason
    assert reason is not None
    if not process.away:
        node.processes.pop(pid.serial, None)
    if process.names is not None:
        for name in tuple(process.names):
            leave(process, name)
    process.mailbox = None
    if (waiter := process.waiter) is not None:
        process.waiter = None
        waiter()
    if (callers := process.callers) is not None:
        process.callers = None
        for caller in callers if isinstance(callers, dict) else (callers,):
            caller.exited(reason)
    if (watching := process.watching) is not None:
        process.watching = None
        for monitor in tuple(watching):
            target, monitor.target = monitor.target, None
            if target is not None:
                links.drop_monitor(target, monitor)
    if (linked := process.links) is not None:
        process.links = None
        for other in linked if isinstance(linked, dict) else (linked,):
            links.forget_link(other, process)
            if links.is_away(other):
                other.cut(process, reason)
            else:
                signal(other, pid, reason)
    if (monitors := process.monitors) is not None:
        process.monitors = None
        for monitor in monitors:
            monitor.target = None
            links.forget_monitor(monitor)
            whose = monitor.pid if process.away else pid  # a name on another node may have been any process's
            monitor.watcher.deliver_signal(make_down(monitor, whose, reason, monitor.name))
    process.behaviour._otp_exiting(reason)
    # What is left of it is an address: let go of the rest now, instead of leaving cycles to the garbage collector.
    process.behaviour = TOMBSTONE
    process.context = node.context
    process.parent = process.asker = process.waiting_on = None


class _Tombstone(Behaviour):
    """The behaviour of the dead: nothing reaches it."""

    __slots__ = ()

    def _otp_handle(self, entry: Entry) -> object:
        raise InternalError(f"a dead process was asked to handle {entry!r}")


TOMBSTONE = _Tombstone()


def signal(process: Process, source: Pid, reason: ExitReason) -> None:
    """An exit signal arrives: trapped it is a message, else all but `Normal` is the end.

    `Normal` from oneself ends too, as OTP has it.
    """
    if links.is_away(process):
        process.signalled(source, reason)
    elif process.trap_exit:
        process.deliver_signal(make_exit(source, reason))
    elif not isinstance(reason, Normal) or source == process.pid:
        condemn(process, reason)


def kill(process: Process) -> None:
    """The one exit that nothing can trap."""
    if links.is_away(process):
        process.killed()
    else:
        condemn(process, KILLED)
