"""What a server changes in itself when a host is mounted: the features that it declares, and its hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .errors import ConfigError
from .host import Host

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.worker_interfaces import SessionFacts

    from .server import Server

GATEWAY_FEATURES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
"""Upstreams and their features may come later than a client's handshake, so all features are declared."""


def check_mount(server: Server, host: object, prefix: object) -> None:
    """Raise `ConfigError` for a value that is no host, with what to write instead."""
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


def both_hooks(first: Callable[[Any, SessionFacts], Awaitable[None]], then: Callable[[Any, Any], Any] | None) -> Any:
    """The gateway's hook, followed by the server's own."""

    async def both(value: Any, facts: SessionFacts) -> None:
        await first(value, facts)
        answer = None if then is None else then(value, facts)
        if answer is not None:
            await answer

    return both
