"""Which principal a peer is, as far as that can be told: what shared bounds are counted by, so that one peer cannot take all of them.

Without authentication the address stands for the principal. The clients of a trusted proxy, the loopback addresses unless the
settings say otherwise, cannot be told apart by it: nothing is counted for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from greenroom.transports.sources import address_of, host_in, is_proxied, source_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.transports.seam import Peer

    from .jobs import Job

    Caller: TypeAlias = tuple[str, Hashable]


def caller_of(peer: Peer) -> Caller | None:
    """The principal, or the address; None for a peer that can be told from no other."""
    if peer.principal is not None:
        return ("principal", peer.principal)
    host = host_in(peer.address)
    if address_of(host) is None or is_proxied(peer):
        return None
    return ("address", source_of(host))


def share_of(peer: Peer, session: Hashable) -> Hashable:
    """What a call's part of a shared bound is counted by: as `caller_of` says, else the session."""
    return caller_of(peer) or ("session", session)


def whose(job: Job) -> Hashable:
    """The same for a job; of a request that stands alone it is its own."""
    return share_of(job.facts.peer, job.facts.session_id or job.session)
