"""The whole system at one moment, as data: what a live view shows, and what a bug report should hold.

Taken at once and without asking anybody, so it works while a server hangs; nothing in it refers to the living.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .kernel import clock
from .kernel.current import current_node
from .kernel.links import linked
from .kernel.process import ALIVE, DOZING, GONE, HELD, IDLE, INLINE, QUEUED, RUNNING, UNWOUND, WORKING

if TYPE_CHECKING:
    from .kernel.node import Node
    from .kernel.pid import Pid
    from .kernel.process import Process
    from .kernel.watchdog import Lag

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
_SAMPLE: Final = 100  # entries of a mailbox that are weighed; a longer one is estimated by these


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process. `waiting` is the depth of its mailbox and `waiting_bytes` about what that weighs, shallowly."""

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
    """A node. `lags` are the newest measurements of how late its loop was; there are none without a watchdog."""

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


def take(node: Node | None = None) -> Snapshot:
    """Take a snapshot, of the running node unless told otherwise."""
    node = current_node() if node is None else node
    watchdog = node.watchdog
    return Snapshot(
        time=clock.now(node.loop),
        node=node.name,
        incarnation=node.incarnation,
        processes=tuple([_process(process) for process in node.processes.values()]),
        queued=len(node.run_queue),
        workers=len(node.workers),
        busy_workers=node.workers.busy,
        deadlines=len(node.deadlines),
        leaked=node.leaks,
        lags=() if watchdog is None else tuple(watchdog.lags),
    )


def _process(process: Process) -> ProcessInfo:
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


def _weight(mailbox: Any) -> int:
    """About how many bytes wait: each entry with what it directly holds."""
    size = sys.getsizeof
    weighed = 0
    for count, entry in enumerate(mailbox, 1):
        weighed += size(entry) + sum(size(part) for part in entry)
        if count == _SAMPLE:
            return weighed * len(mailbox) // count
    return weighed + size(mailbox)
