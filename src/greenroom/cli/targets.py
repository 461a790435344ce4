"""Where a command goes: a URL, a name of the configuration, `module:server`, or a command behind `--`."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .door import echo, is_terminal, styled
from .endings import Misused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from greenroom.client import Client
    from greenroom.config.values import ServerConfig
    from greenroom.server import Server


@dataclass(frozen=True, slots=True)
class Way:
    """What was typed of where to go and how."""

    target: str | None
    command: Sequence[str] | None
    timeout: float | None = None
    header: Sequence[str] = ()
    env: Sequence[str] = ()
    config: Path | None = None
    verbose: bool = False
    callbacks: Mapping[str, Any] = field(default_factory=dict[str, Any])


def way(target: str | None, command: Sequence[str] | None, given: dict[str, Any]) -> Way:
    """From what a command was given; takes out of it what is about the connection."""
    if target is None and command is None:
        raise Misused("say which server: a URL, a name of your configuration, module:server, or a command behind --")
    if target is not None and command is not None:
        raise Misused(f"either {target} or the command behind --, and not both")
    if command is not None and not command:
        raise Misused("there is nothing behind --: write the server's command there")
    kept = {name: given.pop(name) for name in ("timeout", "header", "env", "config", "verbose") if name in given}
    return Way(target, command, **kept)


def first(words: Sequence[str], command: Sequence[str] | None, what: str) -> tuple[str | None, list[str]]:
    """The target and the other words; a command behind `--` is the target."""
    if command is not None:
        if not words:
            raise Misused(f"say {what}")
        return None, list(words)
    if len(words) < 2:  # noqa: PLR2004 - a target and something of it
        raise Misused(f"say which server, and {what}: a URL, a configured name, module:server, or a command behind --")
    return words[0], list(words[1:])


@asynccontextmanager
async def connected(where: Way) -> AsyncGenerator[Client]:
    """A client that is."""
    from greenroom.client import Client  # noqa: PLC0415 - whoever asks for help needs none

    _log(verbose=where.verbose)
    more: dict[str, Any] = dict(where.callbacks)
    if where.timeout is not None:
        more["timeout"] = where.timeout
    async with Client(_target(where, more), **more) as client:
        yield client


def _log(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR,
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
    )


def _target(where: Way, more: dict[str, Any]) -> Any:
    env = dict(_pair(each, "=", "--env", "NAME=value") for each in where.env)
    headers = dict(_pair(each, ":", "--header", "'Name: value'") for each in where.header)
    if where.command is not None:
        _refuse(headers, "--header", "a URL")
        return _program(where, where.command, env)
    target = str(where.target)
    if target.startswith(("http://", "https://")):
        _refuse(env, "--env", "a command")
        if headers:
            more["headers"] = headers
        if "authorization" not in {name.lower() for name in headers}:
            more["auth"] = _kept_login()
        return target
    _refuse(env, "--env", "a command")
    _refuse(headers, "--header", "a URL")
    if is_server_name(target):
        return load_server(target)
    return _configured(target, where)


def _program(where: Way, command: Sequence[str], env: Mapping[str, str]) -> Any:
    from greenroom.transports.client.command import Command  # noqa: PLC0415 - whoever has a URL needs none of it

    def told(line: str) -> None:
        echo(styled(line, "dim"), error=True)

    return Command(*command, env=env, stderr=told if where.verbose else None)


def _pair(text: str, separator: str, option: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise Misused(f"{option} is written {form}")  # not what was typed: that may be a secret
    return name.strip(), value.strip() if separator == ":" else value


def _refuse(given: Mapping[str, str], option: str, what: str) -> None:
    if given:
        raise Misused(f"{option} is for {what}")


def _configured(name: str, where: Way) -> Any:
    from greenroom.config.lookup import route_named  # noqa: PLC0415 - only for names

    return route_named(name, where.config, _sign_in)


def _kept_login() -> Any:
    """What `greenroom login` has kept for a URL; nobody is asked to sign in where they only wanted to call."""
    from greenroom.auth.client.keyring_store import best_store  # noqa: PLC0415 - not for help
    from greenroom.auth.client.oauth import OAuth  # noqa: PLC0415 - as above

    return OAuth(store=best_store(), browser=None)


def _sign_in(server: ServerConfig) -> Any:
    """As the configuration says; where nobody is at the terminal, with what is kept."""
    from greenroom.config.sign_in import oauth_of  # noqa: PLC0415 - as above

    port = int(os.environ.get("GREENROOM_MCP_OAUTH_PORT") or 0)
    return oauth_of(server, port=port) if is_terminal() else oauth_of(server, port=port, browser=None)


# --- servers of this machine's own Python


def is_server_name(target: str) -> bool:
    """Whether it is written as a server's place in some code: `module:server`, `file.py:server`, `file.py`."""
    path, _, _ = target.rpartition(":")
    module = path or target
    return target.endswith(".py") or module.endswith(".py") or (bool(path) and module.replace(".", "_").isidentifier())


def load_server(name: str) -> Server:
    """Import it. Raises `Misused` that says what there is instead."""
    from greenroom.server import Server  # noqa: PLC0415 - as above

    place, _, attribute = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    module = _file(Path(place)) if place.endswith(".py") else _module(place or attribute)
    if not place.endswith(".py") and not place:
        attribute = ""
    servers = _servers(module, Server)
    if attribute:
        found: Any = module
        for step in attribute.split("."):
            found = getattr(found, step, None)
        if not isinstance(found, Server):
            there = f"it has {', '.join(servers)}" if servers else "it has none"
            raise Misused(f"{place} has no server called {attribute!r}: {there}")
        return found
    if len(set(map(id, servers.values()))) != 1:
        there = (
            f"it has {', '.join(servers)}: say which, as in {place}:{next(iter(servers))}" if servers else "it has none"
        )
        raise Misused(f"{place or name} should have one server: {there}")
    return next(iter(servers.values()))


def _servers(module: object, kind: type[Server]) -> dict[str, Server]:
    names: dict[str, object] = vars(module)
    return {key: value for key, value in names.items() if isinstance(value, kind)}


def _module(name: str) -> Any:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Misused(f"there is no module {name!r} here, nor where Python looks: {sys.executable}") from None
        raise


def _file(path: Path) -> Any:
    if not path.is_file():
        raise Misused(f"there is no file {path}")
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(path.stem)
