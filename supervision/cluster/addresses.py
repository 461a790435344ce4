"""Where nodes listen: `unix:@NAME` in the abstract namespace, `unix:PATH`, or `tcp:HOST:PORT`."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from greenroom.supervision.acceptor import serve, tcp_sockets, unix_socket

from .sealing import LinkRefused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from greenroom.supervision.acceptor import Acceptor

    from .link import Link

log: Final = logging.getLogger("greenroom.supervision")

_PORTS: Final = 65535


def port_of(text: str, *, least: int = 1) -> int | None:
    """The number of a port, or None: digits that `int` takes and a socket does not are none."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(_PORTS)):
        return None
    number = int(text)
    return number if least <= number <= _PORTS else None


async def dial(loop: asyncio.AbstractEventLoop, make: Callable[[], Link], address: str) -> Link:
    """Connect to an address. Raises `LinkRefused` when it is none, and `OSError` when nobody is there."""
    kind, _, where = address.partition(":")
    if kind == "unix" and where:
        path = f"\0{where[1:]}" if where.startswith("@") else where
        return (await loop.create_unix_connection(make, path))[1]
    host, _, port = where.rpartition(":")
    number = port_of(port)
    if kind != "tcp" or not host or number is None:
        raise LinkRefused("not an address of a node: it is unix:PATH, unix:@NAME or tcp:HOST:PORT")
    try:
        return (await loop.create_connection(make, host.strip("[]"), number))[1]
    except ValueError as error:  # a name that no host can have
        raise LinkRefused(f"not an address of a node: {error}") from error


class Listening:
    """A node's own sockets: on a unix socket of its own user's, and on a host if one is given."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self.addresses: tuple[str, ...] = ()
        self._acceptors: list[Acceptor] = []
        self._paths: list[str] = []

    async def open(self, make: Callable[[], Link], tcp: str | None) -> None:
        """Listen. From here on somebody may come."""
        path = _socket_path()
        try:
            self._acceptors.append(serve(make, [unix_socket(path)], log))
            found = [f"unix:{path.replace(chr(0), '@')}"]
            if not path.startswith("\0"):
                self._paths.append(path)
                os.chmod(path, 0o600)  # noqa: PTH101 - a path that is a string everywhere else
            if tcp is not None:
                sockets = await tcp_sockets(tcp, 0)
                self._acceptors.append(serve(make, sockets, log))
                host, port = sockets[0].getsockname()[:2]
                found.append(f"tcp:{f'[{host}]' if ':' in host else host}:{port}")
        except BaseException:
            self.close()
            raise
        self.addresses = tuple(found)

    def close(self) -> None:
        """Nobody comes any more."""
        for acceptor in self._acceptors:
            acceptor.close()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - as above
        self._acceptors, self._paths = [], []


def _socket_path() -> str:
    """Where to listen: in the abstract namespace, of which nothing stays behind, or in a file of our own."""
    name = f"greenroom-{secrets.token_hex(16)}"
    if sys.platform == "linux" and hasattr(socket, "AF_UNIX"):
        return f"\0{name}"
    return os.path.join(tempfile.gettempdir(), name)  # noqa: PTH118 - as above
