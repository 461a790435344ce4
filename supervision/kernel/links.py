"""Links and monitors: which process is told of the exit of which.

A link is mutual and passes exit signals both ways; a monitor is one-way and delivers exactly one `Down`. Most
processes have one link, to their supervisor, so one link is stored bare and only the second makes a dict (a dict and
not a set: the order in which exits travel must not depend on memory addresses, or no run could be replayed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from .process_messages import NO_PROCESS, SIGNAL, Down

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from .process import Process, RemoteProcessBase
    from .process_messages import ExitReason, Pid


def is_remote(process: Process) -> TypeGuard[RemoteProcessBase]:
    """Whether the process runs on another node."""
    return process.is_remote


class Monitor:
    """One monitor, and its own reference: compare it with `Down.ref`, give it to `demonitor`."""

    __slots__ = ("name", "pid", "target", "watcher")

    def __init__(self, watcher: Process, target: Process | None, pid: Pid | None, name: Hashable | None) -> None:
        """`name` is how the target was addressed, when not by its pid."""
        self.watcher = watcher
        self.target = target
        self.pid = pid
        self.name = name

    def __repr__(self) -> str:
        return f"<monitor of {self.name if self.pid is None else self.pid} by {self.watcher.pid}>"


def linked(process: Process) -> Iterable[Process]:
    """All processes linked to this one, in the order the links were made."""
    links = process.links
    if links is None:
        return ()
    return links if isinstance(links, dict) else (links,)


def _add(process: Process, other: Process) -> None:
    links = process.links
    if links is None:
        process.links = other
    elif isinstance(links, dict):
        links[other] = None
    elif links is not other:
        process.links = {links: None, other: None}


def forget_link(process: Process, other: Process) -> None:
    """Take `other` off the process's own list."""
    links = process.links
    if links is other:
        process.links = None
    elif isinstance(links, dict):
        links.pop(other, None)
        if not links:
            process.links = None


def link(one: Process, other: Process) -> None:
    """Link two living processes; linking the same two again is a no-op."""
    if one is not other:
        link_locally(one, other)
        if is_remote(other):
            other.send_link(one)
        elif is_remote(one):
            one.send_link(other)


def link_locally(one: Process, other: Process) -> None:
    """As `link`, without telling the other node, which knows already."""
    _add(one, other)
    _add(other, one)


def unlink(one: Process, other: Process) -> None:
    """Remove the link: afterwards no exit signal passes between the two."""
    unlink_locally(one, other)
    if is_remote(other):
        other.send_unlink(one)
    elif is_remote(one):
        one.send_unlink(other)


def unlink_locally(one: Process, other: Process) -> None:
    """As `unlink`, without telling the other node, which knows already."""
    forget_link(one, other)
    forget_link(other, one)


def monitor_process(
    watcher: Process,
    target: Process | None,
    pid: Pid | None,
    name: Hashable | None = None,
    absence: ExitReason = NO_PROCESS,
) -> Monitor:
    """Monitor `target`; when there is none, the `Down` comes at once, and `absence` is its reason."""
    monitor = Monitor(watcher, target, pid, name)
    if target is None:
        watcher.deliver_signal(Down(monitor, pid, absence, name))
        return monitor
    if target.pid.serial not in target.node.processes and (target.life or not target.is_remote):
        # It died between the lookup and now, as a process may while its start is awaited: its reason is still known.
        monitor.target = None
        watcher.deliver_signal(Down(monitor, pid, target.reason or absence, name))
        return monitor
    if watcher.pid.serial not in watcher.node.processes:
        monitor.target = None  # the watcher is abandoned code: it never gets a message
        return monitor
    if target.monitors is None:
        target.monitors = {}
    target.monitors[monitor] = None
    if is_remote(target):
        target.add_watch()
    if watcher.watching is None:
        watcher.watching = {}
    watcher.watching[monitor] = None
    return monitor


def end_monitor(monitor: Monitor, *, flush: bool) -> bool:
    """End a monitor. Returns whether it was still active; `flush` also takes its `Down` out of the mailbox."""
    target, watcher = monitor.target, monitor.watcher
    monitor.target = None
    if target is not None:
        drop_monitor(target, monitor)
        forget_monitor(monitor)
        return True
    mailbox = watcher.mailbox
    if flush and mailbox:
        for index, entry in enumerate(mailbox):
            if entry[0] == SIGNAL and isinstance(entry[1], Down) and entry[1].ref is monitor:
                del mailbox[index]
                if watcher.limit is not None:
                    watcher.exempt -= 1
                break
    return False


def drop_monitor(target: Process, monitor: Monitor) -> None:
    """Take a monitor off its target's list."""
    if target.monitors is not None:
        target.monitors.pop(monitor, None)
        if not target.monitors:
            target.monitors = None
    if is_remote(target):
        target.drop_watch()


def forget_monitor(monitor: Monitor) -> None:
    """Take a monitor off its watcher's list."""
    watching = monitor.watcher.watching
    if watching is not None:
        watching.pop(monitor, None)
        if not watching:
            monitor.watcher.watching = None
