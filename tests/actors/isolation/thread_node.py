"""Another node in a thread of this process, for tests that need no process: it starts in milliseconds."""

from __future__ import annotations

import asyncio
import secrets
import threading
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from tests.free_ports import free_port

from greenroom import HttpConfig
from greenroom.client_targets import InProcessServer
from greenroom.supervision import (
    Node,
    Ref,
    Shutdown,
    Supervisor,
    current_node,
    exit,
    is_alive,
    receive,
    spawn,
    start,
    stop,
    wait_down,
)
from greenroom.supervision.cluster.cluster import Cluster, NodeOwner
from greenroom.supervision.cluster.peers import NodeDown, Peering, Peers
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.remote_wire import NodeLease, RemoteRoute

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from types import ModuleType

    from greenroom import Server
    from greenroom.supervision import Pid

_numbers = count(1)
_there: WeakKeyDictionary[Node, tuple[Neighbour, int]] = WeakKeyDictionary()


class Neighbour:
    """A thread with a node, and the process lease for wires on it."""

    def __init__(self, addresses: Sequence[str], key: bytes) -> None:
        """The addresses of the home node."""
        self.name = f"neighbour-{next(_numbers)}"
        self.keeper: Pid = spawn(_keep)
        self.peering: Ref[Peering] | None = None
        self._addresses = addresses
        self._key = key
        self._over: Callable[[], Any] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name=self.name)
        self._thread.start()

    async def acquire(self) -> NodeLease:
        """As a process lease does."""
        return NodeLease(self.name, self.keeper)

    async def _live(self) -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._over = lambda: loop.call_soon_threadsafe(over.set)
        async with Node(self.name, handle_sigint=False) as node:
            peers = Peers(node, self._key)
            await start(Peering, peers)
            home = await peers.connect(self._addresses)
            watcher = spawn(_until_lost, home, over)
            peers.watch(Ref(watcher))
            await over.wait()

    async def leave(self) -> None:
        """End the thread, and everything on its node."""
        self._over()
        await asyncio.to_thread(self._thread.join)
        exit(self.keeper, Shutdown("it was stopped"))
        await wait_down(self.keeper)


async def _until_lost(home: str, over: asyncio.Event) -> None:
    while not (isinstance(told := await receive(), NodeDown) and told.name == home):
        pass
    over.set()


class Beside:
    """A node made when it is first asked for, and ended with the node that asked: for code that does not know of it."""

    def __init__(self) -> None:
        """No node has asked yet."""
        self._found: WeakKeyDictionary[Node, Neighbour] = WeakKeyDictionary()
        self._threads: list[threading.Thread] = []

    async def acquire(self) -> NodeLease:
        """As a process lease does."""
        node = current_node()
        if node not in self._found:
            key = secrets.token_bytes(32)
            peers = Peers(node, key)
            await start(Peering, peers)
            one = self._found[node] = Neighbour(peers.addresses, key)
            self._threads.append(one._thread)
        one = self._found[node]
        peers_of_home: Any = node.remote_nodes
        await peers_of_home.wait_for(one.name)
        return await one.acquire()

    def join(self) -> None:
        """Wait until everything on it has ended."""
        for each in self._threads:
            each.join(20)
            assert not each.is_alive()


class Below:
    """A node in another process, one for each node that asks."""

    def __init__(self) -> None:
        """No node has asked yet."""
        self._found: WeakKeyDictionary[Node, NodeLease] = WeakKeyDictionary()

    async def acquire(self) -> NodeLease:
        """As a process lease does."""
        node = current_node()
        if node not in self._found:
            cluster = Cluster()
            await start(Supervisor, [cluster.child_spec()])
            host = await cluster.start_node()
            self._found[node] = NodeLease(await host.call(NodeOwner.node_name), host.pid)
        return self._found[node]


class Published:
    """A server of this program, reached over HTTP by a wire on another node."""

    def __init__(self, server: Server, place: Beside | Below) -> None:
        """It listens when it is first asked for."""
        self.description = server.settings.name
        self._server = server
        self._guest = InProcessServer(server)
        self._beside = place
        port = free_port()
        self._config = HttpConfig(port=port)
        self._way = RemoteRoute(HttpRoute(f"http://127.0.0.1:{port}/mcp"), self)
        self._turn = asyncio.Lock()
        self._listens_in: WeakSet[Node] = WeakSet()

    def open(self, owner: Pid) -> Any:
        """As a route does."""
        return self._way.open(owner)

    async def acquire(self) -> NodeLease:
        """As a process lease does, once it can be reached."""
        async with self._turn:  # also so that there is one node for all who ask at once
            if current_node() not in self._listens_in:
                await self._guest.prepare()
                await self._server.listen(config=self._config)
                self._listens_in.add(current_node())
            return await self._beside.acquire()


async def _keep() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def neighbour() -> AsyncGenerator[Neighbour]:
    """The other node of this node, as long as a wire uses it."""
    node = current_node()
    if node in _there:
        one, holders = _there[node]
        _there[node] = one, holders + 1
    else:
        key = secrets.token_bytes(32)
        peers = Peers(node, key)
        peering = await start(Peering, peers)
        one = Neighbour(peers.addresses, key)
        _there[node] = one, 1
        await peers.wait_for(one.name)
        one.peering = peering
    try:
        yield one
    finally:
        _, holders = _there[node]
        if holders > 1:
            _there[node] = one, holders - 1
        else:
            del _there[node]
            await one.leave()
            if one.peering is not None and is_alive(one.peering):
                await stop(one.peering)


def by_way_of_a_neighbour(opened: Callable[..., Any]) -> Callable[..., Any]:
    """Open a wire along a route, so that it runs on the other node."""

    @asynccontextmanager
    async def far(route: Any) -> AsyncGenerator[Any]:
        async with neighbour() as place, opened(RemoteRoute(route, place)) as owner:
            yield owner

    return far


def again(module: ModuleType, *names: str) -> dict[str, Any]:
    """The tests of another module, to run them over another route."""
    return {name: getattr(module, name) for name in names}
