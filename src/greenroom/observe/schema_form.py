"""A form for the arguments of a tool, made from their JSON schema: the fields that a page shows, and the arguments that were filled in.

The schema is of the tool's author or of an upstream, and may be anything: what a field cannot show is asked for as JSON, and the call itself checks the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

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


class ArgumentField(msgspec.Struct, frozen=True, kw_only=True):
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


def form_fields(schema: Mapping[str, Any]) -> list[ArgumentField]:
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


def _value_of(field: ArgumentField, text: str) -> Any:
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


def _fields(schema: Mapping[str, Any]) -> Iterator[ArgumentField]:
    required = _array(schema.get("required"))
    for name, described in [*_object(schema.get("properties")).items()][:_MOST_FIELDS]:
        yield _field(schema, name, described, is_required=name in required)


def _field(schema: Mapping[str, Any], name: str, described: Any, *, is_required: bool) -> ArgumentField:
    of = _resolved(schema, described)
    kind, choices = _kind_of(of)
    text, default = of.get("description"), of.get("default")
    return ArgumentField(
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
    one_of = _array(of.get("enum"))
    if 0 < len(one_of) <= _MOST_CHOICES:
        kind: Kind = "string" if all(isinstance(each, str) for each in one_of) else "json"
        return kind, [_as_text(kind, each) for each in one_of]
    types: Any = of.get("type")
    others = [each for each in map(_object, _array(of.get("anyOf"))) if each and each.get("type") != "null"]
    if len(others) == 1 and types is None and "anyOf" not in others[0]:
        return _kind_of(others[0])
    if isinstance(types, list):
        named = [each for each in _array(of.get("type")) if each != "null"]
        types = named[0] if len(named) == 1 else None
    if types == "boolean":
        return "json", ["true", "false"]
    return (types, []) if types in ("string", "integer", "number") else ("json", [])


def _resolved(schema: Mapping[str, Any], described: Any) -> Mapping[str, Any]:
    """The schema that a chain of local references ends at; an empty one for anything else."""
    for _ in range(_DEEPEST):
        found = _object(described)
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        target: Any = schema if reference.startswith("#/") else None
        for part in reference[2:].split("/"):
            target = _object(target).get(part)
        described = {**_object(target), **{name: value for name, value in found.items() if name != "$ref"}}
    return {}


def _object(value: object) -> dict[str, Any]:
    return cast("Any", value) if isinstance(value, dict) else {}


def _array(value: object) -> list[Any]:
    return cast("Any", value) if isinstance(value, list) else []


def _as_text(kind: Kind, value: Any) -> str:
    return value if kind == "string" and isinstance(value, str) else msgspec.json.encode(value).decode()
