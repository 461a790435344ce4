"""pydantic: its models as parameters and results, and hints that only it understands. The only module that imports pydantic.

For programs with the extra `pydantic`. It is imported only after the program has imported pydantic, as the author of a model or a `Field` has.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import is_dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, cast, get_args, get_origin

import msgspec
import pydantic
import pydantic.warnings
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo

from .conversions import ANNOTATIONS, LIMITS, PydanticHint, is_pydantic_hint
from .serialization import is_object
from .validation_errors import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOST_TOLD: Final = 100
"""The most mistakes reported: each takes pydantic microseconds, and there may be one for every few bytes that a peer sent."""

MOST: Final = 50_000
"""The most strings, lists and objects in a model's input: pydantic blocks the interpreter for one to three microseconds with each."""

_OLDEST: Final = (2, 10)
_UNDEFINED: Final[Any] = FieldInfo().default
"""pydantic's marker for no default."""
_PACKAGES: Final = frozenset({"pydantic", "pydantic_core", "pydantic_extra_types", "pydantic_settings"})
_SIMPLE: Final = frozenset(ANNOTATIONS)
"""The attributes of a `Field` that msgspec supports too; hints with only these stay with msgspec, which is several times faster."""
_OWN: Final = frozenset(
    {
        "default",
        "default_factory",
        "alias",
        "alias_priority",
        "validation_alias",
        "serialization_alias",
        "validate_default",
        "annotation",
    }
)
"""The attributes of a `Field` about the parameter and not about its values."""
_OF_PARAMETERS: Final = _OWN | {"discriminator", "deprecated", "json_schema_extra", "field_title_generator"}
_IGNORED: Final[type[Warning]] = getattr(pydantic.warnings, "UnsupportedFieldAttributeWarning", UserWarning)
"""The warning of pydantic when it ignores a part of a hint; unnamed before 2.12."""


class UnusableField(Exception):
    """A `Field` or hint cannot be used; the text completes a sentence that begins with the parameter's name."""


def check_version() -> None:
    """Raises `UnusableField` if the imported pydantic is too old."""
    if tuple(int(part) for part in pydantic.VERSION.split(".")[:2]) < _OLDEST:
        raise UnusableField(
            f"pydantic {pydantic.VERSION} is too old: 2.10 or newer is needed; write pip install -U 'greenroom[pydantic]'"
        )


# --- models


def is_model(kind: Any) -> bool:
    """Whether a type is a model class."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def schema(
    kind: Any, mode: Literal["validation", "serialization"], reference: str, suffix: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a model or `PydanticHint`, and the definitions that it refers to, whose names end in `suffix`."""
    template = reference.replace("{name}", "{model}" + suffix)
    adapter = kind.adapter if is_pydantic_hint(kind) else TypeAdapter(kind)
    try:
        made = adapter.json_schema(by_alias=True, ref_template=template, mode=mode)
    except PydanticUserError as error:
        raise TypeError(_first_line(error)) from error
    definitions: dict[str, Any] = made.pop("$defs", {})
    return made, {f"{name}{suffix}": one for name, one in definitions.items()}


def from_json(kind: Any, value: Any, *, ours: bool = False) -> Any:
    """Convert a peer's value without coercion. Raises `ValueError` with all problems."""
    model: Any = kind
    name = "value" if is_pydantic_hint(kind) else str(model.__name__)
    if not ours and _is_too_large(value):
        raise ValueError(f"more than {MOST} strings, lists and objects, which is too much for a {name}")
    validate: Callable[..., Any] = model.adapter.validate_json if is_pydantic_hint(kind) else model.model_validate_json
    try:
        return validate(msgspec.json.encode(value), strict=True)
    except ValidationError as error:
        if (count := error.error_count()) > _MOST_TOLD:
            raise ValueError(f"{count} mistakes in a {name}") from None
        raise ValueError(_problem_text(error)) from None


def _problem_text(error: ValidationError) -> str:
    """The reasons with their places, without the values, which may be secrets."""
    reasons = ((path_text(one["loc"]), one["msg"]) for one in error.errors(include_url=False, include_input=False))
    return "; ".join(f"{where}: {what}" if where else what for where, what in reasons)


def _is_too_large(value: Any) -> bool:
    count = 0
    waiting: list[Any] = [[value]]
    for one in waiting:  # the list grows during iteration
        items: Iterable[Any] = one.values() if is_object(one) else one
        count += sum(isinstance(item, str | dict | list) for item in items)
        if count > MOST:
            return True
        waiting += (item for item in items if isinstance(item, dict | list))
    return False


def key_maker(kind: Any) -> Callable[[Any], Any]:
    """A function that makes a dict key of a pydantic type from JSON or a string. It raises `ValueError`."""
    return TypeAdapter(kind).validate_python


def as_json(value: Any) -> Any:
    """A model, or a value of a pydantic type, as JSON types; secrets are masked."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return TypeAdapter[Any](cast("Any", type(value))).dump_python(value, mode="json", by_alias=True)


def is_value(value: Any) -> bool:
    """Whether pydantic serializes a value: a model, a URL, a secret."""
    return isinstance(value, BaseModel) or _package(type(value)) in _PACKAGES


def validate_and_serialize(adapter: TypeAdapter[Any], value: Any, in_json: Callable[[], Any]) -> Any:
    """Validate and serialize a return value: aliases, computed fields and serializers as in the schema.

    A value that pydantic refuses is tried again as JSON types, which `in_json` makes (numpy's numbers). Raises `ValueError` with all problems.
    """
    try:
        try:
            made = adapter.validate_python(value)
        except ValidationError as error:
            try:
                made = adapter.validate_python(in_json())
            except ValidationError:
                raise error from None
        return adapter.dump_python(made, mode="json", by_alias=True, warnings=False)
    except ValidationError as error:
        raise ValueError(_problem_text(error)) from None


# --- hints that pydantic checks as a whole


def is_special(meta: Any) -> bool:
    """Whether metadata of `Annotated`, or a type, is understood by pydantic alone. Models are not included."""
    if isinstance(meta, FieldInfo):
        return not is_simple(meta)
    if is_model(meta) or is_pydantic_hint(meta):
        return False
    if isinstance(meta, type):
        kind: Any = meta
        ours = is_dataclass(kind) and hasattr(kind, "__pydantic_validator__")
        return ours or _package(kind) in _PACKAGES or hasattr(kind, "__get_pydantic_core_schema__")
    inside = _package(meta if hasattr(meta, "__value__") else type(meta)) in _PACKAGES
    return inside or hasattr(meta, "__get_pydantic_core_schema__") or hasattr(meta, "__get_pydantic_json_schema__")


def is_field(meta: Any) -> bool:
    """Whether the value is a `Field(…)`."""
    return isinstance(meta, FieldInfo)


def is_simple(field: FieldInfo) -> bool:
    """Whether msgspec supports all of a `Field` inside a hint."""
    attributes = {name for name, value in _field_attributes(field).items() if value is not None}
    return attributes <= _SIMPLE | {"annotation"} and all(map(_is_limit, field.metadata))


def _is_limit(meta: Any) -> bool:
    if _package(type(meta)) == "annotated_types":
        return True
    words = getattr(meta, "__dict__", {})
    return set(words) == {"pattern"} and isinstance(words["pattern"], str)


def pydantic_hint(hint: Any) -> type[PydanticHint]:
    """A `PydanticHint` for a hint that pydantic checks as a whole. Raises `UnusableField` with the reason why it cannot."""
    # A class made at run time, as for unions (`conversions`): msgspec passes nothing but the class to its hook.
    return type("PydanticHint", (PydanticHint,), {"hint": hint, "adapter": _adapter_of(_in_pydantic_terms(hint))})


def _adapter_of(hint: Any) -> TypeAdapter[Any]:
    check_version()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", _IGNORED)
            warnings.filterwarnings("ignore", "The 'deprecated' attribute")  # which is in the schema nevertheless
            return TypeAdapter(hint)
    except Warning as warning:
        raise UnusableField(f"pydantic would ignore a part of it: {_first_line(warning)}") from None
    except PydanticSchemaGenerationError as error:
        unknown = str(error).partition("<class '")[2].partition("'")[0].rpartition(".")[2] or "a part of it"
        raise UnusableField(
            f"part of it is pydantic's, so pydantic must check all of it, but it does not know {unknown}: take a BaseModel or a "
            "dataclass for that, or say the same without pydantic (msgspec.Meta(…) for limits)"
        ) from error
    except (PydanticUserError, TypeError, NameError, ImportError, ValueError, RecursionError) as error:
        raise UnusableField(f"pydantic must check it, but cannot: {_first_line(error)}") from error


def _in_pydantic_terms(hint: Any) -> Any:
    """The hint with other libraries' metadata (a string, `Doc`, `msgspec.Meta`) in pydantic's terms, which ignores theirs."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        words = [FieldInfo(**_translated_annotations(one)) if _translated_annotations(one) else one for one in metadata]
        made: Any = _in_pydantic_terms(inner)
        for word in words:
            made = Annotated[made, word]
        return made
    return hint


def _translated_annotations(meta: Any) -> dict[str, Any]:
    if isinstance(meta, str):
        return {"description": meta}
    if type(meta).__name__ == "Doc":
        return {"description": meta.documentation}
    if isinstance(meta, msgspec.Meta):
        words = {name: value for name in (*LIMITS, *ANNOTATIONS) if (value := getattr(meta, name)) is not None}
        return words | ({"json_schema_extra": meta.extra_json_schema} if meta.extra_json_schema else {})
    return {}


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


# --- parameters with a `Field`


class FieldSettings(NamedTuple):
    """The settings in the `Field`s of a parameter, and the hint without them."""

    hint: Any
    default: Any
    """`inspect.Parameter.empty` if it is required."""
    make_default: Callable[[dict[str, Any]], Any] | None
    """Makes the default for each call, from the preceding arguments."""
    alias: str | None
    checks_default: bool


def field_settings_of(hint: Any, default: Any) -> FieldSettings | None:
    """The settings of a parameter by a `Field` as its default or in its `Annotated`; None if there is none. Raises `UnusableField`."""
    fields = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, FieldInfo)]
    if isinstance(default, FieldInfo):
        if type(default) is not FieldInfo:
            raise UnusableField(
                f"its default is {type(default).__module__}.{type(default).__name__}, which means nothing here: write pydantic's Field"
            )
        fields.append(default)
    if not fields:
        return None
    check_version()
    alias: str | None = None
    found: Any = Parameter.empty if isinstance(default, FieldInfo) else default
    make: Callable[[dict[str, Any]], Any] | None = None
    checks = False
    for field in fields:
        _check_attributes(field)
        named: Any = field.validation_alias if field.validation_alias is not None else field.alias
        if named is not None and not isinstance(named, str):
            raise UnusableField(f'{type(named).__name__} is no argument name: write Field(alias="one_name")')
        alias = named or alias
        if field.default_factory is not None:
            make = _default_factory(field)
        elif field.default is not _UNDEFINED and (found is Parameter.empty or field is default):
            found = field.default
        checks = checks or bool(field.validate_default)
    return FieldSettings(_hint_without_field(hint, default), found, make, alias, checks)


def _default_factory(field: FieldInfo) -> Callable[[dict[str, Any]], Any]:
    return lambda before: field.get_default(call_default_factory=True, validated_data=before)


def _check_attributes(field: FieldInfo) -> None:
    words = {name for name, value in _field_attributes(field).items() if value is not None}
    if field.serialization_alias is not None and field.serialization_alias != field.alias:
        raise UnusableField("serialization_alias is for output, and a parameter is input: write Field(alias=…)")
    if unknown := sorted(words - _SIMPLE - _OF_PARAMETERS):
        raise UnusableField(
            f"Field({unknown[0]}=…) has no effect on a parameter: leave it out, or take a BaseModel with that field"
        )


def _field_attributes(field: FieldInfo) -> Mapping[str, Any]:
    """The attributes that were written in `Field(…)`."""
    attributes: Mapping[str, Any] = cast("Any", field)._attributes_set  # noqa: SLF001 - the public attributes do not show which were set
    return attributes


def _hint_without_field(hint: Any, default: Any) -> Any:
    """The hint with the constraints of its values; names and defaults belong to the parameter."""
    inner, metadata = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
    for one in (*metadata, *((default,) if isinstance(default, FieldInfo) else ())):
        if not isinstance(one, FieldInfo):
            inner = Annotated[inner, one]
        elif (left := _value_constraints(one)) is not None:
            inner = Annotated[inner, left]
    return inner


def _value_constraints(field: FieldInfo) -> FieldInfo | None:
    """A `Field` with the constraints of the values only, if there are any."""
    words = {name: value for name, value in _field_attributes(field).items() if name not in _OWN}
    if not words and not field.metadata:
        return None
    left = copy(field)
    left.default, left.default_factory = _UNDEFINED, None
    left.alias = left.validation_alias = left.serialization_alias = left.validate_default = left.alias_priority = None
    cast("Any", left)._attributes_set = words  # noqa: SLF001 - pydantic reads from it which attributes it must apply
    return left
