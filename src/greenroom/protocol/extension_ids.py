"""Identifiers of protocol extensions, and the extensions that a peer has declared in its capabilities.

An identifier follows the grammar of `_meta` keys with a mandatory prefix: `com.example/notes`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from .errors import ErrorCode, McpError
from .jsonrpc import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

ID_LIMIT: Final = 256
"""The longest identifier of an extension of ours, in characters."""
_LABEL: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RESERVED_LABELS: Final = frozenset({"modelcontextprotocol", "mcp"})
OFFICIAL_PREFIX: Final = "io.modelcontextprotocol"
"""The prefix of the protocol's own extensions, which a server may implement."""
APPS_ID: Final = f"{OFFICIAL_PREFIX}/ui"
SKILLS_ID: Final = f"{OFFICIAL_PREFIX}/skills"


def is_reserved_prefix(prefix: str) -> bool:
    """Whether the protocol keeps this prefix to itself: its second label is `modelcontextprotocol` or `mcp`."""
    labels = prefix.split(".")
    return len(labels) > 1 and labels[1] in _RESERVED_LABELS


def id_problem(id: object) -> str | None:
    """The reason why a value is no identifier of an extension, with what to write; None if it is one."""
    if not isinstance(id, str):
        return f'an extension has a text as its identifier, such as "com.example/notes", not {id!r}'
    prefix, slash, name = id[: ID_LIMIT + 1].partition("/")
    if not slash:
        return (
            f'{id[:ID_LIMIT]!r} has no prefix: put a domain of yours before it, reversed, as in "com.example/{id[:40]}"'
        )
    if len(id) > ID_LIMIT:
        return f"the identifier {id[:40]!r}… is longer than {ID_LIMIT} characters"
    if not all(_LABEL.fullmatch(label) for label in prefix.split(".")):
        return (
            f"the prefix of {id!r} must be labels with dots between them, as com.example: each begins with a letter, ends with a letter or "
            "digit, and has letters, digits and hyphens"
        )
    if not _NAME.fullmatch(name):
        return f"the name of {id!r} must begin and end with a letter or digit, with letters, digits, '-', '_' and '.' between"
    if is_reserved_prefix(prefix) and prefix != OFFICIAL_PREFIX:
        return f"the prefix of {id!r} is reserved for the protocol: take a domain of your own, reversed"
    return None


def declared_extensions(capabilities: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The extensions that a peer has declared, with their settings. A declaration whose settings are no object counts as none."""
    found: Any = capabilities.get("extensions")
    if not is_object(found):
        return {}
    return {id: settings for id, settings in found.items() if is_object(settings)}


def is_extension_declared(capabilities: Mapping[str, Any], id: str) -> bool:
    """Whether a peer has declared this extension."""
    found: Any = capabilities.get("extensions")
    return is_object(found) and is_object(found.get(id))


def extension_not_declared(what: str, id: str) -> McpError:
    """The error for a request that needs an extension which the client has not declared in it."""
    return McpError(
        ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"{what} needs the extension {id}: declare it in the request's client capabilities, under extensions",
        {"requiredCapabilities": {"extensions": {id: {}}}},
    )
