"""JSON Schemas compiled to a graph of functions: one per keyword, made once; every step that they take is charged.

A `Check` is called with the value, the meter, the trail to the value, the violations (to which it adds), and the members evaluated so far, for
`unevaluated…` (None in schemas without it). If only validity matters, the violations are `FAIL_FAST`, and the first one ends the check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from greenroom.errors import GreenroomError

from .safe_regex import BadPattern, compile_pattern
from .serialization import is_array, is_object
from .validation_errors import path_text
from .validation_texts import shown_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .validation_errors import Path, StepMeter, Trail


class SchemaViolation(NamedTuple):
    """A keyword that a value violates."""

    trail: Trail
    keyword: str
    wanted: Any
    value: Any
    more: Any = None
    """Details: a member's name, the known names, or the violations of branches."""


class ViolationLimitReached(Exception):
    """The wanted number of violations was found."""


class Violations(list[SchemaViolation]):
    """Collects violations, up to a number."""

    def __init__(self, most: int, *, unions: bool = False) -> None:
        """With `unions`, the violation of an `anyOf` has those of its branches."""
        super().__init__()
        self.most = most
        self.unions = unions

    def add(self, trail: Trail, keyword: str, wanted: Any, value: Any, more: Any = None) -> None:
        """Add a violation. Raises `ViolationLimitReached`."""
        self.append(SchemaViolation(trail, keyword, wanted, value, more))
        if len(self) >= self.most:
            raise ViolationLimitReached


class _FailFast(Violations):
    """Collects nothing: the first violation raises."""

    def add(self, trail: Trail, keyword: str, wanted: Any, value: Any, more: Any = None) -> None:  # noqa: ARG002 - details are not needed
        raise ViolationLimitReached


FAIL_FAST: Final = _FailFast(1)


@dataclass(slots=True)
class EvaluatedMembers:
    """The members and items of one value that were evaluated."""

    names: set[str] = field(default_factory=set[str])
    every_name: bool = False
    first: int = 0
    """The number of leading items that were evaluated."""
    indexes: set[int] = field(default_factory=set[int])
    every_item: bool = False

    def add(self, other: EvaluatedMembers, meter: StepMeter) -> None:
        """Add what another has evaluated."""
        meter.spend(1 + (len(other.names) + len(other.indexes)) // 8)
        self.names |= other.names
        self.every_name |= other.every_name
        self.first = max(self.first, other.first)
        self.indexes |= other.indexes
        self.every_item |= other.every_item


Check: TypeAlias = "Callable[[Any, StepMeter, Trail, Violations, EvaluatedMembers | None], None]"

_Entry: TypeAlias = "tuple[int, tuple[Check, ...] | None]"
"""The cost of values of one Python type, and their checks; None if all values of the type are invalid."""

KINDS: Final = ("object", "array", "string", "boolean", "integer", "number", "null", "other")
_OF_TYPE: Final[Mapping[type, str]] = {
    list: "array", tuple: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip
"""bool comes before int: a bool is an int too."""


class SchemaNode:
    """A compiled schema or subschema."""

    __slots__ = ("_table", "_type", "_what")

    def __init__(self, what: Sequence[tuple[tuple[str, ...], Check, int]] = (), of_type: Any = None) -> None:
        """`what` are the checks with their kinds and costs."""
        self._what = what
        self._type = of_type
        self._table: dict[type, _Entry] = {}

    def fill(self, what: Sequence[tuple[tuple[str, ...], Check, int]], of_type: Any) -> None:
        """Set the checks later: a schema may contain itself."""
        self._what = what
        self._type = of_type

    def check(
        self, value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None
    ) -> None:
        """Check a value. Raises `StepsExceeded`, and `ViolationLimitReached`."""
        python = value.__class__
        entry = self._table.get(python)
        cost, checks = self._entry(python, meter) if entry is None else entry
        meter.left -= cost
        if meter.left < 0:
            meter.refill_or_raise()
        if checks is None:
            found.add(trail, "type", self._type, value)
            return
        for one in checks:
            one(value, meter, trail, found, seen)

    def fits(self, value: Any, meter: StepMeter, seen: EvaluatedMembers | None = None) -> bool:
        """Whether a value is valid; only then its evaluated members count. Raises `StepsExceeded`."""
        entry = self._table.get(value.__class__)
        # Most negative results in unions are wrong types. They return here, because an exception takes four times as long.
        if entry is not None and entry[1] is None:
            meter.spend(1)
            return False
        inside = None if seen is None else EvaluatedMembers()
        try:
            self.check(value, meter, None, FAIL_FAST, inside)
        except ViolationLimitReached:
            return False
        if seen is not None and inside is not None:
            seen.add(inside, meter)
        return True

    def _entry(self, python: type, meter: StepMeter) -> _Entry:
        """The checks for a Python type and their cost, looked up once."""
        meter.spend(10 + len(self._what))
        kind = _kind_of(python)
        checks = tuple(check for kinds, check, _ in self._what if kind in kinds)
        cost = 1 + sum(cost for kinds, _, cost in self._what if kind in kinds)
        found = self._table[python] = _with_type(self._type, kind, cost, checks)
        return found


def _kind_of(python: type) -> str:
    """JSON's name for a Python type. Types of local values may derive from one of them."""
    if issubclass(python, Mapping):
        return "object"
    return next((name for one, name in _OF_TYPE.items() if issubclass(python, one)), "other")


class UnevaluatedNode(SchemaNode):
    """A schema with `unevaluated…`, which tracks what was evaluated of this value in it, and only in it."""

    __slots__ = ()

    def check(
        self, value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None
    ) -> None:
        """Check a value with its own `EvaluatedMembers`."""
        inside = EvaluatedMembers()
        super().check(value, meter, trail, found, inside)
        if seen is not None:
            seen.add(inside, meter)


CompiledKeyword: TypeAlias = "tuple[Check, int] | None"
"""A check and its fixed cost; costs that depend on the value are charged by the check."""


class SchemaKeyword(NamedTuple):
    """A keyword: the kinds of values that it applies to, the shape of its own value, and its compiler."""

    kinds: tuple[str, ...]
    shape: KeywordShape
    make: Callable[[SchemaCompiler, str, Any, Mapping[str, Any]], CompiledKeyword]


class SchemaCompiler:
    """Compiles all schemas in a document."""

    def __init__(
        self,
        document: SchemaDocument,
        dialect: str,
        keywords: Mapping[str, SchemaKeyword],
        formats: Mapping[str, Callable[[str], bool]],
        meter: StepMeter,
    ) -> None:
        """`keywords` are the dialect's; `formats` are the checked formats. With the dialect "own", patterns may be in Python's syntax."""
        self.formats = formats
        self.meter = meter
        self.counts_contained = dialect != "draft-07"
        self._document = document
        self._dialect = dialect
        self._keywords = keywords
        self._nodes: dict[int, SchemaNode] = {}

    def compile(self) -> SchemaNode:
        """Compile the root. Raises `BadSchema` for a malformed keyword, and `StepsExceeded`."""
        for place in self._document.places.values():
            self._fill(self.node(place.schema), place)
        return self.node(self._document.root)

    def node(self, schema: Any) -> SchemaNode:
        """The node of a schema, which may not be filled yet."""
        if isinstance(schema, bool):
            return TRUE if schema else FALSE
        # By id, as schemas are dicts and so unhashable; the document keeps all of them alive, so that an id is never reused.
        found = self._nodes.get(id(schema))
        if found is None:
            closed = "unevaluatedItems" in schema or "unevaluatedProperties" in schema
            found = self._nodes[id(schema)] = UnevaluatedNode() if closed else SchemaNode()
        return found

    def target(self, reference: str) -> SchemaNode:
        """The node that a reference resolves to."""
        return self.node(self._document.targets[reference])

    def matcher(self, source: str) -> Callable[[str, StepMeter], bool]:
        """A search function for a pattern. The pattern is looked up for each search, since the cache of patterns is bounded."""
        try:
            compile_pattern(source, self.meter)
        except BadPattern:
            if self._dialect != "own":
                raise
            pattern = re.compile(source)  # the author of a hint may use Python's syntax
            return lambda text, _: pattern.search(text) is not None
        return lambda text, meter: compile_pattern(source, meter).search(text, meter)

    def _fill(self, node: SchemaNode, place: Subschema) -> None:
        self.meter.spend(20)
        schema = place.schema
        what: list[tuple[tuple[str, ...], Check, int]] = []
        alone = self._dialect == "draft-07" and "$ref" in schema
        for name in ("$ref",) if alone else sorted(schema, key=lambda one: one.startswith("unevaluated")):
            keyword = self._keywords.get(name)
            if keyword is None:
                continue
            wanted = schema[name]
            self.meter.spend(10 + 2 * (len(wanted) if is_array(wanted) or is_object(wanted) else 0))
            if not keyword.shape.fits(wanted):
                raise BadSchema((*place.path, name), f"expected {keyword.shape.description}, got {shown_value(wanted)}")
            try:
                made = keyword.make(self, name, wanted, schema)
            except BadPattern as error:
                raise BadSchema((*place.path, name), str(error)) from error
            if made is not None:
                what.append((keyword.kinds, *made))
        node.fill(what, None if alone else schema.get("type"))


def _reject_all(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:  # noqa: ARG001 - a `Check`
    found.add(trail, "not", {}, value)


def _with_type(wanted: Any, kind: str, cost: int, checks: tuple[Check, ...]) -> _Entry:
    """The checks for values of a kind; values of the wrong type have no other problems."""
    types: set[str] = {wanted} if isinstance(wanted, str) else set(wanted or KINDS)
    if kind in types or (kind == "integer" and "number" in types):
        return cost, checks
    if kind != "number" or "integer" not in types:
        return 1, None

    def whole(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if not value.is_integer():
            found.add(trail, "type", wanted, value)
            return
        for one in checks:
            one(value, meter, trail, found, seen)

    return cost + 1, (whole,)


TRUE: Final = SchemaNode()
FALSE: Final = SchemaNode([(KINDS, _reject_all, 1)])


# --- The required shape of each keyword's value, and its description for errors.

TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


@dataclass(frozen=True, slots=True)
class KeywordShape:
    """The required shape of a keyword's value."""

    description: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in TYPES


def _is_schema(value: Any) -> bool:
    return is_object(value) or isinstance(value, bool)


def _all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return is_array(value) and all(fits(one) for one in value)


def _each(value: Any, fits: Callable[[Any], bool]) -> bool:
    return is_object(value) and all(fits(one) for one in value.values())


def _are_names(value: Any) -> bool:
    return _all(value, _is_text)


def _are_schemas(value: Any) -> bool:
    return bool(value) and _all(value, _is_schema)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


ANYTHING: Final = KeywordShape("anything", lambda _: True)
ARRAY: Final = KeywordShape("an array", is_array)
COUNT: Final = KeywordShape(
    "a whole number, 0 or more", lambda value: _is_number(value) and value >= 0 and value % 1 == 0
)
DEPENDENCIES: Final = KeywordShape(
    "an object with a schema or an array of strings in each member",
    lambda value: _each(value, lambda one: _is_schema(one) or _are_names(one)),
)
DIVISOR: Final = KeywordShape("a number above 0", lambda value: _is_number(value) and value > 0)
FLAG: Final = KeywordShape("true or false", lambda value: isinstance(value, bool))
NAMED_NAMES: Final = KeywordShape(
    "an object with an array of strings in each member", lambda value: _each(value, _are_names)
)
NAMED_SCHEMAS: Final = KeywordShape("an object with a schema in each member", lambda value: _each(value, _is_schema))
NAMES: Final = KeywordShape("an array of strings", _are_names)
NUMBER: Final = KeywordShape("a number", _is_number)
SCHEMA: Final = KeywordShape("a schema", _is_schema)
SCHEMA_OR_SCHEMAS: Final = KeywordShape(
    "a schema, or an array of them", lambda value: _is_schema(value) or _are_schemas(value)
)
SCHEMAS: Final = KeywordShape("an array of schemas, with one at least", _are_schemas)
TEXT: Final = KeywordShape("a string", _is_text)
TYPE_OR_TYPES: Final = KeywordShape(
    f"one of {', '.join(sorted(TYPES))}, or an array of them",
    lambda value: _is_type(value) or (bool(value) and _all(value, _is_type)),
)


# --- Subschemas, and whether a schema is usable: its size, its depth, its references.
# A foreign schema is refused before anything of it is compiled. References stay in the document: nothing is ever fetched.

MOST_NODES: Final = 10_000
DEEPEST: Final = 64

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft-07/schema": "draft-07",
}
"""The supported values of `$schema`; without one, a schema is 2020-12."""

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
_NOTHING_INSIDE: Final[Mapping[str, Any]] = {}  # the contents of true and false as schemas
_INDEX: Final = re.compile(r"[0-9]{1,6}")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class BadSchema(GreenroomError, ValueError):
    """The schema is wrong, or too expensive to use. Says where and why."""

    def __init__(self, path: Path, why: str) -> None:
        """`path` leads from the root of the schema to the place."""
        super().__init__(
            f"the schema is not usable: {path_text(path)}: {why}" if path else f"the schema is not usable: {why}"
        )
        self.path = path
        self.why = why


class Subschema(NamedTuple):
    """A subschema and its place."""

    path: Path
    schema: Mapping[str, Any]


def dialect_of(schema: Mapping[str, Any]) -> str:
    """The dialect of a schema. Raises `BadSchema` if it is not supported."""
    name: Any = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    dialect = DIALECTS.get(name.removesuffix("#")) if isinstance(name, str) else None
    if dialect is None:
        raise BadSchema(
            ("$schema",), f"{shown_value(name)} is not supported; use one of {', '.join(DIALECTS)}, or leave it out"
        )
    return dialect


def check_size(schema: Mapping[str, Any], meter: StepMeter) -> None:
    """Refuse a schema that is too large or too deep. Raises `BadSchema`, and `StepsExceeded`."""
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


class SchemaDocument:
    """One schema with all its subschemas, including those that only references lead to."""

    def __init__(self, root: Mapping[str, Any], meter: StepMeter) -> None:
        """Each reference must resolve inside this document, and no chain of references may apply to the same value for ever.

        Raises `BadSchema`, and `StepsExceeded`.
        """
        self.root = root
        self.places: dict[int, Subschema] = {}
        self.targets: dict[str, Any] = {}
        """References as written -> their targets. Only the root has an `$id`, so each reference has one target."""
        self._meter = meter
        self._anchors: dict[str, Mapping[str, Any]] = {}
        self._references: list[tuple[Subschema, str]] = []
        self._add_subschemas(Subschema((), root))
        for (
            place,
            name,
        ) in self._references:  # the list grows: a reference may lead to a place that is no known subschema position
            target = self._target(place, name)
            if id(target) not in self.places:
                self._add_subschemas(Subschema(tuple(_pointer_tokens(place.schema[name])), target))
        self._check_circles()

    def _add_subschemas(self, start: Subschema) -> None:
        waiting = [start]
        while waiting:
            place = waiting.pop()
            if id(place.schema) in self.places:
                continue
            self._meter.spend(8 + len(place.schema))
            self.places[id(place.schema)] = place
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := place.schema.get(name), str):
                    self._anchors[anchor] = place.schema
            if place.path and "$id" in place.schema:
                raise BadSchema((*place.path, "$id"), "only the root may have one; name the place with $anchor")
            self._references += ((place, name) for name in _REFERENCES if name in place.schema)
            waiting += (found for _, found in subschemas_of(place))

    def _target(self, place: Subschema, name: str) -> Mapping[str, Any]:
        reference = place.schema[name]
        if not isinstance(reference, str):
            raise BadSchema((*place.path, name), "a reference must be a string")
        if reference not in self.targets:
            self.targets[reference] = self._resolve(reference, (*place.path, name))
        found = self.targets[reference]
        return found if is_object(found) else _NOTHING_INSIDE

    def _resolve(self, reference: str, where: Path) -> Any:
        self._meter.spend(5 + len(reference) // 4)
        document, _, fragment = reference.partition("#")
        if document and document != str(self.root.get("$id", "")).partition("#")[0]:
            raise BadSchema(
                where, f"{shown_value(reference)} leads out of the document, which is not fetched; put it under $defs"
            )
        found = (
            self._resolve_pointer(_pointer_tokens(reference))
            if not fragment or fragment.startswith("/")
            else self._anchors.get(fragment)
        )
        if not is_object(found) and not isinstance(found, bool):
            raise BadSchema(where, f"{shown_value(reference)} leads nowhere")
        return found

    def _resolve_pointer(self, pointer: Sequence[str]) -> Any:
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
        beside: dict[int, dict[int, Subschema]] = {}
        for key, place in self.places.items():
            beside[key] = {id(after.schema): after for after in self._same_value_subschemas(place)}
            self._meter.spend(8 * (1 + len(beside[key])))
        try:
            TopologicalSorter(beside).prepare()
        except CycleError as error:
            edges = (beside[before][after].path for after, before in pairwise(error.args[1]))
            why = "it refers to itself for the same value, without end"
            raise BadSchema(next(path for path in edges if path[-1] in _REFERENCES), why) from None

    def _same_value_subschemas(self, place: Subschema) -> Iterator[Subschema]:
        """The subschemas that apply to the same value."""
        for keyword, found in subschemas_of(place):
            if keyword in _SAME_VALUE:
                yield found
        for name in _REFERENCES:
            if name in place.schema:
                yield Subschema((*place.path, name), self._target(place, name))


def _pointer_tokens(reference: str) -> list[str]:
    """The tokens of a reference's JSON pointer."""
    pointer = unquote(reference.partition("#")[2])
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def subschemas_of(place: Subschema) -> Iterator[tuple[str, Subschema]]:
    """The direct subschemas of a schema, each with its keyword."""
    for keyword, value in place.schema.items():
        if keyword in _SCHEMA and is_object(value):
            yield keyword, Subschema((*place.path, keyword), value)
        elif keyword in _LIST and is_array(value):
            for index, one in enumerate(value):
                if is_object(one):
                    yield keyword, Subschema((*place.path, keyword, index), one)
        elif keyword in _NAMED and is_object(value):
            for name, one in value.items():
                if is_object(one):
                    yield keyword, Subschema((*place.path, keyword, name), one)
