"""jsonschema's only door: values against schemas."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from .problems import Problem, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping


class Validator:
    """A schema to hold values against, compiled once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Takes the schema as it is."""
        self._validator = Draft202012Validator(schema)

    def errors(self, value: Any, most: int = 50) -> list[Problem]:
        """All that is wrong, up to `most` things."""
        found = islice(self._validator.iter_errors(value), most)
        return [Problem(tuple(error.absolute_path), Reason(error.message, str(error.validator))) for error in found]


class OwnValidator(Validator):
    """For schemas that were made from hints."""


def validate(value: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """All that is wrong with a value."""
    return Validator(schema).errors(value)
