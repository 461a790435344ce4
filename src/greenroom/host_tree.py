"""The tree of a host: its federation, and beside it what follows configuration files, admits guests, cleans up, or shows the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.actors.output.output_limits import OutputLimiter, with_spill_cleanup

from .host_guests import with_guests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.thespian_guests.guest_listener import GuestListener
    from greenroom.config.config_sync import ConfigSync
    from greenroom.supervision import ChildSpec

    from .observe.admin_settings import Admin


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
