"""What a form may be: elicitation's restricted schemas, checked member by member.

It holds for forms that were written by hand and for those made from types: a client shows a form by what is in it, so a member
that clients do not know would be a promise to nobody, and a default that does not fit would be refused when it is sent back.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from .hints import BadHint
from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})

_ROOT: Final = frozenset({"$schema", "type", "properties", "required", "title", "description", "additionalProperties"})
_SAID: Final = frozenset({"type", "title", "description", "default"})
_TEXTS: Final = ("title", "description")

SAYS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "pattern", "enum", "enumNames", "oneOf"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "minItems", "maxItems"}),
}
"""What a field may say besides its name and default, by its type."""

_OF_CHOICES: Final[Mapping[str, frozenset[str]]] = {
    "enum": frozenset({"enum", "enumNames"}),
    "oneOf": frozenset({"oneOf"}),
}


def check_form(form: Any) -> None:
    """Whether clients can show it. Raises `BadHint` that names the field and what is wrong with it."""
    if not is_object(form) or form.get("type") != "object" or not is_object(fields := form.get("properties")):
        raise BadHint('a form is an object: {"type": "object", "properties": {…}}')
    if strange := sorted(map(str, form.keys() - _ROOT)):
        raise BadHint(f"a form has fields and no {', '.join(strange)}")
    required: Any = form.get("required", [])
    if not is_array(required) or not all(isinstance(name, str) and name in fields for name in required):
        raise BadHint("what a form requires is a list of its fields")
    for name, field in fields.items():
        _check_field(f"the form's field {name}", field)
    _check_defaults(fields)


def _check_field(what: str, field: Any) -> None:
    kind = field.get("type") if is_object(field) else None
    if not isinstance(kind, str) or kind not in SAYS:
        raise BadHint(f"{what} has the type {kind!r}; there are {', '.join(SAYS)}")
    told = next((allowed for name, allowed in _OF_CHOICES.items() if kind == "string" and name in field), SAYS[kind])
    if strange := sorted(map(str, field.keys() - told - _SAID)):
        raise BadHint(f"{what} says {', '.join(strange)}, which a form has no word for")
    for name in _TEXTS:
        if not isinstance(field.get(name, ""), str):
            raise BadHint(f"{what}: its {name} is a text")
    match kind:
        case "string" if "enum" in field:
            _check_enum(what, field)
        case "string" if "oneOf" in field:
            _check_titled(what, field["oneOf"])
        case "string":
            _check_order(what, field, "minLength", "maxLength", whole=True)
            if field.get("format", "email") not in FORMATS:
                raise BadHint(f"{what} has the format {field['format']!r}; there are {', '.join(sorted(FORMATS))}")
            if not isinstance(field.get("pattern", ""), str):
                raise BadHint(f"{what}: its pattern is a text")
        case "array":
            _check_order(what, field, "minItems", "maxItems", whole=True)
            _check_items(what, field.get("items"), field)
        case _:
            _check_order(what, field, "minimum", "maximum")


def _check_items(what: str, items: Any, field: Mapping[str, Any]) -> None:
    if not is_object(items) or not (items.keys() & {"enum", "anyOf"}):
        raise BadHint(f"{what} is a list of nothing: its items need an enum, or an anyOf with titles")
    if "anyOf" in items:
        choices = _check_titled(what, items["anyOf"])
        told = {"anyOf"}
    else:
        choices = _check_choices(what, items["enum"])
        told = {"type", "enum"}
        if items.get("type") != "string":
            raise BadHint(f'{what}: its items are of {{"type": "string"}}')
    if items.keys() - told:
        raise BadHint(f"{what}: its items are choices and nothing else")
    if field.get("minItems", 0) > len(choices):
        raise BadHint(f"{what} wants more choices than there are")


def _check_enum(what: str, field: Mapping[str, Any]) -> None:
    choices = _check_choices(what, field["enum"])
    names: Any = field.get("enumNames", choices)
    if not is_array(names) or len(names) != len(choices) or not all(isinstance(one, str) for one in names):
        raise BadHint(f"{what}: there is a name for each of its choices in enumNames, and it is a text")


def _check_choices(what: str, choices: Any) -> Sequence[str]:
    if not is_array(choices) or not choices or not all(isinstance(one, str) for one in choices):
        raise BadHint(f"{what} has choices that are not texts, or none")
    if len(set(choices)) != len(choices):
        raise BadHint(f"{what} has a choice twice")
    return choices


def _check_titled(what: str, titled: Any) -> Sequence[str]:
    if not is_array(titled) or not all(
        is_object(one) and set(one) == {"const", "title"} and isinstance(one["title"], str) for one in titled
    ):
        raise BadHint(f'{what}: each of its choices is {{"const": …, "title": …}}')
    return _check_choices(what, [one["const"] for one in titled])


def _check_order(what: str, field: Mapping[str, Any], low: str, high: str, *, whole: bool = False) -> None:
    for name in (low, high):
        if name in field and not _is_number(field[name], whole=whole):
            raise BadHint(f"{what}: its {name} is a {'whole number, 0 or more' if whole else 'number'}")
    if low in field and high in field and field[low] > field[high]:
        raise BadHint(f"{what}: its {low} is more than its {high}")


def _is_number(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return not whole or (isinstance(value, int) and value >= 0)


def _check_defaults(fields: Mapping[str, Any]) -> None:
    """A default is what the user sends back by doing nothing, so it has to be an answer."""
    from .validation import FormValidator  # noqa: PLC0415 - jsonschema is much to load, and few ask

    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    if not defaults:
        return
    wrong = FormValidator({"type": "object", "properties": {name: fields[name] for name in defaults}}).errors(defaults)
    if wrong:
        raise BadHint("; ".join(f"the default of the form's field {problem}" for problem in wrong))
