"""The door that guests come to: one address, open as long as it is wanted, and nobody else's meanwhile.

An abstract name and a port cannot be taken twice. The file of a unix socket can: whoever binds has to take away what somebody who was killed has
left there, and must not take what somebody answers at. So it is knocked first, and none of ours does so while another one is at it.
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
from typing import TYPE_CHECKING, Final, NamedTuple

from greenroom.errors import ConfigError
from greenroom.supervision.acceptor import serve, tcp_sockets, unix_socket
from greenroom.supervision.cluster.addresses import port_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.supervision.acceptor import Acceptor
    from greenroom.supervision.cluster.link import Link

log: Final = logging.getLogger("greenroom.guests")
_BACKLOG: Final = 100
_TRIES: Final = 100
_WAIT: Final = 0.02
"""How long to wait for others who open a path in the same folder just now, in seconds, and how often."""


class _File(NamedTuple):
    """A socket's file, and which one it is: another may have its name by now."""

    path: str
    device: int
    inode: int


class Door:
    """One, for its whole life."""

    def __init__(self) -> None:
        """It is closed."""
        self._acceptor: Acceptor | None = None
        self._file: _File | None = None

    async def open(self, make: Callable[[], Link], address: str) -> str:
        """Listen. The address, with the port that it has; raises `OSError`, with `EADDRINUSE` when it is somebody else's."""
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
                found = os.lstat(where)
                self._file = _File(where, found.st_dev, found.st_ino)
                self._acceptor = serve(make, [sock], log)
            except BaseException:
                self.close()
                sock.close()
                raise
        return address

    def close(self) -> None:
        """Nobody comes any more. Again is nothing."""
        file, self._file = self._file, None
        if file is not None:  # before it stops listening: as long as it answers the name is nobody else's
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(file.path)
                if (found.st_dev, found.st_ino) == file[1:]:
                    os.unlink(file.path)  # noqa: PTH108 - as above
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
        os.chmod(path, 0o600)  # noqa: PTH101 - as above; nobody can connect before it listens
        sock.listen(_BACKLOG)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return sock


def _answers(path: str) -> bool:
    """Whether it is somebody's; who is too busy to answer is there as well."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(0)
        return knocking.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)
