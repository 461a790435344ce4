"""Where connections come from, as limits and guesses are counted: by address, all ports of it, and by /64 for IPv6.

A customer is given a whole /64, so counting single addresses of IPv6 would bound nothing. An address of a trusted proxy stands for all the proxy's
clients and is not counted; unless the settings say otherwise those are the loopback addresses, from which a proxy on the same machine connects.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .seam import Peer

    Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
    Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PREFIX: Final = 64
_HOPS: Final = 16
"""Proxies in a row whose addresses are looked at."""


@lru_cache(maxsize=1024)
def address_of(host: str) -> Address | None:
    """The address that a text is, an IPv4 one also where it is written as IPv6; None for a name or a path."""
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


@lru_cache(maxsize=1024)
def source_of(host: str) -> str:
    """What a host is counted as: its IPv4 address, its IPv6 network, or itself if it is neither."""
    found = address_of(host)
    if found is None:
        return host
    return str(ipaddress.ip_network((int(found), _PREFIX), strict=False)) if found.version == 6 else str(found)  # noqa: PLR2004 - the version's name


def host_in(address: str) -> str:
    """The host of `host:port`; a text without a colon is a host already. An IPv6 address has to come with its port."""
    return address.rpartition(":")[0] or address


class TrustedProxies:
    """Addresses whose connections are not counted, since many clients come by each of them."""

    __slots__ = ("_known", "_networks")

    def __init__(self, listed: Sequence[str] | None = None) -> None:
        """Addresses and networks; None for the loopback addresses. Raises `ConfigError` for what is neither."""
        self._networks: tuple[Network, ...] | None = (
            None if listed is None else tuple(_network(each) for each in listed)
        )
        self._known = lru_cache(maxsize=1024)(self._look_up)

    def __contains__(self, host: str) -> bool:
        return self._known(host)

    def client_in(self, forwarded: str) -> str:
        """The client's address in `X-Forwarded-For`: the last one there that is not a trusted proxy's own. Empty where there is none.

        What stands before it came from the client, and may be anything. Without a list of proxies none of it counts: then any program of this
        machine could write what it likes.
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
    """Whether a peer's address is a trusted proxy's, which brings many clients."""
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
