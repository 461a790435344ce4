"""Input schemas as models' providers take them, which is not every schema that JSON Schema has.

The root must be an object, and none of `oneOf`, `anyOf`, `allOf`, `enum`, `const` and `not` may stand there: one such tool, and the whole request is
refused with all the others in it. What stands there is folded into the root: every property that any branch has may be given, and what
all of them require is required. So a model may be offered more than the tool takes; the tool's own schema is what a call is held
against before it is sent, and the model is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .meter import Meter, TooMuch
from .wire import is_array, is_object, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_EITHER: Final = ("oneOf", "anyOf")
_REFUSED: Final = frozenset({"oneOf", "anyOf", "allOf", "enum", "const", "not"})
_NOTHING: Final[Mapping[str, Any]] = {}
_DEEPEST: Final = 8


def provider_schema(schema: Any) -> dict[str, Any]:
    """The schema of a tool's arguments, as it can be shown to any provider. A schema without anything of that kind is shown as it is."""
    if not is_object(schema):
        return {"type": "object"}
    if schema.get("type") == "object" and _REFUSED.isdisjoint(schema):
        return dict(plain(schema))
    folded: dict[str, Any] = {name: plain(value) for name, value in schema.items() if name not in _REFUSED}
    folded["type"] = "object"
    try:
        properties, required = _folded(schema, schema, 0, Meter())
    except TooMuch:  # branches that refer to each other multiply at each level
        properties, required = {}, []
    if properties:
        folded["properties"] = {name: plain(one) for name, one in properties.items()}
    folded.pop("required", None)
    if required:
        folded["required"] = required
    if properties and folded.get("additionalProperties") is not False:
        folded.pop("additionalProperties", None)
    return folded


def _folded(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, meter: Meter
) -> tuple[dict[str, Any], list[str]]:
    """All properties of a schema and of its branches, and those that every one of them wants."""
    meter.spend(10)
    own = schema.get("properties")
    properties: dict[str, Any] = dict(own) if is_object(own) else {}
    wanted = schema.get("required")
    required: list[str] = [name for name in wanted if isinstance(name, str)] if is_array(wanted) else []
    if depth < _DEEPEST:
        for branch in _branches(schema, "allOf", root):
            more, needed = _folded(branch, root, depth + 1, meter)
            _add(properties, more, meter)
            required += needed
        for keyword in _EITHER:
            choices = [_folded(branch, root, depth + 1, meter) for branch in _branches(schema, keyword, root)]
            for more, _ in choices:
                _add(properties, more, meter)
            if choices:
                required += [name for name in choices[0][1] if all(name in needed for _, needed in choices)]
    return properties, [name for name in dict.fromkeys(required) if name in properties]


def _add(properties: dict[str, Any], more: Mapping[str, Any], meter: Meter) -> None:
    """One property that two branches see differently may be as either has it."""
    for name, one in more.items():
        meter.spend(5)
        there = properties.setdefault(name, one)
        if there != one:
            known: Sequence[Any] = there["anyOf"] if is_object(there) and set(there) == {"anyOf"} else [there]
            meter.spend(5 * len(known))
            if one not in known:
                properties[name] = {"anyOf": [*known, one]}


def _branches(schema: Mapping[str, Any], keyword: str, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    listed = schema.get(keyword)
    for branch in listed if is_array(listed) else ():
        seen = _followed(branch, root)
        if is_object(seen):
            yield seen


def _followed(branch: Any, root: Mapping[str, Any]) -> Any:
    """The schema itself, or the one that it refers to, if that is in the usual place."""
    reference = branch.get("$ref") if is_object(branch) else None
    if not isinstance(reference, str):
        return branch
    head, _, name = reference.rpartition("/")
    place = root.get(head.removeprefix("#/"), _NOTHING) if head in ("#/$defs", "#/definitions") else _NOTHING
    return place.get(name) if is_object(place) else None
