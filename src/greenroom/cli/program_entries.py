"""Entries of servers in the configuration files of other programs, and reading and writing of those files (JSON and TOML).

An entry is made from the typed words or from a configured server. An environment variable stays a variable if the program supports them: its value may be a
secret, and the file may be shared.
"""

from __future__ import annotations

import json as json_library
import math
import os
import re
import shutil
import stat
import sys
import tomllib
from collections import Counter
from decimal import Decimal
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.serialization import is_array, is_object
from greenroom.supervision.private_files import read_regular, write_beside

from .exit_codes import CONFIG, CommandFailed, UsageError
from .server_loader import is_url, load_server, parse_pairs, split_server_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.config.host_config import ServerConfig

    from .install_command import ServerProgram
    from .server_loader import TargetOptions

_PLAIN: Final = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable without a default."""
_SHARED_FIELDS: Final = frozenset({"transport", "command", "args", "env", "inherit", "cwd", "url", "headers"})
"""Fields of greenroom.toml that other programs have as well."""


class ProgramEntry(NamedTuple):
    """A server's entry for another program's file."""

    value: dict[str, Any]
    left: Sequence[str] = ()
    """Configured fields that the program does not support."""
    hidden: frozenset[str] = frozenset()
    """Texts with expanded variables, which are written but not shown."""


def entry_for(where: TargetOptions, host: ServerProgram) -> ProgramEntry:
    """The entry for the typed target."""
    target, command = where.target, where.command
    variables = parse_pairs("--env", where.env, bare=True)
    headers = parse_pairs("--header", where.header)
    if target is not None and is_url(target):
        if variables:
            raise UsageError("--env is only for a command")
        if not host.http:
            raise UsageError(_no_url_support(host, target, headers))
        return ProgramEntry(host.written("http", {host.http: target, host.headers: headers}))
    if headers:
        raise UsageError("--header is only for a URL")
    words = list(command or ())
    if not command:
        words, more = _serve_words(str(target))
        variables = more | variables
    found = shutil.which(words[0])
    if found is None:
        raise UsageError(f"the program {words[0]!r} is not installed")
    if command is None or os.sep in words[0]:
        words[0] = found
    return ProgramEntry(host.written("stdio", {"command": words[0], "args": words[1:], "env": variables}))


def _serve_words(target: str) -> tuple[list[str], dict[str, str]]:
    """The command that serves Python code from any working directory, and the environment variables that it needs."""
    load_server(target)  # reports mistakes now rather than when the other program starts the server
    place, attribute = split_server_name(target)
    here = Path.cwd()
    variables: dict[str, str] = {}
    if not place.endswith(".py") and (spec := PathFinder.find_spec(place.partition(".")[0], [str(here)])) is not None:
        # The module is found only from this folder, and the other program starts the command elsewhere.
        if spec.origin is not None and spec.submodule_search_locations is None:
            place = spec.origin
        else:
            variables["PYTHONPATH"] = str(here)
    if place.endswith(".py"):
        place = str(Path(place).resolve())
    # -P keeps the program's working directory off the import path, so that a json.py there shadows nothing.
    words = [sys.executable, "-P", "-m", "greenroom.cli", "serve"]
    return [*words, f"{place}:{attribute}" if attribute else place], variables


def _no_url_support(host: ServerProgram, url: str, headers: Mapping[str, str]) -> str:
    """The error text for a URL and a program that supports commands only. It contains no value of a header."""
    lines = [f"[server.{name_for(url, None)}]", 'transport = "http"', f'url = "{url}"']
    if headers:
        named = ", ".join(f'{name} = "${{VARIABLE}}"' for name in headers)
        lines.append(f"headers = {{ {named} }}")
    written = "\n".join(lines)
    title = host.title
    return (
        f"{title} supports only commands in its file, no URLs. Write this into greenroom.toml:\n{written}\n"
        f"and have {title} start a gateway to it: greenroom install --config greenroom.toml --to claude"
        f"{f'; or, {host.remote}' if host.remote else ''}"
    )


# --- Entries from greenroom's own configuration.


def gateway_entry(where: TargetOptions, config: Path, host: ServerProgram, only: str = "") -> ProgramEntry:
    """A gateway to the servers of a file (or to `only` one of them) that the program starts as a command. Raises `ConfigError`."""
    from greenroom.config.config_reader import read  # noqa: PLC0415 - only for files
    from greenroom.config.mistakes import BadConfig  # noqa: PLC0415 - as above

    if where.header:
        raise UsageError("--header is only for a URL: the servers' headers stand in the file")
    found = read(config)
    if not found.good or not config.is_file():
        raise (
            BadConfig([one for one in found.mistakes if not one.harmless])
            if found.mistakes
            else UsageError(f"the file {config} does not exist")
        )
    variables = parse_pairs("--env", where.env, bare=True)
    words = ["-P", "-m", "greenroom.cli", "serve", "--config", str(config.resolve())]
    words += ["--only", only] if only else []
    return ProgramEntry(host.written("stdio", {"command": sys.executable, "args": words, "env": variables}))


def configured_entry(name: str, where: TargetOptions, host: ServerProgram) -> ProgramEntry:
    """The entry for a configured server. Raises `ConfigError`, and `UsageError` for settings that the program does not support."""
    from greenroom.config.config_reader import server_named  # noqa: PLC0415 - only for names

    if where.header or where.env:
        raise UsageError(f"--header and --env cannot change a configured server: {name} has its own")
    server = server_named(name, where.config)
    left = sorted(set(server.written) - _SHARED_FIELDS)
    words = _VariableWriter(host.variable)
    if server.url is not None and not host.http:
        return gateway_entry(where, Path(server.source.file), host, only=name)
    if server.url is not None and host.key == "mcp_servers":
        return _codex_entry(server, host, left)
    if server.url is not None:
        headers = words.of(server.written.get("headers"), dict(server.headers))
        member = host.sse if server.transport == "sse" else host.http
        url = words.of(server.written.get("url"), server.url)
        value = host.written(server.transport, {member: url, host.headers: headers})
        return ProgramEntry(value, left, frozenset(words.hidden))
    if server.cwd is not None:
        raise UsageError(
            f"{host.title} supports no working directory, and {name} has a cwd ({server.source}): remove it"
        )
    variables = _inherited_variables(server, host) | words.of(server.written.get("env"), dict(server.env))
    command = words.of(server.written.get("command"), server.command)
    args = words.of(server.written.get("args"), list(server.args))
    value = host.written("stdio", {"command": command, "args": args, "env": variables})
    return ProgramEntry(value, left, frozenset(words.hidden))


def _codex_entry(server: ServerConfig, host: ServerProgram, left: Sequence[str]) -> ProgramEntry:
    """An entry for Codex, which supports variables in headers only, through members of their own."""
    written: Any = server.written.get("headers") or {}
    fixed: dict[str, Any] = {}
    named: dict[str, str] = {}
    value: dict[str, Any] = {host.http: server.url}
    hidden: set[str] = set()
    for name, text in server.headers.items():
        found = _PLAIN.fullmatch(str(written.get(name)).removeprefix("Bearer "))
        if found is None:
            fixed[name] = text
            hidden |= {text} if "${" in str(written.get(name)) else set()
        elif name.lower() == "authorization" and str(written.get(name)).startswith("Bearer "):
            value["bearer_token_env_var"] = found["name"]
        elif str(written.get(name)).startswith("Bearer "):
            fixed[name] = text
            hidden.add(text)
        else:
            named[name] = found["name"]
    if "${" in str(server.written.get("url")):
        hidden.add(str(server.url))
    value |= ({host.headers: fixed} if fixed else {}) | ({"env_http_headers": named} if named else {})
    return ProgramEntry(value, left, frozenset(hidden))


def _inherited_variables(server: ServerConfig, host: ServerProgram) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in server.inherit if name in os.environ}
    return {name: value if host.variable is None else host.variable % name for name, value in inherited.items()}


class _VariableWriter:
    """Converts values with variables to the program's form of variables, or expands them if the program has none."""

    def __init__(self, form: str | None) -> None:
        """`form` is the program's form of a variable; None if it has none."""
        self._form = form
        self.hidden: set[str] = set()

    def of(self, written: Any, value: Any) -> Any:
        """The text to write for a value that stands in greenroom.toml as `written`."""
        if is_object(value):
            named: Mapping[str, Any] = written if is_object(written) else {}
            return {key: self.of(named.get(key), each) for key, each in value.items()}
        if is_array(value):
            listed = written if is_array(written) and len(written) == len(value) else [None] * len(value)
            return [self.of(one, each) for one, each in zip(listed, value, strict=True)]
        if not isinstance(written, str) or "${" not in written:
            return value
        names = [found["name"] for found in _PLAIN.finditer(written)]
        form = self._form
        # Other programs support neither variables with a default nor variables that are not in the environment.
        if form is None or "${" in _PLAIN.sub("", written) or any(name not in os.environ for name in names):
            self.hidden.add(str(value))
            return value
        return _PLAIN.sub(lambda found: form % found["name"], written)


# --- Names of entries.


def name_for(target: str | None, command: Sequence[str] | None) -> str:
    """The name of an entry if the user gives none."""
    if command:
        words = [word for word in command if not word.startswith("-")]
        starts_others = Path(words[0]).stem in ("uvx", "npx", "python", "python3", "uv")
        last = Path(words[-1] if starts_others else words[0]).stem
        return _name(last.partition("@")[0] or last)
    text = str(target)
    if is_url(text):
        return _name(
            text.partition("://")[2].partition("/")[0].partition(":")[0].removeprefix("www.").partition(".")[0]
        )
    return _name(Path(text.partition(":")[0]).stem)


def _name(text: str) -> str:
    return "".join(each if each.isalnum() or each in "_-" else "-" for each in text).strip("-")[:32] or "server"


# --- Files that another program reads and writes as well: reading never blocks, a file is replaced atomically, and a backup is kept beside it.
# Backups and temporary files are never written through a link: a cloned repository may bring links with the expected names.

_KEPT: Final = 9
"""The number of backups; the first backup is never overwritten."""
_LARGEST: Final = 256 * 1024 * 1024
"""The largest file that is read: some programs keep their whole history in it."""
_DEEPEST: Final = 64


class ChangedMeanwhile(Exception):
    """Another program has changed the file since it was read."""


class _NotReproducible(Exception):
    """A JSON value that would not be written back as it was read."""


def _exact_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or Decimal(repr(value)) != Decimal(text):
        raise _NotReproducible(f"the number {text[:40]} would lose digits when it is written")
    return value


def _reject_constant(text: str) -> Any:
    raise _NotReproducible(f"{text} is not JSON")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _NotReproducible(f"{twice!r} occurs twice in one object")
    return found


def read_entries(path: Path) -> dict[str, Any]:
    """The file's content; empty if the file does not exist. Raises `CommandFailed` if it is neither a JSON object nor, for a .toml file, TOML."""
    text = read_text_at(path)
    if is_toml(path):
        return parsed_toml(text, path)
    if not text.strip():
        return {}
    found: Any = None
    try:
        found = json_library.loads(
            text, parse_float=_exact_float, parse_constant=_reject_constant, object_pairs_hook=_unique_object
        )
        deep = _is_deep(found)
    except _NotReproducible as unlike:
        raise CommandFailed(CONFIG, f"{path}: {unlike}; edit the file by hand; nothing was written") from None
    except ValueError as error:
        raise CommandFailed(
            CONFIG,
            f"{path} is not plain JSON ({error}): a file with comments has to be edited by hand; nothing was written",
        ) from None
    except RecursionError:
        deep = True
    if deep:
        raise CommandFailed(CONFIG, f"{path} is nested more than {_DEEPEST} levels deep: nothing was written")
    if not is_object(found):
        raise CommandFailed(CONFIG, f"{path} has to be an object: nothing was written")
    return dict(found)


def is_toml(path: Path) -> bool:
    """Whether the file is TOML, by its name."""
    return path.suffix == ".toml"


def read_text_at(path: Path) -> str:
    """The text of a file; empty if the file does not exist. Raises `CommandFailed`."""
    try:
        return read_regular(path, _LARGEST).decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise CommandFailed(CONFIG, f"{path} cannot be read ({error}): nothing was written") from None


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_DEEPEST):
        layer = [
            one
            for each in layer
            for one in (each.values() if is_object(each) else each if is_array(each) else ())
            if is_object(one) or is_array(one)
        ]
        if not layer:
            return False
    return True


def json_text(value: Mapping[str, Any]) -> str:
    """The value as JSON text. A lone surrogate, which JSON can hold and UTF-8 cannot, is written as an escape."""
    text = json_library.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace").decode()


def write_entries(path: Path, text: str, before: Mapping[str, Any]) -> Path | None:
    """Replace the file atomically, with its old permissions; returns the path of the backup. Raises `ChangedMeanwhile` if its content is not `before`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # the link stays, and its target is replaced
    kept: Path | None = None
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600

    made = [write_beside(target, text.encode(), mode=mode)]
    try:
        if target.exists():
            made.append(write_beside(target, target.read_bytes()))
            shutil.copystat(target, made[-1])
        if read_entries(path) != before:
            raise ChangedMeanwhile
        if len(made) > 1:
            kept = _backup_path(target)
            made[1].replace(kept)
        made[0].replace(target)
    finally:
        for each in made:
            each.unlink(missing_ok=True)
    return kept


def _backup_path(target: Path) -> Path:
    """A path for the backup. The first backup is never overwritten; when all names are taken, the last one is.

    A link at that path is replaced itself, not its target.
    """
    first = f"{target.name}.before-greenroom"
    places = [target.with_name(first if number == 1 else f"{first}-{number}") for number in range(1, _KEPT + 1)]
    return next((place for place in places if not os.path.lexists(place)), places[-1])


# --- Edits of a TOML file of another program: one table is added, replaced or removed; the rest of the text stays, comments included.
# The standard library cannot write TOML, and a writer would lose comments, so the edit works on lines. The result is parsed: if it is anything but the
# wanted change, nothing is written.

_HEADER: Final = re.compile(r"[ \t]*\[\[?(?P<path>[^\[\]\n]*)\]")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_with_entry(text: str, path: Path, key: str, name: str, entry: Mapping[str, Any] | None) -> str:
    """The text with this entry in table `key`, or without it if `entry` is None. Raises `CommandFailed` if the file has to be edited by hand."""
    before = parsed_toml(text, path)
    servers = before.get(key, {})
    if not is_object(servers):
        raise CommandFailed(CONFIG, f"{path}: {key} has to be a table: correct the file first; nothing was written")
    wanted_table = {each: value for each, value in servers.items() if each != name}
    if entry is not None:
        wanted_table[name] = entry
    kept = _without_table(text, key, name) if name in servers else text
    if entry is not None:
        kept = f"{kept.rstrip()}\n\n{toml_table(key, name, entry)}" if kept.strip() else toml_table(key, name, entry)
    try:
        found = tomllib.loads(kept)
    except tomllib.TOMLDecodeError:
        found = {}
    rest = {each: value for each, value in before.items() if each != key}
    if found.get(key, {}) != wanted_table or {each: value for each, value in found.items() if each != key} != rest:
        by_hand = "remove it by hand" if entry is None else f"write this by hand:\n{toml_table(key, name, entry)}"
        raise CommandFailed(CONFIG, f"{path} has {key}.{name} in a form that cannot be edited automatically: {by_hand}")
    return kept


def parsed_toml(text: str, path: Path) -> dict[str, Any]:
    """The parsed TOML. Raises `CommandFailed` if the text is not TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CommandFailed(
            CONFIG, f"{path} is not TOML ({error}): correct the file first; nothing was written"
        ) from None


def _without_table(text: str, key: str, name: str) -> str:
    """The text without the table and its subtables."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        found = _HEADER.match(line)
        if found is not None:
            inside = _header_names(found["path"])[:2] == [key, name]
        if not inside:
            lines.append(line)
    return "".join(lines)


def _header_names(path: str) -> list[str]:
    """The names in a table's header; empty if the header cannot be parsed alone."""
    try:
        value: Any = tomllib.loads(f"[{path}]")
    except tomllib.TOMLDecodeError:
        return []
    found: list[str] = []
    while is_object(value) and value:
        name, value = next(iter(value.items()))
        found.append(name)
    return found


def toml_table(key: str, name: str, entry: Mapping[str, Any]) -> str:
    """The TOML text of the table."""
    return f"[{key}.{_toml_key(name)}]\n" + "".join(
        f"{_toml_key(each)} = {_toml_value(value)}\n" for each, value in entry.items()
    )


def _toml_key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _toml_string(text)


def _toml_value(value: Any) -> str:
    if is_object(value):
        members = ", ".join(f"{_toml_key(each)} = {_toml_value(one)}" for each, one in value.items())
        return f"{{ {members} }}" if members else "{}"
    if is_array(value):
        return f"[{', '.join(map(_toml_value, value))}]"
    return _toml_string(str(value))


def _toml_string(text: str) -> str:
    """A TOML basic string. TOML has JSON's escapes, and requires one for DEL as well."""
    return json_library.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
