"""A server as the files of other programs have it: from what was typed, or from our own configuration.

A variable of the environment stays one wherever the program knows such: what it stands for may be a secret, and the file may be shared.
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
"""A variable without an otherwise."""
_SHARED_FIELDS: Final = frozenset({"transport", "command", "args", "env", "inherit", "cwd", "url", "headers"})
"""What of our configuration the others have, too."""


class ProgramEntry(NamedTuple):
    """A server as it is to be written."""

    value: dict[str, Any]
    left: Sequence[str] = ()
    """Fields of ours that the program has nothing of."""
    hidden: frozenset[str] = frozenset()
    """What variables stand for, where it has to be written out: it is not shown."""


def entry_for(where: TargetOptions, host: ServerProgram) -> ProgramEntry:
    """Of what was typed."""
    target, command = where.target, where.command
    variables = parse_pairs("--env", where.env, bare=True)
    headers = parse_pairs("--header", where.header)
    if target is not None and is_url(target):
        if variables:
            raise UsageError("--env is for a command")
        if not host.http:
            raise UsageError(_no_url_support(host, target, headers))
        return ProgramEntry(host.written("http", {host.http: target, host.headers: headers}))
    if headers:
        raise UsageError("--header is for a URL")
    words = list(command or ())
    if not command:
        words, more = _serve_words(str(target))
        variables = more | variables
    found = shutil.which(words[0])
    if found is None:
        raise UsageError(f"there is no program {words[0]!r} here")
    if command is None or os.sep in words[0]:
        words[0] = found
    return ProgramEntry(host.written("stdio", {"command": words[0], "args": words[1:], "env": variables}))


def _serve_words(target: str) -> tuple[list[str], dict[str, str]]:
    """The words that serve code of this machine, from wherever they are started, and what has to be in their environment."""
    load_server(target)  # which says what is wrong with it, now and not there
    place, attribute = split_server_name(target)
    here = Path.cwd()
    variables: dict[str, str] = {}
    if not place.endswith(".py") and (spec := PathFinder.find_spec(place.partition(".")[0], [str(here)])) is not None:
        # It is only found from this folder, where the other program does not start it.
        if spec.origin is not None and spec.submodule_search_locations is None:
            place = spec.origin
        else:
            variables["PYTHONPATH"] = str(here)
    if place.endswith(".py"):
        place = str(Path(place).resolve())
    # -P: whatever lies in the folder that a program starts it in stays out of the way, be it called json.py.
    words = [sys.executable, "-P", "-m", "greenroom.cli", "serve"]
    return [*words, f"{place}:{attribute}" if attribute else place], variables


def _no_url_support(host: ServerProgram, url: str, headers: Mapping[str, str]) -> str:
    """What to write for a program that starts commands only. No value of a header is in it."""
    lines = [f"[server.{name_for(url, None)}]", 'transport = "http"', f'url = "{url}"']
    if headers:
        named = ", ".join(f'{name} = "${{VARIABLE}}"' for name in headers)
        lines.append(f"headers = {{ {named} }}")
    written = "\n".join(lines)
    title = host.title
    return (
        f"{title} starts programs, and takes no URL from its file. Write this into greenroom.toml:\n{written}\n"
        f"and have {title} start a gateway to it: greenroom install --config greenroom.toml --to claude"
        f"{f'; or, {host.remote}' if host.remote else ''}"
    )


# --- of our own configuration


def gateway_entry(where: TargetOptions, config: Path, host: ServerProgram, only: str = "") -> ProgramEntry:
    """All servers of a file as one, or one of them: a gateway that the program starts. Raises `ConfigError`."""
    from greenroom.config.config_reader import read  # noqa: PLC0415 - as above
    from greenroom.config.mistakes import BadConfig  # noqa: PLC0415 - only for files

    if where.header:
        raise UsageError("--header is for a URL: the file has the headers of its servers")
    found = read(config)
    if not found.good or not config.is_file():
        raise (
            BadConfig([one for one in found.mistakes if not one.harmless])
            if found.mistakes
            else UsageError(f"there is no file {config}")
        )
    variables = parse_pairs("--env", where.env, bare=True)
    words = ["-P", "-m", "greenroom.cli", "serve", "--config", str(config.resolve())]
    words += ["--only", only] if only else []
    return ProgramEntry(host.written("stdio", {"command": sys.executable, "args": words, "env": variables}))


def configured_entry(name: str, where: TargetOptions, host: ServerProgram) -> ProgramEntry:
    """A configured server. Raises `ConfigError`, and `UsageError` for what the program cannot do."""
    from greenroom.config.config_reader import server_named  # noqa: PLC0415 - only for names

    if where.header or where.env:
        raise UsageError(f"--header and --env are not for a configured server: {name} has its own")
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
            f"{host.title} starts programs where it is, and {name} has a cwd ({server.source}): take it out"
        )
    variables = _inherited_variables(server, host) | words.of(server.written.get("env"), dict(server.env))
    command = words.of(server.written.get("command"), server.command)
    args = words.of(server.written.get("args"), list(server.args))
    value = host.written("stdio", {"command": command, "args": args, "env": variables})
    return ProgramEntry(value, left, frozenset(words.hidden))


def _codex_entry(server: ServerConfig, host: ServerProgram, left: Sequence[str]) -> ProgramEntry:
    """It puts variables into headers by members of its own, and into nothing else."""
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
    there = {name: os.environ[name] for name in server.inherit if name in os.environ}
    return {name: value if host.variable is None else host.variable % name for name, value in there.items()}


class _VariableWriter:
    """Values with their variables as a program writes them, as far as it can; in place elsewhere."""

    def __init__(self, form: str | None) -> None:
        """How it writes them, if it does."""
        self._form = form
        self.hidden: set[str] = set()

    def of(self, written: Any, value: Any) -> Any:
        """What is written for this value, which stands in our file as `written`."""
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
        # One with an otherwise is ours alone, and so is one that is not the environment's.
        if form is None or "${" in _PLAIN.sub("", written) or any(name not in os.environ for name in names):
            self.hidden.add(str(value))
            return value
        return _PLAIN.sub(lambda found: form % found["name"], written)


# --- what it is called


def name_for(target: str | None, command: Sequence[str] | None) -> str:
    """What it is called where the user does not say."""
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


# --- A file that another program reads, and mostly writes as well: read without waiting, replaced whole or not at all, and what it was is kept beside it.
# Nothing is written through a link that another party may have put beside it: a repository brings its own files along.

_KEPT: Final = 9
"""So many files from before a change are kept; the first of them for good."""
_LARGEST: Final = 256 * 1024 * 1024
"""More than any program keeps in one: some write their whole history into it."""
_DEEPEST: Final = 64


class ChangedMeanwhile(Exception):
    """Another program has written to it since it was read."""


class _NotReproducible(Exception):
    """What would not be written back as it was read."""


def _exact_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or Decimal(repr(value)) != Decimal(text):
        raise _NotReproducible(f"the number {text[:40]} is more exact than it would be written")
    return value


def _reject_constant(text: str) -> Any:
    raise _NotReproducible(f"{text} is no JSON")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _NotReproducible(f"{twice!r} stands there twice in one object")
    return found


def read_entries(path: Path) -> dict[str, Any]:
    """What stands there; nothing when there is no such file. Raises `CommandFailed` for one that is no JSON object, and no TOML where that is its kind."""
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
        raise CommandFailed(CONFIG, f"{path}: {unlike}; it has to be edited by hand, and nothing was written") from None
    except ValueError as error:
        raise CommandFailed(
            CONFIG,
            f"{path} is no plain JSON ({error}): with comments in it, it has to be edited by hand; nothing was written",
        ) from None
    except RecursionError:
        deep = True
    if deep:
        raise CommandFailed(CONFIG, f"{path} has more than {_DEEPEST} values in each other: nothing was written")
    if not is_object(found):
        raise CommandFailed(CONFIG, f"{path} has to be an object: nothing was written")
    return dict(found)


def is_toml(path: Path) -> bool:
    """Whether the program keeps it in TOML."""
    return path.suffix == ".toml"


def read_text_at(path: Path) -> str:
    """The text of a file; empty when there is no such file. Raises `CommandFailed`."""
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
    """As it is written. Half a character, which JSON can hold and UTF-8 cannot, is written by its number."""
    text = json_library.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace").decode()


def write_entries(path: Path, text: str, before: Mapping[str, Any]) -> Path | None:
    """Put it there at once, with the rights that the file had; returns where the one before is kept. Raises `ChangedMeanwhile` when it is not as it was `before`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link stays one
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
    """Where it is kept as it was. The first one shows how it was before we came, and stays; of the others the last is overwritten when there are many.

    What replaces a link there leaves alone what the link leads to.
    """
    first = f"{target.name}.before-greenroom"
    places = [target.with_name(first if number == 1 else f"{first}-{number}") for number in range(1, _KEPT + 1)]
    return next((place for place in places if not os.path.lexists(place)), places[-1])


# --- A TOML file of another program, of which one table is written, replaced or taken out; the rest of its text stays as it is, comments included.
# The change is made on lines, and what comes of it is read again: where that is anything but the wanted change, nothing is written.

_HEADER: Final = re.compile(r"[ \t]*\[\[?(?P<path>[^\[\]\n]*)\]")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_with_entry(text: str, path: Path, key: str, name: str, entry: Mapping[str, Any] | None) -> str:
    """The text with this entry below `key`; without it for None. Raises `CommandFailed` where it has to be edited by hand."""
    before = parsed_toml(text, path)
    there = before.get(key, {})
    if not is_object(there):
        raise CommandFailed(CONFIG, f"{path}: {key} has to be a table: mend it first; nothing was written")
    wanted_table = {each: value for each, value in there.items() if each != name}
    if entry is not None:
        wanted_table[name] = entry
    kept = _without_table(text, key, name) if name in there else text
    if entry is not None:
        kept = f"{kept.rstrip()}\n\n{toml_table(key, name, entry)}" if kept.strip() else toml_table(key, name, entry)
    try:
        found = tomllib.loads(kept)
    except tomllib.TOMLDecodeError:
        found = {}
    rest = {each: value for each, value in before.items() if each != key}
    if found.get(key, {}) != wanted_table or {each: value for each, value in found.items() if each != key} != rest:
        by_hand = (
            "take it out by hand" if entry is None else f"write this into it by hand:\n{toml_table(key, name, entry)}"
        )
        raise CommandFailed(CONFIG, f"{path} has {key}.{name} in a form that is not edited here: {by_hand}")
    return kept


def parsed_toml(text: str, path: Path) -> dict[str, Any]:
    """What stands there. Raises `CommandFailed` for what is no TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CommandFailed(CONFIG, f"{path} is no TOML ({error}): mend it first; nothing was written") from None


def _without_table(text: str, key: str, name: str) -> str:
    """Without the table, and the tables below it."""
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
    """The names of a table's header; none for one that cannot be read alone."""
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
    """The table as it is written."""
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
    """A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped, too."""
    return json_library.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
