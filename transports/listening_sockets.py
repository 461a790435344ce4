"""Listening sockets that outlive any one listener, and their handover to other processes of the program.

Sockets are bound before anything starts, so a port in use is an error at once, and port 0 is resolved. A listener accepts on duplicates of
them: while it restarts, new connections wait in the kernel instead of being refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import logging
import mmap
import os
import secrets
import socket
import struct
import sys
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.errors import GreenroomError
from greenroom.supervision import ChildSpec, Crash, GenServer, Ref, child, clock
from greenroom.supervision.acceptor import Acceptor
from greenroom.supervision.private_files import anonymous_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.supervision import ExitReason

_WHY: Final = {
    errno.EADDRINUSE: "the port is in use: stop the other program, or choose another port (0 takes any that is free)",
    errno.EACCES: "permission denied: ports below 1024 are for root",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
}


class CannotListen(GreenroomError, OSError):
    """The address cannot be listened on; the message says why."""


class Binding:
    """The listening sockets of one host and port."""

    def __init__(self, host: str, port: int, *, backlog: int = 2048, send_buffer: int | None = None) -> None:
        """Binds and listens at once. Raises `CannotListen`."""
        self.host = host
        self.port = port
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._sockets: list[socket.socket] = []
        self._closed_for_good = False
        self.shares: AcceptShares | None = None
        """The load of each process that accepts on these sockets, if there are several."""
        self.open()

    @classmethod
    def of(cls, sockets: Sequence[socket.socket], shares: AcceptShares) -> Binding:
        """A binding of sockets that another process has bound, so that several processes accept on them."""
        binding = cls.__new__(cls)
        binding.host, binding.port = sockets[0].getsockname()[:2]
        binding.shares = shares
        binding._sockets = list(sockets)  # noqa: SLF001 - its own class
        binding._closed_for_good = True  # noqa: SLF001 - as above; another process binds
        return binding

    def __repr__(self) -> str:
        return f"<Binding {self.host}:{self.port}{'' if self._sockets else ' closed'}>"

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The addresses it is bound to."""
        return [each.getsockname()[:2] for each in self._sockets]

    def open(self) -> None:
        """Bind, unless bound. A closed binding gets the same port again. Raises `CannotListen`."""
        if self._sockets:
            return
        if self._closed_for_good:
            why = "were shut down" if self.shares is None else "were closed, and are another process's to bind"
            raise CannotListen(errno.EBADF, f"the sockets of {self.host}:{self.port} {why}")
        try:
            found = socket.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            seen: set[str] = set()
            for family, _, _, _, where in found:
                host = str(where[0])
                if host not in seen:
                    seen.add(host)
                    self._sockets.append(self._listen(family, host, alone=len(found) > 1))
                    self.port = self._sockets[0].getsockname()[1]
        except OSError as error:
            self.close()
            why = _WHY.get(error.errno or 0, error.strerror or str(error))
            raise CannotListen(error.errno, f"cannot listen on {self.host}:{self.port}: {why}") from None

    def _listen(self, family: int, host: str, *, alone: bool) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere the option lets two servers share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
            if self._send_buffer is not None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
            listening.bind((host, self.port))
            listening.listen(self._backlog)
            listening.setblocking(False)  # noqa: FBT003 - its only argument
        except BaseException:
            listening.close()
            raise
        return listening

    def copies(self) -> list[socket.socket]:
        """Duplicates to accept on; the caller closes them."""
        self.open()
        return [each.dup() for each in self._sockets]

    def close(self) -> None:
        """Stop listening: new connections are refused once all duplicates are closed, too."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.close()

    def shut_down(self) -> None:
        """Stop listening for good, in all processes that have duplicates: new connections are refused at once."""
        self._closed_for_good = True
        for each in self._sockets:
            # The kernel would queue connections on a duplicate in a process that is busy or hangs, and they would never be accepted. macOS
            # has no shutdown of a listening socket: there each process closes its own.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.close()


# --- The load of each process that accepts on one socket, in shared memory, so that the least loaded process takes the next connection.
# The page has one slot for each process: connections plus sessions, connections ever accepted, and when it was written. A process with a
# higher load than another yields for a moment. A process that has written nothing for a while is dead or busy, and the others do not yield
# to it. There are no locks: a number that is a moment old may give one connection a worse place, and does no other harm; a lock could be
# held by a process that dies.

_SLOT: Final = struct.Struct("=QQd")
FRESH: Final = 1.0
"""Seconds for which a slot counts."""
BEAT: Final = 0.3


def create_shares_file(slots: int) -> int:
    """Create the shared page and return its descriptor. It is in no file system, and goes with the last process that has it."""
    with anonymous_file() as made:
        made.truncate(slots * _SLOT.size)
        return os.dup(made.fileno())


class AcceptShares:
    """The shared page, as one process reads and writes it."""

    def __init__(self, page: int, slot: int) -> None:
        """`slot` is this process's own; the descriptor may be closed afterwards."""
        self._memory = mmap.mmap(page, 0)
        self._count = len(self._memory) // _SLOT.size
        self._slot = slot
        self.extra_load: Callable[[], int] = int
        """The load besides connections, which remains when they are closed: sessions."""
        others = [taken for _, taken in self._others()]
        self._taken = min(
            others, default=0
        )  # starting at 0, the others would yield to this process until it has caught up

    def publish(self, connections: int) -> int:
        """Publish this process's load: open connections plus the extra load. Returns it."""
        here = connections + self.extra_load()
        _SLOT.pack_into(self._memory, self._slot * _SLOT.size, here, self._taken, clock.real_seconds())
        return here

    def on_accepted(self, connections: int) -> None:
        """A connection was accepted."""
        self._taken += 1
        self.publish(connections)

    def should_yield(self, connections: int) -> bool:
        """Whether another process should take the next connection."""
        mine = (self.publish(connections), self._taken)
        return any(other < mine for other in self._others())

    def _others(self) -> list[tuple[int, int]]:
        since = clock.real_seconds() - FRESH
        slots = _SLOT.iter_unpack(self._memory)
        return [(here, taken) for at, (here, taken, said) in enumerate(slots) if at != self._slot and said > since]

    def withdraw(self) -> None:
        """Accept no more for now: the others do not yield to this process."""
        _SLOT.pack_into(self._memory, self._slot * _SLOT.size, 0, self._taken, 0.0)


# --- Handing listening sockets to other processes of this program: one process binds, and gives duplicates to each that presents the
# ticket.
# All processes accept on one socket, which the binding process keeps, too. So no process that dies takes queued connections with it: the
# others accept them. With a socket each (`SO_REUSEPORT`), the connections queued for a dying process would be reset, and those of a hanging
# one would wait for it.

log: Final = logging.getLogger("greenroom.http")

_SECRET_SIZE: Final = 32
_MAX_SOCKETS: Final = 16
"""The most sockets of one address: a name may resolve to several."""
_MAX_CLIENTS: Final = 64
_HANDOVER_TIMEOUT: Final = 5.0
_RETRY_DELAY: Final = 0.05


class SocketHandoverFailed(GreenroomError):
    """The listening sockets could not be received."""


class SocketTicket(NamedTuple):
    """The address of the handover and its secret, passed only between processes of one program."""

    address: str
    secret: bytes

    def __repr__(self) -> str:
        return f"<SocketTicket for {self.address[-8:]}>"


def new_socket_ticket() -> SocketTicket:
    """A new ticket. On Linux its address is in no file system and goes with the process."""
    name = f"greenroom-{secrets.token_hex(16)}"
    if sys.platform == "linux" and hasattr(socket, "AF_UNIX"):
        return SocketTicket(f"@{name}", secrets.token_bytes(_SECRET_SIZE))
    return SocketTicket(os.path.join(tempfile.gettempdir(), name), secrets.token_bytes(_SECRET_SIZE))  # noqa: PTH118 - a text


def _path(address: str) -> str:
    return f"\0{address[1:]}" if address.startswith("@") else address


class SocketHandover(GenServer):
    """Gives duplicates of a binding's sockets to processes that present the ticket.

    It closes the binding when it stops, and not when it crashes, since its successor continues.
    """

    traps_exit: ClassVar[bool] = True

    def __init__(self, binding: Binding, ticket: SocketTicket, page: int) -> None:
        """A process with this ticket gets the sockets and the descriptor `page` of the shared load (`AcceptShares`)."""
        self._binding = binding
        self._page = page
        self._ticket = ticket
        self._loop: asyncio.AbstractEventLoop
        self._socket: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._clients: dict[socket.socket, asyncio.TimerHandle] = {}

    def init(self) -> None:
        self._binding.open()
        self._loop = asyncio.get_running_loop()
        self.process.add_exit_waiter(self)
        path = _path(self._ticket.address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)  # noqa: FBT003 - its only argument
        with contextlib.suppress(FileNotFoundError):
            if not path.startswith("\0"):
                os.unlink(path)  # noqa: PTH108 - what a predecessor has left
        self._socket.bind(path)
        if not path.startswith("\0"):
            os.chmod(path, 0o600)  # noqa: PTH101 - a text everywhere else
        self._socket.listen(_MAX_CLIENTS)
        self._acceptor = Acceptor([self._socket], self._on_connect, log)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it came
        """Close everything, however the process ended."""
        for client in tuple(self._clients):
            self._drop_client(client)
        if self._acceptor is not None:
            self._acceptor.close()
        elif self._socket is not None:  # binding the address has failed
            self._socket.close()
        if not self._ticket.address.startswith("@"):
            with contextlib.suppress(OSError):
                os.unlink(self._ticket.address)  # noqa: PTH108 - a text everywhere else

    def terminate(self, reason: ExitReason) -> None:
        """Close the binding, unless a successor continues."""
        if not isinstance(reason, Crash):
            self._binding.close()

    def _on_connect(self, client: socket.socket) -> None:
        if len(self._clients) >= _MAX_CLIENTS or not _is_same_user(client):
            client.close()
            return
        self._clients[client] = self._loop.call_later(_HANDOVER_TIMEOUT, self._drop_client, client)
        self._loop.add_reader(client.fileno(), self._on_readable, client)

    def _on_readable(self, client: socket.socket) -> None:
        try:
            shown = client.recv(_SECRET_SIZE, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            shown = b""
        if 0 < len(shown) < _SECRET_SIZE:
            return  # the secret is incomplete: wait for more, or for the timeout
        with contextlib.suppress(OSError):
            if hmac.compare_digest(shown, self._ticket.secret):
                copies = self._binding.copies()
                try:
                    numbers = [self._page, *(each.fileno() for each in copies)]
                    socket.send_fds(client, [bytes((len(numbers),))], numbers)
                finally:
                    for each in copies:
                        each.close()
        self._drop_client(client)

    def _drop_client(self, client: socket.socket) -> None:
        alarm = self._clients.pop(client, None)
        if alarm is not None:
            alarm.cancel()
            self._loop.remove_reader(client.fileno())
            client.close()


def _is_same_user(client: socket.socket) -> bool:
    """Whether the client is a process of this user or of root."""
    option: Any = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True  # the file's mode 0600 has decided that
    _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return uid in (0, os.geteuid())


class ReceivedSockets(NamedTuple):
    """The sockets and the descriptor of the shared page, which the receiver closes."""

    sockets: list[socket.socket]
    page: int


async def take_over_binding(ticket: SocketTicket, slot: int, timeout: float = _HANDOVER_TIMEOUT) -> Binding:
    """Receive a binding in another process, which uses that slot of the shared page. Raises `SocketHandoverFailed`."""
    handed = await receive_sockets(ticket, timeout)
    try:
        return Binding.of(handed.sockets, AcceptShares(handed.page, slot))
    finally:
        os.close(handed.page)


async def receive_sockets(ticket: SocketTicket, timeout: float = _HANDOVER_TIMEOUT) -> ReceivedSockets:
    """Receive the sockets for a ticket. Raises `SocketHandoverFailed`."""
    try:
        async with asyncio.timeout(timeout):
            while (found := await _request_sockets(ticket)) is None:  # noqa: ASYNC110 - another process has no event to wait for
                await asyncio.sleep(_RETRY_DELAY)  # the handover process is being restarted
            return found
    except TimeoutError:
        raise SocketHandoverFailed(f"no process handed over the listening sockets within {timeout:g} s") from None
    except OSError as error:
        raise SocketHandoverFailed(f"the listening sockets could not be received: {error}") from error


async def _request_sockets(ticket: SocketTicket) -> ReceivedSockets | None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
        there.setblocking(False)  # noqa: FBT003 - its only argument
        try:
            await loop.sock_connect(there, _path(ticket.address))
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        await loop.sock_sendall(there, ticket.secret)
        return await _receive_descriptors(there, loop)


async def _receive_descriptors(there: socket.socket, loop: asyncio.AbstractEventLoop) -> ReceivedSockets:
    come = asyncio.Event()
    loop.add_reader(there.fileno(), come.set)
    try:
        await come.wait()
    finally:
        loop.remove_reader(there.fileno())
    said, numbers, _, _ = socket.recv_fds(there, 1, _MAX_SOCKETS, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    if not said or said[0] != len(numbers) or len(numbers) < 2:  # noqa: PLR2004 - a page, and a socket at least
        for number in numbers:
            os.close(number)
        raise SocketHandoverFailed("the listening sockets were refused")
    page, *rest = numbers
    os.set_inheritable(page, False)  # noqa: FBT003 - its only other argument
    found = [socket.socket(fileno=number) for number in rest]
    for each in found:
        each.setblocking(False)  # noqa: FBT003 - as above
        each.set_inheritable(False)
    return ReceivedSockets(found, page)


def handover_child(binding: Binding, ticket: SocketTicket, page: int) -> ChildSpec[Ref[SocketHandover]]:
    """The child spec of the handover, for the program that binds."""
    return child(SocketHandover, binding, ticket, page).but(id="handover")
