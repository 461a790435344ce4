"""Where a server's company lives when nobody else keeps it: in the running loop, from the first moment that it is needed there.

A node is opened in the loop unless it has one, which is then shared with whoever else wants it and closed by the last to leave. So an ASGI
application needs no lifespan: the first request starts what serves it. A loop that is simply abandoned takes its company with it,
and in the next loop another one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from greenroom.supervision import ActorError, Node, ProcessExited, Supervisor, is_alive, start, stop
from greenroom.supervision.kernel.current import install_node, node_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import ChildSpec, Ref

_guests: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
"""How many live in each node that was opened here."""


class Hosting:
    """Keeps one child running, in any loop."""

    def __init__(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        """`spec` is asked for the child whenever one has to be started."""
        self._spec = spec
        self._lodgings: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lodging] = WeakKeyDictionary()

    async def ensure(self) -> None:
        """See to it that it runs in this loop. Raises `StartFailed` when it does not come up."""
        loop = asyncio.get_running_loop()
        lodging = self._lodgings.get(loop)
        if lodging is None:
            self._forget()
            lodging = self._lodgings[loop] = _Lodging()
        if lodging.top is None or not is_alive(lodging.top):
            await lodging.settle(self._spec)

    def _forget(self) -> None:
        """What was in loops that nobody runs any more keeps them in memory, and itself."""
        for loop in tuple(self._lodgings):
            if loop.is_closed():
                self._lodgings.pop(loop).abandon()
                install_node(loop, None)

    async def close(self) -> None:
        """Stop it in this loop, if it runs there, and the node with it if nobody else lives there."""
        lodging = self._lodgings.pop(asyncio.get_running_loop(), None)
        if lodging is not None:
            await lodging.leave()


class _Lodging:
    """A child in one loop."""

    def __init__(self) -> None:
        self.top: Ref[Any] | None = None
        self._node: Node | None = None
        self._settling: asyncio.Future[None] | None = None

    async def settle(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        """Start it, once for all who want it at the same time; whoever goes away does not take the others' with them."""
        if self._settling is None:
            self._settling = asyncio.ensure_future(self._settle(spec))
            self._settling.add_done_callback(self._settled)
        await asyncio.shield(self._settling)

    def _settled(self, settling: asyncio.Future[None]) -> None:
        self._settling = None
        if not settling.cancelled():
            settling.exception()  # whoever waits for it is told; if nobody does any more, the next one tries again

    async def _settle(self, spec: Callable[[], ChildSpec[Any]]) -> None:
        node = node_of(asyncio.get_running_loop())
        if node is None:
            node = Node(handle_sigint=False)
            await node.open()
            _guests[node] = 0
        if self._node is not node:
            self._node = node
            if node in _guests:
                _guests[node] += 1
        self.top = await start(Supervisor, [spec()], intensity=3)

    def abandon(self) -> None:
        """Its loop is closed, so nothing of it will ever run again; only a thread may still look after it."""
        if self._node is not None and self._node in _guests and self._node.watchdog is not None:
            self._node.watchdog.stop()

    async def leave(self) -> None:
        """Stop it."""
        if self._settling is not None:
            with contextlib.suppress(ActorError):
                await self._settling
        if self.top is not None:
            with contextlib.suppress(ProcessExited):
                await stop(self.top)
        node, self._node = self._node, None
        if node is not None and node in _guests:
            _guests[node] -= 1
            if not _guests[node]:
                del _guests[node]
                await node.close()
