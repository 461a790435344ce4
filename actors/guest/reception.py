"""Where guests are let in: a listener for keyed links, and a process for each guest that is there.

::

    guests (rest_for_one)
    ├─ visits     dynamic; a process per guest, temporary
    └─ doorman    listens, and sees to it that link and visit end together

Nothing listens unless it is asked for. The default is a socket in the abstract namespace, which only processes of the same user (and root's) are
let in by; a host and port can be named instead. Whoever connects proves that they hold the key before anything else is read of them.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.names import Key, Name
from greenroom.actors.tree import Tree
from greenroom.errors import ConfigError
from greenroom.supervision import (
    ActorError,
    Down,
    DynamicSupervisor,
    GenServer,
    Ref,
    child,
    current_node,
    monitor,
    send_after,
    spawn,
    start_child,
    wait_down,
)
from greenroom.supervision.cluster.link import Link
from greenroom.supervision.cluster.sealing import greeting

from .keys import key_of
from .visit import LinkOver, Payload, Visit
from .wire import KIND, TO_NODE, payload_limit

if TYPE_CHECKING:
    import asyncio

    from greenroom.supervision import ChildSpec, ExitReason, Node, Pid
    from greenroom.supervision.cluster.sealing import Greeting

    from .answers import Asked

MOST_GUESTS: Final = 64
_TURN: Final = 1.0
"""How often one that stands by looks whether it is its turn, in seconds."""
_MINE: Final = object()
_STRANGERS: Final = 16
"""How many may be shaking hands at once."""
_UNREAD: Final = 1000
"""How many payloads a guest may send before its process is there."""


class Reception:
    """The settings of one, and what is known of it while it runs."""

    def __init__(
        self,
        asked: Asked,
        key: bytes | str | os.PathLike[str],
        *,
        address: str | None = None,
        most_guests: int = MOST_GUESTS,
        name: str = "guests",
    ) -> None:
        """`asked` is whom they ask. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default a name that is made of `name`. Raises `ConfigError`."""
        self.asked = asked
        self.key = key_of(key)
        self.address = check_address(address or f"unix:@greenroom-{os.geteuid()}-{name}")
        """Where guests connect; a port of 0 has become a real one when it runs."""
        self.most_guests = most_guests
        self._key = Key.new(name)
        self.guests: int = 0
        """How many are there."""
        self.stands_by = False
        """Whether an address that is taken is another node's of the same server: then this one waits for its turn."""
        self.doorman: Doorman | None = None
        """Who let them in last."""

    def __repr__(self) -> str:
        return f"<Reception at {self.address}, {self.guests} guests>"

    def name(self, role: str) -> Name:
        """What the process with that role is registered as."""
        return Name(self._key, role)

    def child_spec(self) -> ChildSpec[Any]:
        """All of it as a child, for any supervisor that has the federation before it."""
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor).but(id="visits", name=self.name("visits")),
            child(Doorman, self).but(id="doorman", name=self.name("doorman")),
        ]
        tree = child(Tree, children, intensity=5, period=10.0, strategy="rest_for_one")
        return tree.but(id=str(self._key), name=self.name("guests"))


class Doorman(GenServer):
    """Listens. It is the `Party` of every link, too."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, reception: Reception) -> None:
        """For whom."""
        self._reception = reception
        self._node: Node
        self._servers: list[asyncio.Server] = []
        self._links: dict[Link, Pid | None] = {}
        self._early: dict[Link, list[bytes]] = {}

    # --- the process

    async def init(self) -> None:
        """Listen. Whoever did before is gone, killed perhaps, and could not close."""
        self._node = current_node()
        reception = self._reception
        if reception.doorman is not None:
            reception.doorman.shut()
        reception.doorman = self
        spawn(_shut_after, self)
        await self._listen()

    async def _listen(self) -> None:
        reception = self._reception
        kind, _, where = reception.address.partition(":")
        loop = self._node.loop
        try:
            if kind == "unix":
                self._servers.append(await loop.create_unix_server(self._welcome, _path(where)))
                if not where.startswith("@"):
                    os.chmod(where, 0o600)  # noqa: PTH101 - a path that is a string everywhere else
            else:
                host, _, port = where.rpartition(":")
                self._servers.append(await loop.create_server(self._welcome, host.strip("[]"), int(port)))
                reception.address = f"tcp:{host}:{self._servers[0].sockets[0].getsockname()[1]}"
        except OSError as error:
            if reception.stands_by and error.errno == errno.EADDRINUSE:
                send_after(_TURN, self.pid, _MINE)
                return
            raise ConfigError(f"guests cannot be let in at {reception.address}: {error}") from error

    async def admit(self, link: Link) -> None:
        """A guest has shaken hands: give it a process."""
        early = self._early.get(link)
        if early is None:
            return  # gone again
        try:
            spec = child(Visit, self._reception.asked, link).but(id=link, restart="temporary")
            visit = await start_child(self._reception.name("visits"), spec)
        except ActorError as error:
            link.end(str(error))
            return
        monitor(visit)
        del self._early[link]
        for data in early:
            visit.send(Payload(data))
        if link.over:
            visit.send(LinkOver())
        else:
            self._links[link] = visit.pid

    async def handle_info(self, message: Any) -> None:
        """A visit has ended: so does its link. Or it may be our turn to listen."""
        if message is _MINE:
            await self._listen()
        if isinstance(message, Down):
            for link, pid in tuple(self._links.items()):
                if pid is not None and pid == message.pid:
                    link.end("its process has ended")

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Let nobody in any more; who is there goes."""
        self.shut()

    def shut(self) -> None:
        """Close all that is open. Again is nothing."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for link in tuple(self._links):
            link.end("closed")
        kind, _, where = self._reception.address.partition(":")
        if kind == "unix" and not where.startswith("@") and servers:
            os.unlink(where)  # noqa: PTH108 - as above

    # --- the party of its links; called by the loop, outside of any process

    def _welcome(self) -> Link:
        link = Link(self, dialling=False, largest=payload_limit(TO_NODE))
        self._links[link] = None
        strangers = [each for each in self._links if not each.up]
        if len(strangers) > _STRANGERS:
            strangers[0].end("too many handshakes at once")
        return link

    def greet(self) -> tuple[bytes, Greeting]:
        """Who we are."""
        return self._reception.key, greeting(self._node.name, self._node.incarnation, kind="host")

    def met(self, link: Link, peer: Greeting) -> str | None:
        """Somebody holds the key."""
        if peer.kind != KIND:
            return "only guests are let in here: a node has other doors"
        if sum(each.up for each in self._links) >= self._reception.most_guests:
            return f"there are {self._reception.most_guests} guests already"
        self._early[link] = []
        self._reception.guests = 1 + sum(each.up for each in self._links)
        self._in_the_node(lambda: Ref[Doorman](self.pid, None).cast(Doorman.admit, link))
        return None

    def came(self, link: Link, payload: bytes) -> None:
        """A guest has said something."""
        early = self._early.get(link)
        if early is not None:
            early.append(payload)
            if len(early) > _UNREAD:
                link.end("it says too much at once")
            return
        pid = self._links.get(link)
        if pid is not None:
            self._in_the_node(lambda: Ref[Visit](pid, None).send(Payload(payload)))

    def lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - whatever it was
        """A guest is gone."""
        pid = self._links.pop(link, None)
        self._early.pop(link, None)
        self._reception.guests = sum(each.up for each in self._links)
        if pid is not None:
            self._in_the_node(lambda: Ref[Visit](pid, None).send(LinkOver()))

    def _in_the_node(self, say: Any) -> None:
        if self._node.running:
            self._node.context.copy().run(say)


async def _shut_after(doorman: Doorman) -> None:
    """A process: whoever kills a doorman leaves its sockets to us."""
    await wait_down(doorman.pid, None)
    doorman.shut()


def check_address(address: str) -> str:
    """The address. Raises `ConfigError` for what is none, or cannot be had on this system."""
    kind, _, where = address.partition(":")
    host, _, port = where.rpartition(":")
    if kind == "tcp" and host and port.isdigit():
        return address
    if kind == "unix" and where:
        if where.startswith("@") and sys.platform != "linux":
            raise ConfigError(f"{address}: only Linux has abstract sockets: name a path, or tcp:127.0.0.1:PORT")
        return address
    raise ConfigError(f"{address!r} is no address: it is unix:@NAME, unix:PATH or tcp:HOST:PORT")


def _path(where: str) -> str:
    return "\0" + where[1:] if where.startswith("@") else where
