"""How values of ours look on the wire: camelCase members, `_meta`, and nothing that is empty.

Every block, definition and result that greenroom has a class for is a `WireObject`. `to_jsonable` is for the values of others: what a
handler returned, a default, foreign metadata.
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
    """What a Python attribute is called on the wire."""
    if name == "meta":
        return "_meta"
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def base64_text(data: bytes) -> str:
    """The bytes as the wire carries them."""
    return b2a_base64(data, newline=False).decode("ascii")


class WireObject(msgspec.Struct, frozen=True, omit_defaults=True, rename=wire_name):
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
                wire[member] = to_jsonable(value)
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


_UNCHANGED_TYPES = frozenset({str, int, float, bool, type(None)})


def to_jsonable(value: Any, pictures: list[Any] | None = None) -> Any:
    """The value in JSON's own types: dataclasses, enums, dates, bytes (base64), sets, models, arrays, frames … all the way down.

    Pictures in it are put into `pictures`, and the value says where in a content that begins with a text each of them stands. Raises `TypeError`
    for what JSON has no word for.
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
    """The same of an object that is to be sent. Raises `LocalProtocolError`, which says what of it cannot be: nothing is sent then."""
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
            return ValidationProblem(path_of(trail), ProblemReason(text, "type_mismatch"))
        if is_object(value) or is_array(value):
            items: Iterable[tuple[Any, Any]] = value.items() if is_object(value) else enumerate(value)
            waiting += ((one, (trail, key)) for key, one in items if type(one) in _WITH_INFINITIES)
    return None


_WITH_INFINITIES = frozenset({dict, list, tuple, float})


def _encode_hook(value: Any, pictures: list[Any] | None) -> Any:
    """What msgspec leaves to us: one step towards JSON, the rest of the way it goes itself."""
    if sys.modules.get("pydantic") is not None:
        from .pydantic_models import as_json, is_value  # noqa: PLC0415 - without a model it is never loaded

        if is_value(value):
            return as_json(value)
    if is_picture(value):
        if pictures is None:
            raise TypeError("a picture is content and no data: return it by itself, or in a list of pictures and texts")
        pictures.append(value)
        return f"content[{len(pictures)}]"
    if is_object(value):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if (made := jsonable_step(value)) is not UNKNOWN:
        return made
    if is_collection(value):  # not what may never end
        return list(value)
    raise TypeError(f"{type(value).__qualname__} has no form in JSON")


# --- Values of the libraries that tools return, in JSON's own types or as pictures: numpy, pandas, PIL, matplotlib and others of their kind.
# None of them is imported here: a value of a library was made by it, so the library is in `sys.modules`.

UNKNOWN: Final = object()
"""What `jsonable_step` returns for a value that this module knows nothing of."""
_ADDRESSES: Final = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
_MANY: Final = 10_000
"""So many values of an array or a frame are turned into lists in a millisecond or two."""
_FORMATS: Final = {"JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
"""What models can look at; a picture that was read from one of these is written as one, any other as PNG."""


class Picture(NamedTuple):
    """A picture as it is sent."""

    data: bytes
    mime_type: str


# --- one step towards JSON


def jsonable_step(value: Any) -> Any:
    """A value one step nearer to JSON, or `UNKNOWN`. Raises `TypeError` for one of which a part would be lost."""
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
        return {name: value[name] for name in value.keys()}  # noqa: SIM118 - it is no mapping
    return UNKNOWN


def _datetime(value: datetime) -> Any:
    if value != value:  # noqa: PLR0124 - pandas' NaT, which is a datetime and none
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
    (bytes, lambda value: bytes(memoryview(value))),
    (datetime, _datetime),
    (date, lambda value: date(value.year, value.month, value.day)),
    (time, _time),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(int=value.int)),
)
"""Subclasses of what msgspec knows, which it does not: each becomes one of its base."""


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
    """A record for each row, by column; an index that says something is columns as well."""
    pandas = sys.modules["pandas"]
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index(
            names=[f"index{place or ''}" if name is None else name for place, name in enumerate(frame.index.names)]
        )
    names = [".".join(map(str, name)) if is_array(name) else str(_text_key(name)) for name in frame.columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TypeError(
            f"the frame has two columns called {twice!r}, and a record has room for one: rename one of them"
        )
    columns = [frame.iloc[:, place].tolist() for place in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


_LIBRARIES: Final[dict[str, Callable[[Any], Any]]] = {"numpy": _from_numpy, "pandas": _from_pandas}


# --- keys


def with_text_keys(value: Any) -> Any:
    """The value with each key of its dicts as the text that JSON has for it, for those that msgspec does not take. Raises `TypeError`."""
    if is_object(value):
        made: dict[str, Any] = {}
        for key, one in value.items():
            name = _text_key(key)
            if name in made:
                raise TypeError(f"two keys of a dict are {name!r} in JSON: make them different texts")
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
    """The key as a text, or as what msgspec makes one of."""
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
    raise TypeError("a key of a dict is no text, number or date: write the dict with texts for keys")


# --- pictures


def is_picture(value: Any) -> bool:
    """Whether it is a picture of PIL's, or a figure or axes of matplotlib's."""
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
    """The picture, written."""
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


# --- what a return hint promises


def library_schema(kind: Any) -> dict[str, Any] | None:
    """The schema of what is sent of a library's type; None for one that this module knows nothing of."""
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
        for name, said in (("ndarray", "array"), ("bool_", "boolean"), ("integer", "integer"), ("floating", "number")):
            if issubclass(kind, getattr(numpy, name)):
                return {"type": said}
    for bases, said in _SAID:
        if issubclass(kind, bases) and kind not in bases and not issubclass(kind, Enum):
            return {"type": said}
    return None


_SAID: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((str, datetime, date, time, timedelta, UUID), "string"),
    ((int,), "integer"),
    ((float,), "number"),
)


_QUICK: Final = frozenset({bool, int, float, str, type(None)})
"""What is written at once, as most results are."""


def is_slow_to_serialize(value: Any, depth: int = 3) -> bool:
    """Whether it takes long to write: a picture, or a large array or frame, alone or among the first things of a list, dict or dataclass."""
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
