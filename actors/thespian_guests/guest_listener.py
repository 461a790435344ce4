"""The listener for guests: a socket for keyed links, and a process for each connected guest.

::

    guests (rest_for_one)
    ├─ sessions   dynamic; a process per guest, temporary
    └─ acceptor   listens, and ends a link with its session and a session with its link

Nothing listens unless it is asked for. By default the socket is in the abstract namespace, and accepts only processes of the same user and root; a host and port can
be given instead. A peer must prove that it holds the key before anything else is read from it. When the acceptor dies, all sessions end with it.
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

from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.actors.process_names import CompanyKey, ProcessName
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
from greenroom.supervision.cluster.addresses import dial, parse_port
from greenroom.supervision.cluster.framing import GREETING_LIMIT, greeting
from greenroom.supervision.cluster.link import HANDSHAKE_SECONDS, Link, LinkOwner
from greenroom.supervision.cluster.peers import OffenceReporter

from .guest_session import GuestSession
from .guest_wire import KIND, TO_NODE, guest_link_key, payload_limit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.supervision import ChildSpec, ExitReason, Node, Pid
    from greenroom.supervision.acceptor import Acceptor
    from greenroom.supervision.cluster.framing import Greeting

    from .guest_session import GuestServices

MOST_GUESTS: Final = 64
_TURN: Final = 1.0
"""How often a listener that stands by tries to take the address, in seconds."""
_MINE: Final = object()
_STRANGERS: Final = 16
"""How many connections may be in the handshake at once."""
_UNREAD: Final = 1000
"""How many payloads a guest may send before its process has started; of the largest, two."""


class GuestListener:
    """The settings of a listener for guests, and its state while it runs."""

    def __init__(
        self,
        services: GuestServices,
        key: bytes | str | os.PathLike[str],
        *,
        address: str | None = None,
        most_guests: int = MOST_GUESTS,
        name: str = "guests",
    ) -> None:
        """`services` answers guests. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default it is made from `name`. Raises `ConfigError`."""
        self.services = services
        self.key = guest_link_key(key)
        self.address = check_address(address or f"unix:@greenroom-{os.geteuid()}-{name}")
        """Where guests connect; a port of 0 is replaced by the real one."""
        self.most_guests = most_guests
        self._key = CompanyKey.new(name)
        self.guests: int = 0
        """How many guests are connected."""
        self.stands_by = False
        """Whether another node of the same server may have the address: then this one waits until it is free."""
        self.acceptor: GuestAcceptor | None = None
        """The latest acceptor."""

    def __repr__(self) -> str:
        return f"<GuestListener at {self.address}, {self.guests} guests>"

    def name(self, role: str) -> ProcessName:
        """The registered name of the process with that role."""
        return ProcessName(self._key, role)

    def child_spec(self) -> ChildSpec[Any]:
        """A child spec of the whole, for a supervisor that starts the federation before it."""
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor).but(id="sessions", name=self.name("sessions")),
            child(GuestAcceptor, self).but(id="acceptor", name=self.name("acceptor")),
        ]
        tree = child(ExclusiveSupervisor, children, intensity=5, period=10.0, strategy="rest_for_one")
        return tree.but(id=str(self._key), name=self.name("guests"))


class GuestAcceptor(GenServer):
    """Listens for guests, and owns their links."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, listener: GuestListener) -> None:
        self._listener = listener
        self._node: Node
        self._offences: OffenceReporter
        self._socket = GuestSocket()
        self._conflict: str | None = None
        self._is_reported = False
        self._is_checking = False
        self._links: dict[Link, Pid | None] = {}
        self._early: dict[Link, list[bytes]] = {}

    # --- the process

    async def init(self) -> None:
        """Listen. A former acceptor may have been killed before it could close its sockets: close them."""
        self._node = node = current_node()
        self._offences = OffenceReporter(str(self._listener.name("acceptor")), node.loop.time, node.reports.emit)
        listener = self._listener
        if listener.acceptor is not None:
            listener.acceptor.close_all()
        listener.acceptor = self
        spawn(_close_after, self)
        await self._listen()

    async def _listen(self) -> None:
        listener = self._listener
        try:
            listener.address = await self._socket.open(self._accept, listener.address)
        except (OSError, ValueError) as error:
            if listener.stands_by and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                self._stand_by()
                return
            raise ConfigError(f"guests cannot be let in at {listener.address}: {error}") from error

    def _stand_by(self) -> None:
        """Try again later, and check in the meantime which process has the address."""
        send_after(_TURN, self.pid, _MINE)
        if not self._is_checking:
            self._is_checking = True
            spawn_link(_check_address_holder, Ref[GuestAcceptor](self.pid, None), self._listener)

    def on_address_checked(self, conflict: str | None) -> None:
        """Takes the result of a check of the address. A conflict is reported once, when found twice in a row: a listener that is about to close does not answer either."""
        self._is_checking = False
        before, self._conflict = self._conflict, conflict
        if conflict is None:
            self._is_reported = False
        elif before is not None and not self._is_reported:
            self._is_reported = True
            address, label = self._listener.address, str(self._listener.name("acceptor"))
            self._node.reports.emit(GuestAddressTaken(pid=self.pid, label=label, address=address, why=conflict))

    async def start_session(self, link: Link) -> None:
        """Start a process for a guest whose handshake is done."""
        if link not in self._early:
            return  # it has left
        try:
            spec = child(GuestSession, self._listener.services, link, self.pid).but(id=link, restart="temporary")
            session = await start_child(self._listener.name("sessions"), spec)
        except ActorError as error:
            link.end(str(error))
            return
        monitor(session)
        for data in self._early.pop(link, ()):  # none if it has left in the meantime
            session.cast(GuestSession.on_data, data)
        if link.over:
            session.cast(GuestSession.on_link_over)
        else:
            self._links[link] = session.pid

    async def handle_info(self, message: Any) -> None:
        """A session has ended: end its link. Or try to listen again."""
        if message is _MINE:
            await self._listen()
        if isinstance(message, Down):
            for link, pid in tuple(self._links.items()):
                if pid is not None and pid == message.pid:
                    link.end("its process has ended")

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Close the address and all links."""
        self.close_all()

    def close_all(self) -> None:
        """Close all sockets. Calling it again is a no-op."""
        self._socket.close()
        for link in tuple(self._links):
            link.end("closed")

    # --- the owner of its links; called by the loop, outside of any process

    def _accept(self) -> Link:
        link = Link(self, dialling=False, largest=payload_limit(TO_NODE))
        self._links[link] = None
        strangers = [each for each in self._links if not each.up]
        if len(strangers) > _STRANGERS:
            strangers[0].end("too many handshakes at once")
        return link

    def greet(self) -> tuple[bytes, Greeting]:
        """The key, and this node's greeting."""
        return self._listener.key, greeting(self._node.name, self._node.incarnation, kind="host")

    def on_handshake(self, link: Link, peer: Greeting) -> str | None:
        """The peer holds the key: admit it as a guest, or return why not."""
        if peer.kind != KIND:
            return "only guests may connect here: nodes have addresses of their own"
        if sum(each.up for each in self._links) >= self._listener.most_guests:
            return f"there are {self._listener.most_guests} guests already"
        self._early[link] = []
        self._listener.guests = 1 + sum(each.up for each in self._links)
        self._run_in_node(lambda: Ref[GuestAcceptor](self.pid, None).cast(GuestAcceptor.start_session, link))
        return None

    def on_payload(self, link: Link, payload: bytes) -> None:
        """A guest has sent a payload."""
        early = self._early.get(link)
        if early is not None:
            early.append(payload)
            if len(early) > _UNREAD or sum(map(len, early)) > 2 * payload_limit(TO_NODE):
                link.end("it sends too much at once")
            return
        pid = self._links.get(link)
        if pid is not None:
            self._run_in_node(lambda: Ref[GuestSession](pid, None).cast(GuestSession.on_data, payload))

    def on_lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - whatever it was
        """A link is over."""
        if link.offence is not None:
            self._offences.note(self.pid, link.offence)
        pid = self._links.pop(link, None)
        self._early.pop(link, None)
        self._listener.guests = sum(each.up for each in self._links)
        if pid is not None:
            self._run_in_node(lambda: Ref[GuestSession](pid, None).cast(GuestSession.on_link_over))

    def _run_in_node(self, say: Any) -> None:
        if self._node.running:
            self._node.context.copy().run(say)


async def _close_after(acceptor: GuestAcceptor) -> None:
    """A process that closes the sockets of an acceptor that was killed."""
    await wait_down(acceptor.pid, None)
    acceptor.close_all()


async def _check_address_holder(acceptor: Ref[GuestAcceptor], listener: GuestListener) -> None:
    """A process of its own, since the listener at the address may take long to answer."""
    acceptor.cast(GuestAcceptor.on_address_checked, await address_conflict(listener.address, listener.key))


# --- The listening socket: one address, which no other process may have at the same time.
# An abstract name and a port cannot be taken twice. The file of a unix socket can: the binding process has to remove a file that a killed process has left, and must not
# remove one at which a process listens. So it connects first, under a lock of the folder (`flock`), since between connecting and binding another could do the same.

log: Final = logging.getLogger("greenroom.host")
_BACKLOG: Final = 100
_TRIES: Final = 100
_WAIT: Final = 0.02
"""How long to wait for the lock, in seconds for each try, and how often."""


class GuestSocket:
    """A listening socket, for its whole life."""

    def __init__(self) -> None:
        self._acceptor: Acceptor | None = None
        self._file: tuple[str, os.stat_result] | None = None
        """The socket's file and its identity: another process may have replaced it."""

    async def open(self, make: Callable[[], Link], address: str) -> str:
        """Listen. Returns the address with the real port. Raises `OSError`; its errno is `EADDRINUSE` when another process has the address."""
        kind, _, where = address.partition(":")
        if kind == "tcp":
            host, _, port = where.rpartition(":")
            sockets = await tcp_sockets(host.strip("[]"), int(port), _BACKLOG)
            self._acceptor = serve(make, sockets, log)
            return f"tcp:{host}:{sockets[0].getsockname()[1]}"
        if where.startswith("@"):
            self._acceptor = serve(make, [unix_socket(f"\0{where[1:]}", _BACKLOG)], log)
            return address
        async with _locked_folder(os.path.dirname(where) or "."):  # noqa: PTH120 - a path that is a string everywhere else
            sock = _listening_socket(where)
            try:
                self._file = where, os.lstat(where)
                self._acceptor = serve(make, [sock], log)
            except BaseException:
                self.close()
                sock.close()
                raise
        return address

    def close(self) -> None:
        """Stop listening. Calling it again is a no-op."""
        file, self._file = self._file, None
        if file is not None:  # before it stops listening: while it answers, no other process takes the path
            with contextlib.suppress(FileNotFoundError):
                path, own = file
                if os.path.samestat(os.lstat(path), own):
                    os.unlink(path)  # noqa: PTH108 - as above
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.close()


def check_address(address: str) -> str:
    """Check an address. Raises `ConfigError` for an invalid one, or one that this system does not have."""
    kind, _, where = address.partition(":")
    host, _, port = where.rpartition(":")
    if kind == "tcp" and host and parse_port(port, least=0) is not None:
        return address
    if kind == "unix" and where and "\0" not in where:
        if where.startswith("@") and sys.platform != "linux":
            raise ConfigError(f"{address}: only Linux has abstract sockets: name a path, or tcp:127.0.0.1:PORT")
        return address
    raise ConfigError(f"{address!r} is not an address: write unix:@NAME, unix:PATH or tcp:HOST:PORT")


@contextlib.asynccontextmanager
async def _locked_folder(folder: str) -> AsyncGenerator[None]:
    """Hold the lock of a folder while a socket's file is made there."""
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


def _listening_socket(path: str) -> socket.socket:
    """A socket that listens at that path. Raises `OSError`."""
    if _is_answered(path):
        raise OSError(errno.EADDRINUSE, "another process listens there", path)
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


def _is_answered(path: str) -> bool:
    """Whether a process listens there; one that is too busy to accept counts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(0)
        return knocking.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)


# --- Checking which process has the address: one that holds the same key, or a stranger.
# The listening end of a handshake proves first that it has the key. The check stops there: it proves and sends nothing itself.

_ENOUGH: Final = "only the key was to be checked"


async def address_conflict(address: str, key: bytes) -> str | None:
    """Why the process that listens there is a stranger; None when it holds the key, or none listens."""
    check = _KeyCheck(key)
    try:
        async with asyncio.timeout(2 * HANDSHAKE_SECONDS):
            await dial(asyncio.get_running_loop(), check.link, address)
            return await check.conflict
    except TimeoutError:
        return "it takes no connection"
    except LinkRefused as error:
        return str(error)
    except OSError:
        return None
    finally:
        check.end()


class _KeyCheck(LinkOwner):
    """One check, and the owner of its link."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._link: Link | None = None
        self.conflict: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def link(self) -> Link:
        self._link = link = Link(self, dialling=True, largest=GREETING_LIMIT)
        link.on_greeting = self._known
        return link

    def end(self) -> None:
        if self._link is not None:
            self._link.end(_ENOUGH)

    def _known(self, link: Link, peer: Greeting) -> str:  # noqa: ARG002 - it has proved itself, which is all that is asked
        self._settle(None)
        return _ENOUGH

    def _settle(self, why: str | None) -> None:
        if not self.conflict.done():
            self.conflict.set_result(why)

    def greet(self) -> tuple[bytes, Greeting]:
        return self._key, greeting("guest listener", os.getpid(), kind="guest listener")

    def on_handshake(self, link: Link, peer: Greeting) -> str:
        return self._known(link, peer)

    def on_payload(self, link: Link, payload: bytes) -> None:  # noqa: ARG002 - it is over by then
        self._settle(None)

    def on_lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - there is one
        self._settle(why)


# --- Reports: structured events on the node's bus, for logs, metrics and tests. They contain no secrets.


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAddressTaken(Report):
    """A listener waits for an address that a process of another program has, so no guest can connect."""

    level: ClassVar[int] = logging.WARNING

    address: str
    why: str

    def __str__(self) -> str:
        return f"guests cannot be let in at {self.address}, which belongs to another program: {self.why}"
