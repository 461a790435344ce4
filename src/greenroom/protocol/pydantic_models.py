"""pydantic's only door: its models as parameters and results, and what it alone understands of a hint, for programs that have it (the extra `pydantic`).

No module imports this one before pydantic itself was imported, which the author of a model or a `Field` has done.
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
"""Telling of each takes pydantic microseconds, and there may be one for every few bytes that a peer has sent."""

MOST: Final = 50_000
"""How many texts, lists and objects a model is made of: pydantic holds the interpreter for one to three microseconds with each."""

_OLDEST: Final = (2, 10)
_UNDEFINED: Final[Any] = FieldInfo().default
"""What pydantic has for no default."""
_PACKAGES: Final = frozenset({"pydantic", "pydantic_core", "pydantic_extra_types", "pydantic_settings"})
_SIMPLE: Final = frozenset(ANNOTATIONS)
"""What of a `Field` msgspec can say as well; a hint with nothing else stays msgspec's, which is several times faster."""
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
"""What of a `Field` is about the parameter and not about its values."""
_OF_PARAMETERS: Final = _OWN | {"discriminator", "deprecated", "json_schema_extra", "field_title_generator"}
_IGNORED: Final[type[Warning]] = getattr(pydantic.warnings, "UnsupportedFieldAttributeWarning", UserWarning)
"""What pydantic warns with where it would ignore a part of a hint; of no name before 2.12."""


class UnusableField(Exception):
    """A `Field` or hint that cannot be used here; the text completes a sentence that begins with the parameter's name."""


def check_version() -> None:
    """Raises `UnusableField` where the pydantic that was imported is too old to be asked."""
    if tuple(int(part) for part in pydantic.VERSION.split(".")[:2]) < _OLDEST:
        raise UnusableField(
            f"pydantic {pydantic.VERSION} is too old: 2.10 or newer is needed; write pip install -U 'greenroom[pydantic]'"
        )


# --- models


def is_model(kind: Any) -> bool:
    """Whether it is a class of models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def schema(
    kind: Any, mode: Literal["validation", "serialization"], reference: str, suffix: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a model, or of what stands for a hint, and the definitions that it refers to, whose names end in `suffix`."""
    template = reference.replace("{name}", "{model}" + suffix)
    adapter = kind.adapter if is_pydantic_hint(kind) else TypeAdapter(kind)
    try:
        made = adapter.json_schema(by_alias=True, ref_template=template, mode=mode)
    except PydanticUserError as error:
        raise TypeError(_first_line(error)) from error
    definitions: dict[str, Any] = made.pop("$defs", {})
    return made, {f"{name}{suffix}": one for name, one in definitions.items()}


def from_json(kind: Any, value: Any, *, ours: bool = False) -> Any:
    """The value that pydantic makes of what a peer sent, coercing nothing; raises `ValueError` with all that is wrong."""
    asked: Any = kind
    name = "value" if is_pydantic_hint(kind) else str(asked.__name__)
    if not ours and _is_too_large(value):
        raise ValueError(f"more than {MOST} texts, lists and objects, which is too much for a {name}")
    validate: Callable[..., Any] = asked.adapter.validate_json if is_pydantic_hint(kind) else asked.model_validate_json
    try:
        return validate(msgspec.json.encode(value), strict=True)
    except ValidationError as error:
        if (count := error.error_count()) > _MOST_TOLD:
            raise ValueError(f"{count} mistakes in a {name}") from None
        raise ValueError(_problem_text(error)) from None


def _problem_text(error: ValidationError) -> str:
    """Its reasons with their places, and without the values, which may be secrets."""
    said = ((path_text(one["loc"]), one["msg"]) for one in error.errors(include_url=False, include_input=False))
    return "; ".join(f"{where}: {what}" if where else what for where, what in said)


def _is_too_large(value: Any) -> bool:
    count = 0
    waiting: list[Any] = [[value]]
    for one in waiting:  # which grows meanwhile
        items: Iterable[Any] = one.values() if is_object(one) else one
        count += sum(isinstance(item, str | dict | list) for item in items)
        if count > MOST:
            return True
        waiting += (item for item in items if isinstance(item, dict | list))
    return False


def key_maker(kind: Any) -> Callable[[Any], Any]:
    """What makes a key of a type that pydantic alone knows, from JSON or from a text; it raises `ValueError`."""
    return TypeAdapter(kind).validate_python


def as_json(value: Any) -> Any:
    """A model, or a value of one of pydantic's own types, in JSON's own types: a secret is stars."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return TypeAdapter[Any](cast("Any", type(value))).dump_python(value, mode="json", by_alias=True)


def is_value(value: Any) -> bool:
    """Whether pydantic says what a value is in JSON: a model, a URL, a secret."""
    return isinstance(value, BaseModel) or _package(type(value)) in _PACKAGES


def validate_and_serialize(adapter: TypeAdapter[Any], value: Any, in_json: Callable[[], Any]) -> Any:
    """What was returned, validated and written as pydantic does: aliases, computed fields and serializers as the schema has them.

    What pydantic does not take as it is may be so in JSON's own types, which `in_json` makes: numpy's numbers. Raises `ValueError` with all that is wrong.
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


# --- hints that are pydantic's as a whole


def is_special(said: Any) -> bool:
    """Whether a word in `Annotated`, or a type, says something that pydantic alone understands. A model is not meant: it is known by itself."""
    if isinstance(said, FieldInfo):
        return not is_simple(said)
    if is_model(said) or is_pydantic_hint(said):
        return False
    if isinstance(said, type):
        kind: Any = said
        ours = is_dataclass(kind) and hasattr(kind, "__pydantic_validator__")
        return ours or _package(kind) in _PACKAGES or hasattr(kind, "__get_pydantic_core_schema__")
    inside = _package(said if hasattr(said, "__value__") else type(said)) in _PACKAGES
    return inside or hasattr(said, "__get_pydantic_core_schema__") or hasattr(said, "__get_pydantic_json_schema__")


def is_field(said: Any) -> bool:
    """Whether it is a `Field(…)`."""
    return isinstance(said, FieldInfo)


def is_simple(field: FieldInfo) -> bool:
    """Whether msgspec can say all that a `Field` in the middle of a hint says."""
    said = {name for name, value in _field_attributes(field).items() if value is not None}
    return said <= _SIMPLE | {"annotation"} and all(map(_is_limit, field.metadata))


def _is_limit(said: Any) -> bool:
    if _package(type(said)) == "annotated_types":
        return True
    words = getattr(said, "__dict__", {})
    return set(words) == {"pattern"} and isinstance(words["pattern"], str)


def pydantic_hint(hint: Any) -> type[PydanticHint]:
    """What stands for a hint that pydantic has to check as a whole. Raises `UnusableField` that says why it cannot."""
    return type("PydanticHint", (PydanticHint,), {"hint": hint, "adapter": _adapter_of(_in_pydantic_terms(hint))})


def _adapter_of(hint: Any) -> TypeAdapter[Any]:
    check_version()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", _IGNORED)
            warnings.filterwarnings("ignore", "The 'deprecated' attribute")  # which is in the schema all the same
            return TypeAdapter(hint)
    except Warning as warning:
        raise UnusableField(f"pydantic would ignore a part of it: {_first_line(warning)}") from None
    except PydanticSchemaGenerationError as error:
        unknown = str(error).partition("<class '")[2].partition("'")[0].rpartition(".")[2] or "a part of it"
        raise UnusableField(
            f"something in it is pydantic's, which then has to check all of it, and it does not know {unknown}: take a BaseModel or a "
            "dataclass for that, or say the same without pydantic (msgspec.Meta(…) for limits)"
        ) from error
    except (PydanticUserError, TypeError, NameError, ImportError, ValueError, RecursionError) as error:
        raise UnusableField(f"pydantic has to check it, and cannot: {_first_line(error)}") from error


def _in_pydantic_terms(hint: Any) -> Any:
    """The hint with what others say in `Annotated` (a text, `Doc`, `msgspec.Meta`) in pydantic's words, which ignores theirs."""
    if get_origin(hint) is Annotated:
        inner, *said = get_args(hint)
        words = [FieldInfo(**_translated_annotations(one)) if _translated_annotations(one) else one for one in said]
        made: Any = _in_pydantic_terms(inner)
        for word in words:
            made = Annotated[made, word]
        return made
    return hint


def _translated_annotations(said: Any) -> dict[str, Any]:
    if isinstance(said, str):
        return {"description": said}
    if type(said).__name__ == "Doc":
        return {"description": said.documentation}
    if isinstance(said, msgspec.Meta):
        words = {name: value for name in (*LIMITS, *ANNOTATIONS) if (value := getattr(said, name)) is not None}
        return words | ({"json_schema_extra": said.extra_json_schema} if said.extra_json_schema else {})
    return {}


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


# --- a parameter that has a `Field`


class FieldSettings(NamedTuple):
    """What the `Field`s of a parameter say of it: the hint without that, and what is left."""

    hint: Any
    default: Any
    """`inspect.Parameter.empty` when it has to be given."""
    make_default: Callable[[dict[str, Any]], Any] | None
    """Makes the default anew for each call, of the arguments before it."""
    alias: str | None
    checks_default: bool


def field_settings_of(hint: Any, default: Any) -> FieldSettings | None:
    """What is said of a parameter by a `Field` as its default or in its `Annotated`; None where there is none. Raises `UnusableField`."""
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
            raise UnusableField(f'{type(named).__name__} is no name for an argument: write Field(alias="one_name")')
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
        raise UnusableField("serialization_alias is for what goes out, and a parameter comes in: write Field(alias=…)")
    if unknown := sorted(words - _SIMPLE - _OF_PARAMETERS):
        raise UnusableField(
            f"Field({unknown[0]}=…) says nothing of a parameter, and would be lost: leave it out, or take a BaseModel with that field"
        )


def _field_attributes(field: FieldInfo) -> Mapping[str, Any]:
    """What was written in `Field(…)`."""
    said: Mapping[str, Any] = cast("Any", field)._attributes_set  # noqa: SLF001 - the public attributes do not tell what was said from what was not
    return said


def _hint_without_field(hint: Any, default: Any) -> Any:
    """The hint with what is said of its values; names and defaults are the parameter's own affair."""
    inner, said = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
    for one in (*said, *((default,) if isinstance(default, FieldInfo) else ())):
        if not isinstance(one, FieldInfo):
            inner = Annotated[inner, one]
        elif (left := _value_constraints(one)) is not None:
            inner = Annotated[inner, left]
    return inner


def _value_constraints(field: FieldInfo) -> FieldInfo | None:
    """What of a `Field` is about the values, if anything is."""
    words = {name: value for name, value in _field_attributes(field).items() if name not in _OWN}
    if not words and not field.metadata:
        return None
    left = copy(field)
    left.default, left.default_factory = _UNDEFINED, None
    left.alias = left.validation_alias = left.serialization_alias = left.validate_default = left.alias_priority = None
    cast("Any", left)._attributes_set = words  # noqa: SLF001 - by which pydantic knows what it has to apply
    return left
