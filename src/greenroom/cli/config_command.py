"""``greenroom config``: checks the configuration files, shows the configured servers, and shows the rule that decides about a tool."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .click_app import echo, styled
from .command_output import print_entry, print_heading, print_json
from .exit_codes import CONFIG, OK, UsageError, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.actors.consent.rules import RuleDecision
    from greenroom.config.configured_upstreams import SignIn
    from greenroom.config.host_config import HostConfig, ServerConfig
    from greenroom.config.mistakes import Mistake


def _read(files: Sequence[Path]) -> HostConfig:
    from greenroom.config.config_reader import read  # noqa: PLC0415 - not for help

    return read(*files)


def check(*, files: Sequence[Path], config: Path | None = None, json: bool) -> int:
    """Show every mistake with its file and line; exit code 3 if there is one."""
    from greenroom.config.mistakes import RULES_UNREADABLE  # noqa: PLC0415 - not for help

    found = _read(files if config is None else (*files, config))
    existing = [str(file) for file in found.files if file.exists()]
    mistakes = [
        one for one in found.mistakes if existing or one != RULES_UNREADABLE
    ]  # without any file existing are no rules
    mistakes += _missing_programs(found)
    good = found.good and not any(one.field == "command" and not one.harmless for one in mistakes)
    if json:
        print_json({"mistakes": list(map(_mistake_fields, mistakes)), "servers": list(found.servers)})
        return OK if good else CONFIG
    for one in mistakes:
        echo(styled(visible(str(one)), "odd" if one.harmless else "bad"))
    if not existing and found.good:
        echo(f"no configuration found: create {' or '.join(map(str, found.files))}")
    elif good:
        count = len(found.servers)
        echo(styled(f"{count} server{'' if count == 1 else 's'} in {', '.join(existing)}: no mistakes", "good"))
    return OK if good else CONFIG


def _mistake_fields(one: Mistake) -> dict[str, Any]:
    fields = asdict(one)
    return {**fields.pop("source"), **fields}


def _missing_programs(config: HostConfig) -> list[Mistake]:
    """A mistake for each configured program that is not installed. A host reports it only when it starts the program."""
    from greenroom.config.mistakes import Mistake  # noqa: PLC0415 - not for help

    found: list[Mistake] = []
    for name, server in config.enabled.items():
        if server.command is None:
            continue
        path = {**os.environ, **server.env}.get("PATH")
        named = len(Path(server.command).parts) > 1 and not Path(server.command).is_absolute()
        program = str(Path(server.cwd or ".") / server.command) if named else server.command
        if shutil.which(program, path=path) is None:
            what = f"the program {server.written.get('command')!r} cannot be found"
            found.append(Mistake(server.source, name, "command", what, "write its whole path, or install it"))
    return found


def show(*, files: Sequence[Path], config: Path | None = None, json: bool) -> int:
    """Show the configured servers, without values that may be secret."""
    found = _read(files if config is None else (*files, config))
    if json:
        print_json({name: _server_fields(server) for name, server in found.servers.items()})
        return OK if found.good else CONFIG
    for name, server in found.servers.items():
        written = server.written
        where = written.get("url") or " ".join(map(str, (written.get("command"), *written.get("args", ()))))
        notes = [f"from {server.source}"]
        if server.env:
            notes.append(f"with {', '.join(server.env)} in its environment")
        if server.oauth != "off":
            notes.append(f"signs in: {server.oauth}")
        print_entry(name, "disabled" if server.disabled else where, notes)
    if not found.servers and not found.failed:
        echo("no server is configured")
    for name, mistakes in found.failed.items():
        print_entry(name, "wrong", list(map(str, mistakes)), style="bad")
    return OK if found.good else CONFIG


def _server_fields(server: ServerConfig) -> dict[str, Any]:
    """The fields as they stand in the file: the server's own fields have variables expanded, which may be secrets."""
    return {
        "transport": server.transport,
        "command": server.written.get("command"),
        "args": server.written.get("args", []),
        "env": list(server.env),
        "url": server.written.get("url"),
        "headers": list(server.headers),
        "oauth": server.oauth,
        "disabled": server.disabled,
        "source": str(server.source),
    }


def effective(*, tools: Sequence[str], config: Path | None, timeout: float | None, json: bool) -> None:
    """Show for each tool whether it may be called, and the rule that decides."""
    from .target_client import configure_logging  # noqa: PLC0415 - as above

    configure_logging()
    found = _read([config] if config is not None else [])
    names = [*tools]
    tool_names = [name for name in names if ":" in name or name.startswith(("Elicit(", "Skill("))]
    if strange := [name for name in names if name not in tool_names and name not in found.servers]:
        raise UsageError(f"{strange[0]!r} is neither a server nor server:tool")
    servers = [name for name in found.enabled if not names or name in names]
    decided: dict[str, RuleDecision] = {}
    for name in tool_names:
        if name.startswith(("Elicit(", "Skill(")):
            about, _, server = name.removesuffix(")").partition("(")
            _check_server_known(server, found)
            rules = found.permissions
            decided[name] = rules.of_elicitation(server) if about == "Elicit" else rules.of_skill(server)
        else:
            server, _, tool = name.partition(":")
            _check_server_known(server, found)
            decided[name] = found.permissions.of_tool(server, tool)
    away: Mapping[str, str] = {}
    if servers and len(tool_names) < max(1, len(names)):
        from greenroom.config.sign_in import default_sign_in  # noqa: PLC0415 - as above

        sign_in = default_sign_in(found.oauth_port, named=config is not None)
        away = asyncio.run(_decide_listed_tools(found, servers, timeout, decided, sign_in))
    if json:
        print_json(
            {
                "tools": {name: {"verdict": one.verdict, "why": str(one)} for name, one in decided.items()},
                "away": away,
            }
        )
        return
    if not decided and not away:
        echo("no server is configured")
    colours = {"allow": "good", "ask": "odd", "deny": "bad"}
    for name, one in decided.items():
        because = styled(visible(str(one).partition(": ")[2]), "dim")
        echo(f"{styled(f'{one.verdict:5}', colours[one.verdict])} {visible(name)}  {because}")
    for name, why in away.items():
        print_heading(f"{name} does not answer")
        echo(f"  {visible(why)}")


def _check_server_known(name: str, config: HostConfig) -> None:
    """Raises `ConfigError` for a tool of a server that is not configured, to which no rule applies."""
    from greenroom.config.mistakes import known_servers  # noqa: PLC0415 - as above
    from greenroom.errors import ConfigError  # noqa: PLC0415 - as above

    known = [*config.servers, *config.failed]
    if not any(name == each or name.startswith(f"{each}:") for each in known):
        server = name.partition(":")[0]
        raise ConfigError(f"no server is called {server!r}; {known_servers(server, known)}")


async def _decide_listed_tools(
    config: HostConfig,
    servers: Sequence[str],
    timeout: float | None,
    decided: dict[str, RuleDecision],
    sign_in: SignIn,
) -> Mapping[str, str]:
    """Add decisions for all tools of these servers; returns the servers that cannot be reached, and why."""
    from greenroom.errors import GreenroomError  # noqa: PLC0415 - as above
    from greenroom.protocol.extension_ids import SKILLS_ID, is_extension_declared  # noqa: PLC0415 - as above

    from .target_client import client_at, client_spec_for  # noqa: PLC0415 - as above

    with_skills: set[str] = set()

    async def of(name: str) -> tuple[str, list[str] | GreenroomError]:
        server = config.servers[name]
        auth = sign_in(server)
        try:
            async with client_at(client_spec_for(server, auth), timeout) as client:
                if is_extension_declared(client.server_capabilities, SKILLS_ID):
                    with_skills.add(name)
                return name, [tool.name for tool in await client.list_tools()]
        except GreenroomError as error:
            return name, error

    away: dict[str, str] = {}
    for name, found in await asyncio.gather(*map(of, servers)):
        if isinstance(found, GreenroomError):
            away[name] = str(found)
            continue
        for tool in found:
            decided[f"{name}:{tool}"] = config.permissions.of_tool(name, tool)
        decided[f"Elicit({name})"] = config.permissions.of_elicitation(name)
        if name in with_skills:
            decided[f"Skill({name})"] = config.permissions.of_skill(name)
    return away


def schema(*, json: bool) -> None:
    """Print the JSON Schema of greenroom.toml; the output is JSON with and without --json."""
    del json
    from greenroom.config.config_schema import schema as made  # noqa: PLC0415 - as above

    print_json(made())
