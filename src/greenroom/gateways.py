"""Mounting a host on a server: the server then serves all of the host's servers as well as what is registered at itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.gateway.gateway import Gateway
from greenroom.actors.lists import LISTINGS

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    from .host import Host
    from .server import Server

_ALL: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
"""What upstreams may have or come to have is not known when a client introduces itself, so all of it is declared."""


def mount(
    server: Server, host: Host, prefix: str, *, shared: bool | Collection[str], most: int, idle: float
) -> Gateway:
    """The gateway, which answers from now on. Raises `ConfigError` where it could not."""
    company = server.company
    listed = {listing.method for listing in LISTINGS} & company.hooks.answers.keys()
    if listed:
        raise ConfigError(
            f"{server!r} answers {', '.join(sorted(listed))} itself: mount the host on a server of its own"
        )
    settings = replace(server.settings, capabilities={**_ALL, **server.settings.capabilities})
    server.settings = company.settings = settings
    gateway = Gateway(
        host,
        company,
        outside=server.session,
        completed=server.elicitation_complete,
        prefix=prefix,
        shared=shared,
        most=most,
        idle=idle,
    )
    before = company.hooks.roots_changed

    async def roots_changed(params: Any, facts: Any) -> None:
        await gateway.roots_changed(facts.session_id)
        if before is not None:
            answer = before(params, facts)
            if answer is not None:
                await answer

    company.hooks = replace(company.hooks, answers=gateway.answers(), roots_changed=roots_changed)
    return gateway
