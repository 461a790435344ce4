"""A server as the files of other programs have it: from what was typed, or from our own configuration.

A variable of the environment stays one wherever the program knows such: what it stands for may be a secret, and the file may be shared.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.wire import is_array, is_object

from .endings import Misused
from .loading import is_url, load_server, parted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.config.values import ServerConfig

    from .installing import Program

_PLAIN: Final = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable without an otherwise."""
_THEIRS: Final = frozenset({"transport", "command", "args", "env", "inherit", "cwd", "url", "headers"})
"""What of our configuration the others have, too."""


class Entry(NamedTuple):
    """A server as it is to be written."""

    value: dict[str, Any]
    left: Sequence[str] = ()
    """Fields of ours that the program has nothing of."""
    hidden: frozenset[str] = frozenset()
    """What variables stand for, where it has to be written out: nobody is shown it."""


def entry_for(
    target: str | None, command: Sequence[str] | None, header: Sequence[str], env: Sequence[str], host: Program
) -> Entry:
    """Of what was typed."""
    variables = dict(_pair(each, "=", "--env", "NAME=value") for each in env)
    headers = dict(_pair(each, ":", "--header", "'Name: value'") for each in header)
    if target is not None and is_url(target):
        if variables:
            raise Misused("--env is for a command")
        if not host.http:
            raise Misused(_no_urls(host, target, headers))
        return Entry(
            {
                **({"type": "http"} if host.typed else {}),
                host.http: target,
                **({host.headers: headers} if headers else {}),
            }
        )
    if headers:
        raise Misused("--header is for a URL")
    words = list(command or ())
    if not command:
        words, more = _serving(str(target))
        variables = more | variables
    found = shutil.which(words[0])
    if found is None:
        raise Misused(f"there is no program {words[0]!r} here")
    if command is None or os.sep in words[0]:
        words[0] = found
    entry: dict[str, Any] = {**({"type": "stdio"} if host.typed else {}), "command": words[0], "args": words[1:]}
    return Entry(entry | ({"env": variables} if variables else {}))


def _serving(target: str) -> tuple[list[str], dict[str, str]]:
    """The words that serve code of this machine, from wherever they are started, and what has to be in their environment."""
    load_server(target)  # which says what is wrong with it, now and not there
    place, attribute = parted(target)
    here = Path.cwd()
    variables: dict[str, str] = {}
    if not place.endswith(".py") and (spec := PathFinder.find_spec(place.partition(".")[0], [str(here)])) is not None:
        # It is only found from this folder, where nobody else starts it.
        if spec.origin is not None and spec.submodule_search_locations is None:
            place = spec.origin
        else:
            variables["PYTHONPATH"] = str(here)
    if place.endswith(".py"):
        place = str(Path(place).resolve())
    # -P: whatever lies in the folder that a program starts it in stays out of the way, be it called json.py.
    words = [sys.executable, "-P", "-m", "greenroom.cli", "serve"]
    return [*words, f"{place}:{attribute}" if attribute else place], variables


def _no_urls(host: Program, url: str, headers: Mapping[str, str]) -> str:
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


def gateway_entry(config: Path, header: Sequence[str], env: Sequence[str], host: Program, only: str = "") -> Entry:
    """All servers of a file as one, or one of them: a gateway that the program starts. Raises `ConfigError`."""
    from greenroom.config.mistakes import BadConfig  # noqa: PLC0415 - only for files
    from greenroom.config.reader import read  # noqa: PLC0415 - as above

    if header:
        raise Misused("--header is for a URL: the file has the headers of its servers")
    found = read(config)
    if not found.good or not config.is_file():
        raise (
            BadConfig([one for one in found.mistakes if not one.harmless])
            if found.mistakes
            else Misused(f"there is no file {config}")
        )
    variables = dict(_pair(each, "=", "--env", "NAME=value") for each in env)
    words = ["-P", "-m", "greenroom.cli", "serve", "--config", str(config.resolve())]
    words += ["--only", only] if only else []
    value: dict[str, Any] = {**({"type": "stdio"} if host.typed else {}), "command": sys.executable, "args": words}
    return Entry(value | ({"env": variables} if variables else {}))


def configured(name: str, config: Path | None, header: Sequence[str], env: Sequence[str], host: Program) -> Entry:
    """A configured server. Raises `ConfigError`, and `Misused` for what the program cannot do."""
    from greenroom.config.lookup import server_named  # noqa: PLC0415 - only for names

    if header or env:
        raise Misused(f"--header and --env are not for a configured server: {name} has its own")
    server = server_named(name, config)
    left = sorted(set(server.written) - _THEIRS)
    words = _Words(host.variable)
    if server.url is not None and not host.http:
        return gateway_entry(Path(server.source.file), header, env, host, only=name)
    if server.url is not None and host.key == "mcp_servers":
        return _for_codex(server, host, left)
    if server.url is not None:
        headers = words.of(server.written.get("headers"), dict(server.headers))
        value = {
            **({"type": server.transport} if host.typed else {}),
            host.sse if server.transport == "sse" else host.http: words.of(server.written.get("url"), server.url),
            **({host.headers: headers} if headers else {}),
        }
        return Entry(value, left, frozenset(words.hidden))
    if server.cwd is not None:
        raise Misused(f"{host.title} starts programs where it is, and {name} has a cwd ({server.source}): take it out")
    variables = _inherited(server, host) | words.of(server.written.get("env"), dict(server.env))
    value = {
        **({"type": "stdio"} if host.typed else {}),
        "command": words.of(server.written.get("command"), server.command),
        "args": words.of(server.written.get("args"), list(server.args)),
        **({"env": variables} if variables else {}),
    }
    return Entry(value, left, frozenset(words.hidden))


def _for_codex(server: ServerConfig, host: Program, left: Sequence[str]) -> Entry:
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
    return Entry(value, left, frozenset(hidden))


def _inherited(server: ServerConfig, host: Program) -> dict[str, str]:
    there = {name: os.environ[name] for name in server.inherit if name in os.environ}
    return {name: value if host.variable is None else host.variable % name for name, value in there.items()}


class _Words:
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
    if is_url(text):
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
