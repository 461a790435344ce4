"""Mounting a host on a server: the server then serves all of the host's servers as well as what is registered at itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.gateway.gateway import Gateway
from greenroom.actors.lists import LISTINGS

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
    company = server.company
    listed = {listing.method for listing in LISTINGS} & company.hooks.answers.keys()
    if listed and not before:
        raise ConfigError(
            f"{server!r} answers {', '.join(sorted(listed))} itself: mount the host on a server of its own"
        )
    if prefix in {each.prefix for each in before}:
        raise ConfigError(f"a host is mounted with the prefix {prefix!r} already: give this one another")
    settings = replace(server.settings, capabilities={**_ALL, **server.settings.capabilities})
    server.settings = company.settings = settings
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
