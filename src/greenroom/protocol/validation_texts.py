"""Reasons why a value violates a schema: as text for people and models, and as one word for programs."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .serialization import is_array, is_object
from .validation_errors import ProblemReason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

KINDS: Final = {
    "additionalItems": "too_long", "additionalProperties": "unexpected_property", "anyOf": "no_anyof_match", "const": "not_in_enum",
    "contains": "too_few_matches", "contentEncoding": "bad_format", "dependencies": "missing_required", "dependentRequired": "missing_required",
    "enum": "not_in_enum", "exclusiveMaximum": "too_large", "exclusiveMinimum": "too_small", "format": "bad_format",
    "items": "too_long",     "maxContains": "too_many_matches", "maxItems": "too_long", "maxLength": "too_long", "maxProperties": "too_long", "maximum": "too_large",
    "minContains": "too_few_matches", "minItems": "too_short", "minLength": "too_short", "minProperties": "too_short", "minimum": "too_small",
    "multipleOf": "not_a_multiple", "not": "forbidden", "oneOf": "no_oneof_match", "pattern": "pattern_mismatch",
    "propertyNames": "bad_name", "required": "missing_required", "type": "type_mismatch", "unevaluatedItems": "too_long",
    "unevaluatedProperties": "unexpected_property", "uniqueItems": "items_not_unique",
}  # fmt: skip
"""Keyword -> the reason as one word."""

_NAMES: Final = {
    "array": "an array", "boolean": "true or false", "integer": "an integer", "null": "null", "number": "a number",
    "object": "an object", "string": "a string",
}  # fmt: skip


_LONGEST: Final = 60
_MOST_SHOWN: Final = 20  # items, enough to recognize the value
_MOST_CHOICES: Final = 1_000
_FEWEST_CHOICES: Final = 10
_MOST_COMPARED: Final = 20_000  # pairs of characters


class ReasonWriter:
    """Writes the reasons for one value: the first in full, and of very many only as much as costs no more than the check."""

    def __init__(self) -> None:
        """Begin with a full budget."""
        self._compared = _MOST_COMPARED
        self._choices = _MOST_CHOICES
        self._listed: dict[int, str] = {}

    def reason(self, keyword: str, wanted: Any, value: Any) -> ProblemReason:
        """The reason for one keyword."""
        if keyword == "enum":
            text = f"expected one of {self._listing(wanted)}, got {shown_value(value)}"
        else:
            text = _text(keyword, wanted, value)
        return ProblemReason(text, KINDS.get(keyword, "invalid"))

    def _listing(self, choices: Sequence[Any]) -> str:
        """The choices, shortened."""
        # By id: the choices are a part of the schema, which outlives this writer, and may be thousands that each branch of a union would list again.
        found = self._listed.get(id(choices))
        if found is None:
            some: list[Any] = []
            for one in choices:
                if self._choices <= 0 and len(some) >= _FEWEST_CHOICES:
                    break
                self._choices -= 30 if is_array(one) or is_object(one) else 1
                some.append(one)
            more = f" and {len(choices) - len(some)} more" if len(choices) > len(some) else ""
            found = self._listed[id(choices)] = f"{', '.join(map(shown_value, some))}{more}"
        return found

    def unexpected(self, name: str, known: Collection[str]) -> ProblemReason:
        """The reason for an unexpected member, with a suggestion.

        Comparing two names may take as many steps as the product of their lengths.
        """
        work = len(name) * sum(len(one) for one in islice(known, 100))
        close: list[str] = []
        if work <= self._compared:
            self._compared -= work
            close = get_close_matches(name, list(islice(known, 100)), 1)
        if close:
            hint = f"; was {close[0]} meant?"
        elif known and len(known) <= 10:  # noqa: PLR2004 - more do not help
            hint = f"; there are {', '.join(one if len(one) <= _LONGEST else f'{one[:_LONGEST]}…' for one in known)}"
        else:
            hint = ""
        return ProblemReason(f"there is no such member{hint}", "unexpected_property")


# Reasons that are the same for all values; `{wanted}` is the keyword's value.
_WORDS: Final = {
    "additionalItems": "it has more items than it may",
    "contains": "too few of its items match",
    "exclusiveMaximum": "expected less than {wanted}, got {value}",
    "exclusiveMinimum": "expected more than {wanted}, got {value}",
    "format": "expected {wanted}, got {value}",
    "contentEncoding": "expected text in {wanted}, got {value}",
    "items": "it has more items than it may",
    "maxContains": "too many of its items match",
    "maximum": "expected at most {wanted}, got {value}",
    "minContains": "too few of its items match",
    "minimum": "expected at least {wanted}, got {value}",
    "multipleOf": "expected a multiple of {wanted}, got {value}",
    "not": "{value} is not allowed",
    "pattern": "{value} does not match the pattern {wanted}",
    "unevaluatedItems": "it has more items than it may",
    "unevaluatedProperties": "it has members that are not allowed",
    "uniqueItems": "its items are not all different",
}


def _text(keyword: str, wanted: Any, value: Any) -> str:
    match keyword:
        case "type":
            names = " or ".join(_NAMES.get(name, str(name)) for name in (wanted if is_array(wanted) else [wanted]))
            return f"expected {names}, got {shown_value(value)}"
        case "const":
            return f"expected {shown_value(wanted)}, got {shown_value(value)}"
        case "anyOf" | "oneOf":
            return f"{shown_value(value)} is none of the {len(wanted)} alternatives"
        case "minLength" | "minItems" | "minProperties":
            return f"expected at least {_count_text(wanted, keyword)}, got {len(value)}"
        case "maxLength" | "maxItems" | "maxProperties":
            return f"expected at most {_count_text(wanted, keyword)}, got {len(value)}"
        case _:
            return _WORDS.get(keyword, f"it breaks the rule {keyword}").format(wanted=wanted, value=shown_value(value))


def _count_text(count: int, keyword: str) -> str:
    unit = {"Length": "character", "Items": "item", "Properties": "member"}[keyword[3:]]
    return f"{count} {unit}{'s' * (count != 1)}"


def shown_value(value: Any) -> str:
    """A value as JSON for a message, shortened."""
    if (is_object(value) or is_array(value)) and len(value) > _MOST_SHOWN:
        return f"an {'object' if is_object(value) else 'array'} of {len(value)}"
    try:
        text = msgspec.json.encode(_truncated(value, iter(range(_LONGEST)))).decode()
    except (TypeError, ValueError):  # no JSON, which only local callers can pass
        text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _truncated(value: Any, places: Iterator[int]) -> Any:
    """The value without parts that would be cut off its text, however large: each place is at least one character."""
    if isinstance(value, str):
        return value[: _LONGEST + 20]
    if is_object(value):
        kept: dict[Any, Any] = {}
        for name, one in value.items():
            if next(places, None) is None:
                break
            kept[str(name)[: _LONGEST + 20]] = _truncated(one, places)
        return kept
    if is_array(value):
        return [_truncated(one, places) for one, _ in zip(value, places, strict=False)]
    return value
