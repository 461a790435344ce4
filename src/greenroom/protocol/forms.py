"""Forms for users to fill in: elicitation's flat schemas from types, and the answers as values of them.

A form is a class with fields (dataclass, TypedDict, msgspec struct, pydantic model), each a text, a number, a yes or no, a date or a
choice; or one such type alone, which becomes a form with the one field `value`; or a schema that is written by hand.

Choices are a `Literal` or an `Enum` of texts; a list of them is a choice of several. `Titles` gives the choices other names.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from .form_rules import FORMATS, SAYS, check_form
from .hints import BadHint
from .problems import Mismatch, Problem, Reason
from .schemas import into, schema_of
from .wire import is_array, is_object, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Email: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})]
Uri: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uri"})]


@dataclass(frozen=True)
class Titles:
    """What the user reads for each value: `Annotated[Literal["r", "g"], Titles({"r": "Red", "g": "Green"})]`.

    `legacy` writes them as `enumNames`, for clients that know only those.
    """

    of: Mapping[str, str]
    legacy: bool = False

    def __hash__(self) -> int:
        return hash((frozenset(self.of.items()), self.legacy))


_UNSAID: Final = frozenset({"pattern"})
"""What the newest schema has no member for, and clients would read in a dialect of their own: the answer is held against it here."""


def form_of(kind: Any) -> dict[str, Any]:
    """The form for a type, or the schema itself where it was written by hand; None is a form without fields.

    Raises `BadHint` for what is no flat form.
    """
    if is_object(kind):
        check_form(kind)
        return dict(kind)
    try:
        return dict(_form_of_type(kind))
    except TypeError as error:
        if isinstance(error, BadHint):
            raise
        return _make_form(kind)  # cannot be kept: its Annotated holds something unhashable


def _make_form(kind: Any) -> dict[str, Any]:
    if kind is None:
        return {"type": "object", "properties": {}}
    form = _derived(kind)
    check_form(form)
    return form


_form_of_type = lru_cache(maxsize=256)(_make_form)


def _derived(kind: Any) -> dict[str, Any]:
    schema = schema_of(kind)
    if "properties" not in schema:
        field = _field("value", schema, schema.get("$defs", {}), kind)
        return {"type": "object", "properties": {"value": field}, "required": ["value"]}
    hints = _hints_of(kind)
    defs = schema.get("$defs", {})
    properties = {name: _field(name, one, defs, hints.get(name)) for name, one in schema["properties"].items()}
    for name, chosen in _made_defaults(kind):
        if properties.get(name, {}).get("type") == "array":
            properties[name].setdefault("default", plain(chosen()))
    form: dict[str, Any] = {"type": "object", "properties": properties}
    if required := schema.get("required"):
        form["required"] = required
    return form


def answer_into(kind: Any, content: Any) -> Any:
    """The value that the user's answer stands for. Raises `Mismatch` with everything that is wrong, whatever the client has checked.

    A field that may be left out and is null was left out, which several clients say so. What the form did not ask for is not in the value.
    """
    form = form_of(kind)
    asked = form["properties"]
    if content is None and not asked:
        content = {}
    if not is_object(content):
        raise Mismatch([Problem((), Reason("the answer has to be an object", "type_mismatch"))])
    required = form.get("required", ())
    given = {
        name: value for name, value in content.items() if name in asked and (value is not None or name in required)
    }
    from .validation import FormValidator  # noqa: PLC0415 - jsonschema is much to load, and few ask

    if problems := FormValidator(form).errors(given):
        raise Mismatch(problems)
    if kind is None or is_object(kind):
        return None if kind is None else given
    return into(kind, given) if "properties" in schema_of(kind) else into(kind, given["value"])


def _field(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    """One field, with nothing in it that clients need not know."""
    full = _unwrapped(schema, defs)
    if "enum" in full:
        field = _choice(name, full, hint)
    else:
        kind = str(full.get("type"))
        if kind not in SAYS or "contentEncoding" in full:
            raise BadHint(f"the form's field {name} is no text, number, yes or no, date or choice; forms are flat")
        field = {one: value for one, value in full.items() if one in SAYS[kind] - _UNSAID}
        if kind == "array":
            field |= _choices(name, full, defs, hint)
        elif kind == "integer":
            field |= _borders(full)
        elif kind == "string" and field.get("format") not in FORMATS:
            field.pop("format", None)
            if datetime in _parts_of(hint):
                field["format"] = "date-time"
        field = {"type": kind, **field}
    said = {one: schema[one] for one in ("title", "description", "default") if schema.get(one) is not None}
    return {**field, **said}


def _unwrapped(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a field's schema comes to without `$ref`, and without the null of an optional one."""
    if is_array(members := schema.get("anyOf")):
        rest = [one for one in members if one != {"type": "null"}]
        if len(rest) == 1:
            return _unwrapped(rest[0], defs)
    reference = schema.get("$ref")
    return defs.get(reference.removeprefix("#/$defs/"), schema) if isinstance(reference, str) else schema


def _choice(name: str, schema: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    """A choice of one: `enum`, with titles `oneOf`, or `enumNames` as it was once written."""
    values, titles = _values(name, schema), _titles_in(hint)
    if titles is None:
        return {"type": "string", "enum": values}
    if titles.legacy:
        return {"type": "string", "enum": values, "enumNames": [titles.of.get(one, one) for one in values]}
    return {"type": "string", "oneOf": _titled(values, titles)}


def _choices(name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], hint: Any) -> dict[str, Any]:
    """A choice of several: a list of `enum`, or with titles of `anyOf`."""
    items = _unwrapped(schema.get("items", {}), defs)
    if "enum" not in items:
        raise BadHint(f"the form's field {name} is a list of anything; make it a list of a Literal or an Enum")
    values, titles = _values(name, items), _titles_in(hint)
    return {"items": {"type": "string", "enum": values} if titles is None else {"anyOf": _titled(values, titles)}}


def _values(name: str, schema: Mapping[str, Any]) -> list[str]:
    """The values to choose from."""
    values: list[Any] = [one for one in schema["enum"] if one is not None]
    if not values or not all(isinstance(one, str) for one in values):
        raise BadHint(f"the form's field {name} has choices that are not texts")
    return values


def _titled(values: list[str], titles: Titles) -> list[dict[str, str]]:
    return [{"const": one, "title": titles.of.get(one, one)} for one in values]


def _borders(schema: Mapping[str, Any]) -> dict[str, Any]:
    """More than 3 is at least 4, which is what a form can say."""
    found: dict[str, Any] = {}
    if "exclusiveMinimum" in schema:
        found["minimum"] = schema["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in schema:
        found["maximum"] = schema["exclusiveMaximum"] - 1
    return found


def _hints_of(kind: Any) -> dict[str, Any]:
    """The fields' hints, for what schemas do not say; none where they cannot be read."""
    try:
        return get_type_hints(get_origin(kind) or kind, include_extras=True)
    except (NameError, TypeError):
        return {}


def _made_defaults(kind: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The defaults that a class makes anew for each value, which is how it has a list for one."""
    if is_dataclass(kind):
        for one in fields(kind):
            if one.default_factory is not MISSING:
                yield one.name, one.default_factory
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for each in msgspec.structs.fields(kind):
            if each.default_factory is not msgspec.NODEFAULT:
                yield each.encode_name, each.default_factory


def _parts_of(hint: Any) -> list[Any]:
    """The hint, and all that it is made of."""
    found: list[Any] = []
    waiting = [hint]
    while waiting:
        part = waiting.pop()
        found.append(part)
        waiting += get_args(part) if get_origin(part) is not Literal else ()
        waiting += getattr(part, "__metadata__", ())
    return found


def _titles_in(hint: Any) -> Titles | None:
    return next((part for part in _parts_of(hint) if isinstance(part, Titles)), None)
