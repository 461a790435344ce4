"""``greenroom install``: adds a server to the configuration of a program that uses MCP servers.

The change is shown before it is written. The file is replaced atomically, with a backup beside it. A file with unexpected content is left unchanged.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.serialization import is_array, is_object

from . import program_entries as toml_file
from .click_app import echo, is_terminal, styled
from .command_output import print_json
from .exit_codes import CONFIG, DENIED, FAILED, CommandFailed, UsageError, visible, within_project
from .program_entries import (
    ChangedMeanwhile,
    ProgramEntry,
    configured_entry,
    entry_for,
    gateway_entry,
    is_toml,
    json_text,
    name_for,
    read_entries,
    read_text_at,
    write_entries,
)
from .server_loader import TargetOptions, is_server_name, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class ServerProgram(NamedTuple):
    """A program that uses servers: where its configuration is, and in which form it lists servers."""

    title: str
    user: Path | None
    """The user's configuration file. None: the entry is printed instead of written."""
    project: Path | None
    key: str = "mcpServers"
    typed: bool = False
    """Whether each entry has a `type`."""
    variable: str | None = None
    """The form of an environment variable in the file; None if the program has none."""
    http: str = "url"
    """The member for a server's URL; empty if the program supports commands only."""
    sse: str = "url"
    """The member for the URL of a server with the older SSE transport."""
    headers: str = "headers"
    remote: str = ""
    """Advice for a URL, if the program takes none from its file."""

    def written(self, kind: str, members: Mapping[str, Any]) -> dict[str, Any]:
        """A server's entry in the program's form: with its `type` if `typed`, and without empty tables."""
        kept = {name: value for name, value in members.items() if value != {}}
        return {"type": kind, **kept} if self.typed else kept


_SECRET: Final = frozenset({"env", "headers", "http_headers"})
_TYPES: Final = frozenset({"stdio", "http", "sse"})
_TRIES: Final = 20
"""How often the change is repeated when the program writes to its file at the same time."""


def program_named(name: str) -> ServerProgram:
    """The program with this name on the command line."""
    home = Path.home()
    shared = _settings_folder(sys.platform, home, os.environ)
    codex = Path(os.environ.get("CODEX_HOME") or home / ".codex")
    zed = home / ".config/zed" if sys.platform == "darwin" else shared / ("Zed" if sys.platform == "win32" else "zed")

    def both(place: str) -> tuple[Path, Path]:
        """The same relative path in the home directory and in a project."""
        return home / place, Path(place)

    known = {
        "claude": ServerProgram(
            "Claude Desktop",
            desktop_file(),
            None,
            http="",
            remote="for a server on the internet, Settings > Connectors > Add custom connector",
        ),
        "codex": ServerProgram(
            "Codex", codex / "config.toml", Path(".codex/config.toml"), "mcp_servers", headers="http_headers"
        ),
        "gemini": ServerProgram("Gemini CLI", *both(".gemini/settings.json"), variable="${%s}", http="httpUrl"),
        "windsurf": ServerProgram(
            "Windsurf",
            home / ".codeium/windsurf/mcp_config.json",
            None,
            variable="${env:%s}",
            http="serverUrl",
            sse="serverUrl",
        ),
        "zed": ServerProgram("Zed", zed / "settings.json", Path(".zed/settings.json"), "context_servers"),
        "json": ServerProgram("JSON", None, Path("mcp.json")),
        "claude-code": ServerProgram(
            "Claude Code", home / ".claude.json", Path(".mcp.json"), typed=True, variable="${%s}"
        ),
        "cursor": ServerProgram("Cursor", *both(".cursor/mcp.json"), variable="${env:%s}"),
        "vscode": ServerProgram(
            "VS Code",
            shared / "Code/User/mcp.json",
            Path(".vscode/mcp.json"),
            "servers",
            typed=True,
            variable="${env:%s}",
        ),
    }
    return known[name]


def install(  # noqa: PLR0912, PLR0913 - a keyword for each option
    *,
    target: str | None,
    to: str,
    name: str | None,
    project: bool,
    remove: bool,
    yes: bool,
    dry_run: bool,
    json: bool,
    command: Sequence[str] | None,
    **given: Any,
) -> None:
    """Add the server to the program's configuration, or remove it."""
    host, where = program_named(to), TargetOptions(target, command, **given)
    if project and host.project is None:
        raise UsageError(f"{host.title} has no project configuration")
    path = host.project if project and host.project is not None else host.user
    if path is None:
        if remove:
            raise UsageError(
                "--remove needs a file: add --project for mcp.json in this folder, or name another program with --to"
            )
        shown = _name_and_entry(name, where, host)
        echo(json_text({host.key: {shown[0]: shown[1].value}}), newline=False)
        return
    if project:
        within_project(path)
    before = read_entries(path)
    if remove:
        called, entry = name or target, None
        if called is None:
            raise UsageError(f"name the server to remove from the configuration of {host.title}")
    else:
        called, entry = _name_and_entry(name, where, host)
    left = [] if entry is None else list(entry.left)
    summary = {"program": host.title, "file": str(path), "server": called, "left_out": left}
    kept: Path | None = None
    for _ in range(_TRIES):
        after = _config_with_entry(before, host, called, path, entry)
        if after == before:
            if json:
                print_json({**summary, "changed": False, "written": False, "before": None})
            else:
                echo(f"{host.title} already has {called}: nothing to do ({path})")
            return
        echo(entry_diff(path, before, after, host, called, entry), error=json)
        if left:
            lost = f"greenroom: {host.title} does not support {', '.join(left)}: these settings are left out"
            echo(styled(lost, "odd"), error=True)
        if dry_run:
            break
        _confirm_write(path, yes=yes)
        if project:
            within_project(path)
        try:
            whole = (
                toml_file.toml_with_entry(
                    read_text_at(path), path, host.key, called, None if entry is None else entry.value
                )
                if is_toml(path)
                else json_text(after)
            )
            kept = write_entries(path, whole, before)
            break
        except ChangedMeanwhile:
            echo(styled(f"greenroom: {path} was changed by another program: the change is repeated", "odd"), error=True)
            before = read_entries(path)
    else:
        raise CommandFailed(
            FAILED, f"{path} is being changed by another program: close {host.title} first; nothing was written"
        )
    if json:
        kept_at = None if kept is None else str(kept)
        print_json({**summary, "changed": True, "written": not dry_run, "before": kept_at})
    elif not dry_run:
        echo(styled(f"written: {path}", "good") + (f" (before: {kept})" if kept else ""))
        echo(f"Restart {host.title} to use it.")


def _name_and_entry(name: str | None, where: TargetOptions, host: ServerProgram) -> tuple[str, ProgramEntry]:
    """The server's name and entry for the program's configuration."""
    target, command = where.target, where.command
    if target is None and not command and where.config is not None:
        return name or "greenroom", gateway_entry(where, where.config, host)
    if target is None and not command:
        raise UsageError(
            "name a server: a URL, a name in your configuration, module:server, a command behind --; "
            "or --config FILE alone, for all servers of that file as one entry"
        )
    if target is not None and command is not None:
        raise UsageError(f"give either {target} or a command behind --, not both")
    if target is None or is_server_name(target) or is_url(target):
        return name or name_for(target, command), entry_for(where, host)
    return name or target, configured_entry(target, where, host)


def _confirm_write(path: Path, *, yes: bool) -> None:
    """Ask the user whether to write; the question shows the target of a link. Raises `CommandFailed` if the user does not agree."""
    if yes:
        return
    if not is_terminal():
        raise CommandFailed(
            DENIED, "nothing was written: there is no terminal to ask at; pass --yes to write without a question"
        )
    from .terminal_prompts import PromptAborted, TerminalInput  # noqa: PLC0415 - needed at a terminal only

    place, here = path.resolve(), path.parent.parent.resolve() / path.parent.name / path.name
    which = str(path) if place == here else f"{path}, a link to {place}"
    try:
        agreed = asyncio.run(TerminalInput().confirmed(f"Write this to {which}?", default=True))
    except PromptAborted:
        agreed = False
    if not agreed:
        raise CommandFailed(DENIED, "nothing was written")


# --- The new content of the file.


def _config_with_entry(
    before: Mapping[str, Any], host: ServerProgram, name: str, path: Path, entry: ProgramEntry | None
) -> dict[str, Any]:
    """The configuration with this server's entry, or without the server if `entry` is None."""
    servers = before.get(host.key, {})
    if not is_object(servers):
        raise CommandFailed(
            CONFIG, f"{path}: {host.key} has to be an object: correct the file first; nothing was written"
        )
    if entry is not None:
        return {**before, host.key: {**servers, name: entry.value}}
    if name not in servers:
        raise UsageError(f"{path} has no server {name!r}; it has {', '.join(servers) or 'none'}")
    return {**before, host.key: {key: value for key, value in servers.items() if key != name}}


# --- The change as shown to the user.


def entry_diff(
    path: Path,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    host: ServerProgram,
    name: str,
    entry: ProgramEntry | None,
) -> str:
    """The change of this server's entry, as lines of a diff.

    Secrets are replaced by an ellipsis. Of the new entry, values of variables and headers are hidden, and texts into which a variable was expanded. The old
    entry may hold expanded secrets anywhere, because any program may have written it: of it, only texts that the new entry shows as well, and program
    names, are shown.
    """
    fresh = frozenset[str]() if entry is None else _texts_in(entry.value) - entry.hidden

    def known(text: str) -> bool:
        return text in fresh or _is_no_secret(text)

    old, new = (
        _redacted_lines(path, whole, host.key, name, may)
        for whole, may in ((before, known), (after, fresh.__contains__))
    )
    lines = list(difflib.unified_diff(old, new, str(path), str(path), lineterm="", n=2))
    if not lines:
        return f"{path}: {name} differs only in values that are not shown"
    colours = {"+": "good", "-": "bad", "@": "dim"}
    lines = [visible(line, lines=True) for line in lines]
    return "\n".join(styled(line, colours[line[0]]) if line[:1] in colours else line for line in lines)


def _redacted_lines(path: Path, whole: Mapping[str, Any], key: str, name: str, may: Callable[[str], bool]) -> list[str]:
    if not whole:
        return []
    if not is_toml(path):
        return json_text(_redacted_file(whole, key, name, may)).splitlines()
    entry: Any = whole.get(key, {}).get(name)
    return toml_file.toml_table(key, name, _redacted(entry, may)).splitlines() if is_object(entry) else []


def _redacted_file(whole: Mapping[str, Any], key: str, name: str, may: Callable[[str], bool]) -> dict[str, Any]:
    """The file's content with every text hidden, except the texts of this server's entry that `may` allows."""
    servers: Mapping[str, Any] = whole.get(key, {})
    shown = {one: _redacted(value, may if one == name else _shows_nothing) for one, value in servers.items()}
    return {one: shown if one == key else _redacted(value, _shows_nothing) for one, value in whole.items()}


def _redacted(value: Any, may: Callable[[str], bool]) -> Any:
    if is_object(value):
        return {key: _redacted(one, _shows_nothing if key in _SECRET else may) for key, one in value.items()}
    if is_array(value):
        return [_redacted(one, may) for one in value]
    return value if not isinstance(value, str) or may(value) else "…"


def _shows_nothing(_: str) -> bool:
    return False


def _is_no_secret(text: str) -> bool:
    """Whether the text is an installed program or a kind of transport, which is no secret."""
    return text in _TYPES or shutil.which(text) is not None


def _texts_in(value: Any) -> frozenset[str]:
    if is_object(value):
        return frozenset[str]().union(*(_texts_in(one) for key, one in value.items() if key not in _SECRET))
    if is_array(value):
        return frozenset[str]().union(*map(_texts_in, value))
    return frozenset((value,)) if isinstance(value, str) else frozenset()


# --- Configuration of clients as values, for people and tools that write it themselves. These functions touch no file.


def desktop_file(
    platform: str = sys.platform, home: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The path of Claude Desktop's configuration file."""
    home = Path.home() if home is None else home
    folder = _settings_folder(platform, home, environment)
    if platform not in ("darwin", "win32") and (folder / "claude").is_dir() and not (folder / "Claude").is_dir():
        return folder / "claude" / "claude_desktop_config.json"  # some Linux builds use lower case
    return folder / "Claude" / "claude_desktop_config.json"


def _settings_folder(platform: str, home: Path, environment: Mapping[str, str]) -> Path:
    """The system's folder for settings of the user's programs."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")


def desktop_entry(
    name: str, command: str = sys.executable, args: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON to merge into Claude Desktop's configuration, so that it starts the server and speaks to it over stdio."""
    entry: dict[str, Any] = {"command": command, "args": list(args)}
    if env:
        entry["env"] = dict(env)
    return {"mcpServers": {name: entry}}


def code_command(name: str, url: str, headers: Mapping[str, str] | None = None) -> str:
    """The command line that adds a server on HTTP to Claude Code."""
    words = ["claude", "mcp", "add", name, "--transport", "http", url]
    for header, value in (headers or {}).items():
        words += ["--header", f"{header}: {value}"]
    return shlex.join(words)


def code_stdio_command(name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """The command line that adds a server on stdio to Claude Code."""
    words = ["claude", "mcp", "add", name]
    for variable, value in (env or {}).items():
        words += ["--env", f"{variable}={value}"]
    return shlex.join([*words, "--", *command])
