"""Clients for the target of a command: a URL, a name in the configuration, `module:server`, or a command behind `--`."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.actors.client.era_verdict_file import EraVerdictFile
from greenroom.actors.client.settings import AUTO, LEGACY, ClientSettings
from greenroom.client import Client
from greenroom.errors import ConfigError
from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.supervision import visible_text
from greenroom.transports.client.interfaces import endpoint_of

from .click_app import echo, styled
from .exit_codes import UsageError, visible
from .server_loader import (
    TargetOptions,
    is_server_name,
    is_url,
    load_server,
    parse_pairs,
    report_author_errors,
    stdout_to_stderr,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from greenroom.auth.client.auth_option import Auth
    from greenroom.config.host_config import ServerConfig
    from greenroom.config.variables import Environment


_MODES: Final = {"auto": AUTO, "legacy": LEGACY, "modern": STATELESS_DIALECT.version}


def target_options(target: str | None, command: Sequence[str] | None, given: dict[str, Any]) -> TargetOptions:
    """The target and its connection options; removes these options from `given`."""
    if target is None and command is None:
        raise UsageError("name a server: a URL, a name in your configuration, module:server, or a command behind --")
    if target is not None and command is not None:
        raise UsageError(f"give either {target} or a command behind --, not both")
    if command is not None and not command:
        raise UsageError("the command behind -- is missing: write the server's command there")
    kept = {name: given.pop(name) for name in ("era", "timeout", "header", "env", "config", "verbose") if name in given}
    return TargetOptions(target, command, **kept)


def split_target(words: Sequence[str], command: Sequence[str] | None, what: str) -> tuple[str | None, list[str]]:
    """The target and the other words; None for the target if a command follows `--`."""
    if command is not None:
        if not words:
            raise UsageError(f"name {what}")
        return None, list(words)
    if len(words) < 2:  # noqa: PLR2004 - the target, and a tool, resource or prompt
        raise UsageError(
            f"name the server (a URL, a configured name, module:server, or a command behind --) and {what}"
        )
    return words[0], list(words[1:])


class TargetTimeouts(NamedTuple):
    """Timeouts of a connection, in seconds."""

    connect: float
    tool: float
    request: float
    user: float = 0.0
    """Extra time for connecting while the user signs in."""


class ClientSpec(NamedTuple):
    """The arguments of a client for a target."""

    target: Any
    times: TargetTimeouts
    options: Mapping[str, Any]
    inside: bool = False
    """Whether the server's code runs in this process: its prints must not get into the command's answer."""
    mode: str | None = None
    """The configured protocol; see `ClientSettings.mode`."""


class TargetClient(Client):
    """A client for a command's target."""

    times: TargetTimeouts

    def remember_eras(self) -> None:
        """Share what is known of servers' eras with earlier and later commands."""
        self._line.verdicts = EraVerdictFile()

    def forget_era(self) -> None:
        """Ask the server for its era, whatever earlier commands have found out."""
        self._line.verdicts.forget(endpoint_of(self._route))


@asynccontextmanager
async def connected(where: TargetOptions, *, asks_anew: bool = False) -> AsyncGenerator[TargetClient]:
    """A connected client for the target. With `asks_anew` it does not rely on what earlier commands have found out about the server's era."""
    configure_logging(verbose=where.verbose)
    place = _client_spec(where)
    if where.era is not None:
        place = place._replace(mode=_MODES[where.era])
    try:
        client = client_at(place, where.timeout, **where.callbacks)
    except ConfigError as error:  # configuration files were checked earlier, so the mistake is in the typed words
        raise UsageError(str(error)) from error
    if asks_anew or where.era == AUTO:
        client.forget_era()
    if place.inside:
        with stdout_to_stderr(), report_author_errors(str(where.target)):
            async with client:
                yield client
    else:
        async with client:
            yield client


def client_at(place: ClientSpec, limit: float | None, **callbacks: Any) -> TargetClient:
    """A client that is not connected yet. `limit` is the typed --timeout: it replaces all timeouts except the time for signing in."""
    times = place.times if limit is None else TargetTimeouts(limit, limit, limit, place.times.user)
    settings = ClientSettings(init_timeout=times.connect + times.user, request_timeout=times.request)
    if place.mode is not None:
        settings = replace(settings, mode=place.mode)
    client = TargetClient(place.target, settings=settings, **place.options, **callbacks)
    client.times = times
    client.remember_eras()
    return client


def client_spec_for(server: ServerConfig, auth: Auth | None) -> ClientSpec:
    """The client arguments for a configured server. Raises `ConfigError`."""
    from greenroom.config.configured_upstreams import route_of  # noqa: PLC0415 - only for names

    user: float = getattr(auth, "patience", 0.0)
    times = TargetTimeouts(server.timeouts.connect, server.timeouts.tool, server.timeouts.request, user)
    return ClientSpec(route_of(server, lambda _: auth), times, {}, mode=server.mode)


def configure_logging(*, verbose: bool = False) -> None:
    """Log to stderr: errors only, or from level INFO with `verbose`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(visible_text.EscapingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, handlers=[handler])


def environment_defaults() -> Environment:
    """The defaults that environment variables set for all servers; a wrong value is reported and ignored."""
    from greenroom.config.variables import Environment  # noqa: PLC0415 - not for help

    found, mistakes = Environment.of(os.environ)
    for one in mistakes:
        echo(styled(f"greenroom: {one}", "odd"), error=True)
    return found


def _client_spec(where: TargetOptions) -> ClientSpec:
    env, headers = parse_pairs("--env", where.env), parse_pairs("--header", where.header)
    defaults = environment_defaults()
    times = TargetTimeouts(defaults.connect, defaults.tool, request=30.0)
    if where.command is not None:
        _reject_option(headers, "--header", "a URL")
        return ClientSpec(_command_route(where, where.command, env), times, {})
    target = str(where.target)
    _reject_option(env, "--env", "a command")
    if is_url(target):
        options: dict[str, Any] = {"headers": headers} if headers else {}
        if "authorization" not in {name.lower() for name in headers} and _is_safe_for_tokens(target):
            options["auth"] = _stored_login(target)
        return ClientSpec(target, times, options)
    _reject_option(headers, "--header", "a URL")
    if is_server_name(target):
        return ClientSpec(load_server(target), times, {}, inside=True)
    return _configured(target, where, defaults)


def _command_route(where: TargetOptions, command: Sequence[str], env: Mapping[str, str]) -> Any:
    from greenroom.transports.client.server_command import Command  # noqa: PLC0415 - a URL needs none of it

    try:
        return Command(*command, env=env, stderr=_print_server_line if where.verbose else None)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _print_server_line(line: str) -> None:
    echo(styled(visible(line), "dim"), error=True)


def _reject_option(given: Mapping[str, str], option: str, what: str) -> None:
    if given:
        raise UsageError(f"{option} is only for {what}")


def _configured(name: str, where: TargetOptions, defaults: Environment) -> ClientSpec:
    from greenroom.config.config_reader import server_named  # noqa: PLC0415 - only for names
    from greenroom.config.sign_in import default_sign_in  # noqa: PLC0415 - as above

    try:
        server = server_named(name, where.config)
    except ConfigError as error:
        if Path(f"{name}.py").is_file():
            raise ConfigError(f"{error}; to name the file, write {name}.py") from None
        raise
    place = client_spec_for(server, default_sign_in(defaults.oauth_port, named=where.config is not None)(server))
    if where.verbose and server.command is not None:
        place.target.sink = _print_server_line
    return place._replace(options={"name": name})


def _is_safe_for_tokens(url: str) -> bool:
    """Whether a token may be sent to this URL (https, or this machine). For other URLs no stored login is used."""
    from greenroom.auth.client.auth_option import check_server_url  # noqa: PLC0415 - not for help

    try:
        check_server_url(url)
    except ConfigError:
        return False
    return True


def _stored_login(url: str) -> Any:
    """The login that `greenroom login` stored for a URL; a command opens no browser for it."""
    from greenroom.auth.client.oauth_login import OAuth  # noqa: PLC0415 - as above
    from greenroom.auth.client.token_stores import best_store  # noqa: PLC0415 - not for help

    advice = "run `greenroom login` with this URL in a terminal, once; or pass a token or a key with --header"
    return OAuth(store=best_store(), browser=None, advice=advice, command=f"greenroom login {shlex.quote(url)}")
