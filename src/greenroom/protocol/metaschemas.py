"""jsonschema's only door: whether a schema is one, by the drafts' own schemas of schemas.

This is for authors, who want to know of all that is wrong, a title that is no text included. It is slow, and nothing bounds it but the
schema's size, so a peer's schema never comes here: what compiles is used.
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
    """What is wrong with a schema, and where; None when nothing is."""
    try:
        _CLASSES[dialect].check_schema(schema)
    except SchemaError as error:
        return tuple(error.absolute_path), str(
            ReasonWriter().reason(str(error.validator), error.validator_value, error.instance)
        )
    return None
