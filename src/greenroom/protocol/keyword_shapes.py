"""What the value of each keyword of a schema has to be, and how that is said when it is not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class Shape(NamedTuple):
    """What a value has to be."""

    said: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and (isinstance(value, int) or bool(value.is_integer()))


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in TYPES


def _is_schema(value: Any) -> bool:
    return is_object(value) or isinstance(value, bool)


def _all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return is_array(value) and all(fits(one) for one in value)


def _each(value: Any, fits: Callable[[Any], bool]) -> bool:
    return is_object(value) and all(fits(one) for one in value.values())


def _are_names(value: Any) -> bool:
    return _all(value, _is_text)


def _are_schemas(value: Any) -> bool:
    return bool(value) and _all(value, _is_schema)


def _is_anything(_: Any) -> bool:
    return True


def _is_dependency(value: Any) -> bool:
    return _is_schema(value) or _are_names(value)


def _is_divisor(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_schema_or_schemas(value: Any) -> bool:
    return _is_schema(value) or _are_schemas(value)


def _is_type_or_types(value: Any) -> bool:
    return _is_type(value) or (bool(value) and _all(value, _is_type))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


ANYTHING: Final = Shape("anything", _is_anything)
ARRAY: Final = Shape("an array", is_array)
COUNT: Final = Shape("a whole number, 0 or more", _is_count)
DEPENDENCIES: Final = Shape(
    "an object with a schema or an array of strings in each member", partial(_each, fits=_is_dependency)
)
DIVISOR: Final = Shape("a number above 0", _is_divisor)
FLAG: Final = Shape("true or false", _is_flag)
NAMED_NAMES: Final = Shape("an object with an array of strings in each member", partial(_each, fits=_are_names))
NAMED_SCHEMAS: Final = Shape("an object with a schema in each member", partial(_each, fits=_is_schema))
NAMES: Final = Shape("an array of strings", _are_names)
NUMBER: Final = Shape("a number", _is_number)
SCHEMA: Final = Shape("a schema", _is_schema)
SCHEMA_OR_SCHEMAS: Final = Shape("a schema, or an array of them", _is_schema_or_schemas)
SCHEMAS: Final = Shape("an array of schemas, with one at least", _are_schemas)
TEXT: Final = Shape("a string", _is_text)
TYPE_OR_TYPES: Final = Shape(f"one of {', '.join(sorted(TYPES))}, or an array of them", _is_type_or_types)
