"""Addresses of nodes (`unix:@NAME` in the abstract namespace, `unix:PATH`, `tcp:HOST:PORT`), their sockets, and the names of functions and classes."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from greenroom.supervision.acceptor import serve, tcp_sockets, unix_socket
from greenroom.supervision.kernel.errors import ActorError

from .framing import LinkRefused

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from greenroom.supervision.acceptor import Acceptor

    from .link import Link

log: Final = logging.getLogger("greenroom.supervision")

_PORTS: Final = 65535


def parse_port(text: str, *, least: int = 1) -> int | None:
    """The number of a port, or None. Digits that `int` accepts and a socket does not are refused."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(_PORTS)):
        return None
    number = int(text)
    return number if least <= number <= _PORTS else None


def parse_address(address: str) -> str | tuple[str, int]:
    """A path, which begins with NUL in the abstract namespace, or host and port. Raises `LinkRefused`."""
    kind, _, where = address.partition(":")
    if kind == "unix" and where:
        return f"\0{where[1:]}" if where.startswith("@") else where
    host, _, port = where.rpartition(":")
    number = parse_port(port)
    if kind != "tcp" or not host or number is None:
        raise LinkRefused(
            f"{address!r} is not an address of a node: there is no address but unix:PATH, unix:@NAME and tcp:HOST:PORT"
        )
    return host.strip("[]"), number


async def dial(loop: asyncio.AbstractEventLoop, make: Callable[[], Link], address: str) -> Link:
    """Connect to an address. Raises `LinkRefused` for an invalid one, and `OSError` when nothing listens there."""
    where = parse_address(address)
    if isinstance(where, str):
        return (await loop.create_unix_connection(make, where))[1]
    try:
        return (await loop.create_connection(make, *where))[1]
    except ValueError as error:  # a name that cannot be a host's
        raise LinkRefused(f"not an address of a node: {error}") from error


class NodeListener:
    """The listening sockets of a node: a unix socket of its own user's, and TCP on a host if one is given."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self._acceptors: list[Acceptor] = []
        self._paths: list[str] = []

    async def open(self, make: Callable[[], Link], tcp: str | None) -> None:
        """Listen."""
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
        """Stop listening."""
        for acceptor in self._acceptors:
            acceptor.close()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - as above
        self._acceptors, self._paths = [], []


def _socket_path() -> str:
    """An address in the abstract namespace, which leaves no file behind; elsewhere a file."""
    name = f"greenroom-{secrets.token_hex(16)}"
    if sys.platform == "linux" and hasattr(socket, "AF_UNIX"):
        return f"\0{name}"
    return os.path.join(tempfile.gettempdir(), name)  # noqa: PTH118 - as above


# --- Functions and classes are sent by name. Both nodes have them in the same module; code is never sent.

_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_found: dict[str, Any] = {}


class CannotTravel(ActorError, TypeError):
    """A value that cannot be sent to another node; the message says which, and why."""


def qualified_name(thing: Any) -> str:
    """`module:qualified.name` of a function or class that is found under it. Raises `CannotTravel`."""
    try:
        known = _names.get(thing)
    except TypeError:  # a class whose metaclass defines __eq__ without __hash__
        known = None
    if known is not None:
        return known
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    written = f"{module}:{name}"
    if "<" in name:
        raise CannotTravel(
            f"{short_repr(thing)} cannot travel to another node: define it at the top of a module, not inside a function"
        )
    try:
        found = _look_up(written)
    except Exception:  # noqa: BLE001 - not found, or whatever the import of its module raises
        found = None
    if found is not thing:
        raise CannotTravel(
            f"{short_repr(thing)} cannot travel to another node: the name {written} leads to something else"
        )
    with contextlib.suppress(TypeError):
        _names[thing] = written
    return written


def short_repr(value: object) -> str:
    """The `repr` for an error message, cut after 200 characters."""
    try:
        text = repr(value)
    except BaseException:  # noqa: BLE001 - whatever a user's __repr__ does
        text = object.__repr__(value)
    return text if len(text) <= 200 else f"{text[:200]}…"  # noqa: PLR2004


def find_by_name(name: str) -> Any:
    """The function or class of that name; its module is imported if need be."""
    found = _found.get(name)
    if found is None:
        found = _found[name] = _look_up(name)
    return found


def _look_up(name: str) -> Any:
    module, _, qualified = name.partition(":")
    found = importlib.import_module(module)
    for step in qualified.split("."):
        found = getattr(found, step)
    return found
