"""Mounting a host on a server: the server then serves all of the host's servers as well as what is registered at itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.catalogue import LISTINGS
from greenroom.actors.gateway.gateway import Gateway

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .host import Host
    from .server import Server

_ALL: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
"""What upstreams may have or come to have is not known when a client introduces itself, so all of it is declared."""


def check_host(server: Server, host: object, prefix: object) -> None:
    """Raises `ConfigError` for what is no host, and says what to write."""
    from .host import Host  # noqa: PLC0415 - which may not be loaded, and then this is none

    if not isinstance(prefix, str):
        raise ConfigError(f"the prefix of a mounted host must be a text, not {prefix!r}")
    if isinstance(host, Host):
        return
    if isinstance(host, type(server)):
        called = host.settings.name
        raise ConfigError(
            f"a server mounts a Host, and {host!r} is a server: write server.mount(Host({{{called!r}: the_server}})), which serves its tools "
            f"as {called}__its_tool; or register its functions here"
        )
    raise ConfigError(f'a server mounts a Host, as in server.mount(Host({{"there": "https://…/mcp"}})), not {host!r}')


def mount(  # noqa: PLR0913 - as the server's method
    server: Server,
    host: Host,
    prefix: str,
    *,
    before: Sequence[Gateway],
    shared: bool | Collection[str],
    most: int,
    idle: float,
) -> Gateway:
    """The gateway, which answers from now on beside those that were mounted `before`. Raises `ConfigError` where it could not."""
    check_host(server, host, prefix)
    company = server.company
    listed = {listing.method for listing in LISTINGS} & company.hooks.answers.keys()
    if listed and not before:
        raise ConfigError(
            f"{server!r} answers {', '.join(sorted(listed))} itself: mount the host on a server of its own"
        )
    if prefix in {each.prefix for each in before}:
        raise ConfigError(f"a host is mounted with the prefix {prefix!r} already: give this one another")
    settings = replace(server.settings, capabilities={**_ALL, **server.settings.capabilities})
    server.settings = settings
    company.set_up(settings)
    gateway = Gateway(
        host,
        company,
        outside=server.session,
        completed=server.elicitation_complete,
        beside=before[-1] if before else None,
        prefix=prefix,
        shared=shared,
        most=most,
        idle=idle,
    )
    heeded = company.hooks.roots_changed

    async def roots_changed(params: Any, facts: Any) -> None:
        await gateway.roots_changed(facts.session_id)
        if heeded is not None:
            answer = heeded(params, facts)
            if answer is not None:
                await answer

    levelled = company.hooks.level

    async def level(wanted: str, facts: Any) -> None:
        await gateway.level(facts.session_id, wanted)
        if levelled is not None:
            answer = levelled(wanted, facts)
            if answer is not None:
                await answer

    company.hooks = replace(company.hooks, answers=gateway.answers(), roots_changed=roots_changed, level=level)
    return gateway
