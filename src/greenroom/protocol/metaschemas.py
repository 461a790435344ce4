"""Schemas checked against the metaschemas of their drafts. The only module that imports jsonschema.

For authors, who want every mistake reported, such as a title that is no string. It is slow and bounded only by the schema's size, so a
peer's schema is never checked here: there it is enough that the schema compiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError

from .validation_texts import ReasonWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .validation_errors import Path

_CLASSES: Final[Mapping[str, Any]] = {
    "2020-12": Draft202012Validator,
    "2019-09": Draft201909Validator,
    "draft-07": Draft7Validator,
}


def schema_problem(schema: Mapping[str, Any], dialect: str) -> tuple[Path, str] | None:
    """The first mistake in a schema, with its place; None if there is none."""
    try:
        _CLASSES[dialect].check_schema(schema)
    except SchemaError as error:
        return tuple(error.absolute_path), str(
            ReasonWriter().reason(str(error.validator), error.validator_value, error.instance)
        )
    return None
