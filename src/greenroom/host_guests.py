"""What stands beside a federation in the tree of its host: guests (Thespian programs), also those of a server, what follows configuration files, and the admin listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.actors.federation.federation import Federation
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.actors.output.output_limits import OutputLimiter, with_spill_cleanup
from greenroom.actors.thespian_guests.guest_listener import GuestListener
from greenroom.actors.thespian_guests.guest_session import GuestServices
from greenroom.supervision import child
from greenroom.transports.client.memory_route import MemoryRoute

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from greenroom.actors.company import Company
    from greenroom.actors.federation.tool_router import ToolRouter
    from greenroom.config.config_sync import ConfigSync
    from greenroom.supervision import ChildSpec

    from .observe.admin_settings import Admin

_INTENSITY, _PERIOD = 5, 10.0


def guest_listener(
    federation: Federation,
    router: ToolRouter,
    key: bytes | str | os.PathLike[str],
    address: str | None,
    most_guests: int,
) -> GuestListener:
    """The listener for guests of a host."""
    services, name = GuestServices(federation, router), f"guests-{federation.key.name}"
    return GuestListener(services, key, address=address, most_guests=most_guests, name=name)


def with_guests(federation: Federation, listeners: Sequence[GuestListener]) -> ChildSpec[Any]:
    """A supervisor of a federation and the listeners that admit guests to it: they are restarted with the federation, but not the federation with them."""
    children = [federation.child_spec(), *(each.child_spec() for each in listeners)]
    tree = child(ExclusiveSupervisor, children, intensity=_INTENSITY, period=_PERIOD, strategy="rest_for_one")
    return tree.but(id=f"{federation.key} with guests", name=federation.name("host"))


def admitted_to_company(
    company: Company, key: bytes | str | os.PathLike[str], address: str | None, most_guests: int
) -> tuple[GuestListener, ChildSpec[Any]]:
    """The listener for guests of a server, and its child spec. It reaches the company by a client of its own."""
    name = company.settings.name
    federation = Federation({name: UpstreamSpec(MemoryRoute(company, description=name))}, name=f"guests of {name}")
    listener = GuestListener(
        GuestServices(federation), key, address=address, most_guests=most_guests, name=f"guests-{name}"
    )
    return listener, with_guests(federation, [listener])


def checked_admin(admin: Admin | None) -> Admin | None:
    """The same settings. Raises `ConfigError` for a value that has none."""
    if admin is not None:
        from .run_options import check_admin  # noqa: PLC0415 - only for programs that ask for it

        check_admin(admin)
    return admin


def host_tree(
    federation: Federation,
    guests: Sequence[GuestListener],
    limiter: OutputLimiter | None,
    sync: ConfigSync | None,
    admin: Admin | None,
) -> ChildSpec[Any]:
    """The whole host as one child."""
    spec: ChildSpec[Any] = federation.child_spec()
    if guests:
        spec = with_guests(federation, guests)
    if limiter is not None:
        spec = with_spill_cleanup(limiter.spill, spec)
    if sync is not None:
        spec = sync.beside_host(spec)
    if admin is None:
        return spec
    from .observe.admin_listener import AdminPart  # noqa: PLC0415 - as above
    from .observe.readiness import missing_parts  # noqa: PLC0415 - as above

    return AdminPart(admin, federation.key.name, lambda: missing_parts(federation.name("federation"))).beside(spec)
