"""How values of ours look on the wire: camelCase members, `_meta`, and nothing that is empty.

Every block, definition and result that greenroom has a class for is a `Wire`. `plain` is for the values of others: what a
handler returned, a default, somebody's metadata.
"""

from __future__ import annotations

import sys
from binascii import b2a_base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from .errors import LocalProtocolError

if TYPE_CHECKING:
    from typing import Self


def wire_name(name: str) -> str:
    """What a Python attribute is called on the wire."""
    if name == "meta":
        return "_meta"
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def base64_text(data: bytes) -> str:
    """The bytes as the wire carries them."""
    return b2a_base64(data, newline=False).decode("ascii")


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename=wire_name):
    """An object of the protocol. Members that may be left out are left out when they are empty."""

    def to_wire(self) -> dict[str, Any]:
        """The object as JSON's own types. What a user put into it (metadata, annotations, schemas) goes unchanged."""
        kind = type(self)
        config = kind.__struct_config__
        wire: dict[str, Any] = {}
        if config.tag_field is not None:
            wire[config.tag_field] = config.tag
        needed = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
        for place, (name, member) in enumerate(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)):
            value = getattr(self, name)
            if place < needed or not is_empty(value):
                wire[member] = plain(value)
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """The object of what a peer sent. Raises `msgspec.ValidationError` when it is none."""
        return msgspec.convert(value, cls)


def is_empty(value: Any) -> bool:
    """Whether there is nothing in it: zero and False are something."""
    return value is None or (isinstance(value, (str, bytes, Mapping, Sequence)) and not value)


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether it is an object in JSON's sense."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether it is an array in JSON's sense."""
    return isinstance(value, (list, tuple))


def is_iterable(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether there is one thing after the other in it."""
    return isinstance(value, Iterable)


def is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    """Whether there are things in it, and they can be counted."""
    return isinstance(value, Collection)


_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """The value in JSON's own types: dataclasses, enums, dates, bytes (base64), sets, models … all the way down.

    Raises `TypeError` for what JSON has no word for.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Wire):
        return value.to_wire()
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_of_others)


def sendable(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The same of an object that is to be sent. Raises `LocalProtocolError`, which says what of it cannot be: nothing is sent then."""
    try:
        made: dict[str, Any] = plain(dict(value))
    except RecursionError:
        raise LocalProtocolError(f"{what} cannot be written as JSON: nested too deeply, or within itself") from None
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"{what} cannot be written as JSON: {error}") from error
    return made


def _plain_of_others(value: Any) -> Any:
    """What msgspec leaves to us: one step towards JSON, the rest of the way it goes itself."""
    if "pydantic" in sys.modules:
        from .pydantic_models import as_json, is_model  # noqa: PLC0415 - who has no model never loads it

        if is_model(type(value)):
            return as_json(value)
    if is_object(value):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if is_collection(value):  # not what may never end
        return list(value)
    raise TypeError(f"{type(value).__qualname__} has no form in JSON")
