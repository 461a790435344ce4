"""Validation of values against schemas, including hostile ones.

A schema is checked before it is used and compiled once (`Validator`). Each check of a value is bounded: a meter counts its steps. The `format`
of a string is only checked on request, as JSON Schema specifies.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from .jsonrpc import decode_checked
from .safe_regex import TextTooLong
from .schema_compiler import (
    FAIL_FAST,
    BadSchema,
    SchemaCompiler,
    SchemaDocument,
    ViolationLimitReached,
    Violations,
    check_size,
    dialect_of,
)
from .schema_keywords import KEYWORDS
from .serialization import is_object, to_jsonable
from .validation_errors import (
    STEPS_IN_THREAD,
    STEPS_ON_LOOP,
    ProblemReason,
    StepMeter,
    StepsExceeded,
    ValidationProblem,
    path_of,
    too_costly_reason,
)
from .validation_texts import ReasonWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .schema_compiler import SchemaViolation

__all__ = ["BadSchema", "StepsExceeded", "Validator", "check_schema", "first_error", "validate"]

MOST_PROBLEMS: Final = 100
_PER_PROBLEM: Final = 20
"""The steps charged for writing one problem."""

TYPES: Final[dict[str, Any]] = {
    "date": date, "date-time": datetime, "decimal": Decimal, "duration": timedelta, "time": time, "uuid": UUID,
}  # fmt: skip
"""Formats that represent types."""


def check_schema(schema: Any, *, root_object: bool = False) -> None:
    """Refuse a schema that is wrong, too large, or refers out of its own document. Raises `BadSchema`.

    With `root_object`, the root must be of type "object", as in a tool's schemas. For authors: it also asks jsonschema, which takes up to a
    second. `Validator` by itself refuses schemas that cannot be used.
    """
    if not is_object(schema):
        raise BadSchema((), "a schema must be an object")
    if root_object and schema.get("type") != "object":
        raise BadSchema(("type",), f'its root must have the type "object", and has {schema.get("type")!r}')
    Validator(schema)
    from .metaschemas import schema_problem  # noqa: PLC0415 - jsonschema is much to load, and few ask

    if found := schema_problem(schema, dialect_of(schema)):
        raise BadSchema(*found)


class Validator:
    """A compiled schema. It is checked and compiled once; later changes to the given object have no effect."""

    dialect: str | None = None
    formats: Mapping[str, Callable[[str], bool]] = MappingProxyType({})

    def __init__(
        self, schema: Mapping[str, Any], *, steps: int = STEPS_ON_LOOP, meter: StepMeter | None = None
    ) -> None:
        """`steps` limits the check of one value, `meter` the compilation. Raises `BadSchema`, and `StepsExceeded` when the meter is used up."""
        self._steps = steps
        meter = StepMeter(STEPS_IN_THREAD) if meter is None else meter
        if self.dialect is None:
            if not is_object(schema):
                raise BadSchema((), "a schema must be an object")
            check_size(schema, meter)
        dialect = self.dialect or dialect_of(schema)
        self._root = SchemaCompiler(
            SchemaDocument(to_jsonable(schema), meter), dialect, KEYWORDS[dialect], self.formats, meter
        ).compile()

    def errors(self, value: Any, most: int = MOST_PROBLEMS) -> list[ValidationProblem]:
        """The problems of a value, at most `most`, with paths from the root. A value of the wrong type has no further problems."""
        try:
            return self.check(value, StepMeter(self._steps), most)
        except StepsExceeded:
            return [too_costly_reason(self._steps)]

    def check(self, value: Any, meter: StepMeter, most: int = MOST_PROBLEMS) -> list[ValidationProblem]:
        """The problems of a value, charged to a meter. Raises `StepsExceeded`.

        Most values are valid, so validity is checked first, which is faster than collecting problems.
        """
        try:
            self._root.check(value, meter, None, FAIL_FAST, None)
        except (ViolationLimitReached, TextTooLong):
            pass  # reported by the caller, for the union's own place
        except RecursionError:
            raise StepsExceeded from None
        else:
            return []
        found = Violations(most, unions=self.dialect is not None)
        try:
            self._root.check(value, meter, None, found, None)
        except ViolationLimitReached:
            pass
        except TextTooLong as error:
            return [ValidationProblem((), ProblemReason(str(error), "too_complex"))]
        except RecursionError:
            raise StepsExceeded from None
        meter.left -= _PER_PROBLEM * len(found)  # which is expected here: the problems found so far are reported
        writer = ReasonWriter()
        return [problem for one in found for problem in self._problems_of(one, writer)]

    def _problems_of(self, one: SchemaViolation, writer: ReasonWriter) -> Iterable[ValidationProblem]:
        """The problems that a violation stands for."""
        path = path_of(one.trail)
        match one.keyword:
            case "required":
                return [ValidationProblem((*path, one.more), ProblemReason("is missing", "missing_required"))]
            case "additionalProperties" if one.wanted is False:
                name, known = one.more
                return [ValidationProblem((*path, name), writer.unexpected(name, known))]
            case "not" if not one.wanted:
                return [ValidationProblem(path, ProblemReason("must not be there", "unexpected_property"))]
            case "oneOf" if one.more:
                return [
                    ValidationProblem(
                        path,
                        ProblemReason(
                            "it matches more than one alternative, and may match only one", "multiple_oneof_matches"
                        ),
                    )
                ]
            case "pattern" if one.more:
                return [ValidationProblem(path, ProblemReason(one.more, "too_complex"))]
            case _:
                return [ValidationProblem(path, writer.reason(one.keyword, one.wanted, one.value))]


class HintSchemaValidator(Validator):
    """For schemas made from type hints: their formats are checked by the conversion.

    Of a union it reports the problems of the intended member, if that is clear.
    """

    dialect: str | None = "own"

    def _problems_of(self, one: SchemaViolation, writer: ReasonWriter) -> Iterable[ValidationProblem]:
        if one.keyword != "anyOf" or not one.more:
            return super()._problems_of(one, writer)
        branches: list[Violations] = one.more
        meant = [found for found in branches if not any(_is_wrong_type(each, one) for each in found)]
        if len(meant) == 1:
            return [problem for each in meant[0] for problem in self._problems_of(each, writer)]
        types = [each.wanted for found in branches for each in found if _is_wrong_type(each, one)]
        if meant or not all(isinstance(each, str) for each in types):
            return super()._problems_of(one, writer)
        return [ValidationProblem(path_of(one.trail), writer.reason("type", list(dict.fromkeys(types)), one.value))]


def _is_wrong_type(each: SchemaViolation, union: SchemaViolation) -> bool:
    return each.keyword == "type" and each.trail is union.trail


def validate(value: Any, schema: Mapping[str, Any] | None) -> list[ValidationProblem]:
    """The problems of a value, as (path, reason); none without a schema. Raises `BadSchema`."""
    return [] if schema is None else _validator_of(msgspec.json.encode(schema)).errors(value)


def first_error(value: Any, schema: Mapping[str, Any] | None) -> str | None:
    """The first problem as text; None if there is none, or no schema. Raises `BadSchema`."""
    found = validate(value, schema)
    return str(found[0]) if found else None


@lru_cache(maxsize=256)
def _validator_of(schema: bytes) -> Validator:
    return Validator(decode_checked(schema))


def _converts(kind: Any, value: str) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _fits(pattern: re.Pattern[str], value: str) -> bool:
    return pattern.fullmatch(value) is not None


HintSchemaValidator.formats = MappingProxyType(
    {**{name: partial(_converts, kind) for name, kind in TYPES.items()}, "base64": partial(_converts, bytes)}
)


class FormValidator(HintSchemaValidator):
    """For form answers: all formats of forms are checked."""

    formats: Mapping[str, Callable[[str], bool]] = MappingProxyType(
        {
            **HintSchemaValidator.formats,
            "email": partial(_fits, re.compile(r"[^@\s]+@[^@\s]+")),
            "uri": partial(_fits, re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")),
        }
    )


class ForeignFormValidator(FormValidator):
    """For a user's answer to a server's form: the form is bounded like any foreign schema, and its formats are checked."""

    dialect = None
