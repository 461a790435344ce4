"""Serialization: protocol objects to the wire (camelCase, `_meta`, no empty members), and any other value to JSON types.

Every block, definition and result class of greenroom is a `WireObject`. `to_jsonable` is for other values: what a handler returned, a default,
foreign metadata.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from binascii import b2a_base64
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, get_origin
from uuid import UUID

import msgspec

from .errors import LocalProtocolError
from .validation_errors import ProblemReason, ValidationProblem, path_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from .validation_errors import Trail


def wire_name(name: str) -> str:
    """The wire name of a Python attribute."""
    if name == "meta":
        return "_meta"
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def base64_text(data: bytes) -> str:
    """Bytes as base64 text."""
    return b2a_base64(data, newline=False).decode("ascii")


class WireObject(msgspec.Struct, frozen=True, omit_defaults=True, rename=wire_name):
    """An object of the protocol. Optional members are left out when they are empty."""

    def to_wire(self) -> dict[str, Any]:
        """The object as JSON types. User data in it (metadata, annotations, schemas) is unchanged."""
        kind = type(self)
        config = kind.__struct_config__
        wire: dict[str, Any] = {}
        if config.tag_field is not None:
            wire[config.tag_field] = config.tag
        needed = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
        for place, (name, member) in enumerate(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)):
            value = getattr(self, name)
            if place < needed or not is_empty(value):
                wire[member] = to_jsonable(value)
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Read a peer's object. Raises `msgspec.ValidationError`."""
        return msgspec.convert(value, cls)


class UnderResult(dict[str, Any]):
    """A structured value that is no object, under `result`: handshake revisions have objects only, and the stateless era takes it out again."""


def is_empty(value: Any) -> bool:
    """Whether the value is None or an empty text, mapping or sequence; zero and False are not empty."""
    return value is None or (isinstance(value, (str, bytes, Mapping, Sequence)) and not value)


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, (list, tuple))


def is_iterable(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether the value can be iterated; text, bytes and mappings can, too."""
    return isinstance(value, Iterable)


def is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    """Whether the value is an iterable with a length."""
    return isinstance(value, Collection)


_UNCHANGED_TYPES = frozenset({str, int, float, bool, type(None)})


def to_jsonable(value: Any, pictures: list[Any] | None = None) -> Any:
    """Convert a value to JSON types: dataclasses, enums, dates, bytes (base64), sets, models, arrays, frames … recursively.

    Pictures are moved to `pictures`; in their place the value says where in the content they are, counted after a leading text. Raises
    `TypeError` for values that JSON cannot express.
    """
    if type(value) in _UNCHANGED_TYPES:
        return value
    if isinstance(value, WireObject):
        return value.to_wire()

    def hook(one: Any) -> Any:
        return _encode_hook(one, pictures)

    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=hook)
    except TypeError as error:
        if "keys are supported" not in str(error):
            raise
        if pictures is not None:
            pictures.clear()
    return msgspec.to_builtins(with_text_keys(value), str_keys=True, enc_hook=hook)


def sendable(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an object that is about to be sent. Raises `LocalProtocolError` naming what cannot be sent; then nothing is sent."""
    try:
        made: dict[str, Any] = to_jsonable(dict(value))
    except RecursionError:
        raise LocalProtocolError(f"{what} cannot be written as JSON: nested too deeply, or within itself") from None
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"{what} cannot be written as JSON: {error}") from error
    if (place := infinity_in(made)) is not None:
        raise LocalProtocolError(f"{what} cannot be written as JSON: {place}")
    return made


_INFINITIES = (math.inf, -math.inf)
_PACKED = tuple(msgspec.msgpack.encode(one) for one in _INFINITIES)


def infinity_in(data: Any) -> ValidationProblem | None:
    """The place of the first infinity in JSON types. NaN is a missing value and becomes null; an infinity would be lost.

    A trick: in MessagePack an infinity is nine distinctive bytes. Packing 50,000 rows of three and searching the bytes takes 3 ms; looking at each
    value takes 28 ms.
    """
    try:
        packed = msgspec.msgpack.encode(data)
        if _PACKED[0] not in packed and _PACKED[1] not in packed:
            return None
    except (
        OverflowError,
        ValueError,
        RecursionError,
    ):
        # An integer over 64 bits or a lone surrogate, which MessagePack cannot express: look at each value.
        pass
    waiting: deque[tuple[Any, Trail]] = deque([(data, None)])
    while waiting:
        value, trail = waiting.popleft()
        if type(value) is float and value in _INFINITIES:
            text = f"{value} cannot be written in JSON: use None or text instead"
            return ValidationProblem(path_of(trail), ProblemReason(text, "type_mismatch"))
        if is_object(value) or is_array(value):
            items: Iterable[tuple[Any, Any]] = value.items() if is_object(value) else enumerate(value)
            waiting += ((one, (trail, key)) for key, one in items if type(one) in _WITH_INFINITIES)
    return None


_WITH_INFINITIES = frozenset({dict, list, tuple, float})


def _encode_hook(value: Any, pictures: list[Any] | None) -> Any:
    """The encode hook for types that msgspec does not know: one step towards JSON, msgspec does the rest."""
    if sys.modules.get("pydantic") is not None:
        from .pydantic_models import as_json, is_value  # noqa: PLC0415 - only loaded with a model

        if is_value(value):
            return as_json(value)
    if is_picture(value):
        if pictures is None:
            raise TypeError("a picture is content, not data: return it by itself, or in a list of pictures and texts")
        pictures.append(value)
        return f"content[{len(pictures)}]"
    if is_object(value):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if (made := jsonable_step(value)) is not UNKNOWN:
        return made
    if is_collection(value):  # no iterators, which may be infinite
        return list(value)
    raise TypeError(f"{type(value).__qualname__} cannot be expressed in JSON")


# --- Values of common libraries, as JSON types or as pictures: numpy, pandas, PIL, matplotlib and similar.
# None of them is imported here: a value of a library exists only if the library is in `sys.modules`, so the others cost nothing.

UNKNOWN: Final = object()
"""The result of `jsonable_step` for a value of an unknown type."""
_ADDRESSES: Final = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
_MANY: Final = 10_000
"""Up to this many values of an array or a frame are converted within a millisecond or two."""
_FORMATS: Final = {"JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
"""The formats that models accept. A picture that was read from one of these keeps its format; any other becomes PNG."""


class Picture(NamedTuple):
    """An encoded picture."""

    data: bytes
    mime_type: str


# --- one step towards JSON


def jsonable_step(value: Any) -> Any:
    """Convert a value one step towards JSON, or return `UNKNOWN`. Raises `TypeError` if a part of it would be lost."""
    for base, made in _BASES:
        if isinstance(value, base):
            return made(value)
    for package, known in _LIBRARIES.items():
        if sys.modules.get(package) is not None and (found := known(value)) is not UNKNOWN:
            return found
    if isinstance(value, _ADDRESSES):
        return str(value)
    for word in ("to_dicts", "to_pylist", "tolist"):  # polars, pyarrow, and arrays of any library
        if callable(to_list := getattr(value, word, None)):
            return to_list()
    if hasattr(value, "keys") and hasattr(value, "__getitem__") and not isinstance(value, Mapping):  # a row of sqlite3
        return {name: value[name] for name in value.keys()}  # noqa: SIM118 - a row is no mapping
    return UNKNOWN


def _datetime(value: datetime) -> Any:
    if value != value:  # noqa: PLR0124 - detects pandas' NaT, which is a datetime unequal to itself
        return None
    return datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold
    )  # fmt: skip


def _time(value: time) -> time:
    return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)


_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (Enum, lambda value: value.value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, lambda value: bytes(memoryview(value))),  # the buffer itself: a subclass may override `__bytes__`
    (datetime, _datetime),
    (date, lambda value: date(value.year, value.month, value.day)),
    (time, _time),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(int=value.int)),
)
"""msgspec rejects subclasses of these types: each value becomes one of its base."""


def _from_numpy(value: Any) -> Any:
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.generic):
        if isinstance(value, numpy.datetime64 | numpy.timedelta64):
            made = value.astype(value.dtype.str.partition("[")[0] + "[us]").item()
            return made if made is None or not isinstance(made, int) else str(value)
        if isinstance(value, numpy.floating):
            return float(value)
        if value.dtype.names:
            return {name: value[name] for name in value.dtype.names}
        return value.item()
    if not isinstance(value, numpy.ndarray):
        return UNKNOWN
    if value.dtype.names:
        return (
            [dict(zip(value.dtype.names, row, strict=True)) for row in value.tolist()] if value.ndim == 1 else UNKNOWN
        )
    if value.dtype.kind in "mM":
        return value.astype(value.dtype.str.partition("[")[0] + "[us]").tolist()
    return value.tolist()


def _from_pandas(value: Any) -> Any:
    pandas = sys.modules["pandas"]
    if isinstance(value, pandas.DataFrame):
        return _records(value)
    if isinstance(value, pandas.Series):
        if isinstance(value.index, pandas.RangeIndex):
            return value.tolist()
        if value.index.nlevels == 1 and value.index.is_unique:
            return {_text_key(label): one for label, one in zip(value.index.tolist(), value.tolist(), strict=True)}
        return _records(value.to_frame("value" if value.name is None else value.name))
    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, pandas.Index | pandas.api.extensions.ExtensionArray):
        return value.tolist()
    return str(value) if isinstance(value, pandas.Period | pandas.Interval) else UNKNOWN


def _records(frame: Any) -> list[dict[str, Any]]:
    """A record for each row, by column; a meaningful index becomes columns too."""
    pandas = sys.modules["pandas"]
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index(
            names=[f"index{place or ''}" if name is None else name for place, name in enumerate(frame.index.names)]
        )
    names = [".".join(map(str, name)) if is_array(name) else str(_text_key(name)) for name in frame.columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TypeError(
            f"the frame has two columns called {twice!r}, but a record has room for one: rename one of them"
        )
    columns = [frame.iloc[:, place].tolist() for place in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


_LIBRARIES: Final[dict[str, Callable[[Any], Any]]] = {"numpy": _from_numpy, "pandas": _from_pandas}


# --- keys


def with_text_keys(value: Any) -> Any:
    """The value with all dict keys as text, for keys that msgspec does not accept. Raises `TypeError`."""
    if is_object(value):
        made: dict[str, Any] = {}
        for key, one in value.items():
            name = _text_key(key)
            if name in made:
                raise TypeError(f"two keys of a dict are {name!r} in JSON: use different texts")
            made[name] = with_text_keys(one)
        return made
    if is_array(value) or _is_set(value):
        return [with_text_keys(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: with_text_keys(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value


def _is_set(value: Any) -> TypeGuard[AbstractSet[Any]]:
    return isinstance(value, AbstractSet)


def _text_key(key: Any) -> Any:
    """The key as text, or as a type that msgspec converts to text."""
    for _ in range(4):
        if key is None or isinstance(key, bool):
            return {None: "null", True: "true", False: "false"}[key]
        if type(key) in (str, int, float, date, datetime, time, UUID, Decimal):
            return key if isinstance(key, str) else key.isoformat() if isinstance(key, date | time) else str(key)
        if isinstance(key, tuple | list | dict):
            break
        key = jsonable_step(key)
        if key is UNKNOWN:
            break
    raise TypeError("a dict key is no text, number or date: use text keys")


# --- pictures


def is_picture(value: Any) -> bool:
    """Whether a value is a PIL image, or a matplotlib figure or axes."""
    return any(isinstance(value, kinds) for kinds in _picture_classes())


def is_picture_class(kind: Any) -> bool:
    """Whether values of that type are pictures."""
    return isinstance(kind, type) and issubclass(kind, _picture_classes())


def _picture_classes() -> tuple[type, ...]:
    found: list[type] = []
    for module, name in (("PIL.Image", "Image"), ("matplotlib.figure", "FigureBase"), ("matplotlib.axes", "Axes")):
        if (loaded := sys.modules.get(module)) is not None and (kind := getattr(loaded, name, None)) is not None:
            found.append(kind)
    return tuple(found)


def picture_of(value: Any) -> Picture:
    """Encode a picture."""
    file = BytesIO()
    if hasattr(value, "get_figure") and not hasattr(value, "savefig"):
        value = value.get_figure()
    if hasattr(value, "savefig"):
        value.savefig(file, format="png")
        return Picture(file.getvalue(), "image/png")
    kind = value.format if value.format in _FORMATS else "PNG"
    if kind == "PNG" and value.mode not in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"):
        value = value.convert("RGB")
    value.save(file, format=kind, **({"save_all": True} if getattr(value, "is_animated", False) else {}))
    return Picture(file.getvalue(), _FORMATS.get(kind, "image/png"))


# --- schemas of library types in return hints


def library_schema(kind: Any) -> dict[str, Any] | None:
    """The schema of a library type's serialized form; None for an unknown type."""
    kind = get_origin(kind) or kind
    if not isinstance(kind, type):
        return None
    if is_picture_class(kind):
        return {"type": "string", "description": "where in the content the picture is"}
    if (pandas := sys.modules.get("pandas")) is not None:
        if issubclass(kind, pandas.DataFrame):
            return {"type": "array", "items": {"type": "object"}}
        if issubclass(kind, pandas.Series):
            return {"type": ["array", "object"]}
    if (numpy := sys.modules.get("numpy")) is not None:
        for name, json_type in (
            ("ndarray", "array"),
            ("bool_", "boolean"),
            ("integer", "integer"),
            ("floating", "number"),
        ):
            if issubclass(kind, getattr(numpy, name)):
                return {"type": json_type}
    for bases, json_type in _JSON_TYPES:
        if issubclass(kind, bases) and kind not in bases and not issubclass(kind, Enum):
            return {"type": json_type}
    return None


_JSON_TYPES: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((str, datetime, date, time, timedelta, UUID), "string"),
    ((int,), "integer"),
    ((float,), "number"),
)


_QUICK: Final = frozenset({bool, int, float, str, type(None)})
"""Types that are serialized at once, as most results are."""


def is_slow_to_serialize(value: Any, depth: int = 3) -> bool:
    """Whether serialization is slow: a picture, or a large array or frame, alone or among the first items of a list, dict or dataclass."""
    if type(value) in _QUICK:
        return False
    size = getattr(value, "size", 0)
    if (type(size) is int and size > _MANY) or is_picture(value):
        return True
    some: Any = ()
    if is_object(value):
        some = value.values()
    elif is_array(value):
        some = value
    elif fields := getattr(value, "__dataclass_fields__", None):
        some = (getattr(value, name, None) for name in fields)
    return depth > 0 and any(is_slow_to_serialize(one, depth - 1) for one in islice(some, 32))
