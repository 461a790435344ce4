"""Server URLs, the guard for addresses that a server names, and dialling with several addresses."""

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
class ServerUrl:
    """A parsed server URL. Its repr and `description` contain neither user nor query."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    """Path and query."""
    path: str = field(repr=False)
    login: str = field(default="", repr=False)
    """The `Authorization` header for user and password in the URL, if any."""
    path_hidden: bool = field(default=False, repr=False)
    """Whether the path may be a secret, too, as where a variable stands for some of it."""

    @classmethod
    def of(cls, url: str) -> ServerUrl:
        """Raises `ConfigError` for an invalid HTTP URL; the message does not repeat it."""
        if len(url) > _LONGEST or not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("a URL has neither spaces nor line breaks, and other characters only percent-encoded")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # the exception's text repeats a part of the URL, which may be one of a password
            raise ConfigError("invalid URL: its host or its port is invalid") from None
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
        """Whether it is https."""
        return self.scheme == "https"

    @property
    def host_and_port(self) -> str:
        """Host and port, also where the port is the usual one."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """The `Host` header."""
        usual = f":{_PORTS[self.scheme]}"
        return self.host_and_port.removesuffix(usual)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return f"{self.origin}{self.target}"

    @property
    def description(self) -> str:
        """The URL as people may see it."""
        return f"{self.origin}{'/…' if self.path_hidden else self.path}"

    def resolve_reference(self, location: str) -> ServerUrl | None:
        """Resolve a reference from the server; None if it leads to another origin, which is never contacted."""
        if not location.isprintable():  # urljoin drops some unprintable characters
            return None
        try:
            found = ServerUrl.of(urljoin(self.url, location))
        except ValueError:  # ConfigError is a ValueError, too
            return None
        if found.origin != self.origin or found.login:
            return None
        return ServerUrl(found.scheme, found.host, found.port, found.target, found.path, self.login, self.path_hidden)


# --- Connections to hosts that a server has named: every address behind the URL is checked before connecting, and then used as it is.
# A server could name a URL inside our own network (SSRF). So a name is resolved once, each of its addresses is checked (including an IPv4
# address embedded in an IPv6 one), and the connection goes to one of those, not to what the name resolves to a moment later.

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in texts)


# Public addresses are decided by our own tables, not by `is_global`: its ranges depend on Python's patch level, and it counts as public
# what is not registered yet. The tables are IANA's special-purpose registries of 2025-10-09, against which a test checks them.
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
"""The only part of IPv6 that global addresses are assigned from; later assignments are not public until this says so."""
_NOT_PUBLIC_6: Final = _networks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
_PRIVATE: Final = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""NAT64: how an IPv6-only network reaches IPv4; the last 32 bits are the IPv4 address."""
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LAST_32: Final = 0xFFFFFFFF


class ForbiddenAddress(TransportError):
    """A server named a host whose address is not public, or a URL without TLS."""

    reason = "forbidden_address"


@dataclass(frozen=True, slots=True)
class Guard:
    """Which addresses may be contacted on a server's word, besides public ones over https."""

    loopback: bool = False
    """This machine, also over plain http: for servers that run on it themselves."""
    private: bool = False
    """Private networks (RFC 1918, RFC 4193), such as an organisation's own identity provider."""

    def check_scheme(self, address: ServerUrl) -> None:
        """Raises `ForbiddenAddress` for a URL that would send secrets unencrypted."""
        if not address.secure and not (self.loopback and is_local(address.host)):
            raise ForbiddenAddress(f"{address.origin} is not https: nothing secret is sent there")

    def check(self, host: str, ip: str) -> None:
        """Raises `ForbiddenAddress` for an address that is not allowed."""
        for each in embedded_addresses(ipaddress.ip_address(ip.partition("%")[0])):
            if each.is_loopback:
                fine = self.loopback and is_local(host)
            else:
                fine = is_public(each) or (self.private and any(each in network for network in _PRIVATE))
            if not fine:
                raise ForbiddenAddress(
                    f"{host} leads to {ip}, which is not public: it is not contacted on a server's word"
                )


def is_local(host: str) -> bool:
    """Whether a host is this machine, by name or by address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_public(ip: _Ip) -> bool:
    """Whether an address is publicly routable; embedded addresses are not considered."""
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in _NOT_PUBLIC_4)
    return ip in _NAT64 or (ip in _UNICAST and not any(ip in network for network in _NOT_PUBLIC_6))


def embedded_addresses(ip: _Ip) -> list[_Ip]:
    """The address, and the IPv4 address that it embeds or tunnels to. A mapped one (`::ffff:1.2.3.4`) counts as IPv4 only.

    Forms that are never public are not decomposed: 6to4, Teredo, IPv4-compatible and IPv4-translated addresses, and NAT64 with a local
    prefix.
    """
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    if ip.ipv4_mapped is not None:
        return [ip.ipv4_mapped]
    if ip in _NAT64 or (int(ip) >> 32) & _LAST_32 in _ISATAP:
        return [ip, ipaddress.IPv4Address(int(ip) & _LAST_32)]
    return [ip]


# --- Dialling: addresses are tried one after another, each with a head start before the next (Happy Eyeballs, RFC 8305).
# asyncio implements this, too, but can leak a socket when it is cancelled at the moment of success. Here all sockets are in one list, and
# all but the one in use are closed in any case.

HEAD_START: Final = 0.25
"""Seconds after which the next address is tried as well."""
_Target: TypeAlias = "tuple[int, tuple[str, int] | tuple[str, int, int, int]]"


async def dial(host: str, port: int, guard: Guard | None = None) -> socket.socket:
    """Connect to one of the host's addresses, each of which the guard has checked.

    Raises `ForbiddenAddress`, or `OSError` when no address answers.
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
    """The host's addresses, alternating between address families. Raises `ForbiddenAddress`, or `OSError` for an unknown name."""
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
    failure: BaseException = OSError(f"none of {len(targets)} addresses accepts a connection")
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
