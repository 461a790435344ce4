"""jsonschema's only door: values against schemas that anybody may have written.

A schema is looked through before it is used (`check_schema`), compiled once (`Validator`), and no value is checked for ever: each
keyword that is looked at is a step, and there are so many of them. The format of a text is not checked unless asked for, as JSON Schema has it.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

import msgspec
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType] - untyped there

from .patterns import BadPattern, TooLong, compiled
from .problems import Problem, Reason
from .reasons import reason_of, unexpected
from .subschemas import BadSchema, dialect_of, inspect, prepare
from .wire import is_array, is_object, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from .problems import Path

__all__ = ["BadSchema", "Validator", "check_schema", "first_error", "validate"]

MOST_STEPS: Final = 200_000
"""What the check of one value may cost: a second or less."""
_COSTS: Final = {"$ref": 4, "$dynamicRef": 4, "$recursiveRef": 4, "allOf": 3, "anyOf": 5, "if": 3, "not": 3, "oneOf": 5}
MOST_PROBLEMS: Final = 100


TYPES: Final[dict[str, Any]] = {
    "date": date, "date-time": datetime, "decimal": Decimal, "duration": timedelta, "time": time, "uuid": UUID,
}  # fmt: skip
"""The formats that stand for types."""


class _TooMuch(Exception):
    """All steps are used up."""


class _Meter:
    """How many steps are left."""

    def __init__(self, steps: int, targets: Mapping[str, Any]) -> None:
        self.left = steps
        self.targets = targets  # where the references of this schema lead

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _TooMuch


_meter: ContextVar[_Meter] = ContextVar("_meter")


def check_schema(schema: Any, *, root_object: bool = False) -> None:
    """Refuse a schema that is wrong, too large, or refers out of its own document. Raises `BadSchema`.

    With `root_object`, its root must be of type "object", as the schemas of tools are.
    """
    if not is_object(schema):
        raise BadSchema((), "a schema is an object")
    if root_object and schema.get("type") != "object":
        raise BadSchema(("type",), f'its root must have the type "object", and has {schema.get("type")!r}')
    inspect(schema)
    try:
        _classes()[dialect_of(schema)].check_schema(schema)
    except SchemaError as error:
        path: Path = tuple(error.absolute_path)
        raise BadSchema(path, str(reason_of(str(error.validator), error.validator_value, error.instance))) from None


class Validator:
    """A schema to hold values against. It is checked and compiled here, once; what happens to it later does not matter."""

    dialect: str | None = None
    formats: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, schema: Mapping[str, Any], *, steps: int = MOST_STEPS) -> None:
        """Raises `BadSchema`. `steps` bounds what one value may cost."""
        self._steps = steps
        if self.dialect is None:
            check_schema(schema)
        kind = _classes()[self.dialect or dialect_of(schema)]
        copy: dict[str, Any] = plain(schema)
        self._targets = prepare(copy)
        self._validator = kind(copy, format_checker=_checker_of(self.formats))

    def errors(self, value: Any, most: int = MOST_PROBLEMS) -> list[Problem]:
        """All that is wrong, up to `most` things, with paths from the root. A value of the wrong type has no other problems."""
        token = _meter.set(_Meter(self._steps, self._targets))
        found: list[ValidationError] = []
        try:
            found.extend(islice(cast("Iterator[ValidationError]", self._validator.iter_errors(value)), most))
        except (_TooMuch, RecursionError):
            return [*self._problems(found), Problem((), Reason("there is too much in it to be checked", "too_complex"))]
        finally:
            _meter.reset(token)
        return self._problems(found)

    def _problems(self, found: Sequence[ValidationError]) -> list[Problem]:
        mistyped = {_place(error) for error in found if error.validator == "type"}
        kept = (error for error in found if error.validator == "type" or _place(error) not in mistyped)
        return [problem for error in kept for problem in self._said(error)]

    def _said(self, error: ValidationError) -> Iterable[Problem]:
        """The problem, or problems, that jsonschema's error stands for."""
        path: Path = tuple(error.absolute_path)
        keyword = str(error.validator)
        if isinstance(error.cause, TooLong):
            return [Problem(path, Reason(str(error.cause), "too_complex"))]
        match keyword:
            case "required":
                return [Problem((*path, error.message), Reason("is missing", "missing_required"))]
            case "additionalProperties" if error.validator_value is False:
                return [Problem((*path, error.message), unexpected(error.message, cast("Any", error.schema)))]
            case "not" if not error.validator_value:
                return [Problem(path, Reason("must not be there", "unexpected_property"))]
            case "oneOf" if not error.context:
                return [
                    Problem(
                        path,
                        Reason("it is more than one of the things of which it may be one", "multiple_oneof_matches"),
                    )
                ]
            case _:
                return [Problem(path, reason_of(keyword, error.validator_value, error.instance))]


class OwnValidator(Validator):
    """For schemas that were made from type hints: the formats in them are checked, by who converts the values.

    Of a union it says what is wrong with the one member that was meant, where that is clear.
    """

    dialect = "own"
    formats: Mapping[str, Any] = MappingProxyType(TYPES)

    def _said(self, error: ValidationError) -> Iterable[Problem]:
        if error.validator != "anyOf" or not error.context:
            return super()._said(error)
        branches: dict[Any, list[ValidationError]] = {}
        for one in error.context:
            branches.setdefault(one.schema_path[0], []).append(one)
        meant = [
            ones for ones in branches.values() if not any(one.validator == "type" and not one.path for one in ones)
        ]
        if len(meant) == 1:
            return self._problems(meant[0])
        types = [
            one.validator_value
            for ones in branches.values()
            for one in ones
            if one.validator == "type" and not one.path
        ]
        if meant or not all(isinstance(one, str) for one in types):
            return super()._said(error)
        return [Problem(tuple(error.absolute_path), reason_of("type", list(dict.fromkeys(types)), error.instance))]


class FormValidator(OwnValidator):
    """For the answers to forms: all formats that forms have are checked."""

    formats: Mapping[str, Any] = MappingProxyType(
        {**TYPES, "email": re.compile(r"[^@\s]+@[^@\s]+"), "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")}
    )


def validate(value: Any, schema: Mapping[str, Any] | None) -> list[Problem]:
    """All that is wrong with a value, as (path, reason); nothing when there is no schema. Raises `BadSchema`."""
    return [] if schema is None else _validator_of(msgspec.json.encode(schema)).errors(value)


def first_error(value: Any, schema: Mapping[str, Any] | None) -> str | None:
    """The first thing that is wrong, as text; None when nothing is, or when there is no schema. Raises `BadSchema`."""
    found = validate(value, schema)
    return str(found[0]) if found else None


@lru_cache(maxsize=256)
def _validator_of(schema: bytes) -> Validator:
    return Validator(msgspec.json.decode(schema))


def _place(error: ValidationError) -> tuple[Any, ...]:
    """Which schema was held against which value."""
    return (tuple(error.absolute_path), tuple(error.absolute_schema_path)[:-1])


@lru_cache(maxsize=1)
def _classes() -> Mapping[str, Any]:
    """The validators of jsonschema, by dialect, with each keyword counted and some of them ours."""
    ours = {
        "$dynamicRef": _reference, "$recursiveRef": _reference, "$ref": _reference, "additionalProperties": _additional_properties, "dependentRequired": _dependent_required, "pattern": _pattern,
        "patternProperties": _pattern_properties, "required": _required, "uniqueItems": _unique_items,
    }  # fmt: skip

    def counted(base: Any, more: Mapping[str, Any]) -> Any:
        keywords = {**base.VALIDATORS, **{name: one for name, one in ours.items() if name in base.VALIDATORS}, **more}
        return cast("Any", extend)(base, {name: _counted(name, one) for name, one in keywords.items()})

    return {
        "2020-12": counted(Draft202012Validator, {}),
        "2019-09": counted(Draft201909Validator, {}),
        "draft-07": counted(Draft7Validator, {}),
        "own": counted(Draft202012Validator, {"contentEncoding": _content_encoding}),
    }


Keyword: TypeAlias = "Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]"


def _counted(name: str, keyword: Keyword) -> Keyword:
    """The keyword, at the cost of a step and of one more for each thing in it; trying things out costs more."""
    cost = _COSTS.get(name, 1)

    def at_a_cost(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterable[ValidationError] | None:
        meter = _meter.get(None)
        if meter is not None:
            meter.spend(cost + len(wanted) if is_array(wanted) or is_object(wanted) else cost)
        return keyword(validator, wanted, value, schema)

    return at_a_cost


def _reference(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - jsonschema's shape
    yield from validator.descend(value, _meter.get().targets[wanted])


def _required(_: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - jsonschema's shape
    if is_object(value):
        yield from (ValidationError(name) for name in wanted if name not in value)


def _dependent_required(_: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - same
    if is_object(value):
        missing = (name for given, names in wanted.items() if given in value for name in names if name not in value)
        yield from (ValidationError(name, validator="required") for name in missing)


def _additional_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not is_object(value):
        return
    known = schema.get("properties", {})
    patterns = [compiled(source) for source in schema.get("patternProperties", {})]
    for name, one in value.items():
        if name in known or any(pattern.search(name) for pattern in patterns):
            continue
        if wanted is False:
            yield ValidationError(name)
        else:
            yield from validator.descend(one, wanted, path=name)


def _pattern_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - same
    if is_object(value):
        _meter.get().spend(len(wanted) * len(value))
        for source, inner in wanted.items():
            for name, one in value.items():
                if compiled(source).search(name):
                    yield from validator.descend(one, inner, path=name, schema_path=source)


def _pattern(_: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - same
    if isinstance(value, str):
        _meter.get().spend(len(value) // 100)
        try:
            if not _matches(wanted, value):
                yield ValidationError("no match")
        except TooLong as error:
            yield ValidationError("too long", cause=error)


def _matches(source: str, text: str) -> bool:
    try:
        return compiled(source).search(text)
    except (
        BadPattern
    ):  # none in a foreign schema: those are looked at first; a hint's author may write in Python's dialect
        return re.search(source, text) is not None


def _unique_items(_: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - same
    if wanted and is_array(value) and len({_canonical(one) for one in value}) < len(value):
        yield ValidationError("not unique")


def _canonical(value: Any) -> Hashable:
    """Equal for values that JSON Schema takes for equal: 1 and 1.0 are, 1 and true are not."""
    _meter.get().spend(1)
    if is_object(value):
        return ("object", frozenset((name, _canonical(one)) for name, one in value.items()))
    if is_array(value):
        return ("array", tuple(_canonical(one) for one in value))
    return (isinstance(value, bool), value)


def _content_encoding(_: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ARG001 - same
    if wanted == "base64" and isinstance(value, str) and not _converts(value, bytes):
        yield ValidationError("not base64")


def _checker_of(formats: Mapping[str, Any]) -> FormatChecker | None:
    """Checks these formats and no others: each is a pattern, or a type that a text with the format can be converted to."""
    if not formats:
        return None
    checker = FormatChecker(formats=())
    for name, kind in formats.items():
        checker.checks(name)(partial(_has_format, kind))
    return checker


def _has_format(kind: Any, value: object) -> bool:
    if not isinstance(value, str):
        return True
    return _converts(value, kind) if isinstance(kind, type) else kind.fullmatch(value) is not None


def _converts(value: str, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
