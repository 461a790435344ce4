"""Where guests are let in: a listener for keyed links, and a process for each guest that is there.

::

    guests (rest_for_one)
    ├─ visits     dynamic; a process per guest, temporary
    └─ doorman    listens, and sees to it that link and visit end together

Nothing listens unless it is asked for. The default is a socket in the abstract namespace, which lets in only processes of the same user (and
root's); a host and port can be named instead. A peer that connects proves that it holds the key before anything else is read from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import sys
from dataclasses import dataclass
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
    Report,
    child,
    current_node,
    monitor,
    send_after,
    spawn,
    spawn_link,
    start_child,
    wait_down,
)
from greenroom.supervision.acceptor import serve, tcp_sockets, unix_socket
from greenroom.supervision.cluster import LinkRefused
from greenroom.supervision.cluster.addresses import dial, port_of
from greenroom.supervision.cluster.framing import GREETING_LIMIT, greeting
from greenroom.supervision.cluster.link import HANDSHAKE_SECONDS, Link, Party
from greenroom.supervision.cluster.peers import Offences

from .guest_session import Visit
from .guest_wire import KIND, TO_NODE, guests_key, payload_limit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.supervision import ChildSpec, ExitReason, Node, Pid
    from greenroom.supervision.acceptor import Acceptor
    from greenroom.supervision.cluster.framing import Greeting

    from .guest_session import Asked

MOST_GUESTS: Final = 64
_TURN: Final = 1.0
"""How often one that stands by looks whether it is its turn, in seconds."""
_MINE: Final = object()
_STRANGERS: Final = 16
"""How many may be shaking hands at once."""
_UNREAD: Final = 1000
"""How many payloads a guest may send before its process is there; of the largest, two."""


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
        """`asked` is what guests ask. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default a name made of `name`. Raises `ConfigError`."""
        self.asked = asked
        self.key = guests_key(key)
        self.address = check_address(address or f"unix:@greenroom-{os.geteuid()}-{name}")
        """Where guests connect; a port of 0 has become a real one when it runs."""
        self.most_guests = most_guests
        self._key = Key.new(name)
        self.guests: int = 0
        """How many are there."""
        self.stands_by = False
        """Whether an address that is taken is another node's of the same server: then this one waits for its turn."""
        self.doorman: Doorman | None = None
        """The last doorman that let them in."""

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
        """The doorman of that reception."""
        self._reception = reception
        self._node: Node
        self._offences: Offences
        self._door = Door()
        self._stranger: str | None = None
        self._told = False
        self._looks = False
        self._links: dict[Link, Pid | None] = {}
        self._early: dict[Link, list[bytes]] = {}

    # --- the process

    async def init(self) -> None:
        """Listen. The doorman before is gone, killed perhaps, and could not close."""
        self._node = node = current_node()
        self._offences = Offences(str(self._reception.name("doorman")), node.loop.time, node.reports.emit)
        reception = self._reception
        if reception.doorman is not None:
            reception.doorman.shut()
        reception.doorman = self
        spawn(_shut_after, self)
        await self._listen()

    async def _listen(self) -> None:
        reception = self._reception
        try:
            reception.address = await self._door.open(self._welcome, reception.address)
        except (OSError, ValueError) as error:
            if reception.stands_by and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                self._stand_by()
                return
            raise ConfigError(f"guests cannot be let in at {reception.address}: {error}") from error

    def _stand_by(self) -> None:
        """Try again, and see meanwhile which process has the address."""
        send_after(_TURN, self.pid, _MINE)
        if not self._looks:
            self._looks = True
            spawn_link(_look, Ref[Doorman](self.pid, None), self._reception)

    def found(self, stranger: str | None) -> None:
        """Which stranger has the address that it stands by for. Reported once, when seen twice running: one that is about to close does not answer either."""
        self._looks = False
        before, self._stranger = self._stranger, stranger
        if stranger is None:
            self._told = False
        elif before is not None and not self._told:
            self._told = True
            address, label = self._reception.address, str(self._reception.name("doorman"))
            self._node.reports.emit(NameTaken(pid=self.pid, label=label, address=address, why=stranger))

    async def admit(self, link: Link) -> None:
        """A guest has shaken hands: give it a process."""
        if link not in self._early:
            return  # gone again
        try:
            spec = child(Visit, self._reception.asked, link, self.pid).but(id=link, restart="temporary")
            visit = await start_child(self._reception.name("visits"), spec)
        except ActorError as error:
            link.end(str(error))
            return
        monitor(visit)
        for data in self._early.pop(link, ()):  # none, if it has left meanwhile
            visit.cast(Visit.hear, data)
        if link.over:
            visit.cast(Visit.link_over)
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
        """Close the address and the links of all guests."""
        self.shut()

    def shut(self) -> None:
        """Close all that is open. Again is nothing."""
        self._door.close()
        for link in tuple(self._links):
            link.end("closed")

    # --- the party of its links; called by the loop, outside of any process

    def _welcome(self) -> Link:
        link = Link(self, dialling=False, largest=payload_limit(TO_NODE))
        self._links[link] = None
        strangers = [each for each in self._links if not each.up]
        if len(strangers) > _STRANGERS:
            strangers[0].end("too many handshakes at once")
        return link

    def greet(self) -> tuple[bytes, Greeting]:
        """The key, and the greeting of this node."""
        return self._reception.key, greeting(self._node.name, self._node.incarnation, kind="host")

    def met(self, link: Link, peer: Greeting) -> str | None:
        """The peer holds the key: admit it as a guest, or say why not."""
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
            if len(early) > _UNREAD or sum(map(len, early)) > 2 * payload_limit(TO_NODE):
                link.end("it says too much at once")
            return
        pid = self._links.get(link)
        if pid is not None:
            self._in_the_node(lambda: Ref[Visit](pid, None).cast(Visit.hear, payload))

    def lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - whatever it was
        """A guest is gone, or a stranger."""
        if link.offence is not None:
            self._offences.note(self.pid, link.offence)
        pid = self._links.pop(link, None)
        self._early.pop(link, None)
        self._reception.guests = sum(each.up for each in self._links)
        if pid is not None:
            self._in_the_node(lambda: Ref[Visit](pid, None).cast(Visit.link_over))

    def _in_the_node(self, say: Any) -> None:
        if self._node.running:
            self._node.context.copy().run(say)


async def _shut_after(doorman: Doorman) -> None:
    """A process that closes the sockets of a doorman that was killed."""
    await wait_down(doorman.pid, None)
    doorman.shut()


async def _look(doorman: Ref[Doorman], reception: Reception) -> None:
    """A process, since the listener at the address may take its time to answer."""
    doorman.cast(Doorman.found, await stranger_at(reception.address, reception.key))


# --- The door that guests come to: one address, open as long as it is wanted, and held by no other process meanwhile.
# An abstract name and a port cannot be taken twice. The file of a unix socket can: a process that binds has to remove the file that a killed process
# has left there, and must not remove one at which a listener answers. So it knocks first, and no two of our processes do so at a time.

log: Final = logging.getLogger("greenroom.host")
_BACKLOG: Final = 100
_TRIES: Final = 100
_WAIT: Final = 0.02
"""How long to wait for others that open a path in the same folder just now, in seconds, and how often."""


class Door:
    """One, for its whole life."""

    def __init__(self) -> None:
        """It is closed."""
        self._acceptor: Acceptor | None = None
        self._file: tuple[str, os.stat_result] | None = None
        """A socket's file, and which one it is: another may have its name by now."""

    async def open(self, make: Callable[[], Link], address: str) -> str:
        """Listen. The address, with the port that it has; raises `OSError`, with `EADDRINUSE` when another process has it."""
        kind, _, where = address.partition(":")
        if kind == "tcp":
            host, _, port = where.rpartition(":")
            sockets = await tcp_sockets(host.strip("[]"), int(port), _BACKLOG)
            self._acceptor = serve(make, sockets, log)
            return f"tcp:{host}:{sockets[0].getsockname()[1]}"
        if where.startswith("@"):
            self._acceptor = serve(make, [unix_socket(f"\0{where[1:]}", _BACKLOG)], log)
            return address
        async with _alone_in(os.path.dirname(where) or "."):  # noqa: PTH120 - a path that is a string everywhere else
            sock = _bound(where)
            try:
                self._file = where, os.lstat(where)
                self._acceptor = serve(make, [sock], log)
            except BaseException:
                self.close()
                sock.close()
                raise
        return address

    def close(self) -> None:
        """Stop listening. Closing again is a no-op."""
        file, self._file = self._file, None
        if file is not None:  # before it stops listening: as long as it answers no other process takes the name
            with contextlib.suppress(FileNotFoundError):
                path, own = file
                if os.path.samestat(os.lstat(path), own):
                    os.unlink(path)  # noqa: PTH108 - as above
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.close()


def check_address(address: str) -> str:
    """The address. Raises `ConfigError` for what is none, or cannot be had on this system."""
    kind, _, where = address.partition(":")
    host, _, port = where.rpartition(":")
    if kind == "tcp" and host and port_of(port, least=0) is not None:
        return address
    if kind == "unix" and where and "\0" not in where:
        if where.startswith("@") and sys.platform != "linux":
            raise ConfigError(f"{address}: only Linux has abstract sockets: name a path, or tcp:127.0.0.1:PORT")
        return address
    raise ConfigError(f"{address!r} is no address: it is unix:@NAME, unix:PATH or tcp:HOST:PORT")


@contextlib.asynccontextmanager
async def _alone_in(folder: str) -> AsyncGenerator[None]:
    """None of ours does the same there meanwhile, in whatever process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_WAIT)
        else:
            raise OSError(errno.EADDRINUSE, "another program has locked the folder", folder)
        yield
    finally:
        os.close(descriptor)


def _bound(path: str) -> socket.socket:
    """A socket that listens there. Raises `OSError`."""
    if _answers(path):
        raise OSError(errno.EADDRINUSE, "somebody listens there", path)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108 - as above
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        os.chmod(path, 0o600)  # noqa: PTH101 - as above; no peer can connect before it listens
        sock.listen(_BACKLOG)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return sock


def _answers(path: str) -> bool:
    """Whether a process listens there; one that is too busy to answer counts as well."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(0)
        return knocking.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)


# --- Which process has the address that a reception waits for: one that holds the same key, or a stranger.
# The listener proves first that it has the key, and no more than that is asked of it: it is left before anything is said to it.

_ENOUGH: Final = "it was only looked who is there"


async def stranger_at(address: str, key: bytes) -> str | None:
    """Why the process that listens there is a stranger; None when it holds the key, or none listens."""
    knock = _Knock(key)
    try:
        async with asyncio.timeout(2 * HANDSHAKE_SECONDS):
            await dial(asyncio.get_running_loop(), knock.link, address)
            return await knock.found
    except TimeoutError:
        return "it takes no connection"
    except LinkRefused as error:
        return str(error)
    except OSError:
        return None
    finally:
        knock.end()


class _Knock(Party):
    """One attempt, and the party of its link."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._link: Link | None = None
        self.found: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def link(self) -> Link:
        self._link = link = Link(self, dialling=True, largest=GREETING_LIMIT)
        link.greeted = self._known
        return link

    def end(self) -> None:
        if self._link is not None:
            self._link.end(_ENOUGH)

    def _known(self, link: Link, peer: Greeting) -> str:  # noqa: ARG002 - it has proved itself; that is all
        self._settle(None)
        return _ENOUGH

    def _settle(self, why: str | None) -> None:
        if not self.found.done():
            self.found.set_result(why)

    def greet(self) -> tuple[bytes, Greeting]:
        return self._key, greeting("reception", os.getpid(), kind="reception")

    def met(self, link: Link, peer: Greeting) -> str:
        return self._known(link, peer)

    def came(self, link: Link, payload: bytes) -> None:  # noqa: ARG002 - it is over by then
        self._settle(None)

    def lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - there is one
        self._settle(why)


# --- What a reception reports: structured events on the node's bus, for logs, metrics and tests. Nothing in them is secret.


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTaken(Report):
    """A reception waits for its turn at an address, and the process that has it is none of the same server: no guest is let in anywhere."""

    level: ClassVar[int] = logging.WARNING

    address: str
    why: str

    def __str__(self) -> str:
        return f"guests cannot be let in at {self.address}, which is somebody else's: {self.why}"
