"""Guests of a host and of a server: what `admit_guests` adds to their trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.actors.federation.federation import Federation
from greenroom.actors.federation.specs import UpstreamSpec
from greenroom.actors.guest.answers import Asked
from greenroom.actors.guest.reception import Reception
from greenroom.actors.tree import Tree
from greenroom.supervision import child
from greenroom.transports.client.memory import MemoryRoute

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from greenroom.actors.company import Company
    from greenroom.supervision import ChildSpec

    from .host import Host

_INTENSITY, _PERIOD = 5, 10.0


def admitted_to_host(
    host: Host, key: bytes | str | os.PathLike[str], address: str | None, most_guests: int
) -> Reception:
    """Where guests of a host are let in: what it does not let its own program call is not for them either."""
    federation = host.federation
    return Reception(
        Asked(federation, host.agent),
        key,
        address=address,
        most_guests=most_guests,
        name=f"guests-{federation.key.name}",
    )


def with_guests(federation: Federation, receptions: Sequence[Reception]) -> ChildSpec[Any]:
    """A federation and those who let guests in to it: these are started anew with it, and it is not with them."""
    children = [federation.child_spec(), *(each.child_spec() for each in receptions)]
    tree = child(Tree, children, intensity=_INTENSITY, period=_PERIOD, strategy="rest_for_one")
    return tree.but(id=f"{federation.key} with guests", name=federation.name("host"))


def admitted_to_company(
    company: Company, key: bytes | str | os.PathLike[str], address: str | None, most_guests: int
) -> tuple[Reception, ChildSpec[Any]]:
    """Where guests of a server are let in, and the child for that: the company is asked by a client of its own."""
    name = company.settings.name
    federation = Federation({name: UpstreamSpec(MemoryRoute(company, description=name))}, name=f"guests of {name}")
    reception = Reception(Asked(federation), key, address=address, most_guests=most_guests, name=f"guests-{name}")
    return reception, with_guests(federation, [reception])
