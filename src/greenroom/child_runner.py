"""`ChildRunner`: runs a server, client or host that has no supervisor of the program's, in the event loop in which it is first needed.

It opens a node in the loop unless there is one; users share that node, and the last one closes it. So an ASGI application needs no
lifespan: the first request starts the server. When a loop is abandoned the child is gone with it, and the next loop starts another one.

Users `acquire` the child and `release` it: the last release stops it. The work is done one step after the other in tasks of its own, so users may
release in another task, or in another order, than they acquired, and a cancelled user does not affect the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from greenroom.supervision import Node, ProcessExited, Supervisor, detached_task, is_alive, node_of, start, stop
from greenroom.supervision.kernel.process_lookup import install_node

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from greenroom.supervision import ChildSpec, Ref

_users: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
"""The number of children in each node that was opened here."""
_closing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]] = WeakKeyDictionary()
"""The loops whose node is being closed, with the future of that."""


def _refuse_in_worker(what: str) -> None:
    """Refuse to run in a worker process, which only imports the program. Only workers have that module loaded, so others need not import it."""
    module = sys.modules.get("greenroom.actors.pools.handler_spec")
    if module is not None:
        module.stop_import_in_worker(what)


class ChildRunner:
    """Keeps one child running, in each loop that uses it."""

    def __init__(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        """`spec` makes the child spec whenever the child has to be started."""
        self._spec = spec
        self._children: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopChild] = WeakKeyDictionary()

    @property
    def is_active(self) -> bool:
        """Whether this object runs the child in this loop, or is starting or stopping it."""
        child = self._children.get(asyncio.get_running_loop())
        return child is not None and child.is_active

    async def ensure(self) -> None:
        """Start the child in this loop, if it does not run, until `close`. Raises `StartFailed`."""
        _refuse_in_worker("a server, client or host in this loop")
        child = self._child()
        if child.top is None or not is_alive(child.top):
            await child.settle(self._spec)

    async def acquire(self) -> None:
        """The same, until `release`. After an `ensure` the child runs beyond that."""
        _refuse_in_worker("a server, client or host in this loop")
        child = self._child()
        child.holders += 1
        try:
            await child.settle(self._spec)
        except BaseException:
            _ = child.release()  # a task of its own
            raise

    async def release(self) -> None:
        """Give back one `acquire`; the last one stops the child. A no-op without one."""
        child = self._children.get(asyncio.get_running_loop())
        if child is not None and child.holders:
            await asyncio.shield(child.release())

    def _child(self) -> _LoopChild:
        loop = asyncio.get_running_loop()
        child = self._children.get(loop)
        if child is None:
            self._forget()
            child = self._children[loop] = _LoopChild()
        return child

    def _forget(self) -> None:
        """Drop the children of closed loops, which would keep each other in memory."""
        for loop in tuple(self._children):
            if loop.is_closed():
                self._children.pop(loop).abandon()
                install_node(loop, None)

    async def close(self) -> None:
        """Stop the child in this loop, and its node if that has no other users."""
        child = self._children.pop(asyncio.get_running_loop(), None)
        if child is not None:
            await child.leave()


class _LoopChild:
    """The child in one loop."""

    def __init__(self) -> None:
        self.top: Ref[Any] | None = None
        self.holders = 0
        self._resident = False
        self._node: Node | None = None
        self._settling: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Future[None]] = set()

    @property
    def is_active(self) -> bool:
        """Whether it runs, or is being started or stopped."""
        return bool(self._tasks) or self.holders > 0 or (self.top is not None and is_alive(self.top))

    async def settle(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        """Start it, once for all concurrent callers; a caller that is cancelled does not cancel the start."""
        if self._settling is None:
            self._settling = self._do(self._settle(spec))
            self._settling.add_done_callback(self._settled)
        await asyncio.shield(self._settling)

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run this in a task that belongs to no process: it must not end with the process that asked for it."""
        task = detached_task(self._in_turn(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._lock:
                await work
        finally:
            work.close()

    def _settled(self, settling: asyncio.Future[None]) -> None:
        self._settling = None
        if not settling.cancelled():
            settling.exception()  # marks the error as retrieved: waiting callers get it, and without any the next caller tries again

    async def _settle(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        if self.top is not None and is_alive(self.top):
            return
        loop = asyncio.get_running_loop()
        while (ending := _closing.get(loop)) is not None:
            await asyncio.wait((ending,))
        node = node_of(loop)
        if node is None:
            node = Node(handle_sigint=False)
            await node.open()
            _users[node] = 0
        if self._node is not node:
            self._node = node
            if node in _users:
                _users[node] += 1
        self._resident = not self.holders
        try:
            self.top = await start(Supervisor, [spec()], intensity=3)
        except BaseException:
            await self._leave()
            raise

    def abandon(self) -> None:
        """Stop the watchdog thread of a closed loop's node: nothing else of it can run any more."""
        if self._node is not None and self._node in _users and self._node.watchdog is not None:
            self._node.watchdog.stop()

    def release(self) -> asyncio.Future[None]:
        """Give back one hold."""
        self.holders -= 1
        return self._do(self._leave_if_empty())

    async def _leave_if_empty(self) -> None:
        if not self.holders and not self._resident:
            await self._leave()

    async def leave(self) -> None:
        """Stop the child."""
        await asyncio.shield(self._do(self._leave()))

    async def _leave(self) -> None:
        top, self.top = self.top, None
        if top is not None:
            with contextlib.suppress(ProcessExited):
                await stop(top)
        node, self._node = self._node, None
        if node is not None and node in _users:
            _users[node] -= 1
            if not _users[node]:
                del _users[node]
                await _close(node)


async def _close(node: Node) -> None:
    loop = asyncio.get_running_loop()
    _closing[loop] = ending = loop.create_future()
    try:
        await node.close()
    finally:
        del _closing[loop]
        ending.set_result(None)
