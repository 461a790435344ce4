"""What is running: the process whose code this is, and the node of this event loop.

The process is found through a context variable that is set once, in the context that the process owns for life;
tasks that its handlers start copy that context, and so belong to it too.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from .errors import NoNode, NotAnActor

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .messages import Pid
    from .node import Node
    from .process import Process

T = TypeVar("T")
current: ContextVar[Process | None] = ContextVar("greenroom.process", default=None)

_nodes: WeakKeyDictionary[asyncio.AbstractEventLoop, Node] = WeakKeyDictionary()


def install_node(loop: asyncio.AbstractEventLoop, node: Node | None) -> None:
    """Make `node` the one of this loop; None takes it away."""
    if node is None:
        _nodes.pop(loop, None)
    else:
        _nodes[loop] = node


def node_of(loop: asyncio.AbstractEventLoop) -> Node | None:
    """The node that runs in this loop, if any."""
    return _nodes.get(loop)


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
    """The process whose code is running; `verb` names what it is needed for, should there be none."""
    process = current.get()
    if process is None:
        raise NotAnActor(verb)
    return process


def running_process() -> Process | None:
    """The process whose code is running, if it is the code of one."""
    return current.get()


def detached_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that belongs to no process: it goes on when the process that asks for it ends."""
    context = copy_context()
    context.run(current.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)


def self_pid() -> Pid:
    """The calling process's own address."""
    return current_process("ask for its own pid").pid
