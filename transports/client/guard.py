"""Where we may be sent by somebody else's word: the addresses behind a URL are looked at before anybody connects, and are then used as they are.

A server that names a URL could name one inside of our own network. So a name is resolved once, every address that it has is looked at (also the
IPv4 address that an IPv6 one carries in itself), and the connection goes to one of those, not to what the name means a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from .errors import TransportError

if TYPE_CHECKING:
    from .http_address import Address

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_TRANSLATED: Final = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
"""NAT64: the last 32 bits are an IPv4 address."""
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
_LAST_32: Final = 0xFFFFFFFF


class Forbidden(TransportError):
    """Nobody connects there on a stranger's word."""

    reason = "forbidden_address"


@dataclass(frozen=True, slots=True)
class Guard:
    """What is allowed besides public addresses over https."""

    loopback: bool = False
    """This very machine, also over plain http: for servers that are on it themselves."""
    private: bool = False
    """Networks that are not public: for an organisation's own identity provider."""

    def check_scheme(self, address: Address) -> None:
        """Raises `Forbidden` for what would travel in the open."""
        if not address.secure and not (self.loopback and is_local(address.host)):
            raise Forbidden(f"{address.origin} is not https: nothing secret is sent there")

    def check(self, host: str, ip: str) -> None:
        """Raises `Forbidden` for an address that is none of the allowed ones."""
        for each in carried(ipaddress.ip_address(ip.partition("%")[0])):
            if each.is_loopback and self.loopback and is_local(host):
                continue
            if each.is_global and not each.is_multicast:
                continue
            if self.private and each.is_private and not (each.is_loopback or each.is_link_local or each.is_unspecified):
                continue
            raise Forbidden(f"{host} leads to {ip}, which is not public: nobody is sent there on a server's word")

    async def resolve(self, address: Address) -> list[tuple[socket.AddressFamily, str]]:
        """The addresses to connect to, each looked at. Raises `Forbidden`, or `OSError` when the name means nothing."""
        self.check_scheme(address)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        ips: list[tuple[socket.AddressFamily, str]] = list(
            dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found)
        )
        for _, ip in ips:
            self.check(address.host, ip)
        return ips


def is_local(host: str) -> bool:
    """Whether a host is this machine by its name, or by its address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def carried(ip: _Ip) -> list[_Ip]:
    """The address, and those that it stands for."""
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    inner: list[ipaddress.IPv4Address | None] = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if any(ip in network for network in _TRANSLATED) or (ip in _COMPATIBLE and int(ip) > 1):
        inner.append(ipaddress.IPv4Address(int(ip) & _LAST_32))
    found = [each for each in inner if each is not None]
    return list(found) if ip.ipv4_mapped is not None else [ip, *found]
