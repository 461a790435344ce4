"""Where a company, or a connection, lives when no supervisor keeps it: in the running loop, from the first moment that it is needed there.

A node is opened in the loop unless it has one, which is then shared with its other users and closed by the last to leave. So an ASGI
application needs no lifespan: the first request starts what serves it. A loop that is simply abandoned takes its company with it,
and in the next loop another one begins.

A holder takes hold of something for a while, and lets go: the last to let go ends it. All of that is done in tasks of its own, one after the
other, so a holder need not let go in the task, or in the order, in which it took hold; and one that is cancelled takes no other's with it.
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
"""How many live in each node that was opened here."""
_closing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]] = WeakKeyDictionary()
"""The loops whose node is just being closed."""


def _refuse_in_worker(what: str) -> None:
    """Refuse this in a worker process that only imports the program. A worker has that module; a program that is none need not load it."""
    module = sys.modules.get("greenroom.actors.pools.handler_spec")
    if module is not None:
        module.stop_import_in_worker(what)


class ChildRunner:
    """Keeps one child running, in any loop."""

    def __init__(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        """`spec` is asked for the child whenever one has to be started."""
        self._spec = spec
        self._children: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopChild] = WeakKeyDictionary()

    @property
    def is_active(self) -> bool:
        """Whether it runs in this loop because of us, or is about to start or to stop."""
        lodging = self._children.get(asyncio.get_running_loop())
        return lodging is not None and lodging.is_active

    async def ensure(self) -> None:
        """See to it that it runs in this loop, until `close`. Raises `StartFailed` when it does not come up."""
        _refuse_in_worker("what lives in this loop")
        lodging = self._child()
        if lodging.top is None or not is_alive(lodging.top):
            await lodging.settle(self._spec)

    async def acquire(self) -> None:
        """The same, until it is let go. Who began with `ensure` keeps it beyond that."""
        _refuse_in_worker("what lives in this loop")
        lodging = self._child()
        lodging.holders += 1
        try:
            await lodging.settle(self._spec)
        except BaseException:
            _ = lodging.release()  # a task of its own
            raise

    async def release(self) -> None:
        """The holder needs it no longer. One that has let go already holds nothing that could be taken from others."""
        lodging = self._children.get(asyncio.get_running_loop())
        if lodging is not None and lodging.holders:
            await asyncio.shield(lodging.release())

    def _child(self) -> _LoopChild:
        loop = asyncio.get_running_loop()
        lodging = self._children.get(loop)
        if lodging is None:
            self._forget()
            lodging = self._children[loop] = _LoopChild()
        return lodging

    def _forget(self) -> None:
        """What was in loops that do not run any more keeps them in memory, and itself."""
        for loop in tuple(self._children):
            if loop.is_closed():
                self._children.pop(loop).abandon()
                install_node(loop, None)

    async def close(self) -> None:
        """Stop it in this loop, if it runs there, and the node with it if nothing else lives there."""
        lodging = self._children.pop(asyncio.get_running_loop(), None)
        if lodging is not None:
            await lodging.leave()


class _LoopChild:
    """A child in one loop."""

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
        """Whether it runs, or something is being done about it."""
        return bool(self._tasks) or self.holders > 0 or (self.top is not None and is_alive(self.top))

    async def settle(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        """Start it, once for all who want it at the same time; a caller that goes away does not take the others' with it."""
        if self._settling is None:
            self._settling = self._do(self._settle(spec))
            self._settling.add_done_callback(self._settled)
        await asyncio.shield(self._settling)

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """In a task that belongs to no process, least of all to the one that asked for it."""
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
            settling.exception()  # a caller that waits for it is told; without any, the next one tries again

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
        """Its loop is closed, so nothing of it will ever run again; only a thread may still look after it."""
        if self._node is not None and self._node in _users and self._node.watchdog is not None:
            self._node.watchdog.stop()

    def release(self) -> asyncio.Future[None]:
        """One holder less."""
        self.holders -= 1
        return self._do(self._leave_if_empty())

    async def _leave_if_empty(self) -> None:
        if not self.holders and not self._resident:
            await self._leave()

    async def leave(self) -> None:
        """Stop it."""
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
