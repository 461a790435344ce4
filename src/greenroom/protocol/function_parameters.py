"""The parameters of a function with their hints resolved, or the reason why they cannot become a schema.

Hints are refined: descriptions and limits are read from wherever people write them (`msgspec.Meta`, annotated-types, pydantic's `Field`, a
plain string in `Annotated`) and become `msgspec.Meta`, from which schemas and checks are made. A hint that contains anything only pydantic
understands is checked by pydantic as a whole.

Metadata of known libraries that would have no effect is refused: a limit that its author relies on and that is not enforced is a security
hole. Metadata for unrelated tools (a dict, a class) is ignored, as `Annotated` intends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
from collections import abc
from dataclasses import dataclass
from datetime import datetime, time
from enum import Enum, EnumType, Flag
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Optional,
    Required,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from greenroom.errors import GreenroomError

from .conversions import (
    ANNOTATIONS,
    CONTAINERS,
    LIMITS,
    MAPPINGS,
    convert,
    is_dangerous,
    is_untagged_union,
    loaded_pydantic,
    overlaps,
    schemas_of,
    union_of,
)
from .docstrings import parse_docstring
from .serialization import is_iterable, to_jsonable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from .conversions import Mode

MISSING: Final = inspect.Parameter.empty


class BadHint(GreenroomError, TypeError):
    """The function cannot be offered to clients as it is written. Says which parameter, why, and what to write."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `default` is `MISSING` if it is required."""

    name: str
    hint: Any
    default: Any
    description: str
    wire: str = ""
    """Its name in the schema."""
    make_default: Callable[[dict[str, Any]], Any] | None = None
    """Makes the default from the preceding arguments; None if the function has its default itself."""

    @property
    def required(self) -> bool:
        """Whether it is required."""
        return self.default is MISSING and self.make_default is None


def _variadic_problem(function: Callable[..., Any], name: str) -> str:
    takes = str(_signature(function))
    if "<locals>" in getattr(function, "__qualname__", "") and takes.startswith("(*") and ", **" in takes:
        return "its parameters are hidden: a wrapper needs @functools.wraps(function)"
    return f"*{name} has no names to send arguments with; take a list instead"


def parameters_of(
    function: Callable[..., Any],
    skip: Collection[str] = (),
    names: Mapping[str, Any] | None = None,
) -> list[Parameter]:
    """The parameters of a function, method, partial or callable object, without those in `skip`.

    `names` are further names that hints may use, for functions defined inside other functions.
    """
    called = name_of(function)
    descriptions = parse_docstring(docstring_of(function)).names
    found: list[Parameter] = []
    for parameter in _signature(function).parameters.values():
        if parameter.name in skip or parameter.name in _bound_by_keyword(function):
            continue
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                raise BadHint(f"{called}: {_variadic_problem(function, parameter.name)}")
            case inspect.Parameter.VAR_KEYWORD:
                raise BadHint(
                    f"{called}: **{parameter.name} has no schema; name the parameters, or take one of type dict"
                )
            case inspect.Parameter.POSITIONAL_ONLY:
                raise BadHint(
                    f"{called}: {parameter.name} is positional-only, and arguments come by name; remove the `/`"
                )
            case _:
                found.append(_parameter_of(function, parameter, names, descriptions.get(parameter.name, "")))
    for one in found:
        if sum(one.wire == other.wire for other in found) > 1:
            raise BadHint(f"{called}: two parameters are called {one.wire} by peers; change the alias of one of them")
    return found


def return_hint_of(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Any:
    """The return hint; `MISSING` if there is none, or if its names exist only for type checkers."""
    try:
        annotation = _signature(function).return_annotation
        return MISSING if annotation is MISSING else resolved(function, annotation, names)
    except NameError:
        return MISSING


def name_of(function: Callable[..., Any]) -> str:
    """The name of a callable for messages."""
    inner = _partial_target(function)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def docstring_of(function: Callable[..., Any]) -> str | None:
    """The docstring of a callable: of a partial its function's; of an object its class's or its `__call__`'s."""
    inner = _partial_target(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        kind = cast("Any", type(inner))
        return inspect.getdoc(kind.__call__) or inspect.getdoc(kind)
    return inspect.getdoc(inner)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadHint(f"{name_of(function)}: its parameters cannot be read ({error}); wrap it in a function") from error


def _partial_target(function: Any) -> Any:
    """The function inside a partial."""
    while _is_partial(function):
        function = function.func
    return function


def _is_partial(function: Any) -> TypeGuard[partial[Any]]:
    return isinstance(function, partial)


def _bound_by_keyword(function: Any) -> set[str]:
    """Remove parameters that a partial has bound: callers cannot set them, though Python would allow it."""
    fixed: set[str] = set()
    while _is_partial(function):
        fixed |= function.keywords.keys()
        function = function.func
    return fixed


def _parameter_of(
    function: Callable[..., Any], parameter: inspect.Parameter, names: Mapping[str, Any] | None, description: str
) -> Parameter:
    name, default = parameter.name, parameter.default
    where = f"{name_of(function)}: {name}"
    hint = _hint_of(function, parameter, names)
    if why := _foreign_default_problem(default):
        raise BadHint(f"{where}: its default is {why}")
    alias, make, checks = None, None, False
    pydantic_models = loaded_pydantic()
    if pydantic_models is not None:
        try:
            settings = pydantic_models.field_settings_of(hint, default)
        except pydantic_models.UnusableField as error:
            raise BadHint(f"{where}: {error}") from error
        if settings is not None:
            hint, alias, make, checks = settings.hint, settings.alias, settings.make_default, settings.checks_default
            if make is None and settings.default is not MISSING and settings.default is not default:
                make = _constant(settings.default)
            default = settings.default
    hint = refined(Optional[hint] if default is None else hint, where=where)  # noqa: UP045 - `city: str = None` implies Optional
    if make is not None and checks:
        make = _with_checked_default(make, hint)
    return Parameter(name, hint, default, description, alias or name, make)


def _constant(value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda _: value


def _with_checked_default(make: Callable[[dict[str, Any]], Any], hint: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda before: convert(to_jsonable(make(before)), hint, ours=True)


def default_problem(default: Any) -> str | None:
    """The mistake in a default of a function whose schema is written by hand, which gets the default unchanged; None without one."""
    pydantic_models = loaded_pydantic()
    if pydantic_models is not None and pydantic_models.is_field(default):
        return (
            "a Field(…), but this schema is written by hand: put the limits there, and write the default value itself"
        )
    return _foreign_default_problem(default)


_FOREIGN: Final = frozenset(
    {
        "attr",
        "attrs",
        "beartype",
        "click",
        "docket",
        "fastapi",
        "fastmcp",
        "mcp",
        "typer",
        "uncalled_for",
        "dependency_injector",
    }
)
"""Packages whose objects as a default mean something in their own framework, and nothing here."""


def _foreign_default_problem(default: Any) -> str | None:
    """The mistake in a default that another framework would replace, and that the function would get unchanged; None without one."""
    if isinstance(default, dataclasses.Field) or type(default).__module__.partition(".")[0] == "msgspec":
        return "a field(…), which is for the fields of classes: write the value itself, or None"
    if type(default).__module__.partition(".")[0] in _FOREIGN:
        return (
            f"{_name_of_annotation(default)}, which means nothing here: write the value itself; what the function needs from its server it makes or looks up, "
            "and the call's context is a parameter with the hint greenroom.Context"
        )
    return None


def _annotation_problem(meta: Any) -> str | None:
    """The mistake in metadata of `Annotated` that would have no effect, though its author relies on it; None without one."""
    if inspect.isroutine(meta) or isinstance(meta, partial):
        return f"{_name_of_annotation(meta)} is code, which no schema can express, and it would not be called: check it inside the function, or write pydantic's AfterValidator"
    if hasattr(meta, "fullmatch"):
        return f"write msgspec.Meta(pattern={meta.pattern!r}) for the pattern"
    if isinstance(meta, range | slice):
        return f"write msgspec.Meta with ge=, le=, min_length= or max_length= for {meta!r}"
    if isinstance(meta, dataclasses.Field) or (
        not isinstance(meta, msgspec.Meta) and type(meta).__module__.partition(".")[0] == "msgspec"
    ):
        return "a field(…) is for the fields of classes: write msgspec.Meta(…)"
    if type(meta).__module__.partition(".")[0] in _FOREIGN:
        return f"{_name_of_annotation(meta)} has no effect here: write msgspec.Meta(…) or pydantic's Field(…), or check it inside the function"
    return None


def _name_of_annotation(meta: Any) -> str:
    kind: Any = meta
    if not inspect.isroutine(meta):
        kind = cast("Any", type(meta))
    return f"{kind.__module__}.{kind.__qualname__}"


def _hint_of(function: Callable[..., Any], parameter: inspect.Parameter, names: Mapping[str, Any] | None) -> Any:
    if parameter.annotation is MISSING:
        return Any
    try:
        return resolved(function, parameter.annotation, names)
    except NameError as error:
        raise BadHint(
            f"{name_of(function)}: the hint of {parameter.name} uses {error.name!r}, which does not exist at run time; "
            "import it outside of `if TYPE_CHECKING`, or define it at the top of the module"
        ) from error
    except (TypeError, SyntaxError) as error:
        raise BadHint(
            f"{name_of(function)}: the hint of {parameter.name}, {parameter.annotation!r}, is no type ({error}); a description belongs in "
            f'Annotated[str, "…"]'
        ) from error


def resolved(function: Callable[..., Any], annotation: Any, names: Mapping[str, Any] | None) -> Any:
    """The hint with its strings evaluated in the function's module. One hint at a time, since skipped hints need not resolve."""
    home = _plain_function(function)
    # `get_type_hints` knows only globals. Names of an enclosing function are found in its cells, if the function refers to them itself.
    closure: dict[str, Any] = {}
    if inspect.isfunction(home):
        for name, cell in zip(home.__code__.co_freevars, home.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # assigned later: only a hint that uses it is wrong
                closure[name] = cell.cell_contents
    holder = types.SimpleNamespace(__annotations__={"hint": annotation})
    hints = get_type_hints(holder, getattr(home, "__globals__", {}), {**closure, **(names or {})}, include_extras=True)
    return hints["hint"]


def _plain_function(function: Any) -> Any:
    """The plain function behind a callable, which knows its module."""
    inner = _partial_target(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    if inspect.isclass(inner):
        inner = inner.__init__
    inner = inspect.unwrap(inner)
    return getattr(inner, "__func__", inner)


def refined(hint: Any, mode: Mode = "validation", where: str = "") -> Any:
    """The hint for msgspec, with all metadata as `msgspec.Meta`. Raises `BadHint`, whose message begins with `where`."""
    try:
        parts = list(parts_of(hint))
        for part in parts:
            _check_meta(part)
        if (special := _special_in(parts)) is not None:
            return _adapted(hint, special)
        for part in parts:
            _check_inside(part, mode)
        return _refined_or_adapted(hint, parts)
    except BadHint as error:
        raise BadHint(f"{where}: {error}") if where else error from None


def _refined_or_adapted(hint: Any, parts: Iterable[HintPart]) -> Any:
    """The hint for msgspec, or for pydantic if msgspec cannot enforce a limit of a `Field` (such as a limit of a date)."""
    field = next((part for part in parts if part.is_meta and hasattr(part.value, "json_schema_extra")), None)
    if field is None:
        return _refined(hint)
    try:
        made = _refined(hint)
        schemas_of([made])
    except (BadHint, TypeError, NotImplementedError):
        return _adapted(hint, field)
    return made


def _special_in(parts: Iterable[HintPart]) -> HintPart | None:
    """The first part that only pydantic understands; inside a class, any metadata of pydantic's."""
    pydantic_models = loaded_pydantic()
    if pydantic_models is None:
        return None
    for part in parts:
        if part.default is not MISSING and pydantic_models.is_field(part.default):
            return part
        if pydantic_models.is_special(part.value) or (
            part.field_name and part.is_meta and pydantic_models.is_field(part.value)
        ):
            return part
    return None


def _adapted(hint: Any, special: HintPart) -> Any:
    pydantic_models = loaded_pydantic()
    assert pydantic_models is not None
    try:
        return pydantic_models.pydantic_hint(hint)
    except pydantic_models.UnusableField as error:
        raise BadHint(f"{special.field_name or describe(special.value)}: {error}") from error


def describe(kind: Any) -> str:
    """The name of a hint for messages."""
    return kind.__name__ if isinstance(kind, type) else repr(kind) if not hasattr(kind, "metadata") else "Field(…)"


@dataclass(frozen=True, slots=True)
class HintPart:
    """A type or metadata inside a hint. `field_name` is the field of the class in which it stands, if any."""

    value: Any
    field_name: str
    is_meta: bool = False
    default: Any = MISSING
    """The default of the field, if the part is a field's whole hint."""
    owner: Any = None


def parts_of(hint: Any) -> Iterator[HintPart]:
    """All parts of a hint, the fields of classes included. A pydantic model is one part."""
    seen: list[Any] = []
    waiting = [HintPart(hint, "")]
    while waiting:
        part = waiting.pop()
        yield part
        it, home = part.value, part.field_name
        origin = get_origin(it)
        if part.is_meta:
            if origin is Annotated:  # grouped metadata, such as annotated_types.LowerCase
                waiting += (HintPart(one, home, is_meta=True) for one in get_args(it)[1:])
            continue
        if origin is Annotated:
            inner, *metadata = get_args(it)
            waiting += [HintPart(inner, home), *(HintPart(one, home, is_meta=True) for one in metadata)]
        elif origin is not Literal:
            waiting += [HintPart(one, home) for one in get_args(it) if one is not Ellipsis]
        made_of: Any = origin or it
        if made_of in seen or not (
            isinstance(made_of, type) or hasattr(made_of, "__supertype__") or hasattr(made_of, "__value__")
        ):
            continue
        seen.append(made_of)
        if hasattr(made_of, "__supertype__"):  # a NewType
            waiting.append(HintPart(cast("Any", made_of).__supertype__, home))
        elif hasattr(made_of, "__value__") and not isinstance(made_of, type):  # `type X = …`
            with contextlib.suppress(NameError):  # reported when the schema is made
                waiting.append(HintPart(made_of.__value__, home))
        elif _has_fields(made_of):
            with contextlib.suppress(NameError, KeyError):  # reported when the schema is made
                inner_hints = get_type_hints(made_of, include_extras=True)
                if bare := [one.name for one in getattr(made_of, "__attrs_attrs__", ()) if one.name not in inner_hints]:
                    raise BadHint(
                        f"{made_of.__name__}.{bare[0]} has no hint, so it has no schema: write {bare[0]}: int = …"
                    )
                defaults = _defaults_of(made_of)
                waiting += (
                    HintPart(one, f"{made_of.__name__}.{name}", default=defaults.get(name, MISSING), owner=made_of)
                    for name, one in inner_hints.items()
                )


def _defaults_of(kind: Any) -> dict[str, Any]:
    """The defaults of a class's fields, in which another library's objects may stand."""
    if dataclasses.is_dataclass(kind):
        return {one.name: one.default for one in dataclasses.fields(kind) if one.default is not dataclasses.MISSING}
    return {}


def _check_meta(part: HintPart) -> None:
    """Refuse metadata that would have no effect."""
    if part.is_meta and (why := _annotation_problem(part.value)):
        raise BadHint(f"{part.field_name}: {why}" if part.field_name else why)
    if part.default is not MISSING and (why := _foreign_default_problem(part.default)):
        raise BadHint(f"{part.field_name}: its default is {why}")
    if part.field_name and (why := _attrs_field_problem(part)):
        raise BadHint(f"{part.field_name}: {why}")


def _attrs_field_problem(part: HintPart) -> str | None:
    """The mistake in a field of an attrs class whose settings msgspec would ignore; None without one."""
    name = part.field_name.rpartition(".")[2]
    field = next((one for one in getattr(part.owner, "__attrs_attrs__", ()) if one.name == name), None)
    if field is not None:
        if getattr(field.default, "takes_self", False):
            return "its factory needs the object, which does not exist yet when a peer's values are converted: set it in __attrs_post_init__"
        if field.converter is not None:
            return "its converter would not run for a peer's values: convert inside the function, or take a dataclass with __post_init__"
        if getattr(field, "alias", None) not in (None, name, name.lstrip("_")):
            return f"its alias {field.alias} would not be used: rename the field, or take a msgspec.Struct with rename="
    return None


def _check_inside(part: HintPart, mode: Mode) -> None:
    """Refuse metadata inside a class that could only be refined outside of one."""
    it, home = part.value, part.field_name
    origin = get_origin(it)
    if mode == "validation" and part.owner is not None and not _is_in_init(part.owner, home.rpartition(".")[2]):
        raise BadHint(
            f"{home}: a field with init=False is set by its class, but a peer could set it: remove it, or make it a property"
        )
    if isinstance(it, type) and issubclass(it, Flag):
        raise BadHint(
            f"{it.__name__} is a Flag, and a schema cannot list its combinations: take a list of an Enum's members, or an int"
        )
    if isinstance(it, type) and any(base.__module__.startswith("pydantic.v1") for base in it.__mro__):
        raise BadHint(f"{it.__name__} is a model of pydantic 1: derive it from pydantic.BaseModel of version 2")
    if not home:
        return
    if origin in (Union, types.UnionType) and is_dangerous(get_args(it)):
        raise BadHint(
            f"{home}: a union of a string with a pattern and a list or dict cannot be checked by msgspec "
            "inside a class; give each a field of its own"
        )
    if origin in (Union, types.UnionType) and _overlaps(get_args(it)):
        raise BadHint(
            f"{home}: two members of the union are of the same kind in JSON, and msgspec tries only one of them inside a class; "
            "merge them, or give each a field of its own"
        )
    if part.is_meta and _is_from_package("annotated_types", it) and not hasattr(it, "documentation"):
        raise BadHint(f"{home}: inside a class, write limits with msgspec.Meta, not with annotated-types")


def _is_in_init(owner: Any, name: str) -> bool:
    fields: Any = getattr(owner, "__attrs_attrs__", ()) or (
        dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    )
    return all(one.init for one in fields if one.name == name)


def _overlaps(members: Sequence[Any]) -> bool:
    try:
        return overlaps(members)
    except TypeError:
        return False  # the error is reported when the schema is made


def _has_fields(kind: Any) -> bool:
    """Whether msgspec reads its annotations."""
    return (
        hasattr(kind, "__dataclass_fields__")
        or hasattr(kind, "__attrs_attrs__")
        or issubclass(kind, (msgspec.Struct, tuple))
        or hasattr(kind, "__required_keys__")  # typing does not recognize the TypedDict of typing_extensions
    )


def _refined(hint: Any, inside: tuple[Any, ...] = ()) -> Any:
    origin = get_origin(hint)
    if hint is object:
        return Any
    if hint in (datetime, time):  # msgspec omits the format, as it also accepts a time without a zone
        return Annotated[hint, msgspec.Meta(extra_json_schema={"format": _FORMATS[hint]})]
    if hasattr(hint, "__supertype__"):
        return _refined(hint.__supertype__, inside)
    if (alias := _alias_in(hint)) is not None and alias not in inside:
        value = alias.__value__
        return _refined(value if alias is hint else value[get_args(hint)], (*inside, alias))
    if origin is Annotated:
        inner, *metadata = get_args(hint)
        kept = [meta for one in metadata for meta in _metas(one)]
        # `Annotated[int | None, Ge(1)]`: the limit applies to the member that is not None.
        if (member := _only_member(inner)) is not None:
            limits = [meta for meta in kept if _limits_in(meta)]
            inner = Union[Annotated[member, *limits], None] if limits else inner  # noqa: UP007 - made at run time
            kept = [meta for meta in kept if not _limits_in(meta)]
        if inner not in (datetime, time) or all(meta.tz is None for meta in kept):
            inner = _refined(inner, inside)
        return _annotated(inner, kept)
    if origin in (Union, types.UnionType):
        return union_of([_refined(member, inside) for member in get_args(hint)])
    if origin is abc.Iterable:
        origin = list
    if origin in CONTAINERS:
        made = cast("Any", origin)[tuple(one if one is Ellipsis else _refined(one, inside) for one in get_args(hint))]
        keys = _keys_of(hint)
        return (
            made if keys is None else Annotated[made, msgspec.Meta(extra_json_schema={"propertyNames": {"enum": keys}})]
        )
    return hint


def _only_member(hint: Any) -> Any:
    """The other member of an optional type, if there is only one."""
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    members = [each for each in get_args(hint) if each is not types.NoneType]
    return members[0] if len(members) == 1 else None


def _alias_in(hint: Any) -> Any:
    """The `type X = …` alias that a hint is, or parametrizes."""
    made_of: Any = get_origin(hint) or hint
    return made_of if hasattr(made_of, "__value__") and not isinstance(made_of, type) else None


def _keys_of(hint: Any) -> list[str] | None:
    """The allowed keys of a dict, if its hint lists them; msgspec checks them but leaves them out of the schema."""
    if get_origin(hint) not in MAPPINGS:
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


def _annotated(hint: Any, metas: list[msgspec.Meta]) -> Any:
    if is_untagged_union(hint) and any(_limits_in(meta) for meta in metas):
        raise BadHint(
            "a limit of a union whose members are of the same kind would not be enforced: write it at the member, as in "
            "Annotated[int, msgspec.Meta(ge=1)] | list[int]"
        )
    for meta in metas:
        hint = Annotated[hint, meta]
    return hint


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """One metadata of `Annotated` as `msgspec.Meta`. Unrelated metadata is ignored."""
    if isinstance(annotation, msgspec.Meta):
        return [annotation]
    if isinstance(annotation, str):
        return [msgspec.Meta(description=annotation)]
    if get_origin(annotation) is Annotated:
        return [meta for one in get_args(annotation)[1:] for meta in _metas(one)]
    if _is_from_package("annotated_types", annotation):
        return _metas_of_annotated_types(annotation)
    if _is_from_package("typing_extensions", annotation):  # Doc
        return [msgspec.Meta(description=annotation.documentation)] if hasattr(annotation, "documentation") else []
    if _is_from_package("pydantic", annotation):  # Field
        return [*_limits(annotation), *(meta for one in getattr(annotation, "metadata", ()) for meta in _metas(one))]
    return []


def _metas_of_annotated_types(annotation: Any) -> list[msgspec.Meta]:
    match type(annotation).__name__:
        case "Predicate" | "Not" | "Func":
            raise BadHint(f"{annotation!r} is code, which no schema can express; check it inside the function")
        case "DocInfo":
            return [msgspec.Meta(description=annotation.documentation)]
        case "Unit":
            return [msgspec.Meta(extra_json_schema={"x-unit": annotation.unit})]
        case "Timezone" if annotation.tz is None or annotation.tz is Ellipsis:
            return [msgspec.Meta(tz=annotation.tz is Ellipsis)]
        case _:
            found = (
                [meta for one in annotation for meta in _metas(one)] if is_iterable(annotation) else _limits(annotation)
            )
            if not found and not is_iterable(annotation):
                raise BadHint(f"{annotation!r} cannot be expressed in a schema; check it inside the function")
            return found


def _limits_in(meta: msgspec.Meta) -> bool:
    return any(getattr(meta, name) is not None for name in LIMITS)


def _is_from_package(package: str, annotation: Any) -> bool:
    """Whether it is an instance of a package's class or of a derived class; the package need not be installed."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(annotation).__mro__)


def _limits(annotation: Any) -> list[msgspec.Meta]:
    members: dict[str, Any] = {
        name: value for name in (*LIMITS, *ANNOTATIONS) if (value := getattr(annotation, name, None)) is not None
    }
    try:
        return [msgspec.Meta(**members)] if members else []
    except (TypeError, ValueError) as error:
        raise BadHint(f"{annotation!r}: {error}; a limit is a number, check others inside the function") from error


def choices_in(hint: Any) -> list[Any]:
    """The values of literals and enums in a hint, in written order."""
    found: list[Any] = []
    for part in parts_of(hint):
        if part.field_name or part.is_meta:
            continue
        if get_origin(part.value) is Literal:
            found += get_args(part.value)
        elif isinstance(part.value, EnumType):
            found += [member.value for member in cast("Iterable[Enum]", part.value)]
    return found


def classes_in(hints: Iterable[Any]) -> dict[str, type]:
    """The enums and classes with fields inside hints, by the names that msgspec gives them."""
    found: dict[str, type] = {}
    for hint in hints:
        for part in parts_of(hint):
            kind: Any = get_origin(part.value) or part.value
            if isinstance(kind, EnumType) or (isinstance(kind, type) and _has_fields(kind)):
                found.setdefault(kind.__name__, kind)
    return found


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a class with their hints, in written order."""
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}


def description_in(hint: Any) -> str | None:
    """The description in the `Annotated` of a class's field, which msgspec does not read: a string, or a `Doc`."""
    while get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    descriptions = [
        meta.description
        for one in getattr(hint, "__metadata__", ())
        if not isinstance(one, msgspec.Meta)
        for meta in _metas(one)
    ]
    return next((one for one in reversed(descriptions) if one), None)
