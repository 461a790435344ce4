"""Values of the libraries that tools return, in JSON's own types or as pictures: numpy, pandas, PIL, matplotlib and others of their kind.

None of them is imported here: a value of a library was made by it, so the library is in `sys.modules`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, get_origin
from uuid import UUID

from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN: Final = object()
"""What `step` returns for a value that this module knows nothing of."""
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


def step(value: Any) -> Any:
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


def _of_numpy(value: Any) -> Any:
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


def _of_pandas(value: Any) -> Any:
    pandas = sys.modules["pandas"]
    if isinstance(value, pandas.DataFrame):
        return _records(value)
    if isinstance(value, pandas.Series):
        if isinstance(value.index, pandas.RangeIndex):
            return value.tolist()
        if value.index.nlevels == 1 and value.index.is_unique:
            return {_key(label): one for label, one in zip(value.index.tolist(), value.tolist(), strict=True)}
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
        frame = frame.reset_index(names=_index_names(frame))
    names = [_column_name(name) for name in frame.columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TypeError(
            f"the frame has two columns called {twice!r}, and a record has room for one: rename one of them"
        )
    columns = [frame.iloc[:, place].tolist() for place in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column_name(name: Any) -> str:
    """A column's name; that of several levels is put together."""
    levels: Any = name
    return ".".join(map(str, levels)) if isinstance(name, tuple) else str(_key(name))


def _index_names(frame: Any) -> list[Any]:
    """What the index's columns are called; one without a name is `index`."""
    return [f"index{place or ''}" if name is None else name for place, name in enumerate(frame.index.names)]


_LIBRARIES: Final[dict[str, Callable[[Any], Any]]] = {"numpy": _of_numpy, "pandas": _of_pandas}


# --- keys


def with_text_keys(value: Any) -> Any:
    """The value with each key of its dicts as the text that JSON has for it, for those that msgspec does not take. Raises `TypeError`."""
    if is_object(value):
        made: dict[str, Any] = {}
        for key, one in value.items():
            name = _key(key)
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


def _key(key: Any) -> Any:
    """The key as a text, or as what msgspec makes one of."""
    for _ in range(4):
        if key is None or isinstance(key, bool):
            return {None: "null", True: "true", False: "false"}[key]
        if type(key) in (str, int, float, date, datetime, time, UUID, Decimal):
            return key if isinstance(key, str) else key.isoformat() if isinstance(key, date | time) else str(key)
        if isinstance(key, tuple | list | dict):
            break
        key = step(key)
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


def schema_of_kind(kind: Any) -> dict[str, Any] | None:
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


def is_slow(value: Any, depth: int = 3) -> bool:
    """Whether it takes long to write: a picture, or a large array or frame, alone or among the first things of a list, dict or dataclass."""
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
    return depth > 0 and any(is_slow(one, depth - 1) for one in islice(some, 32))
