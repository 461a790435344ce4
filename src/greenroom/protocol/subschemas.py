"""Where the schemas are inside of a schema, and whether it may be used at all: its size, its depth, its references.

A schema from a stranger is refused before anything is compiled of it. References stay in the document: nothing is ever fetched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from greenroom.errors import GreenroomError

from .problems import path_text
from .reasons import shown
from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .meter import Meter
    from .problems import Path

MOST_NODES: Final = 10_000
DEEPEST: Final = 64

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft-07/schema": "draft-07",
}
"""The `$schema` that is understood; without one, a schema is 2020-12."""

_SCHEMA: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_LIST: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
_SAME_VALUE: Final = frozenset(
    {"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
)
_NOTHING_INSIDE: Final[Mapping[str, Any]] = {}  # what true and false have, as schemas
_INDEX: Final = re.compile(r"[0-9]{1,6}")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class BadSchema(GreenroomError, ValueError):
    """A schema that is wrong, or that nobody should be made to use. Says where and why."""

    def __init__(self, path: Path, why: str) -> None:
        """`path` leads from the root of the schema to the place."""
        super().__init__(
            f"the schema is not usable: {path_text(path)}: {why}" if path else f"the schema is not usable: {why}"
        )
        self.path = path
        self.why = why


class Place(NamedTuple):
    """A schema in a schema."""

    path: Path
    schema: Mapping[str, Any]


def dialect_of(schema: Mapping[str, Any]) -> str:
    """Which draft it is written in. Raises `BadSchema` for one that is not understood."""
    name: Any = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    dialect = DIALECTS.get(name.removesuffix("#")) if isinstance(name, str) else None
    if dialect is None:
        raise BadSchema(
            ("$schema",), f"{shown(name)} is not supported; use one of {', '.join(DIALECTS)}, or leave it out"
        )
    return dialect


def measure(schema: Mapping[str, Any], meter: Meter) -> None:
    """Refuse what is too large or too deep. Raises `BadSchema`, and `TooMuch`."""
    nodes = 0
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        if nodes > MOST_NODES:
            raise BadSchema((), f"it is too large: more than {MOST_NODES} values")
        if depth > DEEPEST:
            raise BadSchema((), f"it is too deep: more than {DEEPEST} levels")
        if is_object(value) or is_array(value):
            meter.spend(1 + len(value))
            waiting += ((one, depth + 1) for one in (value.values() if is_object(value) else value))


class Document:
    """One schema with all schemas inside of it, those included that only references lead to."""

    def __init__(self, root: Mapping[str, Any], meter: Meter | None = None) -> None:
        """Each reference has to lead to a schema in this document, and none in a circle that never looks at another value.

        Raises `BadSchema`, and `TooMuch`.
        """
        self.root = root
        self.places: dict[int, Place] = {}
        self.targets: dict[str, Any] = {}
        """Where references lead, as they are written. Only the root has an `$id`, so that each leads to one place."""
        self._meter = meter
        self._named: dict[str, Mapping[str, Any]] = {}
        self._referring: list[tuple[Place, str]] = []
        self._adopt(Place((), root))
        for place, name in self._referring:  # which grows: a schema may stand where none was looked for
            target = self._target(place, name)
            if id(target) not in self.places:
                self._adopt(Place(tuple(_steps(place.schema[name])), target))
        self._check_circles()

    def _spend(self, steps: int) -> None:
        if self._meter is not None:
            self._meter.spend(steps)

    def _adopt(self, start: Place) -> None:
        waiting = [start]
        while waiting:
            place = waiting.pop()
            if id(place.schema) in self.places:
                continue
            self._spend(8 + len(place.schema))
            self.places[id(place.schema)] = place
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := place.schema.get(name), str):
                    self._named[anchor] = place.schema
            if place.path and "$id" in place.schema:
                raise BadSchema((*place.path, "$id"), "only the root may have one; name the place with $anchor")
            self._referring += ((place, name) for name in _REFERENCES if name in place.schema)
            waiting += (found for _, found in inner(place))

    def _target(self, place: Place, name: str) -> Mapping[str, Any]:
        reference = place.schema[name]
        if not isinstance(reference, str):
            raise BadSchema((*place.path, name), "a reference is a string")
        if reference not in self.targets:
            self.targets[reference] = self._found(reference, (*place.path, name))
        found = self.targets[reference]
        return found if is_object(found) else _NOTHING_INSIDE

    def _found(self, reference: str, where: Path) -> Any:
        self._spend(5 + len(reference) // 4)
        document, _, fragment = reference.partition("#")
        if document and document != str(self.root.get("$id", "")).partition("#")[0]:
            raise BadSchema(
                where, f"{shown(reference)} leads out of the document, and nothing is fetched; put it under $defs"
            )
        found = (
            self._pointed(_steps(reference)) if not fragment or fragment.startswith("/") else self._named.get(fragment)
        )
        if not is_object(found) and not isinstance(found, bool):
            raise BadSchema(where, f"{shown(reference)} leads nowhere")
        return found

    def _pointed(self, pointer: Sequence[str]) -> Any:
        found: Any = self.root
        for name in pointer:
            if is_object(found):
                found = found.get(name)
            elif is_array(found) and _INDEX.fullmatch(name) and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

    def _check_circles(self) -> None:
        done: set[int] = set()
        for start in self.places.values():
            path: dict[int, Iterator[Place]] = {}
            waiting = [start]
            while waiting:
                self._spend(4)
                place = waiting.pop()
                key = id(place.schema)
                if key not in done and key not in path:
                    path[key] = self._beside(place)
                    waiting.append(place)
                    continue
                after = next(path[key], None) if key in path else None
                if after is None:
                    path.pop(key, None)
                    done.add(key)
                    continue
                waiting.append(place)
                if id(after.schema) in path:
                    raise BadSchema(after.path, "it refers to itself without ever looking at another value")
                if id(after.schema) not in done:
                    waiting.append(after)

    def _beside(self, place: Place) -> Iterator[Place]:
        """The schemas that are held against the same value."""
        for keyword, found in inner(place):
            if keyword in _SAME_VALUE:
                yield found
        for name in _REFERENCES:
            if name in place.schema:
                yield Place((*place.path, name), self._target(place, name))


def _steps(reference: str) -> list[str]:
    """The names and indices that a reference has behind its `#`."""
    pointer = unquote(reference.partition("#")[2])
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def inner(place: Place) -> Iterator[tuple[str, Place]]:
    """The schemas right inside of one, each with the keyword that it stands under."""
    for keyword, value in place.schema.items():
        if keyword in _SCHEMA and is_object(value):
            yield keyword, Place((*place.path, keyword), value)
        elif keyword in _LIST and is_array(value):
            for index, one in enumerate(value):
                if is_object(one):
                    yield keyword, Place((*place.path, keyword, index), one)
        elif keyword in _NAMED and is_object(value):
            for name, one in value.items():
                if is_object(one):
                    yield keyword, Place((*place.path, keyword, name), one)
