"""What a function asks for: its parameters with their hints resolved, or the reason why they cannot become a schema.

A hint is refined on the way: descriptions and limits are taken from wherever people write them (`msgspec.Meta`, annotated-types,
pydantic's `Field`, a plain string in `Annotated`), and become `msgspec.Meta`, which is what schemas and checks are made from.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections import abc
from dataclasses import dataclass
from datetime import datetime, time
from enum import Enum, Flag
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Optional,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from greenroom.errors import GreenroomError

from .conversions import is_dangerous, overlaps, union_of
from .docstrings import read
from .wire import is_iterable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

MISSING: Final = inspect.Parameter.empty


class BadHint(GreenroomError, TypeError):
    """A function cannot be offered to peers as it is written. Says which parameter, why, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `default` is `MISSING` when it has to be given."""

    name: str
    hint: Any
    default: Any
    description: str

    @property
    def required(self) -> bool:
        """Whether it has to be given."""
        return self.default is MISSING


def parameters_of(
    function: Callable[..., Any],
    skip: Collection[str] = (),
    names: Mapping[str, Any] | None = None,
) -> list[Parameter]:
    """The parameters of a function, method, partial or callable object, without those in `skip`.

    `names` are further names that hints may use, for functions written inside other functions.
    """
    called = name_of(function)
    said = read(docstring_of(function)).names
    found: list[Parameter] = []
    for parameter in _signature(function).parameters.values():
        if parameter.name in skip or parameter.name in _bound_by_keyword(function):
            continue
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                raise BadHint(f"{called}: *{parameter.name} has no names to send arguments by; take a list instead")
            case inspect.Parameter.VAR_KEYWORD:
                raise BadHint(
                    f"{called}: **{parameter.name} has no schema; name the parameters, or take one of type dict"
                )
            case inspect.Parameter.POSITIONAL_ONLY:
                raise BadHint(
                    f"{called}: {parameter.name} is positional-only, and arguments come by name; remove the `/`"
                )
            case _:
                hint = _hint_of(function, parameter, names)
                found.append(Parameter(parameter.name, hint, parameter.default, said.get(parameter.name, "")))
    return found


def return_hint_of(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Any:
    """What it promises to return, as it is written; `MISSING` when it does not say, or says it in names that are only there for checkers."""
    try:
        annotation = _signature(function).return_annotation
        return MISSING if annotation is MISSING else resolved(function, annotation, names)
    except NameError:
        return MISSING


def name_of(function: Callable[..., Any]) -> str:
    """What to call a callable in a message."""
    inner = _inner(function)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def docstring_of(function: Callable[..., Any]) -> str | None:
    """What it says of itself. A partial says what its function says; an object, what its class or its `__call__` says."""
    inner = _inner(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        kind = cast("Any", type(inner))
        return inspect.getdoc(kind.__call__) or inspect.getdoc(kind)
    return inspect.getdoc(inner)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadHint(f"{name_of(function)}: its parameters cannot be read ({error}); wrap it in a function") from error


def _inner(function: Any) -> Any:
    """What a partial is of."""
    while _is_partial(function):
        function = function.func
    return function


def _is_partial(function: Any) -> TypeGuard[partial[Any]]:
    return isinstance(function, partial)


def _bound_by_keyword(function: Any) -> set[str]:
    """What a partial has fixed is no longer anybody's to choose, though Python would let a caller."""
    fixed: set[str] = set()
    while _is_partial(function):
        fixed |= function.keywords.keys()
        function = function.func
    return fixed


def _hint_of(function: Callable[..., Any], parameter: inspect.Parameter, names: Mapping[str, Any] | None) -> Any:
    if parameter.annotation is MISSING:
        return Any
    try:
        hint = resolved(function, parameter.annotation, names)
    except NameError as error:
        raise BadHint(
            f"{name_of(function)}: the hint of {parameter.name} uses {error.name!r}, which is not there at run time; "
            "import it outside of `if TYPE_CHECKING`, or define it at the top of the module"
        ) from error
    return refined(Optional[hint] if parameter.default is None else hint)  # noqa: UP045 - `city: str = None` means it


def resolved(function: Callable[..., Any], annotation: Any, names: Mapping[str, Any] | None) -> Any:
    """The hint with its strings evaluated where the function was written. One at a time: what is skipped need not exist."""
    home = _home(function)
    closure: Mapping[str, Any] = inspect.getclosurevars(home).nonlocals if inspect.isfunction(home) else {}
    holder = types.SimpleNamespace(__annotations__={"hint": annotation})
    hints = get_type_hints(holder, getattr(home, "__globals__", {}), {**closure, **(names or {})}, include_extras=True)
    return hints["hint"]


def _home(function: Any) -> Any:
    """The plain function behind a callable: the one that knows its module."""
    inner = _inner(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    if inspect.isclass(inner):
        inner = inner.__init__
    inner = inspect.unwrap(inner)
    return getattr(inner, "__func__", inner)


def refined(hint: Any) -> Any:
    """The hint as msgspec understands it, with all that was said about it in `msgspec.Meta`. Raises `BadHint`."""
    _look_inside(hint)
    return _refined(hint)


def _look_inside(hint: Any) -> None:
    """Refuse what would be refined, had it not been written inside of a class, where nobody can change it any more."""
    seen: set[Any] = set()
    waiting = [(hint, "")]
    while waiting:
        part, home = waiting.pop()
        parts = get_args(part) if get_origin(part) is not Literal else ()
        waiting += ((one, home) for one in parts if one is not Ellipsis)
        if home and get_origin(part) in (Union, types.UnionType) and is_dangerous(parts):
            raise BadHint(
                f"{home}: a text with a pattern may not stand beside a list or dict in a union, as msgspec cannot tell them "
                "apart inside of a class; give each a field of its own"
            )
        if home and get_origin(part) in (Union, types.UnionType) and _overlaps(parts):
            raise BadHint(
                f"{home}: two members of the union are of one kind in JSON, and msgspec tries only one of them inside of a class; "
                "say both in one, or give each a field of its own"
            )
        if home and any(_is_from("annotated_types", meta) for meta in getattr(part, "__metadata__", ())):
            raise BadHint(f"{home}: inside of a class, limits are written with msgspec.Meta, not with annotated-types")
        if isinstance(part, type) and issubclass(part, Flag):
            raise BadHint(
                f"{part.__name__} is a Flag, and no schema lists its combinations: take a list of an Enum's members, or an int"
            )
        if isinstance(part, type) and part not in seen and _has_fields(part):
            seen.add(part)
            with contextlib.suppress(NameError, TypeError):  # who makes the schema finds out, and says so
                inner = get_type_hints(part, include_extras=True)
                waiting += ((one, f"{part.__name__}.{name}") for name, one in inner.items())


def _overlaps(members: Sequence[Any]) -> bool:
    try:
        return overlaps(members)
    except TypeError:
        return False  # who makes the schema says why


def _has_fields(kind: Any) -> bool:
    """Whether msgspec looks at its annotations."""
    return hasattr(kind, "__dataclass_fields__") or is_typeddict(kind) or issubclass(kind, (msgspec.Struct, tuple))


def _refined(hint: Any) -> Any:
    origin = get_origin(hint)
    if hint is object:
        return Any
    if hint in (datetime, time):  # msgspec leaves the format out, as it also accepts a time that has no zone
        return Annotated[hint, msgspec.Meta(extra_json_schema={"format": _FORMATS[hint]})]
    if origin is Annotated:
        inner, *said = get_args(hint)
        kept = [meta for one in said for meta in _metas(one)]
        inner = inner if inner in (datetime, time) and any(meta.tz for meta in kept) else _refined(inner)
        return _annotated(inner, kept)
    if origin in (Union, types.UnionType):
        return union_of([_refined(member) for member in get_args(hint)])
    if origin is abc.Iterable:
        origin = list
    if origin in _CONTAINERS:
        made = cast("Any", origin)[tuple(one if one is Ellipsis else _refined(one) for one in get_args(hint))]
        keys = _keys_of(hint)
        return (
            made if keys is None else Annotated[made, msgspec.Meta(extra_json_schema={"propertyNames": {"enum": keys}})]
        )
    return hint


def _keys_of(hint: Any) -> list[str] | None:
    """The keys that a dict by this hint may have, where they are listed; msgspec checks them, and leaves them out of the schema."""
    if get_origin(hint) not in _MAPPINGS:
        return None
    kind: Any = get_args(hint)[0]
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    return None


_FORMATS: Final[Mapping[Any, str]] = {datetime: "date-time", time: "time"}
_CONTAINERS: Final = {
    list, set, frozenset, tuple, dict,
    abc.Sequence, abc.MutableSequence, abc.Collection, abc.Set, abc.MutableSet, abc.Mapping, abc.MutableMapping,
}  # fmt: skip


_MAPPINGS: Final = {dict, abc.Mapping, abc.MutableMapping}


def _annotated(hint: Any, metas: list[msgspec.Meta]) -> Any:
    for meta in metas:
        hint = Annotated[hint, meta]
    return hint


_LIMITS: Final = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "min_length",
    "max_length",
    "pattern",
    "title",
    "description",
    "examples",
)


def _metas(said: Any) -> list[msgspec.Meta]:
    """What one word in `Annotated` says, as `msgspec.Meta`. What is not meant for us is ignored."""
    if isinstance(said, msgspec.Meta):
        return [said]
    if isinstance(said, str):
        return [msgspec.Meta(description=said)]
    if _is_from("annotated_types", said):
        if type(said).__name__ == "Predicate":
            raise BadHint(f"{said!r} is code, which no schema can say; check it inside of the function")
        return [meta for one in said for meta in _metas(one)] if is_iterable(said) else _limits(said)
    if _is_from("typing_extensions", said):  # Doc
        return [msgspec.Meta(description=said.documentation)] if hasattr(said, "documentation") else []
    if _is_from("pydantic", said):  # Field
        return [*_limits(said), *(meta for one in getattr(said, "metadata", ()) for meta in _metas(one))]
    return []


def _is_from(package: str, said: Any) -> bool:
    """Whether it is of a package's classes, or of one made from them; the package need not be there."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(said).__mro__)


def _limits(said: Any) -> list[msgspec.Meta]:
    members: dict[str, Any] = {name: value for name in _LIMITS if (value := getattr(said, name, None)) is not None}
    return [msgspec.Meta(**members)] if members else []
