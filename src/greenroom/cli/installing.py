"""``greenroom install``: a server into the configuration of the program that is to use it.

The change is shown before it is made; the file is written whole or not at all, and what it was is kept beside it. A file that is not what it should
be is left alone.
"""

from __future__ import annotations

import asyncio
import difflib
import json as json_library
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.attaching import desktop_file
from greenroom.protocol.wire import is_array, is_object

from .door import echo, is_terminal, styled
from .endings import CONFIG, DENIED, Ended, Misused
from .entries import Entry, configured, entry_for, name_for
from .loading import is_server_name, is_url
from .showing import as_json

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
    variable: str | None
    """How a variable of the environment is written there; None where it cannot be."""


_KEPT: Final = 9
"""So many files from before a change are kept; the first of them for good."""


def program(name: str) -> Program:
    """Which one."""
    home = Path.home()
    support = {"darwin": home / "Library" / "Application Support", "win32": Path(os.environ.get("APPDATA", home))}
    shared = support.get(sys.platform, Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config"))
    known = {
        "claude": Program("Claude Desktop", desktop_file(), None, "mcpServers", typed=False, variable=None),
        "claude-code": Program(
            "Claude Code", home / ".claude.json", Path(".mcp.json"), "mcpServers", typed=True, variable="${%s}"
        ),
        "cursor": Program(
            "Cursor",
            home / ".cursor" / "mcp.json",
            Path(".cursor") / "mcp.json",
            "mcpServers",
            typed=False,
            variable="${env:%s}",
        ),
        "vscode": Program(
            "VS Code",
            shared / "Code" / "User" / "mcp.json",
            Path(".vscode") / "mcp.json",
            "servers",
            typed=True,
            variable="${env:%s}",
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
    config: Path | None,
    yes: bool,
    dry_run: bool,
    json: bool,
    command: Sequence[str] | None,
) -> None:
    """Write it down there."""
    host = program(to)
    if project and host.project is None:
        raise Misused(f"{host.title} has no configuration of a project")
    path = host.project if project and host.project is not None else host.user
    before = read(path)
    entry = Entry({})
    if remove:
        called = name or target
        if called is None:
            raise Misused(f"say which server is to be taken out of the configuration of {host.title}")
        after = without(before, host, called, path)
    else:
        if target is None and not command:
            raise Misused(
                "say which server: a URL, a name of your configuration, module:server, or a command behind --"
            )
        if target is not None and command is not None:
            raise Misused(f"either {target} or the command behind --, and not both")
        if target is None or is_server_name(target) or is_url(target):
            called = name or name_for(target, command)
            entry = entry_for(target, command, header, env, typed=host.typed)
        else:
            called = name or target
            entry = configured(target, config, header, env, host)
        after = {**before, host.key: {**_servers(before, host, path), called: entry.value}}
    told = {"program": host.title, "file": str(path), "server": called, "left_out": list(entry.left)}
    if after == before:
        if json:
            as_json({**told, "changed": False, "written": False, "before": None})
        else:
            echo(f"{host.title} has {called} as it is: nothing to do ({path})")
        return
    echo(diff(path, before, after, entry.hidden), error=json)
    if entry.left:
        lost = f"greenroom: {host.title} knows nothing of {', '.join(entry.left)}: that holds only here"
        echo(styled(lost, "odd"), error=True)
    kept: Path | None = None
    if not dry_run:
        _ask(path, yes=yes)
        kept = write(path, after)
    if json:
        kept_at = None if kept is None else str(kept)
        as_json({**told, "changed": True, "written": not dry_run, "before": kept_at})
    elif not dry_run:
        echo(styled(f"written: {path}", "good") + (f" (before: {kept})" if kept else ""))
        echo(f"{host.title} sees it when it is started anew.")


def _ask(path: Path, *, yes: bool) -> None:
    """Go on only when somebody agrees."""
    if yes:
        return
    if not is_terminal():
        raise Ended(DENIED, "nothing was written: say --yes where nobody can be asked")
    from .prompting import Left, Prompt  # noqa: PLC0415 - where somebody can be asked

    try:
        agreed = asyncio.run(Prompt().confirmed(f"Write this to {path}?", default=True))
    except Left:
        agreed = False
    if not agreed:
        raise Ended(DENIED, "nothing was written")


# --- what is written


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


def diff(path: Path, before: Mapping[str, Any], after: Mapping[str, Any], hidden: frozenset[str] = frozenset()) -> str:
    """The change, as lines to look at. Values of variables and headers are not shown, nor is what is `hidden`."""
    old, new = (text_of(_shown(each, hidden)).splitlines() if each else [] for each in (before, after))
    lines = list(difflib.unified_diff(old, new, str(path), str(path), lineterm="", n=2))
    colours = {"+": "good", "-": "bad", "@": "dim"}
    return "\n".join(styled(line, colours[line[0]]) if line[:1] in colours else line for line in lines)


def _shown(value: Any, hidden: frozenset[str], secret: bool = False) -> Any:  # noqa: FBT001, FBT002 - to itself
    if is_object(value):
        return {key: _shown(each, hidden, secret or key in ("env", "headers")) for key, each in value.items()}
    if is_array(value):
        return [_shown(each, hidden, secret) for each in value]
    return "…" if secret or value in hidden else value


def _beside(target: Path) -> Path:
    """Where it is kept as it was. The first one shows how it was before we came, and stays; of the others the last is overwritten when there are many."""
    first = f"{target.name}.before-greenroom"
    places = [target.with_name(first if number == 1 else f"{first}-{number}") for number in range(1, _KEPT + 1)]
    return next((place for place in places if not place.exists()), places[-1])


def write(path: Path, value: Mapping[str, Any]) -> Path | None:
    """Put it there at once, with the rights that the file had; returns where the one before is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link stays one
    kept: Path | None = None
    mode = 0o600
    if target.exists():
        mode = target.stat().st_mode & 0o777
        kept = _beside(target)
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
