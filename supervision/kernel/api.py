"""What a process can do to others: send, link, monitor, exit, timers. Erlang's words, as plain functions.

Code that was abandoned (its process was killed and did not unwind in time) may still call these; its sends are void.
Code of a process that runs in another thread (`asyncio.to_thread`) may `send`, `exit` and `kill`; the rest must be done
in the node's own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import links
from . import process as lifecycle
from .errors import ActorError, CallTimeout
from .node import ExitFuture
from .process import GONE
from .process_lookup import On, current, current_node, current_process, find_process, is_via
from .process_messages import INFO, NO_CONNECTION, NO_PROCESS, Pid, as_reason

if TYPE_CHECKING:
    from .links import Monitor
    from .node import Node
    from .process import Process
    from .process_messages import ExitReason, NoConnection, NoProcess

_get_ident = threading.get_ident


def resolve(node: Node, who: object) -> tuple[Process | None, Pid | None, Any]:
    """Process, pid and name of whatever a user calls a process; the process is None when there is none."""
    if isinstance(who, Pid):
        return node.process(who), who, None
    process: Process | None = getattr(who, "_process", None)  # a handle, an inbox or a server knows it
    if process is not None and process.node is node:
        return (None if process.life == GONE else process), process.pid, None
    if is_via(who):
        pid = who.whereis()
        return (None if pid is None else node.process(pid)), pid, who
    target = getattr(who, "target", None)
    if target is not None and target is not who:
        return resolve(node, target)
    pid = getattr(who, "pid", None)
    if isinstance(pid, Pid):
        return node.process(pid), pid, None
    process = find_process(node, who)
    return process, (None if process is None or (process.is_remote and isinstance(who, On)) else process.pid), who


def absence(node: Node, pid: Pid | None, name: object) -> NoProcess | NoConnection:
    """Why `resolve` found no process: there is none, or it is on a node that cannot be reached."""
    elsewhere = name.node if isinstance(name, On) else node.name if pid is None else pid.node
    if elsewhere == node.name:
        return NO_PROCESS
    return NO_CONNECTION if node.remote_nodes is None else node.remote_nodes.absence(elsewhere)


ABANDONED = "the calling process is gone: its code was abandoned when it did not unwind in time"


def is_abandoned() -> bool:
    """Whether the running code belongs to a process that is gone."""
    process = current.get()
    return process is not None and process.life == GONE


def send(who: object, message: object) -> bool:
    """Put a message into a mailbox: `handle_info`, or `receive`, gets it.

    False when there is no such process or its bounded mailbox is full. Safe from any thread that runs in a process's context
    (`asyncio.to_thread` in a handler); elsewhere use a `Ref`, which knows its node.
    """
    node = current_node()
    if is_abandoned():
        return False
    process, _, _ = resolve(node, who)
    if process is None:
        return False
    if _get_ident() != node.thread:
        return node.call_from_thread(process.deliver, (INFO, message))
    return process.deliver((INFO, message))


def is_alive(who: object) -> bool:
    """Whether that process runs; one that is dying does not.

    One on another node runs as far as this node knows, which is until it has heard of its end: a monitor hears of that.
    """
    process, _, _ = resolve(current_node(), who)
    return process is not None and not process.life


def exit(who: object, reason: object) -> None:
    """Send an exit signal. `Normal` is ignored by others; a process that traps exits gets an `Exit` message."""
    why = as_reason(reason)
    sender = current.get()
    node = current_node() if sender is None else sender.node
    if node.leaks and is_abandoned():
        return
    if _get_ident() != node.thread:
        node.call_from_thread(exit, who, why)
        return
    process: Process | None = getattr(who, "_process", None)  # most know it, and the dead do not mind a signal
    if process is None or process.node is not node:
        process = resolve(node, who)[0]
    if process is not None:
        lifecycle.signal(process, node.root_pid() if sender is None else sender.pid, why)


def kill(who: object) -> None:
    """End a process whatever it does. The processes that are linked to it or monitor it see `Killed`."""
    node = current_node()
    if threading.get_ident() != node.thread:
        node.call_from_thread(kill, who)
        return
    process, _, _ = resolve(node, who)
    if process is not None and not is_abandoned():
        lifecycle.kill(process)


def link(who: object) -> None:
    """Tie the calling process to another: the end of one is an exit signal to the other.

    Linking to a process that is not there is an exit signal with `NoProcess`, as if it had died just now.
    """
    me = current_process("link")
    me.node.check_thread("link")
    process, pid, name = resolve(me.node, who)
    if is_abandoned():
        return
    if process is not None and not process.life:
        if links.is_remote(process):
            process.check_link()
        links.link(me, process)
        return
    if pid is None:
        message = f"cannot link: nobody is registered as {name!r}"
        raise ActorError(message)
    lifecycle.signal(me, pid, absence(me.node, pid, name))


def unlink(who: object) -> None:
    """Untie: no exit signal of that process reaches the caller from now on."""
    me = current_process("unlink")
    me.node.check_thread("unlink")
    process, _, _ = resolve(me.node, who)
    if process is not None:
        links.unlink(me, process)


def monitor(who: object) -> Monitor:
    """Be told of a process's end: one `Down`, at once if there is no such process."""
    me = current_process("monitor")
    me.node.check_thread("monitor")
    process, pid, name = resolve(me.node, who)
    return links.monitor_process(me, process, pid, name, absence(me.node, pid, name))


def demonitor(ref: Monitor, *, flush: bool = False) -> bool:
    """End a monitor; `flush` also removes its `Down` if that has come already. Whether it was still open."""
    return links.end_monitor(ref, flush=flush)


def trap_exit(on: bool = True) -> bool:  # noqa: FBT001, FBT002 - Erlang's process_flag(trap_exit, true)
    """Get exit signals as `Exit` messages from now on, or not. Returns what it was."""
    me = current_process("trap exits")
    before, me.trap_exit = me.trap_exit, on
    return before


class Timer:
    """A message that is to be sent; `cancel` it as long as it has not been."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        """Made by `send_after`."""
        self._handle = handle

    def cancel(self) -> None:
        """The message will not come; one that is in the mailbox already stays there."""
        self._handle.cancel()


def send_after(seconds: float, who: object, message: object) -> Timer:
    """Send `message` in so many seconds. A timer for a process that is dead by then does nothing."""
    if not seconds >= 0:
        error = f"a timer cannot run for {seconds!r} seconds: give 0 or more"
        raise ValueError(error)
    node = current_node()
    node.check_thread("start a timer")
    life = node.incarnation

    def fire() -> None:
        # The name may be another process's by now, but not in another life of the node.
        process = resolve(node, who)[0] if node.incarnation == life else None
        if process is not None:
            process.deliver((INFO, message))

    timer = Timer(node.loop.call_later(seconds, fire, context=node.context))
    if is_abandoned():
        timer.cancel()
    return timer


async def wait_down(who: object, timeout: float | None = 5.0) -> ExitReason:
    """Wait until a process is gone, and return why; `NoProcess` when there is none. Works outside processes too."""
    node = current_node()
    process, pid, name = resolve(node, who)
    if process is None:
        return absence(node, pid, name)
    gone = ExitFuture(node.loop)
    process.add_exit_waiter(gone)
    try:
        if not await gone.within(timeout):
            raise CallTimeout(timeout or 0.0, who, "end")
    finally:
        process.remove_exit_waiter(gone)
    return gone.future.result()
