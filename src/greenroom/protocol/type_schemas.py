"""JSON Schemas from type hints, and conversion of JSON by the same hints: schema and conversion accept the same values.

`arguments_of` reads a function once, when it is registered, and refuses what cannot be offered to clients. `bind` runs for each call: msgspec
converts, and only if that fails the value is checked against the schema, so that the peer gets all mistakes at once. Nothing is coerced: "3"
is no integer, and 1 is no boolean. But numbers are numbers: 3 is also a float, and 3.0 also an integer.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache, wraps
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NotRequired, Required, TypedDict, TypeVar, cast

import msgspec

from .conversions import convert, converter, is_model, is_pydantic_hint, schemas_of
from .docstrings import parse_docstring
from .function_parameters import (
    MISSING,
    BadHint,
    choices_in,
    classes_in,
    description_in,
    fields_of,
    name_of,
    parameters_of,
    refined,
)
from .hash_collisions import collision_check_for, types_inside
from .safe_regex import may_explode
from .serialization import is_array, is_object, to_jsonable
from .validation_errors import (
    STEPS_ON_LOOP,
    Mismatch,
    ProblemReason,
    StepMeter,
    StepsExceeded,
    ValidationProblem,
    too_costly_reason,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from .conversions import Mode
    from .function_parameters import Parameter
    from .validation import Validator
    from .validation_errors import Path

__all__ = [
    "BadHint",
    "FunctionArguments",
    "Mismatch",
    "TypedSchema",
    "ValidationProblem",
    "arguments_of",
    "convert_json",
    "schema_of",
    "typed_schema_of",
]

T = TypeVar("T")

MOST_PROBLEMS: Final = 50
"""The number of mistakes in one error."""
_FEW_FOR_PYDANTIC: Final = 1_000
"""Up to this many values, pydantic may report the mistakes itself."""


class TypedSchema:
    """A type with its schema, converter and checks."""

    def __init__(self, kind: Any, schema: Mapping[str, Any], *, ours: bool = False) -> None:
        """`kind` comes from `type_hints.refined`. Its values are a peer's, unless they are `ours`."""
        self._convert = converter(kind, ours=ours)
        self.schema = dict(schema)
        self._keys = collision_check_for(kind)
        self._checks_first = any(
            may_explode(pattern) for one in _objects_in(self.schema) if isinstance(pattern := one.get("pattern"), str)
        )
        self._secrets = _secrets_in(self.schema)
        self._has_models = not ours and any(map(is_model, types_inside(kind)))

    def convert(self, value: Any, meter: StepMeter | None = None) -> Any:
        """Convert JSON. Raises `Mismatch` with all mistakes.

        With a meter, raises `StepsExceeded` when it is used up; without one, that is a `Mismatch` as well.
        """
        steps = StepMeter() if meter is None else meter
        try:
            much = self._has_models and _is_large(value, steps)
            if self._keys is not None:
                self._keys.check(value, steps)
            # Checked before conversion: msgspec matches patterns with `re`, and pydantic allocates an error for each mistake.
            if self._checks_first or much:
                self._check(value, steps)
            if much:  # e.g. a 3.0 where pydantic wants 3, which the schema allows
                value = _with_integers(value, steps)
        except StepsExceeded:
            if meter is not None:
                raise
            raise Mismatch([too_costly_reason(STEPS_ON_LOOP)]) from None
        try:
            return self._convert(value)
        except msgspec.ValidationError as error:
            if much:  # The value fits the schema, but pydantic checks more. It may not take the whole time again.
                raise Mismatch([_msgspec_problem(error)]) from None
            return self._convert_or_explain(value, error, meter)

    def validate(self, value: Any, meter: StepMeter | None = None) -> None:
        """Check the value against the schema alone. Raises `Mismatch`, and `StepsExceeded` when the meter is used up."""
        self._check(value, meter)

    @cached_property
    def _validator(self) -> Validator:
        from .validation import HintSchemaValidator  # noqa: PLC0415 - loaded with the first mistake

        return HintSchemaValidator(self.schema)

    def _check(self, value: Any, meter: StepMeter | None) -> None:
        if meter is None:
            problems = self._validator.errors(value, most=MOST_PROBLEMS)
        else:
            problems = self._validator.check(value, meter, MOST_PROBLEMS)
        if problems:
            raise Mismatch([self._without_secret(each) for each in problems] if self._secrets else problems)

    def _without_secret(self, problem: ValidationProblem) -> ValidationProblem:
        """The problem without the value, if the value is a secret."""
        path, reason = problem
        if reason.kind in _WITHOUT_VALUE or not (None in self._secrets or (path and path[0] in self._secrets)):
            return problem
        return ValidationProblem(path, ProblemReason("is invalid (a secret, not repeated here)", reason.kind))

    def _convert_or_explain(self, value: Any, error: msgspec.ValidationError, meter: StepMeter | None) -> Any:
        """Convert what msgspec refused: raise all mistakes, or convert 3.0 to 3 where that was the reason."""
        steps = StepMeter() if meter is None else meter
        try:
            try:
                self._check(value, steps)
            except Mismatch as found:
                if self._has_models and any(each.reason.kind == "no_oneof_match" for each in found.errors):
                    raise Mismatch(
                        [_msgspec_problem(error)]
                    ) from None  # pydantic knows by the discriminator which member was meant
                raise
            value = _with_integers(value, steps)
            if self._keys is not None:
                self._keys.check(value, steps)
            return self._convert(value)
        except StepsExceeded:
            if meter is not None:
                raise
            raise Mismatch([_msgspec_problem(error)]) from None
        except msgspec.ValidationError:
            raise Mismatch([_msgspec_problem(error)]) from None


_WITHOUT_VALUE: Final = frozenset({"missing_required", "unexpected_property"})


def _secrets_in(schema: Mapping[str, Any]) -> frozenset[str | None]:
    """The members that are or contain secrets; None if the value itself is one."""
    defs: Mapping[str, Any] = schema.get("$defs", {})
    members: Mapping[str, Any] | None = schema.get("properties")
    if members is None:
        return frozenset({None}) if _is_secret(schema, defs, set()) else frozenset()
    return frozenset(name for name, one in members.items() if _is_secret(one, defs, set()))


def _is_secret(value: Any, defs: Mapping[str, Any], seen: set[str]) -> bool:
    if is_object(value):
        if value.get("writeOnly") is True:
            return True
        name = str(value.get("$ref", "")).removeprefix("#/$defs/")
        if name in defs and name not in seen:
            seen.add(name)
            if _is_secret(defs[name], defs, seen):
                return True
        return any(_is_secret(one, defs, seen) for one in value.values())
    return is_array(value) and any(_is_secret(one, defs, seen) for one in value)


class FunctionArguments(TypedSchema):
    """The arguments of a function: the input schema, and conversion to typed values."""

    def __init__(self, parameters: Sequence[Parameter], schema: Mapping[str, Any]) -> None:
        """`parameters` by name."""
        members: dict[str, Any] = {
            one.wire: Required[one.hint] if one.required else NotRequired[one.hint] for one in parameters
        }
        made_of: Any = TypedDict
        super().__init__(made_of("Arguments", members), schema)
        self.names = frozenset(members)
        self._parameters = [one for one in parameters if one.make_default is not None or one.wire != one.name]

    def bind(self, arguments: Mapping[str, Any], meter: StepMeter | None = None) -> dict[str, Any]:
        """The keyword arguments for the function. Arguments that were not sent are left out: the function has its own defaults.

        Raises `Mismatch` with all mistakes, unknown arguments included; and `StepsExceeded`, as `convert` does.
        """
        if not arguments.keys() <= self.names:
            self._check(arguments, meter)
            raise AssertionError("the schema refuses unknown arguments")
        return filled_arguments(self._parameters, cast("dict[str, Any]", self.convert(arguments, meter)))


def filled_arguments(parameters: Iterable[Parameter], bound: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the function's own names, with the defaults that the function does not have itself."""
    for one in parameters:
        if one.wire in bound:
            if one.wire != one.name:
                bound[one.name] = bound.pop(one.wire)
        elif one.make_default is not None:
            bound[one.name] = one.make_default(bound)
    return bound


def arguments_of(
    function: Callable[..., Any],
    skip: Collection[str] = frozenset({"ctx"}),
    names: Mapping[str, Any] | None = None,
) -> FunctionArguments:
    """The arguments of a function, method, partial or callable object, from its hints and its docstring.

    `names` are further names that hints may use. Raises `BadHint` for parameters that cannot be offered, with what to write instead.
    """
    parameters = parameters_of(function, skip, names)
    schemas, defs = _schemas([one.hint for one in parameters], name_of(function), [one.name for one in parameters])
    for one in parameters:
        if one.default is not MISSING and not is_pydantic_hint(one.hint) and not _default_fits(one):
            raise BadHint(
                f"{name_of(function)}: the default of {one.name}, {one.default!r}, does not fit its hint; "
                "change one of them, or make the default None"
            )
    properties = {one.wire: _property_schema(one, schema) for one, schema in zip(parameters, schemas, strict=True)}
    schema: dict[str, Any] = {"type": "object"}
    if properties:
        schema["properties"] = properties
    if required := [one.wire for one in parameters if one.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    if defs:
        schema["$defs"] = defs
    return FunctionArguments(parameters, schema)


def _default_fits(parameter: Parameter) -> bool:
    """Whether the default fits the hint; a default that is no JSON cannot be sent, and is the function's own matter."""
    try:
        value = to_jsonable(parameter.default)
    except (TypeError, ValueError):
        return True
    if value is True or value is False:
        return _converts(value, parameter.hint) or _converts(int(value), parameter.hint)  # a bool is an int in Python
    return _converts(value, parameter.hint) or _converts(_with_integers(value, StepMeter()), parameter.hint)


def _converts(value: Any, hint: Any) -> bool:
    try:
        convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def _property_schema(parameter: Parameter, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter. Its hint's description takes precedence over the docstring's."""
    if parameter.description and "description" not in schema:
        schema = {**schema, "description": parameter.description}
    if parameter.default is MISSING or "default" in schema or schema.get("writeOnly"):
        return schema
    try:
        return {**schema, "default": to_jsonable(parameter.default)}
    except (TypeError, ValueError):
        return schema  # a default that is no JSON is left out


def schema_of(hint: Any, mode: Mode = "validation") -> dict[str, Any]:
    """The schema of a type. An object's schema is at the root, not behind a `$ref`."""
    (schema,), defs = _schemas([refined(hint, mode)], "the hint", [str(hint)], mode)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if set(schema) == {"$ref"} and name in defs:
        schema = dict(defs[name])
        if not any(one.get("$ref") == f"#/$defs/{name}" for one in _objects_in(defs)):
            del defs[name]
    return {**schema, "$defs": defs} if defs else schema


def convert_json(hint: Any, value: Any) -> Any:
    """Convert JSON to that type. Raises `Mismatch` with all mistakes."""
    return typed_schema_of(hint).convert(value)


def cached_by_hint(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache a function of a hint, unless the hint's metadata is unhashable."""
    kept = lru_cache(maxsize=1024)(make)

    @wraps(make)
    def found(hint: Any) -> T:
        try:
            return kept(hint)
        except TypeError as error:
            if isinstance(error, BadHint):
                raise
            return make(hint)

    return found


@cached_by_hint
def typed_schema_of(hint: Any) -> TypedSchema:
    """The `TypedSchema` of a type, made once for each type."""
    return TypedSchema(refined(hint), schema_of(hint))


_NO_SCHEMA: Final = (TypeError, NameError, NotImplementedError)
"""The errors of msgspec for a type without a schema."""


def _schemas(
    kinds: Sequence[Any], where: str, names: Sequence[str], mode: Mode = "validation"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas with their definitions, in written order. Raises `BadHint` naming the type."""
    try:
        schemas, defs = schemas_of(kinds, mode)
    except _NO_SCHEMA as error:
        for kind, name in zip(kinds, names, strict=True):
            try:
                schemas_of([kind], mode)
            except _NO_SCHEMA as reason:
                raise BadHint(f"{where}: {name} has no schema: {_no_schema_reason(reason)}") from error
        raise BadHint(f"{where}: {_no_schema_reason(error)}") from error
    made = {name: _with_docs(schema) for name, schema in defs.items()}
    if made or any("enum" in schema or "anyOf" in schema or "items" in schema for schema in schemas):
        # msgspec sorts choices; restore the written order.
        in_order = [_in_written_order(schema, kind) for schema, kind in zip(schemas, kinds, strict=True)]
        return in_order, _defs_in_order(made, kinds)
    return schemas, made


def _defs_in_order(defs: dict[str, Any], kinds: Iterable[Any]) -> dict[str, Any]:
    """Definitions in written order, with members described by their `Annotated`."""
    classes = classes_in(kinds)
    made: dict[str, Any] = {}
    for name, schema in defs.items():
        kind = classes.get(schema.get("title", name))
        if kind is None:
            made[name] = schema
        elif "enum" in schema:
            made[name] = _in_written_order(schema, kind)
        else:
            made[name] = _members_in_order(schema, fields_of(kind))
    return made


def _members_in_order(schema: dict[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    members: Mapping[str, Any] = schema.get("properties", {})
    if not members.keys() <= hints.keys():  # a struct may rename its fields, but keeps their order
        return schema
    ordered: dict[str, Any] = {}
    for name in (each for each in hints if each in members):
        member = _in_written_order(members[name], hints[name])
        description = description_in(hints[name])
        ordered[name] = (
            {**member, "description": description} if description and "description" not in member else member
        )
    schema = {**schema, "properties": ordered}
    if "required" in schema:
        schema["required"] = [name for name in ordered if name in schema["required"]]
    return schema


def _in_written_order(schema: Any, hint: Any) -> Any:
    """The schema of a hint with its choices in written order."""
    written = choices_in(hint)
    return _ordered(schema, {(type(one), one): place for place, one in reversed(list(enumerate(written)))})


def _ordered(schema: Any, places: dict[tuple[Any, Any], int]) -> Any:
    """The schema with ordered choices; values that are not in `places` come last."""
    if not places:
        return schema
    if is_object(schema):
        made = {
            name: _ordered(one, places) if name not in ("default", "examples") else one for name, one in schema.items()
        }
        if is_array(choices := schema.get("enum")):
            made["enum"] = sorted(choices, key=lambda one: places.get((cast("Any", type(one)), one), len(places)))
        return made
    return [_ordered(one, places) for one in schema] if is_array(schema) else schema


def _no_schema_reason(error: Exception) -> str:
    """Why a type has no schema, and what to write instead."""
    text = str(error)
    if isinstance(error, NameError):
        return (
            f"{error.name!r} does not exist at run time; define it at the top of its module, outside `if TYPE_CHECKING`"
        )
    if "schema_hook" in text:
        kind = text.rpartition("type ")[2].removesuffix(" is not supported")
        return f"{kind} cannot be expressed in JSON; take its parts, or a dataclass, TypedDict or model of them"
    return text


def _with_docs(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition whose docstring was parsed: its `Attributes:` describe the properties."""
    if "description" not in schema:
        return schema
    text, attributes = parse_docstring(cleandoc(schema["description"]))
    schema = {**schema, "description": text}
    if not text:
        del schema["description"]
    properties = {
        name: {**one, "description": attributes[name]} if name in attributes and "description" not in one else one
        for name, one in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


def _with_integers(value: Any, meter: StepMeter) -> Any:
    """The JSON with each whole float as an int, which is also a valid float for all checks. Raises `StepsExceeded`."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        meter.spend(1 + 2 * len(value))
        return {name: _with_integers(one, meter) for name, one in value.items()}
    if is_array(value):
        meter.spend(1 + 2 * len(value))
        return [_with_integers(one, meter) for one in value]
    return value


def _is_large(value: Any, meter: StepMeter) -> bool:
    """Whether the value is so large that pydantic gets it only after the schema check."""
    count = 0
    waiting: list[Any] = [[value]]
    for one in waiting:  # the list grows during iteration
        items: Collection[Any] = one.values() if is_object(one) else one
        count += len(items)
        # Charged, so that large values are converted in a thread, where validators written in Python release the interpreter.
        meter.spend(1 + 2 * len(items))
        waiting += (item for item in items if isinstance(item, dict | list))
    return count > _FEW_FOR_PYDANTIC


def _objects_in(schema: Any) -> Iterator[Mapping[str, Any]]:
    """All schema objects inside a schema that was made from hints."""
    found = [schema]
    for one in found:  # the list grows during iteration
        if is_object(one):
            yield one
            found += one.values()
        elif is_array(one):
            found += one


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def _msgspec_problem(error: msgspec.ValidationError) -> ValidationProblem:
    """The single problem that msgspec reports, for constraints that a schema cannot express."""
    text, _, place = str(error).partition(" - at `")
    path: Path = tuple(int(index) if index else name for name, index in _STEP.findall(place.rstrip("`")))
    return ValidationProblem(path, ProblemReason(text.replace("`", ""), "type_mismatch"))
