"""Erlang's process functions as plain functions: send, link, monitor, exit, kill, timers.

Abandoned code (its process was killed and did not unwind within its grace) may still call these; its sends are no-ops. Code of a process that runs in another
thread (`asyncio.to_thread`) may call `send`, `exit` and `kill`; everything else has to be called in the node's own thread.
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


def resolve(node: Node, target: object) -> tuple[Process | None, Pid | None, Any]:
    """Resolve a pid, name, `Ref`, inbox or server to process, pid and name; the process is None when there is none."""
    if isinstance(target, Pid):
        return node.process(target), target, None
    process: Process | None = getattr(target, "_process", None)  # a handle, an inbox or a server knows it
    if process is not None and process.node is node:
        return (None if process.life == GONE else process), process.pid, None
    if is_via(target):
        pid = target.whereis()
        return (None if pid is None else node.process(pid)), pid, target
    inner = getattr(target, "target", None)
    if inner is not None and inner is not target:
        return resolve(node, inner)
    pid = getattr(target, "pid", None)
    if isinstance(pid, Pid):
        return node.process(pid), pid, None
    process = find_process(node, target)
    return process, (None if process is None or (process.is_remote and isinstance(target, On)) else process.pid), target


def absence(node: Node, pid: Pid | None, name: object) -> NoProcess | NoConnection:
    """The exit reason when `resolve` found no process: `NoProcess`, or `NoConnection` for an unreachable node."""
    elsewhere = name.node if isinstance(name, On) else node.name if pid is None else pid.node
    if elsewhere == node.name:
        return NO_PROCESS
    return NO_CONNECTION if node.remote_nodes is None else node.remote_nodes.absence(elsewhere)


ABANDONED = "the calling process is gone: its code was abandoned when it did not unwind in time"


def is_abandoned() -> bool:
    """Whether the running code belongs to a process that has exited (it was abandoned)."""
    process = current.get()
    return process is not None and process.life == GONE


def send(target: object, message: object) -> bool:
    """Put a message into a mailbox: `handle_info`, or `receive`, gets it.

    False when there is no such process or its bounded mailbox is full. Safe from any thread that runs in a process's context
    (`asyncio.to_thread` in a handler); elsewhere use a `Ref`, which knows its node.
    """
    node = current_node()
    if is_abandoned():
        return False
    process, _, _ = resolve(node, target)
    if process is None:
        return False
    if _get_ident() != node.thread:
        return node.call_from_thread(process.deliver, (INFO, message))
    return process.deliver((INFO, message))


def is_alive(target: object) -> bool:
    """Whether the process runs; a dying process does not.

    A process on another node counts as alive until this node has received its exit; use a monitor to be told of that.
    """
    process, _, _ = resolve(current_node(), target)
    return process is not None and not process.life


def exit(target: object, reason: object) -> None:
    """Send an exit signal. `Normal` is ignored by others; a process that traps exits gets an `Exit` message."""
    why = as_reason(reason)
    sender = current.get()
    node = current_node() if sender is None else sender.node
    if node.leaks and is_abandoned():
        return
    if _get_ident() != node.thread:
        node.call_from_thread(exit, target, why)
        return
    process: Process | None = getattr(
        target, "_process", None
    )  # handles cache their process; a signal to an exited one is a no-op
    if process is None or process.node is not node:
        process = resolve(node, target)[0]
    if process is not None:
        lifecycle.signal(process, node.root_pid() if sender is None else sender.pid, why)


def kill(target: object) -> None:
    """End a process unconditionally. Linked and monitoring processes see the reason `Killed`."""
    node = current_node()
    if threading.get_ident() != node.thread:
        node.call_from_thread(kill, target)
        return
    process, _, _ = resolve(node, target)
    if process is not None and not is_abandoned():
        lifecycle.kill(process)


def link(target: object) -> None:
    """Link the calling process to another: the exit of either sends an exit signal to the other.

    Linking to a missing process sends the caller an exit signal with `NoProcess`, as if it had died just now.
    """
    me = current_process("link")
    me.node.check_thread("link")
    process, pid, name = resolve(me.node, target)
    if is_abandoned():
        return
    if process is not None and not process.life:
        if links.is_remote(process):
            process.check_link()
        links.link(me, process)
        return
    if pid is None:
        message = f"cannot link: no process is registered as {name!r}"
        raise ActorError(message)
    lifecycle.signal(me, pid, absence(me.node, pid, name))


def unlink(target: object) -> None:
    """Remove the link: no exit signal of that process reaches the caller from now on."""
    me = current_process("unlink")
    me.node.check_thread("unlink")
    process, _, _ = resolve(me.node, target)
    if process is not None:
        links.unlink(me, process)


def monitor(target: object) -> Monitor:
    """Monitor a process: the caller gets one `Down` when it exits, or at once if there is no such process."""
    me = current_process("monitor")
    me.node.check_thread("monitor")
    process, pid, name = resolve(me.node, target)
    return links.monitor_process(me, process, pid, name, absence(me.node, pid, name))


def demonitor(ref: Monitor, *, flush: bool = False) -> bool:
    """End a monitor and return whether it was still active; `flush` also removes its `Down` from the mailbox."""
    return links.end_monitor(ref, flush=flush)


def trap_exit(on: bool = True) -> bool:  # noqa: FBT001, FBT002 - Erlang's process_flag(trap_exit, true)
    """Receive exit signals as `Exit` messages from now on, or not. Returns the previous setting."""
    me = current_process("trap exits")
    before, me.trap_exit = me.trap_exit, on
    return before


class Timer:
    """A scheduled message; `cancel` works until it has been sent."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        """Made by `send_after`."""
        self._handle = handle

    def cancel(self) -> None:
        """Do not send the message; one that is in the mailbox already stays there."""
        self._handle.cancel()


def send_after(seconds: float, target: object, message: object) -> Timer:
    """Send `message` after so many seconds. If the process has exited by then, the timer does nothing."""
    if not seconds >= 0:
        error = f"a timer cannot run for {seconds!r} seconds: give 0 or more"
        raise ValueError(error)
    node = current_node()
    node.check_thread("start a timer")
    life = node.incarnation

    def fire() -> None:
        # A name is resolved when the timer fires, and may belong to another process by then. A node that was reopened is another node.
        process = resolve(node, target)[0] if node.incarnation == life else None
        if process is not None:
            process.deliver((INFO, message))

    timer = Timer(node.loop.call_later(seconds, fire, context=node.context))
    if is_abandoned():
        timer.cancel()
    return timer


async def wait_down(target: object, timeout: float | None = 5.0) -> ExitReason:
    """Wait until a process has exited and return its reason; `NoProcess` when there is none. Works outside processes too."""
    node = current_node()
    process, pid, name = resolve(node, target)
    if process is None:
        return absence(node, pid, name)
    gone = ExitFuture(node.loop)
    process.add_exit_waiter(gone)
    try:
        if not await gone.within(timeout):
            raise CallTimeout(timeout or 0.0, target, "end")
    finally:
        process.remove_exit_waiter(gone)
    return gone.future.result()
