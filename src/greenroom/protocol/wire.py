"""How values of ours look on the wire: camelCase members, `_meta`, and nothing that is empty.

Every block, definition and result that greenroom has a class for is a `Wire`. `plain` is for the values of others: what a
handler returned, a default, foreign metadata.
"""

from __future__ import annotations

import math
import sys
from binascii import b2a_base64
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from .errors import LocalProtocolError
from .problems import Problem, Reason, path_of

if TYPE_CHECKING:
    from typing import Self

    from .problems import Trail


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


def plain(value: Any, pictures: list[Any] | None = None) -> Any:
    """The value in JSON's own types: dataclasses, enums, dates, bytes (base64), sets, models, arrays, frames … all the way down.

    Pictures in it are put into `pictures`, and the value says where in a content that begins with a text each of them stands. Raises `TypeError`
    for what JSON has no word for.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Wire):
        return value.to_wire()

    def hook(one: Any) -> Any:
        return _plain_of_others(one, pictures)

    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=hook)
    except TypeError as error:
        if "keys are supported" not in str(error):
            raise
        if pictures is not None:
            pictures.clear()
    from .conversions import with_text_keys  # noqa: PLC0415 - few dicts have such keys

    return msgspec.to_builtins(with_text_keys(value), str_keys=True, enc_hook=hook)


def sendable(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The same of an object that is to be sent. Raises `LocalProtocolError`, which says what of it cannot be: nothing is sent then."""
    try:
        made: dict[str, Any] = plain(dict(value))
    except RecursionError:
        raise LocalProtocolError(f"{what} cannot be written as JSON: nested too deeply, or within itself") from None
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"{what} cannot be written as JSON: {error}") from error
    if (place := infinity_in(made)) is not None:
        raise LocalProtocolError(f"{what} cannot be written as JSON: {place}")
    return made


_INFINITIES = (math.inf, -math.inf)
_PACKED = tuple(msgspec.msgpack.encode(one) for one in _INFINITIES)


def infinity_in(data: Any) -> Problem | None:
    """Where the first infinity is in a value of JSON's own types. NaN stands for what is missing, and is null; an infinity would be lost.

    In MessagePack an infinity is nine bytes of its own. To look for them in 50,000 rows of three takes 3 ms, and to look at each value 28 ms.
    """
    try:
        packed = msgspec.msgpack.encode(data)
        if _PACKED[0] not in packed and _PACKED[1] not in packed:
            return None
    except (
        OverflowError,
        ValueError,
        RecursionError,
    ):  # an integer that it has no room for, half a character: look at each value
        pass
    waiting: deque[tuple[Any, Trail]] = deque([(data, None)])
    while waiting:
        value, trail = waiting.popleft()
        if type(value) is float and value in _INFINITIES:
            text = f"{value} is no number in JSON: write None or a text in its place"
            return Problem(path_of(trail), Reason(text, "type_mismatch"))
        if is_object(value) or is_array(value):
            items: Iterable[tuple[Any, Any]] = value.items() if is_object(value) else enumerate(value)
            waiting += ((one, (trail, key)) for key, one in items if type(one) in _WITH_INFINITIES)
    return None


_WITH_INFINITIES = frozenset({dict, list, tuple, float})


def _plain_of_others(value: Any, pictures: list[Any] | None) -> Any:
    """What msgspec leaves to us: one step towards JSON, the rest of the way it goes itself."""
    from . import conversions as library_values  # noqa: PLC0415 - nearly all that is sent is of types that msgspec knows

    if sys.modules.get("pydantic") is not None:
        from .pydantic_models import as_json, is_value  # noqa: PLC0415 - without a model it is never loaded

        if is_value(value):
            return as_json(value)
    if library_values.is_picture(value):
        if pictures is None:
            raise TypeError("a picture is content and no data: return it by itself, or in a list of pictures and texts")
        pictures.append(value)
        return f"content[{len(pictures)}]"
    if is_object(value):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if (made := library_values.step(value)) is not library_values.UNKNOWN:
        return made
    if is_collection(value):  # not what may never end
        return list(value)
    raise TypeError(f"{type(value).__qualname__} has no form in JSON")
