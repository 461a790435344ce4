"""Imports of servers from the files of Claude Desktop, Claude Code, Cursor and VS Code, translated to greenroom's fields.

The files' formats (after each program's documentation):

- Claude Desktop, Claude Code and Cursor have `mcpServers`, VS Code has `servers` and `inputs`; Claude Code's own file has `projects` besides.
- `type` is stdio, http, streamable-http or sse. Without it, a `command` is a program and a `url` is HTTP, as in Cursor.
- `timeout` (Claude Code) is in milliseconds; values below 1000 are ignored there. `oauth` (Claude Code) and `auth` (Cursor) identify the OAuth client.
- `envFile` (Cursor, VS Code) is a file of variables.

Fields that greenroom does not have are ignored with a warning. A server that would be less safe without such a field is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.serialization import is_array, is_object

from .config_schema import MOST_MISTAKES, SERVER
from .mistakes import nearest
from .variables import EditorInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path as FilePath

    from .parsed_file import KeyPath, ParsedFile

_TYPES: Final = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
_IGNORED: Final = frozenset(
    {"$schema", "alwaysLoad", "description", "dev", "gallery", "icon", "icons", "metadata", "name", "title", "version"}
)
_UNSAFE: Final = {
    "sandboxEnabled": "greenroom has no sandbox: remove sandboxEnabled if the server may run without one",
    "sandbox": "greenroom has no sandbox: remove sandbox if the server may run without one",
    "headersHelper": "greenroom starts no program for headers: write the header into headers, with a variable",
}
_KEPT: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_LONGEST: Final = 32
_MILLISECONDS: Final = 1000
_OAUTH: Final = {
    "clientId": "client_id",
    "CLIENT_ID": "client_id",
    "clientSecret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "callbackPort": "port",
    "scopes": "scopes",
}


class FieldNote(NamedTuple):
    """A remark about one field of an entry."""

    field: str
    what: str
    hint: str = ""
    harmless: bool = False


class ImportedServer(NamedTuple):
    """A translated server."""

    table: dict[str, Any]
    """The server in greenroom's fields."""
    words: dict[str, str]
    """The file's name of a field, if it differs from greenroom's."""
    mistakes: list[FieldNote]
    env_file: str | None


def servers_of(document: ParsedFile, project: FilePath) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """The tables of servers in a file, the general ones before the project's."""
    value = document.value
    for path in (("mcpServers",), ("servers",), ("mcp", "servers"), ("projects", str(project), "mcpServers")):
        found: Any = value
        for key in path:
            found = found.get(key) if is_object(found) else None
        if is_object(found):
            yield path, found


def shape_problem(document: ParsedFile) -> str | None:
    """The mistake in a file without tables of servers; None if it has one."""
    for name in ("mcpServers", "servers"):
        if name in document.value:
            return None if is_object(document.value[name]) else f"{name} has to be an object"
    if is_object(document.value.get("mcp")) or is_object(document.value.get("projects")):
        return None
    return "has neither mcpServers nor servers"


def inputs_of(document: ParsedFile) -> dict[str, EditorInput]:
    """The inputs that VS Code would ask the user for."""
    listed = document.value.get("inputs")
    found: dict[str, EditorInput] = {}
    for one in listed if is_array(listed) else ():
        if is_object(one) and isinstance(one.get("id"), str):
            description, default = one.get("description"), one.get("default")
            found[one["id"]] = EditorInput(
                description if isinstance(description, str) else "", default if isinstance(default, str) else None
            )
    return found


def valid_name(name: str) -> str:
    """A server's name with only the characters that greenroom allows."""
    if _KEPT.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:_LONGEST].strip("-")


def translate(entry: Mapping[str, Any]) -> ImportedServer:
    """Translate an entry to greenroom's fields. Unknown fields are reported and left out."""
    found = ImportedServer({}, {}, [], None)
    table, words, mistakes = found.table, found.words, found.mistakes
    env_file: str | None = None
    fields = [(key, value) for key, value in entry.items() if value is not None and key not in _IGNORED]
    for key, value in fields[:MOST_MISTAKES]:
        if key == "type":
            words["transport"] = key
            table["transport"] = _TYPES.get(value, value) if isinstance(value, str) else value
        elif key in ("serverUrl", "httpUrl"):
            words["url"] = key
            table["url"] = value
        elif key == "env" and is_object(value):
            table[key] = {one: _as_text(text) for one, text in value.items() if text is not None}
        elif key == "timeout":
            _translate_timeout(value, found)
        elif key in ("oauth", "auth") and is_object(value):
            _translate_sign_in(key, value, found)
        elif key == "envFile":
            if isinstance(value, str):
                env_file = value
            else:
                mistakes.append(FieldNote(key, "has to be a text"))
        elif key == "enabled" and isinstance(value, bool):
            words["disabled"] = key
            table["disabled"] = not value
        elif key in _UNSAFE:
            if value is not False:
                mistakes.append(FieldNote(key, "is not supported", _UNSAFE[key]))
        elif key in SERVER.fields:
            table[key] = value
        else:
            close = nearest(key, SERVER.fields)
            mistakes.append(FieldNote(key, "there is no such field", close or "it is ignored", harmless=not close))
    if "transport" not in table and "url" in table and "command" not in table:
        table["transport"] = "http"
    return found._replace(env_file=env_file)


def _as_text(value: Any) -> Any:
    """The text of a number: the other programs accept numbers as values of variables."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _translate_timeout(value: Any, found: ImportedServer) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        found.mistakes.append(FieldNote("timeout", "has to be a number of milliseconds, more than 0"))
    elif value < _MILLISECONDS:
        found.mistakes.append(
            FieldNote(
                "timeout", "is in milliseconds, and a value below 1000 is ignored", "write 1000 or more", harmless=True
            )
        )
    else:
        found.words["timeouts"] = "timeout"
        found.table["timeouts"] = {"tool": value / _MILLISECONDS}


def _translate_sign_in(key: str, value: Mapping[str, Any], found: ImportedServer) -> None:
    settings: dict[str, Any] = {}
    for name, one in value.items():
        known = _OAUTH.get(name)
        if known is None:
            found.mistakes.append(FieldNote(key, f"{name} is not supported", "it is ignored", harmless=True))
        else:
            settings[known] = one.split() if known == "scopes" and isinstance(one, str) else one
    found.words["oauth_config"] = key
    found.table["oauth"] = "auto"
    found.table["oauth_config"] = settings
