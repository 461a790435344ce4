"""Conversion for types that msgspec does not support: unions that it cannot tell apart, pydantic models, paths.

`convert` is `msgspec.convert` with them, `schemas_of` is `msgspec.json.schema_components` with them.
"""

from __future__ import annotations

import sys
from collections import abc
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
)

import msgspec

from .serialization import library_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

Mode: TypeAlias = Literal["validation", "serialization"]
"""Whether a schema is for input or for output: a pydantic model may have fields in one of the two only."""

REFERENCE: Final = "#/$defs/{name}"


_ANY_NUMBERS: Final = {msgspec.inspect.IntType, msgspec.inspect.FloatType}
LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
"""Keywords that limit values, as `msgspec.Meta`, annotated-types and pydantic's `Field` name them."""
ANNOTATIONS: Final = ("title", "description", "examples")
"""Keywords that describe values."""
MAPPINGS: Final = {dict, abc.Mapping, abc.MutableMapping}
CONTAINERS: Final = {
    list, set, frozenset, tuple, dict, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Set, abc.MutableSet,
    abc.Mapping, abc.MutableMapping,
}  # fmt: skip


class _Anything(type):
    """A base whose `isinstance` is always true: msgspec checks the converted value of a union, which is no instance of it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class UntaggedUnion(metaclass=_Anything):
    """Stands for a union whose members look alike to msgspec in JSON, such as two dataclasses, or a date and a string."""

    members: ClassVar[tuple[Any, ...]] = ()


class PydanticHint(metaclass=_Anything):
    """Stands for a hint that only pydantic understands (a validator, a discriminator, its own types): pydantic checks all of it."""

    hint: ClassVar[Any] = None
    adapter: ClassVar[Any] = None


def is_pydantic_hint(kind: Any) -> TypeGuard[type[PydanticHint]]:
    """Whether a type is a `PydanticHint`."""
    return isinstance(kind, type) and issubclass(kind, PydanticHint)


def union_of(members: Sequence[Any]) -> Any:
    """A union that msgspec accepts."""
    if is_dangerous(members):
        return _untagged_union(members)
    try:
        overlap = overlaps(members)
        union: Any = Union[tuple(members)]  # noqa: UP007 - made at run time
        msgspec.inspect.type_info(union)
    except TypeError:
        return _untagged_union(members)
    return _untagged_union(members) if overlap else union


def _untagged_union(members: Sequence[Any]) -> Any:
    # A class made at run time: msgspec calls `dec_hook` only for classes that it does not know, and passes nothing else to it. A union of its own
    # types it refuses, and one wrapper class for all unions would not say which members are meant.
    return type("UntaggedUnion", (UntaggedUnion,), {"members": tuple(members)})


def overlaps(members: Sequence[Any]) -> bool:
    """Whether two members accept the same kind of JSON: msgspec tries only one member of a kind.

    Raises `TypeError` for members that msgspec does not know.
    """
    seen: dict[str, list[msgspec.inspect.Type]] = {}
    for info in map(msgspec.inspect.type_info, members):
        for kind in _json_kinds(info):
            seen.setdefault(kind, []).append(info)
    return any(
        len(infos) > 1
        and not (kind == "number" and _ANY_NUMBERS.issuperset(map(type, infos)) and _are_unconstrained(infos))
        for kind, infos in seen.items()
    )


def _json_kinds(info: msgspec.inspect.Type) -> set[str]:
    """The kinds of JSON values that a type accepts."""
    if isinstance(info, (msgspec.inspect.LiteralType, msgspec.inspect.EnumType)):
        values = info.values if isinstance(info, msgspec.inspect.LiteralType) else [member.value for member in info.cls]
        return {"number" if isinstance(value, int) else type(value).__name__ for value in values}
    if type(info) in _ANY_NUMBERS:
        return {"number"}
    return {"str" if isinstance(info, msgspec.inspect.StrType) else type(info).__name__}


def _are_unconstrained(infos: Sequence[msgspec.inspect.Type]) -> bool:
    """Whether numeric types have no constraints."""
    return all(info == type(info)() for info in infos)


def is_dangerous(members: Sequence[Any]) -> bool:
    """Whether msgspec (0.22) would read invalid memory with this union: it takes the items of a list or dict for a string's pattern."""
    metas = (meta for member in members for meta in getattr(member, "__metadata__", ()))
    patterns = any(isinstance(meta, msgspec.Meta) and meta.pattern is not None for meta in metas)
    return patterns and any(
        (get_origin(without_annotations(member)) or without_annotations(member)) in CONTAINERS for member in members
    )


def without_annotations(hint: Any) -> Any:
    """The hint without its `Annotated` metadata."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def converter(kind: Any, *, ours: bool = False) -> Callable[[Any], Any]:
    """A function that converts JSON to that type. It raises `msgspec.ValidationError` with the first problem.

    Values that are `ours` may be of any size; a peer's values are bounded where pydantic would block the interpreter.
    """
    return partial(
        msgspec.convert, type=kind, dec_hook=partial(_from_json, ours=True) if ours else _from_json, str_keys=True
    )


def convert(value: Any, kind: Any, *, ours: bool = False) -> Any:
    """Convert one value."""
    return converter(kind, ours=ours)(value)


def _from_json(kind: Any, value: Any, *, ours: bool = False) -> Any:
    """Convert a value of a type that msgspec does not know."""
    if is_untagged_union(kind):
        return _best_member(kind.members, value, ours=ours)
    if models := _pydantic_for(kind):
        return models.from_json(kind, value, ours=ours)
    if _is_path(kind) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"Expected `{getattr(kind, '__name__', kind)}`, got `{type(value).__name__}`")


def _best_member(members: Iterable[Any], value: Any, *, ours: bool) -> Any:
    """The first member that accepts the value; among objects, the member that knows most of its keys."""
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
    if not isinstance(value, Mapping) or _pydantic_for(member):
        return 0
    fields = getattr(msgspec.inspect.type_info(member), "fields", ())
    return sum(field.encode_name in value for field in fields)


def schemas_of(kinds: Iterable[Any], mode: Mode = "validation") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schema of each type, and the definitions that they refer to. Raises `TypeError` for a type without a schema."""
    defs: dict[str, Any] = {}

    def adopt(more: Mapping[str, Any]) -> None:
        for name, schema in more.items():
            if defs.setdefault(name, schema) != schema:
                raise TypeError(f"two different types are called {name}; rename one")

    def of_model(models: ModuleType, kind: Any) -> dict[str, Any]:
        made, more = models.schema(kind, mode, REFERENCE)
        number = 2
        # An enum may be a parameter and a model's field too; pydantic describes it differently.
        while any(name in own or defs.get(name, schema) != schema for name, schema in more.items()):
            made, more = models.schema(kind, mode, REFERENCE, f"_{number}")
            number += 1
        adopt(more)
        return dict(made) or {"$comment": "anything"}  # msgspec ignores an empty schema

    def name_only(kind: Any) -> dict[str, Any]:
        if is_untagged_union(kind):
            own.update(_components(kind.members, name_only)[1])
        return {"type": "object"}  # msgspec ignores an empty schema

    def other(kind: Any) -> dict[str, Any]:
        if is_untagged_union(kind):
            schemas, more = _components(kind.members, other)
            adopt(more)
            return {"anyOf": schemas}
        if models := _pydantic_for(kind):
            return of_model(models, kind)
        if _is_path(kind):
            return {"type": "string"}
        if mode == "serialization" and (found := library_schema(kind)) is not None:
            return found
        raise NotImplementedError

    kinds = list(kinds)
    own: set[str] = set()
    if loaded_pydantic() is not None:
        own.update(_components(kinds, name_only)[1])
    schemas, more = _components(kinds, other)
    adopt(more)
    return schemas, defs


def _components(kinds: Iterable[Any], hook: Callable[[Any], Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    try:
        schemas, more = msgspec.json.schema_components(kinds, schema_hook=hook, ref_template=REFERENCE)
    except KeyError as error:  # two classes with the same full name
        raise TypeError(f"two different types are called {error}; rename one") from error
    return list(schemas), more


def loaded_pydantic() -> ModuleType | None:
    """The module that imports pydantic, if the program has imported pydantic; without that no hint can contain its types."""
    if sys.modules.get("pydantic") is None:
        return None
    from . import pydantic_models  # noqa: PLC0415 - see above

    return pydantic_models


def _pydantic_for(kind: Any) -> ModuleType | None:
    """The same, if the type is a pydantic model or a `PydanticHint`."""
    models = loaded_pydantic()

    return (
        models if models is not None and (is_pydantic_hint(kind) or models.is_model(get_origin(kind) or kind)) else None
    )


def is_model(kind: Any) -> bool:
    """Whether pydantic converts the type."""
    return _pydantic_for(kind) is not None


def is_untagged_union(kind: Any) -> TypeGuard[type[UntaggedUnion]]:
    """Whether a type is an `UntaggedUnion`."""
    return isinstance(kind, type) and issubclass(kind, UntaggedUnion)


def is_foreign(kind: Any) -> bool:
    """Whether only pydantic may know the type."""
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
