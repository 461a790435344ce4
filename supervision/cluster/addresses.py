"""Where nodes listen: `unix:@NAME` in the abstract namespace, `unix:PATH`, or `tcp:HOST:PORT`."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from typing import TYPE_CHECKING

from .sealing import LinkRefused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .link import Link


async def dial(loop: asyncio.AbstractEventLoop, make: Callable[[], Link], address: str) -> Link:
    """Connect to an address. Raises `LinkRefused` when it is none, and `OSError` when nobody is there."""
    kind, _, where = address.partition(":")
    if kind == "unix" and where:
        path = f"\0{where[1:]}" if where.startswith("@") else where
        return (await loop.create_unix_connection(make, path))[1]
    host, _, port = where.rpartition(":")
    if kind != "tcp" or not host or not port.isdecimal():
        raise LinkRefused("not an address of a node: it is unix:PATH, unix:@NAME or tcp:HOST:PORT")
    _, link = await loop.create_connection(make, host.strip("[]"), int(port))
    return link


class Listening:
    """A node's own sockets: on a unix socket of its own user's, and on a host if one is given."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self.addresses: tuple[str, ...] = ()
        self._servers: list[asyncio.Server] = []
        self._paths: list[str] = []

    async def open(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Link], tcp: str | None) -> None:
        """Listen. From here on somebody may come."""
        path = _socket_path()
        try:
            self._servers.append(await loop.create_unix_server(make, path))
            found = [f"unix:{path.replace(chr(0), '@')}"]
            if not path.startswith("\0"):
                self._paths.append(path)
                os.chmod(path, 0o600)  # noqa: PTH101 - a path that is a string everywhere else
            if tcp is not None:
                server = await loop.create_server(make, tcp, 0)
                self._servers.append(server)
                host, port = server.sockets[0].getsockname()[:2]
                found.append(f"tcp:{f'[{host}]' if ':' in host else host}:{port}")
        except BaseException:
            self.close()
            raise
        self.addresses = tuple(found)

    def close(self) -> None:
        """Nobody comes any more."""
        for server in self._servers:
            server.close()
        for path in self._paths:
            os.unlink(path)  # noqa: PTH108 - as above
        self._servers, self._paths = [], []


def _socket_path() -> str:
    """Where to listen: in the abstract namespace, of which nothing stays behind, or in a file of our own."""
    name = f"greenroom-{secrets.token_hex(16)}"
    if sys.platform == "linux" and hasattr(socket, "AF_UNIX"):
        return f"\0{name}"
    return os.path.join(tempfile.gettempdir(), name)  # noqa: PTH118 - as above
