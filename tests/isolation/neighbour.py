"""Another node in a thread of this process, for what does not need a process of its own to be shown: it is there in milliseconds."""

from __future__ import annotations

import asyncio
import secrets
import threading
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from greenroom.supervision import Node, Shutdown, current_node, exit, is_alive, spawn, start, stop, wait_down
from greenroom.supervision.cluster.peering import Peering
from greenroom.supervision.cluster.peers import Peers
from greenroom.transports.client.far_route import FarRoute, Lodging

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from types import ModuleType

    from greenroom.supervision import Pid

_numbers = count(1)
_there: WeakKeyDictionary[Node, tuple[Neighbour, int]] = WeakKeyDictionary()


class Neighbour:
    """One thread with one node, and the place for wires that it is."""

    def __init__(self, addresses: Sequence[str], key: bytes) -> None:
        """Where home listens."""
        self.name = f"neighbour-{next(_numbers)}"
        self.keeper: Pid = spawn(_keep)
        self._addresses = addresses
        self._key = key
        self._over: Callable[[], Any] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name=self.name)
        self._thread.start()

    async def lodge(self) -> Lodging:
        """As a place does."""
        return Lodging(self.name, self.keeper)

    async def _live(self) -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._over = lambda: loop.call_soon_threadsafe(over.set)
        async with Node(self.name, handle_sigint=False) as node:
            peers = Peers(node, self._key)
            await start(Peering, peers)
            await peers.connect(self._addresses)
            await over.wait()

    async def leave(self) -> None:
        """The thread ends, and whatever is left on its node."""
        self._over()
        await asyncio.to_thread(self._thread.join)
        exit(self.keeper, Shutdown("it was stopped"))
        await wait_down(self.keeper)


async def _keep() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def neighbour() -> AsyncGenerator[Neighbour]:
    """That of this node, as long as anybody wants it."""
    node = current_node()
    if node in _there:
        one, holders = _there[node]
        _there[node] = one, holders + 1
        peering = None
    else:
        key = secrets.token_bytes(32)
        peers = Peers(node, key)
        peering = await start(Peering, peers)
        one = Neighbour(peers.addresses, key)
        _there[node] = one, 1
        await peers.wait_for(one.name)
        one.peering = peering  # type: ignore[attr-defined]
    try:
        yield one
    finally:
        _, holders = _there[node]
        if holders > 1:
            _there[node] = one, holders - 1
        else:
            del _there[node]
            await one.leave()
            peering = one.peering  # type: ignore[attr-defined]
            if is_alive(peering):
                await stop(peering)


def by_way_of_a_neighbour(opened: Callable[..., Any]) -> Callable[..., Any]:
    """What opens a wire along a route, so that the wire runs on the other node."""

    @asynccontextmanager
    async def far(route: Any) -> AsyncGenerator[Any]:
        async with neighbour() as place, opened(FarRoute(route, place)) as owner:
            yield owner

    return far


def again(module: ModuleType, *names: str) -> dict[str, Any]:
    """Tests of another module, for one that runs them over another way."""
    return {name: getattr(module, name) for name in names}
