"""The table of a listener's open connections, of all protocols: their limits, and how they end together.

It is plain state of the `HttpListener` process, used by connections in the same loop; it dies with the listener. Addresses as limits count
them, trusted proxies and socket options are here too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from greenroom.errors import ConfigError
from greenroom.supervision.acceptor import connection_limit, open_files_limit, reserved_descriptors
from greenroom.supervision.kernel.process_lookup import node_of

from .access_log import log_refusal

if TYPE_CHECKING:
    from asyncio import BaseTransport
    from collections.abc import Callable, Sequence

    from .asgi import App
    from .http_config import HttpConfig
    from .http_engine import HttpEngine
    from .interfaces import Peer

log: Final = logging.getLogger("greenroom.http")

CUT_GRACE: Final = 0.2
"""Seconds that a cut connection may take to close before its tasks are cancelled; then as many again."""
_MINUTE: Final = 60.0
SHARES_PER_ADDRESS: Final = 4
"""By default one address may have one in so many of the connections."""
SMALLEST_SHARE: Final = 8
"""But at least this many: one client needs two or three, for its calls and its stream."""


def _descriptor(transport: Any) -> int:
    """The connection's descriptor. POSIX assigns the lowest free number, so at least that many descriptors are in use."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


class ClosableConnection(Protocol):
    """One connection, as the table sees it. It calls `remove` when it has fully ended."""

    def close_when_idle(self) -> None:
        """Close once the running request is answered; at once if none is running."""

    def cut(self) -> None:
        """Close now, whatever is running."""

    def cancel_tasks(self) -> None:
        """Cancel the tasks of a connection that was cut and has not ended."""


def _no_engine(method: str, path: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """The `engine_for` of an application that is no endpoint: everything is served by ASGI."""


def _call_directly(step: Callable[[], object]) -> None:
    step()


class OpenConnections:
    """All open connections of one listener."""

    def __init__(self, app: App, config: HttpConfig) -> None:
        self.app = app
        # Only the class's own `engine_for` counts: an application that wraps or extends an endpoint must see each request first.
        direct: Any = app if "engine_for" in vars(type(app)) else None
        self.engine_for: Callable[[str, str, Sequence[tuple[bytes, bytes]]], HttpEngine | None] = (
            _no_engine if direct is None else direct.engine_for
        )
        """The engine for a method, path and headers, where the request needs no ASGI in between."""
        self.config = config
        self.loop = asyncio.get_running_loop()
        node = node_of(self.loop)
        self.serve: Callable[[Callable[[], object]], None] = _call_directly if node is None else node.serve
        """Runs a connection's input handler, and at once the processes that it makes runnable (`Node.serve`).

        The alternative, a turn of the loop for each step, cost a call several turns.
        """
        self.open: dict[ClosableConnection, str | None] = {}
        """Each connection and the source address it counts for; None for a trusted proxy's."""
        self.ending = False
        self._proxies = TrustedProxies(config.trusted_proxies)
        self._of_source: dict[str, int] = {}
        self._empty = asyncio.Event()
        self._warned_at: dict[str, float] = {}

    def source_of(self, transport: Any) -> str | None:
        """The source that a connection counts for: its address, or its /64 for IPv6; None for trusted proxies and without an address."""
        peer: tuple[str, int] | str | None = transport.get_extra_info("peername")
        if not isinstance(peer, tuple) or peer[0] in self._proxies:
            return None
        return source_of(peer[0])

    def has_room(self, transport: Any) -> bool:
        """Whether this connection may be added to the table."""
        if self.ending:
            return False
        files = open_files_limit()
        most = min(self.config.max_connections, connection_limit(files))
        count = len(self.open)
        if count >= most:
            if most == self.config.max_connections:
                self._refuse("there are %d connections, which is all that max_connections allows", count)
            else:
                self._refuse("there are %d connections, which is all that the limit of open files, %d, leaves room for: raise ulimit -n", count, files)  # fmt: skip
            return False
        if _descriptor(transport) >= files - reserved_descriptors(files):
            self._refuse("a connection is refused: the process has %d files open, and may have %d: raise ulimit -n", _descriptor(transport), files)  # fmt: skip
            return False
        source = self.source_of(transport)
        share = min(most, self.config.max_connections_per_address or max(SMALLEST_SHARE, most // SHARES_PER_ADDRESS))
        if source is not None and (own := self._of_source.get(source, 0)) >= share:
            self._refuse("%s has %d connections, which is one address's share (max_connections_per_address)", source, own)  # fmt: skip
            return False
        return True

    def _refuse(self, text: str, *values: object) -> None:
        log_refusal(text % values, status=503)
        now = self.loop.time()
        if now - self._warned_at.get(text, -_MINUTE) >= _MINUTE:
            self._warned_at[text] = now
            log.warning(text, *values)

    def add(self, connection: ClosableConnection, transport: Any) -> None:
        """Add an open connection."""
        source = self.open[connection] = self.source_of(transport)
        if source is not None:
            self._of_source[source] = self._of_source.get(source, 0) + 1
        self._empty.clear()

    def remove(self, connection: ClosableConnection) -> None:
        """Remove a connection that has ended; a no-op when repeated."""
        source = self.open.pop(connection, None)
        if source is not None:
            self._of_source[source] -= 1
            if not self._of_source[source]:
                del self._of_source[source]
        if not self.open:
            self._empty.set()

    async def drain(self, grace: float, end_calls: Callable[[], bool] | None = None) -> None:
        """Close idle connections, let running requests finish for `grace` seconds, then cut the rest.

        `end_calls` answers the running calls with an error before that, and returns whether there were any.
        """
        self.ending = True
        for connection in tuple(self.open):
            connection.close_when_idle()
        if not await self._wait_empty(grace):
            if end_calls is not None and end_calls():
                await self._wait_empty(CUT_GRACE)
            self.cut()
            if not await self._wait_empty(CUT_GRACE):
                for connection in tuple(self.open):
                    connection.cancel_tasks()
                await self._wait_empty(CUT_GRACE)

    def cut(self) -> None:
        """Cut all connections."""
        self.ending = True
        for connection in tuple(self.open):
            connection.cut()

    async def _wait_empty(self, seconds: float) -> bool:
        if not self.open:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self.open


# --- Source addresses, as limits count them: by address over all ports, and by /64 for IPv6.
# A customer is given a whole /64, so counting single IPv6 addresses would bound nothing. A trusted proxy's address stands for all its
# clients and is not counted; unless configured otherwise, trusted proxies are the loopback addresses, from which a proxy on the same
# machine connects.

if TYPE_CHECKING:
    Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
    Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_IPV6_PREFIX: Final = 64
_HOPS: Final = 16
"""How many addresses of `X-Forwarded-For` are examined."""


@lru_cache(maxsize=1024)
def address_of(host: str) -> Address | None:
    """Parse an address; an IPv4-mapped IPv6 address becomes IPv4. None for a name or a path."""
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


@lru_cache(maxsize=1024)
def source_of(host: str) -> str:
    """The source a host counts as: its IPv4 address, its IPv6 /64, or the text itself for anything else."""
    found = address_of(host)
    if found is None:
        return host
    return str(ipaddress.ip_network((int(found), _IPV6_PREFIX), strict=False)) if found.version == 6 else str(found)  # noqa: PLR2004 - the version's name


def host_in(address: str) -> str:
    """The host of `host:port`; a text without a colon is a host already. An IPv6 address must come with its port."""
    return address.rpartition(":")[0] or address


class TrustedProxies:
    """Addresses whose connections are not counted, since each of them brings many clients."""

    __slots__ = ("_known", "_networks")

    def __init__(self, listed: Sequence[str] | None = None) -> None:
        """`listed` are addresses and networks; None means the loopback addresses. Raises `ConfigError` for anything else."""
        self._networks: tuple[Network, ...] | None = (
            None if listed is None else tuple(_network(each) for each in listed)
        )
        self._known = lru_cache(maxsize=1024)(self._look_up)

    def __contains__(self, host: str) -> bool:
        return self._known(host)

    def client_in(self, forwarded: str) -> str:
        """The client's address in `X-Forwarded-For`: the last one that is not a trusted proxy's. Empty if there is none.

        Entries before it came from the client and may be forged. Without a configured list of proxies the header is ignored, since any
        program on this machine could forge it.
        """
        if self._networks is None:
            return ""
        for each in reversed(forwarded.rsplit(",", _HOPS)[-_HOPS:]):
            text = each.strip()
            found = address_of(text.partition(":")[0] if text.count(":") == 1 else text)
            if found is None:
                break
            if str(found) not in self:
                return str(found)
        return ""

    def _look_up(self, host: str) -> bool:
        found = address_of(host)
        if found is None:
            return False
        if self._networks is None:
            return found.is_loopback
        return any(found in each for each in self._networks)


_LOOPBACK: Final = TrustedProxies()


def is_proxied(peer: Peer) -> bool:
    """Whether the peer's address is a trusted proxy's, which brings many clients."""
    return host_in(peer.address) in _LOOPBACK if peer.proxied is None else peer.proxied


def _network(text: str) -> Network:
    try:
        found = ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"trusted_proxies must have addresses and networks, as 192.0.2.7 or 10.0.0.0/8, not {text!r}: {error}"
        ) from None
    mapped = found.network_address.ipv4_mapped if isinstance(found, ipaddress.IPv6Network) else None
    if mapped is not None and found.prefixlen >= 96:  # noqa: PLR2004 - where the IPv4 address begins
        return ipaddress.ip_network((int(mapped), found.prefixlen - 96))
    return found


# --- Socket options of an accepted connection: keep-alive, bounded kernel buffers, and what to drop when it is cut.

UNSENT_LIMIT: Final = 16 * 1024
"""How many bytes the kernel buffers for a connection beyond those in flight; for a peer that does not read it would take megabytes."""
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)


def set_socket_options(transport: BaseTransport, config: HttpConfig) -> None:
    """Set the options: small writes are sent at once, and a dead or stalled peer is noticed."""
    seconds = config.write_timeout
    with suppress(OSError):  # the connection is closed already
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # asyncio sets TCP_NODELAY only on sockets whose protocol is IPPROTO_TCP, and an accepted socket reports 0. Without it, a response
        # sent in two writes waits for the peer's delayed acknowledgement, some 40 ms.
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_LIMIT)
        if hasattr(
            socket, "TCP_USER_TIMEOUT"
        ):  # the kernel drops unacknowledged data silently, so our own timeout has to fire first: hence 1.4 times the write timeout
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(seconds * 1400)))
        if hasattr(socket, "TCP_KEEPIDLE"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(config.heartbeat)))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(seconds / 2)))


def discard_unsent(transport: BaseTransport) -> None:
    """Make the kernel drop unsent data on close (SO_LINGER 0).

    Otherwise the kernel keeps sending to a peer that does not read, and that peer never sees the connection end.
    """
    with suppress(OSError):  # it is closed already
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)


def has_socket_error(transport: BaseTransport) -> bool:
    """Whether the kernel knows of an error on the socket. A loop that has paused reading is not told of it."""
    with suppress(OSError):
        raw: socket.socket = transport.get_extra_info("socket")
        return raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
    return True
