"""Where an HTTP server is: a URL, taken apart once, how much of it may be shown, which addresses are allowed, and a socket to it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from base64 import b64encode
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

from greenroom.errors import ConfigError

from .errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PORTS: Final = {"http": 80, "https": 443}
_LONGEST: Final = 8192


@dataclass(frozen=True, slots=True)
class Address:
    """One URL. Its repr, and `description`, have neither the user nor the query in it."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    """Path and query."""
    path: str = field(repr=False)
    login: str = field(default="", repr=False)
    """What `Authorization` says for the user and the password that stood in the URL, if any."""
    veiled: bool = field(default=False, repr=False)
    """Whether the path may be a secret as well, as where a variable stands for some of it."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises `ConfigError` for what is no URL of HTTP; the message does not repeat it."""
        if len(url) > _LONGEST or not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("a URL has neither spaces nor line breaks, and other characters only percent-encoded")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # whose message repeats a part of it, and that may be one of a password
            raise ConfigError("this is no URL: its host or its port is none") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ConfigError("a server's URL begins with http:// or https://, and names a host")
        login = ""
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            login = f"Basic {b64encode(secret).decode()}"
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        return cls(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port, target, path, login)

    @property
    def secure(self) -> bool:
        """Whether it is spoken to within TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """What `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """All of it, but for the user."""
        return f"{self.origin}{self.target}"

    @property
    def description(self) -> str:
        """What people may see."""
        return f"{self.origin}{'/…' if self.veiled else self.path}"

    def beside(self, location: str) -> Address | None:
        """Where a reference leads that the server gave, if that is the same origin: no other server is told anything."""
        if not location.isprintable():  # some of which is passed over when URLs are joined
            return None
        try:
            found = Address.of(urljoin(self.url, location))
        except ValueError:  # which a `ConfigError` is as well
            return None
        if found.origin != self.origin or found.login:
            return None
        return Address(found.scheme, found.host, found.port, found.target, found.path, self.login, self.veiled)


# --- Connections to hosts that a peer has named: the addresses behind a URL are looked at before one is made, and are then used as they are.
# A server that names a URL could name one inside of our own network. So a name is resolved once, every address that it has is looked at (also the
# IPv4 address that an IPv6 one carries in itself), and the connection goes to one of those, not to what the name means a moment later.

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in texts)


# What is public is decided by tables of our own, and not by `is_global`: which ranges that knows depends on the patch level of Python, and it takes for
# public what is not yet in a registry. They are IANA's special-purpose registries of 2025-10-09, which a test holds them against.
_NOT_PUBLIC_4: Final = _networks(
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
)
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""The one part of IPv6 from which global addresses are given out: whatever is made of the rest later is not public until this says so."""
_NOT_PUBLIC_6: Final = _networks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
_PRIVATE: Final = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""How an IPv4 address is reached from a network that has only IPv6: the last 32 bits say which."""
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LAST_32: Final = 0xFFFFFFFF


class Forbidden(TransportError):
    """A peer named a host at an address that is not public, or a URL without TLS."""

    reason = "forbidden_address"


@dataclass(frozen=True, slots=True)
class Guard:
    """What is allowed besides public addresses over https."""

    loopback: bool = False
    """This very machine, also over plain http: for servers that are on it themselves."""
    private: bool = False
    """Private networks (RFC 1918, RFC 4193): for an organisation's own identity provider."""

    def check_scheme(self, address: Address) -> None:
        """Raises `Forbidden` for what would travel in the open."""
        if not address.secure and not (self.loopback and is_local(address.host)):
            raise Forbidden(f"{address.origin} is not https: nothing secret is sent there")

    def check(self, host: str, ip: str) -> None:
        """Raises `Forbidden` for an address that is none of the allowed ones."""
        for each in carried(ipaddress.ip_address(ip.partition("%")[0])):
            if each.is_loopback:
                fine = self.loopback and is_local(host)
            else:
                fine = is_public(each) or (self.private and any(each in network for network in _PRIVATE))
            if not fine:
                raise Forbidden(
                    f"{host} leads to {ip}, which is not public: no connection is made to it on a server's word"
                )


def is_local(host: str) -> bool:
    """Whether a host is this machine by its name, or by its address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_public(ip: _Ip) -> bool:
    """Whether an address is one that any host on the Internet could have; what it carries in itself is not looked at."""
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _NOT_PUBLIC_4)
    return ip in _NAT64 or (ip in _UNICAST and not any(ip in network for network in _NOT_PUBLIC_6))


def carried(ip: _Ip) -> list[_Ip]:
    """The address, and the IPv4 address that it stands for, or to which it is tunnelled. A mapped one (`::ffff:1.2.3.4`) is that and nothing else.

    Forms that are never public are not taken apart: 6to4, Teredo, IPv4-compatible and IPv4-translated ones, NAT64 with a prefix for local use.
    """
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    if ip.ipv4_mapped is not None:
        return [ip.ipv4_mapped]
    if ip in _NAT64 or (int(ip) >> 32) & _LAST_32 in _ISATAP:
        return [ip, ipaddress.IPv4Address(int(ip) & _LAST_32)]
    return [ip]


# --- A socket to a host: its addresses tried one after another, each with a head start before the next (Happy Eyeballs, RFC 8305).
# asyncio can do this as well, but forgets a socket now and then when it is cancelled in the moment of success. Here all that were made are
# in one list, and all but the one that is used are closed, however it ends.

HEAD_START: Final = 0.25
"""Seconds that an address has before the next is tried as well."""
_Target: TypeAlias = "tuple[int, tuple[str, int] | tuple[str, int, int, int]]"


async def dial(host: str, port: int, guard: Guard | None = None) -> socket.socket:
    """A connection to one of its addresses, each of which the guard has looked at.

    Raises `Forbidden`, or `OSError` when there is no answer at any of them.
    """
    loop = asyncio.get_running_loop()
    targets = await resolve(host, port, guard)
    made: list[socket.socket] = []
    try:
        chosen = await (_attempt(loop, targets[0], made) if len(targets) == 1 else _race(loop, targets, made))
        made.remove(chosen)
    finally:
        for each in made:
            each.close()
    return chosen


async def resolve(host: str, port: int, guard: Guard | None = None) -> list[_Target]:
    """Its addresses, the families taking turns. Raises `Forbidden`, or `OSError` when the name means nothing."""
    targets = await _targets(host, port)
    if guard is not None:
        for _, where in targets:
            guard.check(host, where[0])
    return targets


async def _targets(host: str, port: int) -> list[_Target]:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, (host, port))]  # noqa: PLR2004 - IPv4
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[_Target]] = {}
    for family, _, _, _, where in found:
        families.setdefault(family, []).append((family, where))  # type: ignore[arg-type]  # of a family that is built without, a tuple of bytes
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


async def _attempt(loop: asyncio.AbstractEventLoop, target: _Target, made: list[socket.socket]) -> socket.socket:
    family, where = target
    new = socket.socket(family, socket.SOCK_STREAM)
    made.append(new)
    new.setblocking(False)  # noqa: FBT003 - its only argument
    await loop.sock_connect(new, where)
    return new


async def _race(
    loop: asyncio.AbstractEventLoop, targets: Sequence[_Target], made: list[socket.socket]
) -> socket.socket:
    running: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError(f"no address of {len(targets)} answers")
    left = list(targets)
    try:
        while left or running:
            if left:
                running.add(asyncio.create_task(_attempt(loop, left.pop(0), made)))
            done, running = await asyncio.wait(
                running, timeout=HEAD_START if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    return each.result()
                failure = error
        raise failure
    finally:
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)
