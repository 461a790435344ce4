"""Finds processes: the process whose code is running, the node of this event loop, and the processes behind names.

The process is found through a context variable that is set once, in the context that the process owns for life; tasks that its handlers start copy that
context, and so belong to it too. A name belongs to one living process and is free again once that process is gone, which is after its code has unwound.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

from .errors import ActorError, AlreadyRegistered, NoNode, NotAnActor, NotRegistered
from .process_messages import NO_PROCESS, Pid

if TYPE_CHECKING:
    from collections.abc import Coroutine, Hashable

    from .node import Node
    from .process import Process


T = TypeVar("T")
current: ContextVar[Process | None] = ContextVar("greenroom.process", default=None)

_nodes: WeakKeyDictionary[asyncio.AbstractEventLoop, Node] = WeakKeyDictionary()


def install_node(loop: asyncio.AbstractEventLoop, node: Node | None) -> None:
    """Set the node of this loop; None removes it."""
    if node is None:
        _nodes.pop(loop, None)
    else:
        _nodes[loop] = node


def node_of(loop: asyncio.AbstractEventLoop) -> Node | None:
    """The node that runs in this loop, if any."""
    return _nodes.get(loop)


def open_nodes() -> list[Node]:
    """All nodes of this program. Any thread may ask."""
    found: dict[object, Node] = vars(_nodes)[
        "data"
    ]  # the dict inside: reading its values is atomic, those of the weak one is not
    return list(found.values())


def current_node() -> Node:
    """The node of the running event loop."""
    process = current.get()
    if process is not None:
        return process.node
    try:
        node = _nodes.get(asyncio.get_running_loop())
    except RuntimeError:
        raise NoNode from None
    if node is None:
        raise NoNode
    return node


def current_process(verb: str) -> Process:
    """The process whose code is running. Raises `NotAnActor` otherwise; `verb` completes its message."""
    process = current.get()
    if process is None:
        raise NotAnActor(verb)
    return process


def running_process() -> Process | None:
    """The process whose code is running, or None outside of processes."""
    return current.get()


def detached_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that belongs to no process: it survives the process that starts it."""
    context = copy_context()
    context.run(current.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)


def shared_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A `detached_task` for any number of callers, each of which awaits `asyncio.shield` of it, so that none takes it from the others by leaving.

    Its error is theirs: when all have left, it is dropped.
    """
    task = detached_task(work)
    task.add_done_callback(_retrieve_error)
    return task


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def self_pid() -> Pid:
    """The pid of the calling process."""
    return current_process("ask for its own pid").pid


# --- Names of processes: the node's own table, and the protocol of other registries (`Via`).


class Via(Protocol):
    """A name in another registry: any object with `whereis`, `register` and `unregister`."""

    def __hash__(self) -> int: ...

    def whereis(self) -> Pid | None:
        """The pid that has this name now, or None."""

    def register(self, pid: Pid) -> None:
        """Register `pid` under this name; raises `AlreadyRegistered`."""

    def unregister(self, pid: Pid) -> None:
        """Free the name, if `pid` has it."""


@dataclass(frozen=True, slots=True)
class On:
    """A name on a given node: `Ref(On("hits", "node2"))`."""

    name: Hashable
    node: str


def is_via(name: object) -> TypeGuard[Via]:
    """Whether a name belongs to another registry."""
    # Not `isinstance` with a runtime protocol: that takes 9 us, and every use of a name asks.
    return hasattr(name, "whereis") and hasattr(name, "register") and hasattr(name, "unregister")


def check_name(name: Hashable) -> None:
    """Raise `TypeError` for a value that cannot be a name."""
    if name is None or isinstance(name, Pid):
        message = f"{name!r} cannot be a name: use a string, or any other hashable value that is not None or a pid"
        raise TypeError(message)
    hash(name)


def register_process(process: Process, name: Hashable | Via) -> None:
    """Register `process` under a name of this node or of another registry."""
    if is_via(name):
        name.register(process.pid)
        return
    check_name(name)
    node = process.node
    holder = node.names.get(name)
    if holder is not None:
        raise AlreadyRegistered(name, holder.pid)
    if process.life:
        raise NotRegistered(process.reason or NO_PROCESS, process.pid)
    node.names[name] = process
    if process.names is None:
        process.names = {}
    process.names[name] = None


def unregister_process(process: Process, name: Hashable) -> None:
    """Free the name, if `process` has it."""
    if process.node.names.get(name) is process:
        del process.node.names[name]
        if process.names is not None:
            process.names.pop(name, None)


def find_process(node: Node, who: Pid | Hashable | Via | On) -> Process | None:
    """The process behind a pid or a name, dying ones included; None when there is none."""
    if isinstance(who, Pid):
        return node.process(who)
    if isinstance(who, On):
        if who.node == node.name:
            return node.names.get(who.name)
        return None if node.remote_nodes is None else node.remote_nodes.named(who)
    if is_via(who):
        pid = who.whereis()
        return None if pid is None else node.process(pid)
    return node.names.get(who)


def register(name: Hashable | Via, pid: Pid | None = None) -> None:
    """Register `pid`, by default the calling process, under `name` on this node."""
    if pid is None:
        register_process(current_process("register itself"), name)
        return
    process = current_node().process(pid)
    if process is not None and process.is_remote and not is_via(name):
        raise ActorError(f"cannot register {name!r}: {pid} is on another node, and each node has names of its own")
    if process is None:
        message = f"cannot register {name!r}: {pid} is not alive on this node"
        raise ActorError(message)
    register_process(process, name)


def unregister(name: Hashable | Via) -> None:
    """Free the name; its process lives on. Raises `NotRegistered` when no process has it."""
    node = current_node()
    if is_via(name):
        pid = name.whereis()
        if pid is None:
            raise NotRegistered(NO_PROCESS, name)
        name.unregister(pid)
        return
    process = node.names.get(name)
    if process is None:
        raise NotRegistered(NO_PROCESS, name)
    unregister_process(process, name)


def whereis(name: Hashable | Via) -> Pid | None:
    """The pid that has this name now, or None. A name on another node has to be asked for there."""
    process = find_process(current_node(), name)
    if process is not None and process.is_remote and isinstance(name, On):
        raise ActorError(
            f"only {name.node!r} knows which process is {name.name!r}: send to it by name, or ask that node"
        )
    return None if process is None else process.pid


def registered() -> tuple[Hashable, ...]:
    """All names of this node, in the order they were taken."""
    return tuple(current_node().names)
