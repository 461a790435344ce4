"""Parts of `Server` that few programs use: the admin listener, what changes when a host is mounted, and the context of a session outside of any call."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.context import Context
from greenroom.actors.worker_interfaces import Cancellation, SessionFacts
from greenroom.protocol.dialect import ASSUMED_DIALECT

from .errors import ConfigError
from .run_options import check_admin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.actors.company import Company, ConnectedPeers

    from .observe.admin_listener import AdminPart
    from .observe.admin_settings import Admin
    from .server import Server

# --- The admin listener beside a server.


def admin_part_of(server: Server, admin: Admin) -> AdminPart:
    """The admin listener of a server, which is bound now. Raises `ConfigError` and `CannotListen`."""
    from .observe.admin_listener import AdminPart  # noqa: PLC0415 - it loads what the pages show
    from .observe.readiness import missing_parts  # noqa: PLC0415 - as above

    check_admin(admin)
    missing = partial(missing_parts, server.company.process_name)
    return AdminPart(admin, server.settings.name, missing, urls=lambda: server.urls)


# --- Mounting a host: the features that the server then declares, and its hooks.

GATEWAY_FEATURES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
"""Upstreams and their features may come later than a client's handshake, so all features are declared."""


def check_mount(server: Server, host: object, prefix: object) -> None:
    """Raise `ConfigError` for a value that is no host, with what to write instead."""
    from .host import Host  # noqa: PLC0415 - loaded only if needed

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


# --- The context of a session outside of any call: a program asks the user or the model of one client, or notifies it.


def context_of_session(company: Company, session_id: str) -> Context:
    """The context of this session. Raises `UnknownSession`."""
    card = company.peers.info(session_id)
    version = card.version or ASSUMED_DIALECT.version
    facts = SessionFacts(card.id, version, card.peer, card.client_info, card.client_capabilities)
    channel = _PeerChannel(company.peers, session_id)
    return Context(facts, channel, Cancellation(), None, {}, company.settings.ask_timeout)


class _PeerChannel:
    """Sends on the session's general stream or its channel."""

    def __init__(self, peers: ConnectedPeers, session_id: str) -> None:
        self._peers = peers
        self._id = session_id

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when the session is gone."""
        return self._peers.notify(self._id, method, params)

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        return self._peers.log(self._id, level, data, logger)

    def touch(self, ahead: float = 0.0) -> None:
        """Do nothing: there is no call with an idle timeout."""

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float | None,
        key: str | None = None,  # noqa: ARG002 - a session numbers its questions
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self._peers.ask(self._id, method, params, math.inf if timeout is None else timeout)

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no call
        """Return False: there is no stream of a call."""
        return False
