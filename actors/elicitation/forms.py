"""A form's schema as fields to show, one after the other, and what somebody types as a value. Pure.

The schema is flat by the protocol: a text, a number, a yes or no, one of several, some of several. What is typed is held against its own field
here, with words for whoever typed it; the whole form is held against the schema when it is accepted.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from greenroom.protocol.wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Kind: TypeAlias = Literal["text", "integer", "number", "yes or no", "one of", "some of"]

_YES: Final = frozenset(("y", "yes", "true", "1", "on"))
_NO: Final = frozenset(("n", "no", "false", "0", "off"))
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s][^@\s.]*\.[^@\s]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_PLACE: Final = re.compile(r"[0-9]{1,9}")
_LARGEST: Final = sys.float_info.max
"""Of what is beyond, nobody can say how much it is."""


class NotAnAnswer(ValueError):
    """What was typed is no value of its field; the text is for whoever typed it."""


class Choice(NamedTuple):
    """One of those that a field offers."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a form."""

    name: str
    kind: Kind
    label: str
    description: str = ""
    required: bool = False
    default: Any = None
    choices: Sequence[Choice] = ()
    format: str = ""
    least: float | None = None
    """The smallest number, the shortest text, the fewest choices."""
    most: float | None = None

    @property
    def hint(self) -> str:
        """What may be typed, in short."""
        if self.kind in ("one of", "some of"):
            return ", ".join(each.label for each in self.choices)
        if self.kind == "yes or no":
            return "yes or no"
        bounds = _span(self.least, self.most, "" if self.kind in ("integer", "number") else " characters")
        kind = {"integer": "a whole number", "number": "a number"}.get(self.kind, _FORMATS.get(self.format, ""))
        return ", ".join(part for part in (kind, bounds) if part)

    def shown(self, value: Any) -> str:
        """A value as it would be typed."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if is_array(value):
            return ", ".join(map(str, value))
        return "" if value is None else str(value)

    def read(self, typed: str) -> Any:
        """What was typed, as a value; nothing is the default, or None for a field that can be left out. Raises `NotAnAnswer`."""
        text = typed.strip()
        if not text:
            if self.default is None and self.required:
                raise NotAnAnswer(f"{self.label} cannot be left out")
            return self.default
        match self.kind:
            case "integer" | "number":
                return self._number(text)
            case "yes or no":
                return self._yes(text)
            case "one of":
                return self._choice(text)
            case "some of":
                return self._choices(text)
            case _:
                return self._text(text)

    def _number(self, text: str) -> float:
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise NotAnAnswer(f"{text!r} is not {'a whole number' if self.kind == 'integer' else 'a number'}") from None
        if abs(value) > _LARGEST or math.isnan(value) or not _within(value, self.least, self.most):
            raise NotAnAnswer(f"{text} is not {_span(self.least, self.most) or 'a finite number'}")
        return value

    def _yes(self, text: str) -> bool:
        word = text.casefold()
        if word not in _YES | _NO:
            raise NotAnAnswer(f"{text!r} is neither yes nor no")
        return word in _YES

    def _choice(self, text: str) -> str:
        if _PLACE.fullmatch(text) and text not in {each.value for each in self.choices}:
            place = int(text)  # in the list, as a terminal shows it
            if 0 < place <= len(self.choices):
                return self.choices[place - 1].value
        for each in self.choices:
            if text == each.value or text.casefold() == each.label.casefold():
                return each.value
        raise NotAnAnswer(f"{text!r} is none of {self.hint}")

    def _choices(self, text: str) -> list[str]:
        picked = list(dict.fromkeys(self._choice(part.strip()) for part in text.split(",") if part.strip()))
        if not _within(len(picked), self.least, self.most):
            raise NotAnAnswer(f"pick {_span(self.least, self.most)} of them, not {len(picked)}")
        return picked

    def _text(self, text: str) -> str:
        if not _within(len(text), self.least, self.most):
            raise NotAnAnswer(f"it has to have {_span(self.least, self.most, ' characters')}, not {len(text)}")
        check = _CHECKS.get(self.format)
        if check is not None and not check(text):
            raise NotAnAnswer(f"{text!r} is not {_FORMATS[self.format]}")
        return text


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a form, in its own order. One that the protocol does not have is a text."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = set(map(str, required)) if is_array(required) else set[str]()
    if not is_object(properties):
        return []
    return [_field(name, one, required=name in names) for name, one in properties.items() if is_object(one)]


def _field(name: str, one: Mapping[str, Any], *, required: bool) -> Field:
    kind, choices = _kind(one)
    size = {"text": ("minLength", "maxLength"), "some of": ("minItems", "maxItems")}.get(kind, ("minimum", "maximum"))
    return Field(
        name,
        kind,
        label=str(one.get("title") or name),
        description=str(one.get("description") or ""),
        required=required,
        default=one.get("default"),
        choices=choices,
        format=str(one.get("format") or ""),
        least=_bound(one.get(size[0])),
        most=_bound(one.get(size[1])),
    )


def _kind(one: Mapping[str, Any]) -> tuple[Kind, Sequence[Choice]]:
    items = one.get("items")
    if one.get("type") == "array" and is_object(items):
        return "some of", _offered(items)
    if choices := _offered(one):
        return "one of", choices
    match one.get("type"):
        case "boolean":
            return "yes or no", ()
        case "integer":
            return "integer", ()
        case "number":
            return "number", ()
        case _:
            return "text", ()


def _offered(one: Mapping[str, Any]) -> list[Choice]:
    titled: Any = one.get("oneOf") or one.get("anyOf")
    if is_array(titled):
        consts = [each for each in titled if is_object(each) and "const" in each]
        return [Choice(str(each["const"]), str(each.get("title") or each["const"])) for each in consts]
    values: Any = one.get("enum")
    if not is_array(values):
        return []
    named: Any = one.get("enumNames")
    labels = [*map(str, named)] if is_array(named) else []
    return [
        Choice(str(value), labels[place] if place < len(labels) else str(value)) for place, value in enumerate(values)
    ]


def _bound(value: Any) -> float | None:
    """A bound, unless it is none, or so far away that everything is within it."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return value if known and abs(value) <= _LARGEST else None


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _span(least: float | None, most: float | None, what: str = "") -> str:
    match least, most:
        case None, None:
            return ""
        case None, _:
            return f"at most {most:g}{what}"
        case _, None:
            return f"at least {least:g}{what}"
        case _:
            return f"{least:g} to {most:g}{what}"


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and "T" in text.upper()
    except ValueError:
        return False


_FORMATS: Final = {
    "email": "an e-mail address",
    "uri": "a URI, as in https://example.org",
    "date": "a date, as in 2026-01-31",
    "date-time": "a moment with its zone, as in 2026-01-31T12:00:00Z",
}
_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "email": _EMAIL.fullmatch,
    "uri": _URI.fullmatch,
    "date": _is_date,
    "date-time": _is_moment,
}
