"""Who is behind a peer, as far as that can be told: what sessions are counted by, so that nobody takes all of them.

With authentication that is the principal. Without, the address has to stand for it: all ports of it, and the whole network that an
IPv6 address is drawn from. Those on this machine are told apart by nothing, and are not counted: they may be anybody, come by a proxy.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.transports.seam import Peer

    Caller: TypeAlias = tuple[str, Hashable]

_NETWORK: Final = 64
"""How many bits of an IPv6 address are given to one customer; the rest is theirs to choose."""


def caller_of(peer: Peer) -> Caller | None:
    """Whose sessions this peer's are counted among; None for nobody's in particular."""
    if peer.principal is not None:
        return ("principal", peer.principal)
    where = _network(peer.address.rpartition(":")[0])
    return None if where is None else ("address", where)


@lru_cache(maxsize=1024)
def _network(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None  # a pipe, a socket of this machine's own: there is no address
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return None if address.is_loopback else str(ipaddress.ip_network((int(address), _NETWORK), strict=False))
        address = address.ipv4_mapped
    return None if address.is_loopback else str(address)
