"""Converts a `ServerConfig` to the route and `UpstreamSpec` that a federation starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.supervision import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from greenroom.auth.client.auth_option import Auth
    from greenroom.transports.client.interfaces import Route

    from .host_config import ServerConfig

    SignIn: TypeAlias = Callable[[ServerConfig], Auth | None]
    """Makes the authentication of a server whose `oauth` is not off."""


def route_of(server: ServerConfig, sign_in: SignIn | None = None) -> Route:
    """The route to a server. Raises `ConfigError`."""
    return _route(server, _auth(server, sign_in))


def _route(server: ServerConfig, auth: Auth | None) -> Route:
    most = server.limits.message_bytes
    if server.transport == "stdio":
        from greenroom.transports.client.server_command import Command, CommandLimits  # noqa: PLC0415 - URLs need none of it

        assert server.command is not None
        limits = CommandLimits(line=most, queue=most)
        command = Command(
            server.command, *server.args, env=server.env, inherit=server.inherit, cwd=server.cwd, limits=limits
        )
        if server.written.get(
            "command"
        ):  # texts about the command show it with variables not expanded, which may be secrets
            command.shown = (server.written["command"], *server.written.get("args", ()))
        return command
    from greenroom.transports.client.http_route import HttpRoute, SseRoute  # noqa: PLC0415 - programs need none of it
    from greenroom.transports.client.http_settings import HttpSettings  # noqa: PLC0415 - as above

    assert server.url is not None
    kind = SseRoute if server.transport == "sse" else HttpRoute
    settings = HttpSettings(max_response=most, max_event=most)
    credentials = None
    if auth is not None:
        from greenroom.auth.client.auth_option import credentials_for  # noqa: PLC0415 - a route without a login needs none of it

        credentials = credentials_for(auth, server.url)
    route = kind(server.url, headers=server.headers, credentials=credentials, settings=settings)
    if "${" in str(server.written.get("url")):
        route.hide_path()
    return route


def _auth(server: ServerConfig, sign_in: SignIn | None) -> Auth | None:
    if server.oauth == "off":
        return None
    if sign_in is None:
        from .sign_in import default_sign_in  # noqa: PLC0415 - few sign in anywhere

        return default_sign_in()(server)
    return sign_in(server)


def spec_of(
    server: ServerConfig, settings: ClientSettings | None = None, sign_in: SignIn | None = None
) -> UpstreamSpec:
    """The upstream spec of a server. `settings` are used for what the configuration does not set. Raises `ConfigError`."""
    settings = settings or ClientSettings()
    times, restart = server.timeouts, server.restart
    auth = _auth(server, sign_in)
    backoff = Backoff(first=restart.first, factor=restart.factor, longest=restart.longest, jitter=restart.jitter)
    settled = replace(
        settings,
        mode=settings.mode if server.mode is None else server.mode,
        init_timeout=times.connect + getattr(auth, "patience", 0.0),  # plus the time that a user may take to sign in
        request_timeout=times.request,
        ping_interval=times.ping,
        backoff=backoff,
        park_after=restart.park_after,
    )
    return UpstreamSpec(
        _route(server, auth),
        settings=settled,
        concurrent=server.budget.concurrent,
        queue=server.budget.queue,
        intensity=restart.intensity,
        period=restart.period,
        grace=times.grace,
        lists=(
            "tools",
        ),  # resources and prompts are listed on demand: servers have many of them, and few are ever used
        tool_timeout=times.tool,
        isolation="process" if server.isolation == "process" else None,
        away=server.away,
    )
