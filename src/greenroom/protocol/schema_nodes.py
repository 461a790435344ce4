"""A schema as a graph of functions: each keyword is one, made once, and every step that they take is charged.

A `Check` is called with the value; the meter; the path to the value, as pairs of (path before, name or index); the findings, or None where
only yes or no is wanted, which comes with the first no; and what has been evaluated so far, for `unevaluated…`, or None in schemas
without these. It answers whether the value is as wanted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .patterns import BadPattern, compiled
from .reasons import shown
from .subschemas import BadSchema
from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .keyword_shapes import Shape
    from .meter import Meter
    from .subschemas import Document, Place

Trail: TypeAlias = "tuple[Any, str | int] | None"
"""The path to a value, from its end."""


class Finding(NamedTuple):
    """A keyword that a value is not as wanted by."""

    trail: Trail
    keyword: str
    wanted: Any
    value: Any
    more: Any = None
    """What else there is to say: the name of a member, the known names, the findings of branches."""


class Enough(Exception):
    """As many findings as were wanted."""


class Findings(list[Finding]):
    """What was found wrong, up to a number."""

    def __init__(self, most: int, *, unions: bool = False) -> None:
        """With `unions`, an `anyOf` comes with what was found in each of its branches."""
        super().__init__()
        self.most = most
        self.unions = unions

    def add(self, finding: Finding) -> bool:
        """Keep it; False, as nothing is right any more. Raises `Enough`."""
        self.append(finding)
        if len(self) >= self.most:
            raise Enough
        return False


class Seen:
    """Which members and items of one value have been evaluated."""

    __slots__ = ("every_item", "every_name", "first", "indexes", "names")

    def __init__(self) -> None:
        """Nothing yet."""
        self.names: set[str] = set()
        self.every_name = False
        self.first = 0
        """So many items from the beginning have."""
        self.indexes: set[int] = set()
        self.every_item = False

    def add(self, other: Seen, meter: Meter) -> None:
        """What the other has seen as well."""
        meter.spend(1 + (len(other.names) + len(other.indexes)) // 8)
        self.names |= other.names
        self.every_name |= other.every_name
        self.first = max(self.first, other.first)
        self.indexes |= other.indexes
        self.every_item |= other.every_item


Check: TypeAlias = "Callable[[Any, Meter, Trail, Findings | None, Seen | None], bool]"

KINDS: Final = ("object", "array", "string", "boolean", "integer", "number", "null", "other")
_OF_TYPE: Final[Mapping[type, str]] = {
    list: "array", tuple: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip
"""A bool is an int as well, and comes before it."""


class Node:
    """A schema."""

    __slots__ = ("_table", "_type", "_what")

    def __init__(self, what: Sequence[tuple[tuple[str, ...], Check, int]] = (), of_type: Any = None) -> None:
        """What is checked, of values of which kinds, and at what cost."""
        self._what = what
        self._type = of_type
        self._table: dict[type, tuple[int, tuple[Check, ...]]] = {}

    def fill(self, what: Sequence[tuple[tuple[str, ...], Check, int]], of_type: Any) -> None:
        """The same, later: a schema may contain itself."""
        self._what = what
        self._type = of_type

    def check(self, value: Any, meter: Meter, trail: Trail, found: Findings | None, seen: Seen | None) -> bool:
        """Whether the value is as the schema wants it. Raises `TooMuch`."""
        python = value.__class__
        entry = self._table.get(python)
        cost, checks = self._entry(python, meter) if entry is None else entry
        meter.left -= cost
        if meter.left < 0:
            meter.exceeded()
        good = True
        for one in checks:
            if not one(value, meter, trail, found, seen):
                if found is None:
                    return False
                good = False
        return good

    def _entry(self, python: type, meter: Meter) -> tuple[int, tuple[Check, ...]]:
        """What is checked of values of a Python type, and what that costs: looked up once."""
        meter.spend(10 + len(self._what))
        kind = _kind_of(python)
        checks = tuple(check for kinds, check, _ in self._what if kind in kinds)
        cost = 1 + sum(cost for kinds, _, cost in self._what if kind in kinds)
        found = self._table[python] = _with_type(self._type, kind, cost, checks)
        return found


def _kind_of(python: type) -> str:
    """JSON's name for a Python type; those that only a local caller has may be like one of them."""
    if issubclass(python, Mapping):
        return "object"
    return next((name for one, name in _OF_TYPE.items() if issubclass(python, one)), "other")


class ClosedNode(Node):
    """A schema with `unevaluated…`, which wants to know what has been evaluated of this value in it, and only in it."""

    __slots__ = ()

    def check(self, value: Any, meter: Meter, trail: Trail, found: Findings | None, seen: Seen | None) -> bool:
        """The same."""
        inside = Seen()
        good = super().check(value, meter, trail, found, inside)
        if seen is not None:
            seen.add(inside, meter)
        return good


Made: TypeAlias = "tuple[Check, int] | None"
"""A check, and what it costs whenever it is made; what depends on the value it charges itself."""


class Keyword(NamedTuple):
    """What a keyword is for."""

    kinds: tuple[str, ...]
    shape: Shape
    make: Callable[[Compiler, str, Any, Mapping[str, Any]], Made]


class Compiler:
    """Makes the functions of all schemas in a document."""

    def __init__(
        self,
        document: Document,
        dialect: str,
        keywords: Mapping[str, Keyword],
        formats: Mapping[str, Callable[[str], bool]],
        meter: Meter,
    ) -> None:
        """`keywords` are those of the dialect, and `formats` are checked. With the dialect "own", patterns may be in Python's dialect."""
        self.formats = formats
        self.meter = meter
        self.counts_contained = dialect != "draft-07"
        self._document = document
        self._dialect = dialect
        self._keywords = keywords
        self._nodes: dict[int, Node] = {}

    def compile(self) -> Node:
        """The root. Raises `BadSchema` for a keyword whose value is none for it, and `TooMuch`."""
        for place in self._document.places.values():
            self._fill(self.node(place.schema), place)
        return self.node(self._document.root)

    def node(self, schema: Any) -> Node:
        """The node of a schema, which may not be filled yet."""
        if isinstance(schema, bool):
            return TRUE if schema else FALSE
        found = self._nodes.get(id(schema))
        if found is None:
            closed = "unevaluatedItems" in schema or "unevaluatedProperties" in schema
            found = self._nodes[id(schema)] = ClosedNode() if closed else Node()
        return found

    def target(self, reference: str) -> Node:
        """The node that a reference leads to."""
        return self.node(self._document.targets[reference])

    def matcher(self, source: str) -> Callable[[str, Meter], bool]:
        """What searches for the pattern. It is looked up each time, as only so many patterns are kept."""
        try:
            compiled(source, self.meter)
        except BadPattern:
            if self._dialect != "own":
                raise
            pattern = re.compile(source)  # a hint's author may write in Python's dialect
            return lambda text, _: pattern.search(text) is not None
        return lambda text, meter: compiled(source, meter).search(text, meter)

    def _fill(self, node: Node, place: Place) -> None:
        self.meter.spend(20)
        schema = place.schema
        what: list[tuple[tuple[str, ...], Check, int]] = []
        alone = self._dialect == "draft-07" and "$ref" in schema
        for name in ("$ref",) if alone else sorted(schema, key=_comes_last):
            keyword = self._keywords.get(name)
            if keyword is None:
                continue
            wanted = schema[name]
            self.meter.spend(10 + 2 * (len(wanted) if is_array(wanted) or is_object(wanted) else 0))
            if not keyword.shape.fits(wanted):
                raise BadSchema((*place.path, name), f"expected {keyword.shape.said}, got {shown(wanted)}")
            try:
                made = keyword.make(self, name, wanted, schema)
            except BadPattern as error:
                raise BadSchema((*place.path, name), str(error)) from error
            if made is not None:
                what.append((keyword.kinds, *made))
        node.fill(what, None if alone else schema.get("type"))


def _comes_last(name: str) -> bool:
    return name.startswith("unevaluated")


def _never(value: Any, meter: Meter, trail: Trail, found: Findings | None, seen: Seen | None) -> bool:  # noqa: ARG001 - a `Check`
    return False if found is None else found.add(Finding(trail, "not", {}, value))


def _with_type(wanted: Any, kind: str, cost: int, checks: tuple[Check, ...]) -> tuple[int, tuple[Check, ...]]:
    """What is checked of values of a kind; those of the wrong type have no other problems."""
    if wanted is None:
        return cost, checks
    types = {wanted} if isinstance(wanted, str) else set(wanted)
    if kind in types or (kind == "integer" and "number" in types):
        return cost, checks

    def mistyped(value: Any, meter: Meter, trail: Trail, found: Findings | None, seen: Seen | None) -> bool:  # noqa: ARG001 - a `Check`
        return False if found is None else found.add(Finding(trail, "type", wanted, value))

    if kind != "number" or "integer" not in types:
        return 1, (mistyped,)

    def whole(value: Any, meter: Meter, trail: Trail, found: Findings | None, seen: Seen | None) -> bool:
        if not value.is_integer():
            return mistyped(value, meter, trail, found, seen)
        good = True
        for one in checks:
            if not one(value, meter, trail, found, seen):
                if found is None:
                    return False
                good = False
        return good

    return cost + 1, (whole,)


TRUE: Final = Node()
FALSE: Final = Node([(KINDS, _never, 1)])
