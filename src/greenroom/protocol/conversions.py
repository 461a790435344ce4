"""The types that msgspec leaves to us, in both directions: unions that it cannot tell apart, pydantic's models, paths.

`convert` is `msgspec.convert` with them, `schemas_of` is `msgspec.json.schema_components` with them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import abc
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from itertools import islice
from pathlib import Path, PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
)
from uuid import UUID

import msgspec

from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

Mode: TypeAlias = Literal["validation", "serialization"]
"""Whether a schema is for what comes in or for what goes out: a model may have members in one of the two only."""

REFERENCE: Final = "#/$defs/{name}"


_ANY_NUMBERS: Final = {msgspec.inspect.IntType, msgspec.inspect.FloatType}
LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
"""What limits values: as `msgspec.Meta`, annotated-types and pydantic's `Field` say it."""
WORDS: Final = ("title", "description", "examples")
"""What is said of values besides."""
MAPPINGS: Final = {dict, abc.Mapping, abc.MutableMapping}
CONTAINERS: Final = {
    list, set, frozenset, tuple, dict, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Set, abc.MutableSet,
    abc.Mapping, abc.MutableMapping,
}  # fmt: skip


class _Anything(type):
    """What a union's conversion returns is no instance of the union, and msgspec asks."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Either(metaclass=_Anything):
    """Stands for a union whose members msgspec cannot tell apart by JSON's types: two dataclasses, a date or a text."""

    members: ClassVar[tuple[Any, ...]] = ()


class Adapted(metaclass=_Anything):
    """Stands for a hint that only pydantic understands (a validator, a discriminator, a type of its own): pydantic checks all of it."""

    hint: ClassVar[Any] = None
    adapter: ClassVar[Any] = None


def is_adapted(kind: Any) -> TypeGuard[type[Adapted]]:
    """Whether it stands for such a hint."""
    return isinstance(kind, type) and issubclass(kind, Adapted)


def union_of(members: Sequence[Any]) -> Any:
    """The union as msgspec understands it."""
    if is_dangerous(members):
        return _either(members)
    try:
        overlap = overlaps(members)
        union: Any = Union[tuple(members)]  # noqa: UP007 - made of what is there
        msgspec.inspect.type_info(union)
    except TypeError:
        return _either(members)
    return _either(members) if overlap else union


def _either(members: Sequence[Any]) -> Any:
    return type("Either", (Either,), {"members": tuple(members)})


def overlaps(members: Sequence[Any]) -> bool:
    """Whether a value may be no good as the one member and still be good as another one of its kind; msgspec tries only one.

    Raises `TypeError` for members that msgspec does not know.
    """
    seen: dict[str, list[msgspec.inspect.Type]] = {}
    for info in map(msgspec.inspect.type_info, members):
        for kind in _json_kinds(info):
            seen.setdefault(kind, []).append(info)
    return any(
        len(infos) > 1 and not (kind == "number" and _ANY_NUMBERS.issuperset(map(type, infos)) and _are_plain(infos))
        for kind, infos in seen.items()
    )


def _json_kinds(info: msgspec.inspect.Type) -> set[str]:
    """As what its values come in JSON, as far as members of one union can share it."""
    if isinstance(info, (msgspec.inspect.LiteralType, msgspec.inspect.EnumType)):
        values = info.values if isinstance(info, msgspec.inspect.LiteralType) else [member.value for member in info.cls]
        return {"number" if isinstance(value, int) else type(value).__name__ for value in values}
    if type(info) in _ANY_NUMBERS:
        return {"number"}
    return {"str" if isinstance(info, msgspec.inspect.StrType) else type(info).__name__}


def _are_plain(infos: Sequence[msgspec.inspect.Type]) -> bool:
    """Whether nothing was said of which numbers they are."""
    return all(info == type(info)() for info in infos)


def is_dangerous(members: Sequence[Any]) -> bool:
    """Whether msgspec (0.22) would touch memory that is not its own, were it only shown this union.

    It takes what a list or dict has inside for a text's pattern.
    """
    metas = (meta for member in members for meta in getattr(member, "__metadata__", ()))
    patterns = any(isinstance(meta, msgspec.Meta) and meta.pattern is not None for meta in metas)
    return patterns and any((get_origin(bare(member)) or bare(member)) in CONTAINERS for member in members)


def bare(hint: Any) -> Any:
    """The hint without what `Annotated` says about it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def convert(value: Any, kind: Any, *, ours: bool = False) -> Any:
    """The value as that type; raises `msgspec.ValidationError` with the first thing that is wrong.

    A value that is `ours` may be of any size; a peer's has a bound where pydantic holds the interpreter.
    """
    return msgspec.convert(value, kind, dec_hook=_ours_from_json if ours else _from_json, str_keys=True)


def _ours_from_json(kind: Any, value: Any) -> Any:
    return _from_json(kind, value, ours=True)


def _from_json(kind: Any, value: Any, *, ours: bool = False) -> Any:
    """One value of a type that msgspec does not know."""
    if is_either(kind):
        return _best(kind.members, value, ours=ours)
    if models := _models(kind):
        return models.from_json(kind, value, ours=ours)
    if _is_path(kind) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"Expected `{getattr(kind, '__name__', kind)}`, got `{type(value).__name__}`")


def _best(members: Iterable[Any], value: Any, *, ours: bool) -> Any:
    """The first member that the value fits; of those that know some of its keys, the one that knows most of them."""
    found: list[tuple[int, Any]] = []
    for member in members:
        try:
            made = convert(value, member, ours=ours)
        except msgspec.ValidationError:
            continue
        known = _known_keys(member, value)
        if not known:
            return made
        found.append((known, made))
    if not found:
        raise ValueError("Expected one of the union's types")
    return max(found, key=lambda one: one[0])[1]


def _known_keys(member: Any, value: Any) -> int:
    if not isinstance(value, Mapping) or _models(member):
        return 0
    fields = getattr(msgspec.inspect.type_info(member), "fields", ())
    return sum(field.encode_name in value for field in fields)


def schemas_of(kinds: Iterable[Any], mode: Mode = "validation") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schema of each type, and the definitions that they refer to. Raises `TypeError` for a type that has none."""
    defs: dict[str, Any] = {}

    def adopt(more: Mapping[str, Any]) -> None:
        for name, schema in more.items():
            if defs.setdefault(name, schema) != schema:
                raise TypeError(f"two different types are called {name}; rename one")

    def of_model(models: ModuleType, kind: Any) -> dict[str, Any]:
        made, more = models.schema(kind, mode, REFERENCE)
        number = 2
        # An enum may be a parameter and in a model as well, where pydantic describes it in other words.
        while any(name in own or defs.get(name, schema) != schema for name, schema in more.items()):
            made, more = models.schema(kind, mode, REFERENCE, f"_{number}")
            number += 1
        adopt(more)
        return dict(made) or {"$comment": "anything"}  # msgspec takes an empty one for none

    def name_only(kind: Any) -> dict[str, Any]:
        if is_either(kind):
            own.update(_components(kind.members, name_only)[1])
        return {"type": "object"}  # msgspec takes an empty one for none

    def other(kind: Any) -> dict[str, Any]:
        if is_either(kind):
            schemas, more = _components(kind.members, other)
            adopt(more)
            return {"anyOf": schemas}
        if models := _models(kind):
            return of_model(models, kind)
        if _is_path(kind):
            return {"type": "string"}
        if mode == "serialization" and (found := library_schema(kind)) is not None:
            return found
        raise NotImplementedError

    kinds = list(kinds)
    own: set[str] = set()
    if pydantic_door() is not None:
        own.update(_components(kinds, name_only)[1])
    schemas, more = _components(kinds, other)
    adopt(more)
    return schemas, defs


def _components(kinds: Iterable[Any], hook: Callable[[Any], Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    try:
        schemas, more = msgspec.json.schema_components(kinds, schema_hook=hook, ref_template=REFERENCE)
    except KeyError as error:  # two classes with one and the same full name
        raise TypeError(f"two different types are called {error}; rename one") from error
    return list(schemas), more


def pydantic_door() -> ModuleType | None:
    """The one module that imports pydantic, where the program has imported it: no hint can have anything of pydantic's otherwise."""
    if sys.modules.get("pydantic") is None:
        return None
    from . import pydantic_models  # noqa: PLC0415 - see above

    return pydantic_models


def _models(kind: Any) -> ModuleType | None:
    """The same, when the type is a model or stands for what pydantic alone understands."""
    door = pydantic_door()
    return door if door is not None and (is_adapted(kind) or door.is_model(get_origin(kind) or kind)) else None


def is_model(kind: Any) -> bool:
    """Whether pydantic makes its values."""
    return _models(kind) is not None


def is_either(kind: Any) -> TypeGuard[type[Either]]:
    """Whether it stands for a union."""
    return isinstance(kind, type) and issubclass(kind, Either)


def library_schema(kind: Any) -> dict[str, Any] | None:
    """The schema of what is sent of a type that another library has made; for what goes out alone."""
    return None if is_either(kind) or is_model(kind) else schema_of_kind(kind)


def is_foreign(kind: Any) -> bool:
    """Whether it is a type that pydantic may know, and neither msgspec nor this module."""
    if sys.modules.get("pydantic") is None or not isinstance(kind, type):
        return False
    if isinstance(kind, _Anything) or is_model(kind):
        return False
    try:
        return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except TypeError:
        return True


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath) and kind in {Path, PurePath}


# --- Values of the libraries that tools return, in JSON's own types or as pictures: numpy, pandas, PIL, matplotlib and others of their kind.
# None of them is imported here: a value of a library was made by it, so the library is in `sys.modules`.

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
        frame = frame.reset_index(
            names=[f"index{place or ''}" if name is None else name for place, name in enumerate(frame.index.names)]
        )
    names = [".".join(map(str, name)) if is_array(name) else str(_key(name)) for name in frame.columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TypeError(
            f"the frame has two columns called {twice!r}, and a record has room for one: rename one of them"
        )
    columns = [frame.iloc[:, place].tolist() for place in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


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


_QUICK: Final = frozenset({bool, int, float, str, type(None)})
"""What is written at once, as most results are."""


def is_slow(value: Any, depth: int = 3) -> bool:
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
    return depth > 0 and any(is_slow(one, depth - 1) for one in islice(some, 32))
