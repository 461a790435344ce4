"""``greenroom install``: a server into the configuration of the program that is to use it.

The change is shown before it is made; the file is written whole or not at all, and what it was is kept beside it. A file that is not what it should
be is left alone.
"""

from __future__ import annotations

import difflib
import json as json_library
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.attaching import desktop_file
from greenroom.protocol.wire import is_object

from .door import confirmed, echo, is_terminal, styled
from .endings import CONFIG, DENIED, Ended, Misused
from .loading import is_server_name, load_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Program(NamedTuple):
    """One that uses servers: where it looks for them, and what it calls them."""

    title: str
    user: Path
    project: Path | None
    key: str
    typed: bool
    """Whether each entry says its `type`."""


HOSTS: Final = ("claude", "claude-code", "cursor", "vscode")


def program(name: str) -> Program:
    """Which one."""
    home = Path.home()
    support = {"darwin": home / "Library" / "Application Support", "win32": Path(os.environ.get("APPDATA", home))}
    shared = support.get(sys.platform, Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config"))
    known = {
        "claude": Program("Claude Desktop", desktop_file(), None, "mcpServers", typed=False),
        "claude-code": Program("Claude Code", home / ".claude.json", Path(".mcp.json"), "mcpServers", typed=True),
        "cursor": Program(
            "Cursor", home / ".cursor" / "mcp.json", Path(".cursor") / "mcp.json", "mcpServers", typed=False
        ),
        "vscode": Program(
            "VS Code", shared / "Code" / "User" / "mcp.json", Path(".vscode") / "mcp.json", "servers", typed=True
        ),
    }
    return known[name]


def install(  # noqa: PLR0913 - a keyword for each option
    *,
    target: str | None,
    to: str,
    name: str | None,
    project: bool,
    remove: bool,
    header: Sequence[str],
    env: Sequence[str],
    yes: bool,
    dry_run: bool,
    command: Sequence[str] | None,
) -> None:
    """Write it down there."""
    host = program(to)
    if project and host.project is None:
        raise Misused(f"{host.title} has no configuration of a project")
    path = host.project if project and host.project is not None else host.user
    before = read(path)
    if remove:
        called = name or target or ""
        after = without(before, host, called, path)
    else:
        entry = entry_for(target, command, header, env, typed=host.typed)
        called = name or name_for(target, command)
        after = {**before, host.key: {**_servers(before, host, path), called: entry}}
    if after == before:
        echo(f"{host.title} has {called} as it is: nothing to do ({path})")
        return
    echo(diff(path, before, after))
    if dry_run:
        return
    if not yes and not (is_terminal() and confirmed(f"Write this to {path}?", default=True)):
        raise Ended(DENIED, "nothing was written: say --yes where nobody can be asked")
    kept = write(path, after)
    echo(styled(f"written: {path}", "good") + (f" (before: {kept})" if kept else ""))
    echo(f"{host.title} sees it when it is started anew.")


# --- what is written


def entry_for(
    target: str | None, command: Sequence[str] | None, header: Sequence[str], env: Sequence[str], *, typed: bool
) -> dict[str, Any]:
    """A server as these files have it."""
    variables = dict(_pair(each, "=", "--env", "NAME=value") for each in env)
    headers = dict(_pair(each, ":", "--header", "'Name: value'") for each in header)
    if target is None and not command:
        raise Misused("say which server: a URL, module:server, or a command behind --")
    if target is not None and target.startswith(("http://", "https://")):
        if variables:
            raise Misused("--env is for a command")
        return {**({"type": "http"} if typed else {}), "url": target, **({"headers": headers} if headers else {})}
    if headers:
        raise Misused("--header is for a URL")
    words = list(command) if command else _serving(str(target))
    found = shutil.which(words[0])
    if found is None:
        raise Misused(f"there is no program {words[0]!r} here")
    if command is None or os.sep in words[0]:
        words[0] = found
    entry: dict[str, Any] = {**({"type": "stdio"} if typed else {}), "command": words[0], "args": words[1:]}
    return entry | ({"env": variables} if variables else {})


def _serving(target: str) -> list[str]:
    """The words that serve code of this machine, from wherever they are started."""
    if not is_server_name(target):
        raise Misused(f"{target!r} is no server: write a URL, module:server, file.py, or a command behind --")
    load_server(target)  # which says what is wrong with it, now and not there
    place, colon, attribute = (target, "", "") if target.endswith(".py") else target.rpartition(":")
    module = sys.modules.get(Path(place).stem if place.endswith(".py") else place)
    file = getattr(module, "__file__", None)
    written = f"{Path(file).resolve()}{colon}{attribute}" if place.endswith(".py") and file else target
    return [sys.executable, "-m", "greenroom.cli", "serve", written]


def name_for(target: str | None, command: Sequence[str] | None) -> str:
    """What it is called when nobody says so."""
    if command:
        words = [word for word in command if not word.startswith("-")]
        last = Path(
            words[-1]
            if Path(words[0]).stem in ("uvx", "npx", "python", "python3", "uv") and len(words) > 1
            else words[0]
        ).stem
        return _name(last.partition("@")[0] or last)
    text = str(target)
    if text.startswith(("http://", "https://")):
        return _name(
            text.partition("://")[2].partition("/")[0].partition(":")[0].removeprefix("www.").partition(".")[0]
        )
    return _name(Path(text.partition(":")[0]).stem)


def _name(text: str) -> str:
    return "".join(each if each.isalnum() or each in "_-" else "-" for each in text).strip("-")[:32] or "server"


def _pair(text: str, separator: str, option: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise Misused(f"{option} is written {form}")
    return name.strip(), value.strip()


def without(before: Mapping[str, Any], host: Program, name: str, path: Path) -> dict[str, Any]:
    """The same, and one server less."""
    servers = _servers(before, host, path)
    if name not in servers:
        raise Misused(f"{path} has no server {name!r}; it has {', '.join(servers) or 'none'}")
    return {**before, host.key: {key: value for key, value in servers.items() if key != name}}


def _servers(before: Mapping[str, Any], host: Program, path: Path) -> Mapping[str, Any]:
    servers = before.get(host.key, {})
    if not is_object(servers):
        raise Ended(CONFIG, f"{path}: {host.key} has to be an object: mend it first; nothing was written")
    return servers


# --- the file


def read(path: Path) -> dict[str, Any]:
    """What stands there; nothing when there is no such file. Raises `Ended` for one that is no JSON object."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Ended(CONFIG, f"{path} cannot be read ({error}): nothing was written") from None
    if not text.strip():
        return {}
    try:
        found: Any = json_library.loads(text)
    except ValueError as error:
        raise Ended(
            CONFIG,
            f"{path} is no plain JSON ({error}): with comments in it, it has to be edited by hand; nothing was written",
        ) from None
    if not is_object(found):
        raise Ended(CONFIG, f"{path} has to be an object: nothing was written")
    return dict(found)


def text_of(value: Mapping[str, Any]) -> str:
    """As it is written."""
    return json_library.dumps(value, indent=2, ensure_ascii=False) + "\n"


def diff(path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The change, as lines to look at. Values of variables and headers are not shown."""
    old, new = (text_of(_shown(each)).splitlines() if each else [] for each in (before, after))
    lines = list(difflib.unified_diff(old, new, str(path), str(path), lineterm="", n=2))
    colours = {"+": "good", "-": "bad", "@": "dim"}
    return "\n".join(styled(line, colours[line[0]]) if line[:1] in colours else line for line in lines)


def _shown(value: Any, secret: bool = False) -> Any:  # noqa: FBT001, FBT002 - to itself
    if is_object(value):
        return {key: _shown(each, secret or key in ("env", "headers")) for key, each in value.items()}
    if isinstance(value, list):
        return [_shown(each, secret) for each in value]  # pyright: ignore[reportUnknownVariableType] - of whatever
    return "…" if secret else value


def write(path: Path, value: Mapping[str, Any]) -> Path | None:
    """Put it there at once, with the rights that the file had; returns where the one before is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link stays one
    kept: Path | None = None
    mode = 0o600
    if target.exists():
        mode = target.stat().st_mode & 0o777
        kept = target.with_name(f"{target.name}.before-greenroom")
        shutil.copy2(target, kept)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text_of(value))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return kept
