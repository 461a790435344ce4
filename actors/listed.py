"""How something that is registered is listed: its form on the wire, looked at before any client sees it.

A client whose library is strict refuses a whole list for one member that is not what the protocol says, and all other tools with it. So
what was said by hand (titles, icons, annotations) is held against the protocol's shapes here, once, when it is registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec

from greenroom.protocol.complaints import explain
from greenroom.protocol.json import encode

from .catalogue import RegistrationError

if TYPE_CHECKING:
    from .options import Shown

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class _Icon(msgspec.Struct, rename="camel"):
    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class _ToolHints(msgspec.Struct, rename="camel"):
    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _Hints(msgspec.Struct, rename="camel"):
    audience: list[Literal["user", "assistant"]] | None = None
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    last_modified: str | None = None


class _Listed(msgspec.Struct, rename="camel"):
    title: str | None = None
    description: str | None = None
    icons: list[_Icon] | None = None
    mime_type: str | None = None
    size: int | None = None
    meta: Annotated[dict[str, Any] | None, msgspec.Meta()] = msgspec.field(default=None, name="_meta")


class _Tool(_Listed, rename="camel"):
    annotations: _ToolHints | None = None


class _Other(_Listed, rename="camel"):
    annotations: _Hints | None = None


def as_listed(what: str, definition: Any) -> Mapping[str, Any]:
    """The wire form of a definition. What cannot be written, or is not what clients expect, is told now."""
    try:
        wire: Mapping[str, Any] = definition.to_wire()
        encode(wire)
    except Exception as error:
        raise RegistrationError(f"{what}: what is said of it has no form in JSON: {error}") from error
    shape = _Tool if "inputSchema" in wire else _Other
    try:
        msgspec.convert(wire, shape)
    except msgspec.ValidationError as error:
        raise RegistrationError(
            f"{what}: what is said of it is not what clients take: {explain(error, shape)}"
        ) from None
    return wire


def icons_of(what: str, options: Shown) -> list[Any]:
    """The icons that were said; a text is none, though Python would take it for a list of letters."""
    said = cast("object", options.icons)
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise RegistrationError(f"{what}: icons is a list of Icon(src, …), not {said!r}")
    return list(options.icons)


def meta_of(what: str, options: Shown) -> Mapping[str, Any]:
    """The `_meta` that was said."""
    said = cast("object", options.meta)
    if not isinstance(said, Mapping):
        raise RegistrationError(f"{what}: meta is a dict with texts as keys, not {said!r}")
    return options.meta


def scopes_of(what: str, options: Shown) -> tuple[str, ...]:
    """The scopes that were said; what is none must not be taken for nothing needed."""
    said: Any = options.scopes
    if not isinstance(said, list | tuple | set | frozenset):
        raise RegistrationError(f"{what}: scopes is a list of words, not {said!r}")
    scopes: tuple[Any, ...] = tuple(dict.fromkeys(cast("Iterable[Any]", said)))
    for each in scopes:
        if not isinstance(each, str) or not _SCOPE.fullmatch(each):
            raise RegistrationError(f"{what}: a scope is a word without blanks, quotes or backslashes, not {each!r}")
    return scopes
