"""Where the schemas are inside of a schema, and whether it may be used at all: its size, its depth, its references, its patterns.

A schema from a stranger is refused before anything is compiled of it. References stay in the document: nothing is ever fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from greenroom.errors import GreenroomError

from .patterns import BadPattern, compiled
from .problems import path_text
from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
        raise BadSchema(("$schema",), f"{name!r} is not supported; use one of {', '.join(DIALECTS)}, or leave it out")
    return dialect


def inspect(schema: Mapping[str, Any]) -> None:
    """Refuse what is too large or too deep, refers to what is not there, or refers to itself without end."""
    _measure(schema)
    dialect_of(schema)
    document = _Document(schema)
    document.check_references()
    document.check_patterns()


def _measure(schema: Mapping[str, Any]) -> None:
    nodes = 0
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        if nodes > MOST_NODES:
            raise BadSchema((), f"it is too large: more than {MOST_NODES} values")
        if depth > DEEPEST:
            raise BadSchema((), f"it is too deep: more than {DEEPEST} levels")
        if is_object(value):
            waiting += ((one, depth + 1) for one in value.values())
        elif is_array(value):
            waiting += ((one, depth + 1) for one in value)


def prepare(schema: dict[str, Any]) -> dict[str, Any]:
    """Make a copy of a schema ready to be used: reference -> the schema that it leads to. Only the root has an `$id`, so there is one.

    Keywords that look at what the others have found come last, and a member that must not be there is said in a schema of its own.
    """
    document = _Document(schema)
    document.check_references()
    for _, place in document.places.values():
        if isinstance(place, dict):
            _rewrite(place)
    return document.targets


def _rewrite(schema: dict[str, Any]) -> None:
    for keyword in sorted(schema, key=lambda name: name.startswith("unevaluated")):
        value = schema[keyword] = schema.pop(keyword)
        if keyword in _NAMED and is_object(value):
            schema[keyword] = {name: {"not": {}} if one is False else one for name, one in value.items()}


class _Document:
    """One schema with all schemas inside of it, those included that only references lead to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.places: dict[int, Place] = {}
        self.targets: dict[str, Any] = {}
        self._named: dict[str, Mapping[str, Any]] = {}
        self._adopt(Place((), root))

    def _adopt(self, start: Place) -> None:
        waiting = [start]
        while waiting:
            place = waiting.pop()
            if id(place.schema) in self.places:
                continue
            self.places[id(place.schema)] = place
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := place.schema.get(name), str):
                    self._named[anchor] = place.schema
            if place.path and "$id" in place.schema:
                raise BadSchema((*place.path, "$id"), "only the root may have one; name the place with $anchor")
            waiting += (found for _, found in inner(place))

    def check_references(self) -> None:
        """Each leads to a schema in this document, and none in a circle that never looks at another value."""
        known = 0
        while known < len(self.places):  # a reference may lead to a schema that stands where none was looked for
            known = len(self.places)
            for place in list(self.places.values()):
                for name in _REFERENCES:
                    if name in place.schema:
                        self._adopt(Place((*place.path, name), self._target(place, name)))
        self._check_circles()

    def _target(self, place: Place, name: str) -> Mapping[str, Any]:
        reference = place.schema[name]
        where = (*place.path, name)
        if not isinstance(reference, str):
            raise BadSchema(where, "a reference is a string")
        document, _, fragment = reference.partition("#")
        if document and document != str(self.root.get("$id", "")).partition("#")[0]:
            raise BadSchema(
                where, f"{reference!r} leads out of the document, and nothing is fetched; put it under $defs"
            )
        found = (
            self._pointed(unquote(fragment)) if not fragment or fragment.startswith("/") else self._named.get(fragment)
        )
        if not is_object(found) and not isinstance(found, bool):
            raise BadSchema(where, f"{reference!r} leads nowhere")
        self.targets[reference] = found
        return found if is_object(found) else _NOTHING_INSIDE

    def _pointed(self, pointer: str) -> Any:
        found: Any = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if is_object(found):
                found = found.get(name)
            elif is_array(found) and name.isdigit() and int(name) < len(found):
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

    def check_patterns(self) -> None:
        """Each can be matched in bounded time."""
        for path, schema in self.places.values():
            named: Any = schema.get("patternProperties")
            sources = [("pattern", schema.get("pattern"))] if "pattern" in schema else []
            if is_object(named):
                sources += [("patternProperties", source) for source in named]
            for keyword, source in sources:
                if not isinstance(source, str):
                    raise BadSchema((*path, keyword), "a pattern is a string")
                try:
                    compiled(source)
                except BadPattern as error:
                    raise BadSchema((*path, keyword), str(error)) from error


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
