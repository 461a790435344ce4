"""Accepts connections on listening sockets, also when the process has run out of file descriptors.

asyncio's own servers log a traceback for each failed accept, and try `backlog` times in a row: with 2,048 that was 3 MB of log a second
and half a core, for as long as a peer kept enough silent connections open. Here a failed accept pauses the listener for a second and logs one line.
Open connections are served meanwhile, and waiting ones stay in the kernel's queue.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Sequence

BACKLOG: Final = 100
PAUSE: Final = 1.0
"""Seconds without accepting after a failed accept, and so the time between two log lines."""
_LEAST_FREE: Final = 16
_BATCH: Final = 64
"""Connections accepted in one turn of the loop: a flood of them must not keep the open ones waiting."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})
_TRANSIENT: Final = frozenset(
    number
    for number, name in errno.errorcode.items()
    if name
    in {
        *("ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENONET", "ENOPROTOOPT"),
        *("EOPNOTSUPP", "EPERM", "EPROTO", "ETIMEDOUT"),
    }
)
"""Linux reports a network error of the waiting connection as an error of `accept`: it concerns that peer, and is no reason to pause."""


def open_files_limit() -> int:
    """The limit of open descriptors of this OS process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def connection_limit(files: int) -> int:
    """How many connections a listener may have with this descriptor limit: a quarter is left for files, children and upstream servers."""
    return max(1, files - max(_LEAST_FREE, files // 4))


def reserved_descriptors(files: int) -> int:
    """How many of the last descriptors are kept free of connections, with any number of listeners and open files."""
    return min(max(_LEAST_FREE, files // 16), files // 2)


class Acceptor:
    """Accepts connections in the running loop, from its creation until it is closed."""

    def __init__(
        self, sockets: Sequence[socket.socket], accepted: Callable[[socket.socket], object], log: logging.Logger
    ) -> None:
        """`sockets` are listening, non-blocking, and closed by `close`; `accepted` takes ownership of each connection."""
        self._sockets = tuple(sockets)
        self._accepted = accepted
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._resumption: asyncio.TimerHandle | None = None
        self._closed = False
        self._scarce = False
        """Whether the last connection got one of the reserved descriptors: until it is refused, no other is accepted in the same turn."""
        self._resume()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Its listening sockets; none after `close`."""
        return () if self._closed else self._sockets

    def _resume(self) -> None:
        self._resumption = None
        for each in self._sockets:
            self._loop.add_reader(each.fileno(), self._ready, each)

    def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
        self._resumption = self._loop.call_later(seconds, then)

    def _ready(self, sock: socket.socket) -> None:
        """Accept waiting connections, up to a batch."""
        for _ in range(_BATCH):
            if self._closed or not self._accept(sock) or self._scarce:
                return

    def _accept(self, sock: socket.socket) -> bool:
        """Accept one connection; False when none can be accepted now."""
        try:
            connection, _ = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno in _TRANSIENT:
                return False
            if error.errno == errno.EINVAL:  # another OS process that shares the socket has shut it down
                self.close()
                return False
            # No traceback: it adds nothing, and fills the disk.
            self._log.error(
                "cannot accept connections on %s: %s; trying again in %g s%s",
                _name(sock),
                error.strerror,
                PAUSE,
                ": raise ulimit -n, or allow fewer connections" if error.errno in _EXHAUSTED else "",
            )
            self._pause(PAUSE, self._resume)
            return False
        connection.setblocking(False)  # noqa: FBT003 - its only argument
        files = open_files_limit()
        self._scarce = connection.fileno() >= files - reserved_descriptors(files)
        self._accepted(connection)
        return True

    def close(self) -> None:
        """Stop accepting, and close the listening sockets; accepted connections stay open. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._resumption is not None:
            self._resumption.cancel()
            self._resumption = None
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each.fileno())
            each.close()


class ProtocolStarter:
    """The callback of an `Acceptor` that makes a transport and a protocol for each accepted socket."""

    def __init__(self, make: Callable[[], asyncio.BaseProtocol], log: logging.Logger) -> None:
        """`make` creates the protocol of a connection."""
        self._make = make
        self._log = log
        self._starting: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many accepted connections have no protocol yet."""
        return len(self._starting)

    def __call__(self, connection: socket.socket) -> None:
        """Start the protocol of a connection."""
        task = asyncio.get_running_loop().create_task(self._start(connection))
        self._starting.add(task)
        task.add_done_callback(partial(self._started, connection))

    def _started(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if task.cancelled():  # by the end of the loop, perhaps before it ran, so that no transport closes the socket
            connection.close()

    async def _start(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:  # the peer has gone already
            connection.close()
        except Exception:  # noqa: BLE001 - an error of one connection must not stop the listener
            self._log.exception("the protocol of a connection could not be started")
            connection.close()


def serve(make: Callable[[], asyncio.BaseProtocol], sockets: Sequence[socket.socket], log: logging.Logger) -> Acceptor:
    """As `loop.create_server` and `create_unix_server`, for listening sockets: start a protocol for each connection."""
    return Acceptor(sockets, ProtocolStarter(make, log), log)


def stream_protocol(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], limit: int = 1 << 16
) -> Callable[[], asyncio.StreamReaderProtocol]:
    """The protocol factory that `asyncio.start_server` makes of its callback, which gets a reader and a writer."""
    return partial(_stream_protocol, handler, limit)


def _stream_protocol(handler: Callable[..., Awaitable[None]], limit: int) -> asyncio.StreamReaderProtocol:
    loop = asyncio.get_running_loop()
    return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit, loop), handler, loop)


def unix_socket(path: str, backlog: int = BACKLOG) -> socket.socket:
    """A socket that listens at a path, or at an abstract name (which begins with NUL). Raises `OSError`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    return _listening(sock, path, backlog)


async def tcp_sockets(host: str, port: int, backlog: int = BACKLOG) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host whose address family the system supports. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    raise
                refused = error  # a system without IPv6 may still list ::1 for localhost
                continue
            sockets.append(_listening(sock, address, backlog))
    except BaseException:
        for each in sockets:
            each.close()
        raise
    if refused is not None and not sockets:
        raise refused
    return sockets


def _listening(sock: socket.socket, address: str | tuple[object, ...], backlog: int) -> socket.socket:
    try:
        if os.name == "posix" and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)  # noqa: FBT003 - its only argument
    except BaseException:
        sock.close()
        raise
    return sock


def _name(sock: socket.socket) -> str:
    address: tuple[str, int] | str | bytes = sock.getsockname()
    if not isinstance(address, tuple):
        return repr(address)  # a path, or an abstract name as bytes
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
