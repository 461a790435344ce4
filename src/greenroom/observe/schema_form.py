"""A form for the arguments of a tool, made from their JSON schema: the fields that a page shows, and the arguments that were filled in.

The schema is of the tool's author or of an upstream, and may be anything: what a field cannot show is asked for as JSON, and the call itself checks the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from greenroom.supervision import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Kind: TypeAlias = Literal["string", "integer", "number", "json"]

_PREFIX: Final = "argument."
_MOST_FIELDS: Final = 100
_MOST_CHOICES: Final = 100
_LONGEST_TEXT: Final = 300
_DEEPEST: Final = 20


class FormFault(Exception):
    """An argument that cannot be read; the text says which and why, for a person."""


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the form."""

    key: str
    """Its name in the form."""
    name: str
    """The argument."""
    title: str
    kind: Kind
    hint: str = ""
    value: str = ""
    """What it shows at first."""
    choices: list[str] = []
    is_required: bool = False


def form_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """The fields for a schema of arguments, the required ones first."""
    found = list(_fields(schema))
    return sorted(found, key=lambda each: not each.is_required)


def form_arguments(schema: Mapping[str, Any], filled: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that a person has filled in; an empty field is left out, unless it is required text. Raises `FormFault`."""
    arguments: dict[str, Any] = {}
    for field in _fields(schema):
        text = filled.get(field.key, "")
        if text or (field.is_required and field.kind == "string" and not field.choices):
            arguments[field.name] = _value_of(field, text)
    return arguments


def _value_of(field: FormField, text: str) -> Any:
    if field.choices:
        if text not in field.choices:
            raise FormFault(f"{field.title} must be one of {', '.join(field.choices[:10])}")
        return msgspec.json.decode(text) if field.kind == "json" else text
    if field.kind == "string":
        return text
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        wanted = "JSON" if field.kind == "json" else "a number"
        raise FormFault(f"{field.title} must be {wanted}, and is {visible(text, 60)!r}") from None
    if field.kind != "json" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise FormFault(f"{field.title} must be a number, and is {visible(text, 60)!r}")
    return value


def _fields(schema: Mapping[str, Any]) -> Iterator[FormField]:
    properties = schema.get("properties")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    if not isinstance(properties, dict):
        return
    for name, described in [*properties.items()][:_MOST_FIELDS]:
        yield _field(schema, str(name), described, is_required=name in names)


def _field(schema: Mapping[str, Any], name: str, described: Any, *, is_required: bool) -> FormField:
    of = _resolved(schema, described)
    kind, choices = _kind_of(of)
    text = of.get("description")
    default = of.get("default")
    return FormField(
        key=f"{_PREFIX}{name}",
        name=name,
        title=visible(name, _LONGEST_TEXT),
        kind=kind,
        hint=visible(text, _LONGEST_TEXT) if isinstance(text, str) else "",
        value="" if default is None else _as_text(kind, default),
        choices=choices,
        is_required=is_required,
    )


def _kind_of(of: Mapping[str, Any]) -> tuple[Kind, list[str]]:
    """How a value is asked for. A value that may be null as well is asked for as the other one: to leave the field empty leaves it out."""
    one_of = of.get("enum")
    if isinstance(one_of, list) and 0 < len(one_of) <= _MOST_CHOICES:
        if all(isinstance(each, str) for each in one_of):
            return "string", one_of
        return "json", [_as_text("json", each) for each in one_of]
    types = of.get("type")
    alternatives = of.get("anyOf")
    if isinstance(alternatives, list):
        others = [each for each in alternatives if isinstance(each, dict) and each.get("type") != "null"]
        if len(others) == 1 and types is None and "anyOf" not in others[0]:
            return _kind_of(others[0])
    if isinstance(types, list):
        others = [each for each in types if each != "null"]
        types = others[0] if len(others) == 1 else None
    if types == "boolean":
        return "json", ["true", "false"]
    return (types, []) if types in ("string", "integer", "number") else ("json", [])


def _resolved(schema: Mapping[str, Any], described: Any) -> Mapping[str, Any]:
    """The schema that a chain of local references ends at; an empty one for anything else."""
    for _ in range(_DEEPEST):
        if not isinstance(described, dict):
            return {}
        reference = described.get("$ref")
        if not isinstance(reference, str):
            return described
        kept = {key: value for key, value in described.items() if key != "$ref"}
        target: Any = schema
        for part in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ("",):
            target = target.get(part) if isinstance(target, dict) else None
        described = {**target, **kept} if isinstance(target, dict) else {}
    return {}


def _as_text(kind: Kind, value: Any) -> str:
    return value if kind == "string" and isinstance(value, str) else msgspec.json.encode(value).decode()
