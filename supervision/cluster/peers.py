"""The other nodes, as this one knows them: who is connected, who can be dialled, who has fallen silent.

Every node listens; two nodes that talk have one link, whoever began it. A node is lost when its link ends or nothing is heard of it for
`heartbeat * misses` seconds; who wants to know gets `NodeUp` and `NodeDown`. This is a table and no process: `peering` has the one that owns it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.supervision.kernel.errors import ActorError, CallTimeout
from greenroom.supervision.kernel.reasons import NO_CONNECTION, NO_PROCESS

from . import items
from .link import Link
from .sealing import LinkRefused, check_key, greeting
from .switch import Switch
from .values import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.supervision.behaviours.calls import Ref
    from greenroom.supervision.kernel.names import On
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.pid import Pid
    from greenroom.supervision.kernel.reasons import ExitReason

    from .far import FarProcess
    from .sealing import Greeting

HEARTBEAT: Final = 1.0
MISSES: Final = 3
_HANDSHAKES: Final = 256
"""How many strangers may be shaking hands at once."""


class NodeUp(NamedTuple):
    """A node is connected."""

    name: str


class NodeDown(NamedTuple):
    """A node is not connected any more; `why` in words."""

    name: str
    why: str


class Peers:
    """One node's links to others."""

    def __init__(
        self, node: Node, key: bytes, *, heartbeat: float = HEARTBEAT, misses: int = MISSES, kind: str = "node"
    ) -> None:
        """Nothing is open yet."""
        if not heartbeat > 0 or misses < 1:
            raise ValueError(
                f"heartbeat must be more than 0 seconds and misses at least 1, not {heartbeat!r} and {misses!r}"
            )
        self.node = node
        self.heartbeat = heartbeat
        self.misses = misses
        self.addresses: tuple[str, ...] = ()
        self._key = check_key(key)
        self._kind = kind
        self._switches: dict[str, Switch] = {}
        self._links: dict[Link, Switch | None] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        self._patient: set[str] = set()
        self._watchers: dict[Ref[Any], None] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._dialling: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []
        self._paths: list[str] = []
        self._beat: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._open = False

    def __repr__(self) -> str:
        return f"<Peers of {self.node.name}: {', '.join(self.connected) or 'nobody'}>"

    @property
    def connected(self) -> tuple[str, ...]:
        """The names of the nodes that are."""
        return tuple(name for name, switch in self._switches.items() if switch.link is not None)

    # --- open and close

    async def open(self, *, tcp: str | None = None) -> None:
        """Listen: on a unix socket of our own, and on the host `tcp` if one is given. From now on other nodes' pids work."""
        if self.node.elsewhere is not None:
            raise ActorError(f"{self.node!r} has its peers already")
        self.node.elsewhere = self
        self._open = True
        path = _socket_path()
        self._servers.append(await self._listen_unix(path))
        found = [f"unix:{path.replace(chr(0), '@')}"]
        if tcp is not None:
            server = await self.node.loop.create_server(self._welcome, tcp, 0)
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()[:2]
            found.append(f"tcp:{host}:{port}")
        self.addresses = tuple(found)
        self._tick()

    async def _listen_unix(self, path: str) -> asyncio.Server:
        server = await self.node.loop.create_unix_server(self._welcome, path)
        if not path.startswith("\0"):
            os.chmod(path, 0o600)  # noqa: PTH101 - a path that is a string everywhere else
            self._paths.append(path)
        return server

    def _welcome(self) -> Link:
        link = Link(self, dialling=False)
        self._links[link] = None
        if sum(switch is None for switch in self._links.values()) > _HANDSHAKES:
            # The one that has been at it for longest makes room.
            next(each for each, switch in self._links.items() if switch is None).end("too many handshakes at once")
        return link

    async def close(self) -> None:
        """Let go of every node; nobody is told more than that the link is gone."""
        self._open = False
        for task in self._dialling:
            task.cancel()
        if self._beat is not None:
            self._beat.cancel()
        for server in self._servers:
            server.close()
        for link in tuple(self._links):
            link.close()
        for switch in tuple(self._switches.values()):
            self._lose(switch, "closed")
        for path in self._paths:
            os.unlink(path)  # noqa: PTH108 - as above
        self._paths = []
        if self.node.elsewhere is self:
            self.node.elsewhere = None

    # --- dialling

    async def connect(self, addresses: Sequence[str], timeout: float = 5.0) -> str:
        """Dial the first of these addresses that answers; the name of the node that does. Raises `LinkRefused`."""
        wrong: list[str] = []
        for address in addresses:
            link: Link | None = None
            arrived: asyncio.Future[str] = self.node.loop.create_future()
            try:
                async with asyncio.timeout(timeout):
                    link = await self._dial(address, arrived)
                    return await arrived
            except TimeoutError:
                wrong.append(f"{address}: no answer within {timeout:g} s")
            except (OSError, LinkRefused) as error:
                wrong.append(f"{address}: {error}")
            finally:
                if link is not None and not link.up:
                    link.end("given up")
        raise LinkRefused(f"no node could be reached: {'; '.join(wrong) or 'no address was given'}")

    async def _dial(self, address: str, arrived: asyncio.Future[str]) -> Link:
        kind, where = _parsed(address)
        loop = self.node.loop

        def make() -> Link:
            link = Link(self, dialling=True)
            link.arrived = arrived
            self._links[link] = None
            return link

        if kind == "unix":
            path = "\0" + where[1:] if where.startswith("@") else where
            return (await loop.create_unix_connection(make, path))[1]
        host, _, port = where.rpartition(":")
        _, link = await loop.create_connection(make, host.strip("[]"), int(port))
        return link

    def introduce(self, name: str, addresses: Sequence[str]) -> None:
        """From now on that node is dialled when something is to be said to it."""
        self._known[name] = tuple(addresses)

    def forget(self, name: str) -> None:
        """That node is not dialled any more; a link that is there stays."""
        self._known.pop(name, None)

    def _reach(self, name: str) -> Switch | None:
        switch = self._switches.get(name)
        if switch is not None or not self._open:
            return switch
        addresses = self._known.get(name)
        if addresses is None:
            return None
        switch = self._switches[name] = Switch(self.node, name)
        # A task of the node and of no process: whoever has said something first does not own the link.
        task = self.node.loop.create_task(self._dial_for(switch, addresses), context=self.node.context.copy())
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        return switch

    async def _dial_for(self, switch: Switch, addresses: Sequence[str]) -> None:
        try:
            await self.connect(addresses)
        except LinkRefused as error:
            if switch.link is None and self._switches.get(switch.name) is switch:
                self._lose(switch, str(error))

    # --- for the node

    def process(self, pid: Pid) -> FarProcess | None:
        """The process with that pid of another node."""
        switch = self._reach(pid.node)
        return None if switch is None else switch.process(pid)

    def named(self, name: On) -> FarProcess | None:
        """The process with that name on another node."""
        switch = self._reach(name.node)
        return None if switch is None else switch.named(name)

    def absence(self, node: str) -> ExitReason:
        """Why there is nobody: a node that is connected has begun a new life, or it is not connected."""
        return NO_PROCESS if node in self._switches else NO_CONNECTION

    # --- for links

    def greet(self) -> tuple[bytes, Greeting]:
        """Who we are."""
        mine = greeting(self.node.name, self.node.incarnation, kind=self._kind, addresses=self.addresses)
        return self._key, mine

    def met(self, link: Link, peer: Greeting) -> str | None:
        """Somebody holds the key. Two links at once are decided in favour of the newer life, and else of the one that was first."""
        if not self._open:
            return f"{self.node.name} is closing"
        if peer.name == self.node.name:
            return f"it is called {peer.name}, too: give each node a name of its own"
        switch = self._switches.get(peer.name)
        if switch is not None and switch.link is not None:
            if (switch.life or 0) > peer.incarnation:
                return "a newer life of that node is connected already"
            if switch.life == peer.incarnation and not self._gives_way(link, switch.link, peer.name):
                return "it is connected already"
            old = switch.link
            self._lose(switch, "it has connected anew")
            old.end("it has connected anew")
            switch = None
        if switch is None:
            switch = self._switches[peer.name] = Switch(self.node, peer.name, peer.incarnation)
        self._links[link] = switch
        switch.connect(link, peer.incarnation)
        if peer.addresses:
            self._known.setdefault(peer.name, peer.addresses)
        link.arrive(peer.name)
        for future in self._waiting.pop(peer.name, ()):
            if not future.done():
                future.set_result(None)
        self._tell(NodeUp(peer.name))
        return None

    def _gives_way(self, new: Link, old: Link, name: str) -> bool:
        """Whether an old link to the same life ends for a new one: when both have dialled at once, both ends have to choose the same."""
        if new.dialling == old.dialling:
            return True  # it dials again, so it has lost the old one
        first = self.node.name < name
        return new.dialling is first

    def came(self, link: Link, payload: bytes) -> None:
        """Something was said; what it gives our processes to do is done at once."""
        switch = self._links.get(link)
        if switch is not None and switch.link is link:
            self.node.context.run(self.node.serve, lambda: switch.came(payload))

    def lost(self, link: Link, why: str) -> None:
        """A link is over."""
        switch = self._links.pop(link, None)
        link.fail(why)
        if switch is not None and switch.link is link:
            self._lose(switch, why)

    def _lose(self, switch: Switch, why: str) -> None:
        if self._switches.get(switch.name) is switch:
            del self._switches[switch.name]
        self._patient.discard(switch.name)
        was_up = switch.link is not None
        self.node.context.copy().run(switch.lose)
        if was_up:
            self._tell(NodeDown(switch.name, why))

    # --- who is there

    async def wait_for(self, name: str, timeout: float | None = 5.0) -> None:
        """Until that node is connected. Raises `CallTimeout`."""
        if name in self.connected:
            return
        future: asyncio.Future[None] = self.node.loop.create_future()
        self._waiting.setdefault(name, []).append(future)
        done, _ = await asyncio.wait((future,), timeout=timeout)
        if not done:
            raise CallTimeout(timeout or 0.0, f"node {name}", "connect")

    def watch(self, who: Ref[Any]) -> None:
        """Send `who` a `NodeUp` and a `NodeDown` for each from now on."""
        self._watchers[who] = None

    def unwatch(self, who: Ref[Any]) -> None:
        """No more."""
        self._watchers.pop(who, None)

    def _tell(self, event: NodeUp | NodeDown) -> None:
        for who in tuple(self._watchers):
            if not self.node.context.copy().run(who.send, event):
                self._watchers.pop(who, None)

    def disconnect(self, name: str, why: str = "disconnected") -> None:
        """End the link to a node, at once."""
        switch = self._switches.get(name)
        if switch is not None and switch.link is not None:
            switch.link.end(why)

    # --- silence

    def patient(self, name: str, on: bool) -> None:  # noqa: FBT001 - a switch
        """Whether that node may be silent for as long as it likes: what it is at has a deadline of its own."""
        if on:
            self._patient.add(name)
            return
        self._patient.discard(name)
        switch = self._switches.get(name)
        if switch is not None and switch.link is not None:
            switch.link.heard = self.node.loop.time()

    def _tick(self) -> None:
        now = self.node.loop.time()
        late = now - self._due if self._due else 0.0
        for name, switch in tuple(self._switches.items()):
            link = switch.link
            if link is None:
                continue
            switch.sweep()
            if now - link.spoke >= self.heartbeat / 2:
                link.post(_BEAT)
            # Whoever was held up themselves has not listened either, and judges nobody this time.
            if late < self.heartbeat and name not in self._patient and now - link.heard > self.heartbeat * self.misses:
                link.end(f"nothing was heard of it for {now - link.heard:.1f} s")
        self._due = now + self.heartbeat / 2
        self._beat = self.node.loop.call_later(self.heartbeat / 2, self._tick, context=self.node.context)


_BEAT: Final = encode([items.BEAT], "")


def _parsed(address: str) -> tuple[str, str]:
    kind, _, where = address.partition(":")
    if not where or not (kind == "unix" or (kind == "tcp" and where.rpartition(":")[2].isdigit())):
        raise LinkRefused("not an address of a node: it is unix:PATH, unix:@NAME or tcp:HOST:PORT")
    return kind, where


def _socket_path() -> str:
    """Where to listen: in the abstract namespace, of which nothing stays behind, or in a directory of our own."""
    name = f"greenroom-{secrets.token_hex(16)}"
    if sys.platform == "linux" and hasattr(socket, "AF_UNIX"):
        return f"\0{name}"
    return os.path.join(tempfile.gettempdir(), name)  # noqa: PTH118 - as above
