"""JSON Schema's keywords: for each a function that compiles its check.

Not jsonschema's functions, against which these are tested: those format the whole value into every error message, even of errors that are
never read, search with `re`, and evaluate again for `unevaluated…` what they have evaluated, twice at each level.
"""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from . import schema_compiler as shapes
from .safe_regex import TextTooLong
from .schema_compiler import FAIL_FAST, KINDS, EvaluatedMembers, SchemaKeyword, ViolationLimitReached, Violations
from .serialization import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .schema_compiler import Check, CompiledKeyword, SchemaCompiler, SchemaNode
    from .validation_errors import StepMeter, Trail

# ruff: noqa: ARG001 - all makers share one signature, and so do all checks


# --- keywords for the value itself


def _value_check(name: str, wanted: Any, holds: Callable[[Any, StepMeter], bool], cost: int = 1) -> CompiledKeyword:
    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if not holds(value, meter):
            found.add(trail, name, wanted, value)

    return check, cost


def _no_check(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    """For keywords that other keywords read."""
    return None


def _limit(wrong: Callable[[Any, Any], bool], *, length: bool = False) -> Callable[..., CompiledKeyword]:
    """A limit. A value is invalid if it is beyond the limit, so that NaN is valid."""

    def make(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
        if length:
            return _value_check(name, wanted, lambda value, _: not wrong(len(value), wanted))
        return _value_check(name, wanted, lambda value, _: not wrong(value, wanted))

    return make


def _multiple_of(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    def holds(value: Any, meter: StepMeter) -> bool:
        if isinstance(value, float) and not math.isfinite(value):  # from a tool's own result: JSON has no such number
            return False
        if not isinstance(wanted, float):
            return bool(value % wanted == 0)
        try:
            quotient = value / wanted
            return bool(int(quotient) == quotient)
        except OverflowError:  # too large for a float, but not for a fraction
            return (Fraction(value) / Fraction(wanted)).denominator == 1

    return _value_check(name, wanted, holds, 20 if isinstance(wanted, float) else 2)


def _enum(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    values: Sequence[Any] = [wanted] if name == "const" else wanted
    texts = frozenset(one for one in values if isinstance(one, str))
    others = frozenset(canonical_text(one, compiler.meter) for one in values if not isinstance(one, str))
    nested = any(is_array(one) or is_object(one) for one in values)

    def holds(value: Any, meter: StepMeter) -> bool:
        if isinstance(value, str):
            meter.left -= len(value) >> 10
            return value in texts
        if not others or (not nested and (is_array(value) or is_object(value))):
            return False
        return canonical_text(value, meter) in others

    return _value_check(name, wanted, holds)


def _unique_items(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    def holds(value: Any, meter: StepMeter) -> bool:
        meter.spend(len(value))
        return len({canonical_text(one, meter) for one in value}) == len(value)

    return _value_check(name, wanted, holds) if wanted else None


def _pattern(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    matches = compiler.matcher(wanted)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        try:
            if not matches(value, meter):
                found.add(trail, name, wanted, value)
        except TextTooLong as error:
            if found is FAIL_FAST:  # the value is neither
                raise
            found.add(trail, name, wanted, value, str(error))

    return check, 1


def _format(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    """`format` and `contentEncoding`."""
    known = compiler.formats.get(wanted)
    if known is None:
        return None

    def holds(value: Any, meter: StepMeter) -> bool:
        meter.spend(3 + len(value) // 32)
        return known(value)

    return _value_check(name, wanted, holds)


# --- members


def _weight(names: Iterable[str]) -> int:
    """The cost of looking up these names: names that are found are compared byte by byte."""
    return sum(1 + (len(name) >> 10) for name in names)


def _missing(name: str, wanted: Sequence[str]) -> Check:
    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        for one in wanted:
            if one not in value:
                found.add(trail, name, wanted, None, one)

    return check


def _required(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    return _missing(name, wanted), _weight(wanted)


def _dependent(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    """`dependentRequired` and `dependentSchemas`."""
    checks: list[tuple[str, Check]] = [
        (given, _missing("required", one) if is_array(one) else compiler.node(one).check)
        for given, one in wanted.items()
    ]

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        for given, one in checks:
            if given in value:
                one(value, meter, trail, found, seen)

    return check, _weight(wanted) + sum(_weight(one) for one in wanted.values() if is_array(one))


def _properties(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    nodes = {one: compiler.node(inner) for one, inner in wanted.items()}
    pairs = tuple(nodes.items())
    weight = _weight(nodes)
    heaviest = max((1 + (len(one) >> 10) for one in nodes), default=1)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if len(value) < len(nodes):  # iterate over the smaller of the two
            meter.spend(len(value) * heaviest)
            present: Iterable[tuple[str, SchemaNode]] = [(one, nodes[one]) for one in value if one in nodes]
        else:
            meter.left -= weight
            present = pairs
        for one, node in present:
            if one in value:
                if seen is not None:
                    seen.names.add(one)
                node.check(value[one], meter, (trail, one), found, None)

    return check, 1


def _pattern_properties(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    nodes = [(compiler.matcher(source), compiler.node(inner)) for source, inner in wanted.items()]

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        for matches, node in nodes:
            meter.spend(len(value))
            for one, inner in value.items():
                if matches(one, meter):
                    if seen is not None:
                        seen.names.add(one)
                    node.check(inner, meter, (trail, one), found, None)

    return check, len(nodes)


def _additional_properties(
    compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]
) -> CompiledKeyword:
    listed: Any = schema.get("properties", {})
    known: frozenset[str] = frozenset(listed) if is_object(listed) else frozenset()
    sources: Any = schema.get("patternProperties", {})
    patterns = [compiler.matcher(source) for source in sources] if is_object(sources) else []
    node = compiler.node(wanted)
    heaviest = max((1 + (len(one) >> 10) for one in known), default=1)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if seen is not None:
            seen.every_name = True
        if wanted is True:
            return
        meter.spend(len(value) * (heaviest + len(patterns)))
        for one, inner in value.items():
            if one in known or (patterns and any(matches(one, meter) for matches in patterns)):
                continue
            if wanted is False:
                found.add(trail, name, wanted, None, (one, listed))
            else:
                node.check(inner, meter, (trail, one), found, None)

    return check, 1


def _property_names(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    node = compiler.node(wanted)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        for one in value:
            node.check(one, meter, trail, found, None)

    return check, 1


def _unevaluated_properties(
    compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]
) -> CompiledKeyword:
    node = compiler.node(wanted)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if seen is None or seen.every_name:
            return
        meter.spend(len(value))
        good = all(one in seen.names or node.fits(inner, meter) for one, inner in value.items())
        seen.every_name = True
        if not good:
            found.add(trail, name, wanted, value)

    return check, 1


# --- items


def _items(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    """All items, or those after the items with schemas of their own."""
    if is_array(wanted):
        return _listed_items(compiler, name, wanted, schema)
    before: Any = schema.get("prefixItems" if name == "items" else "items", [])
    first = len(before) if is_array(before) else 0
    node = compiler.node(wanted)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if seen is not None:
            seen.every_item = True
        if wanted is False and len(value) > first:
            found.add(trail, name, wanted, value)
            return
        for index in range(first, len(value)):
            node.check(value[index], meter, (trail, index), found, None)

    return check, 1


def _additional_items(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    return _items(compiler, name, wanted, schema) if is_array(schema.get("items")) else None


def _listed_items(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    nodes = [compiler.node(one) for one in wanted]

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if seen is not None:
            seen.first = max(seen.first, len(nodes))
        for index, (node, inner) in enumerate(zip(nodes, value, strict=False)):
            node.check(inner, meter, (trail, index), found, None)

    return check, 1


def _contains(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    node = compiler.node(wanted)
    counted = compiler.counts_contained
    least: Any = schema.get("minContains", 1) if counted else 1
    most: Any = schema.get("maxContains") if counted else None

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        matches = 0
        for index, inner in enumerate(value):
            if matches >= least and most is None and seen is None:
                break
            meter.left -= 1
            if node.fits(inner, meter):
                matches += 1
                if seen is not None:
                    seen.indexes.add(index)
                if most is not None and matches > most:
                    found.add(trail, "maxContains", most, value)
                    return
        if matches < least:
            found.add(trail, "minContains" if matches else name, wanted, value)

    return check, 1


def _unevaluated_items(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    node = compiler.node(wanted)

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        if seen is None or seen.every_item or seen.first >= len(value):
            return
        meter.spend(len(value) - seen.first)
        rest = range(seen.first, len(value))
        good = all(index in seen.indexes or node.fits(value[index], meter) for index in rest)
        seen.every_item = True
        if not good:
            found.add(trail, name, wanted, value)

    return check, 1


# --- schemas for the same value


def _reference(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    return compiler.target(wanted).check, 1


def _all_of(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    nodes = [compiler.node(one) for one in wanted]

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        for node in nodes:
            node.check(value, meter, trail, found, seen)

    return check, 1


def _any_of(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    nodes = [compiler.node(one) for one in wanted]

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        good = False
        for node in nodes:
            if node.fits(value, meter, seen):
                good = True
                if seen is None:
                    return
        if not good:
            more = [_in_branch(node, value, meter, trail, found.most) for node in nodes] if found.unions else None
            found.add(trail, name, wanted, value, more)

    return check, 1


def _in_branch(node: SchemaNode, value: Any, meter: StepMeter, trail: Trail, most: int) -> Violations:
    inside = Violations(most, unions=True)
    with contextlib.suppress(ViolationLimitReached):
        node.check(value, meter, trail, inside, None)
    return inside


def _one_of(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    nodes = [compiler.node(one) for one in wanted]

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        times = 0
        for node in nodes:
            if node.fits(value, meter, seen):
                times += 1
                if times > 1:
                    break
        if times != 1:
            found.add(trail, name, wanted, value, times)

    return check, 1


def _not(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    node = compiler.node(wanted)
    return _value_check(name, wanted, lambda value, meter: not node.fits(value, meter))


def _if(compiler: SchemaCompiler, name: str, wanted: Any, schema: Mapping[str, Any]) -> CompiledKeyword:
    condition = compiler.node(wanted)
    then, otherwise = (compiler.node(schema.get(one, True)) for one in ("then", "else"))

    def check(value: Any, meter: StepMeter, trail: Trail, found: Violations, seen: EvaluatedMembers | None) -> None:
        after = then if condition.fits(value, meter, seen) else otherwise
        after.check(value, meter, trail, found, seen)

    return check, 1


# --- all of them


_ANY: Final = KINDS
_NUMBER: Final = ("integer", "number")
_TEXT: Final = ("string",)
_ARRAY: Final = ("array",)
_OBJECT: Final = ("object",)

_KEYWORDS: Final[Mapping[str, SchemaKeyword]] = {
    "type": SchemaKeyword(_ANY, shapes.TYPE_OR_TYPES, _no_check),
    "enum": SchemaKeyword(_ANY, shapes.ARRAY, _enum),
    "const": SchemaKeyword(_ANY, shapes.ANYTHING, _enum),
    "minimum": SchemaKeyword(_NUMBER, shapes.NUMBER, _limit(lt)),
    "maximum": SchemaKeyword(_NUMBER, shapes.NUMBER, _limit(gt)),
    "exclusiveMinimum": SchemaKeyword(_NUMBER, shapes.NUMBER, _limit(le)),
    "exclusiveMaximum": SchemaKeyword(_NUMBER, shapes.NUMBER, _limit(ge)),
    "multipleOf": SchemaKeyword(_NUMBER, shapes.DIVISOR, _multiple_of),
    "minLength": SchemaKeyword(_TEXT, shapes.COUNT, _limit(lt, length=True)),
    "maxLength": SchemaKeyword(_TEXT, shapes.COUNT, _limit(gt, length=True)),
    "pattern": SchemaKeyword(_TEXT, shapes.TEXT, _pattern),
    "format": SchemaKeyword(_TEXT, shapes.TEXT, _format),
    "minItems": SchemaKeyword(_ARRAY, shapes.COUNT, _limit(lt, length=True)),
    "maxItems": SchemaKeyword(_ARRAY, shapes.COUNT, _limit(gt, length=True)),
    "uniqueItems": SchemaKeyword(_ARRAY, shapes.FLAG, _unique_items),
    "contains": SchemaKeyword(_ARRAY, shapes.SCHEMA, _contains),
    "minProperties": SchemaKeyword(_OBJECT, shapes.COUNT, _limit(lt, length=True)),
    "maxProperties": SchemaKeyword(_OBJECT, shapes.COUNT, _limit(gt, length=True)),
    "required": SchemaKeyword(_OBJECT, shapes.NAMES, _required),
    "properties": SchemaKeyword(_OBJECT, shapes.NAMED_SCHEMAS, _properties),
    "patternProperties": SchemaKeyword(_OBJECT, shapes.NAMED_SCHEMAS, _pattern_properties),
    "additionalProperties": SchemaKeyword(_OBJECT, shapes.SCHEMA, _additional_properties),
    "propertyNames": SchemaKeyword(_OBJECT, shapes.SCHEMA, _property_names),
    "allOf": SchemaKeyword(_ANY, shapes.SCHEMAS, _all_of),
    "anyOf": SchemaKeyword(_ANY, shapes.SCHEMAS, _any_of),
    "oneOf": SchemaKeyword(_ANY, shapes.SCHEMAS, _one_of),
    "not": SchemaKeyword(_ANY, shapes.SCHEMA, _not),
    "if": SchemaKeyword(_ANY, shapes.SCHEMA, _if),
    "then": SchemaKeyword(_ANY, shapes.SCHEMA, _no_check),
    "else": SchemaKeyword(_ANY, shapes.SCHEMA, _no_check),
    "$ref": SchemaKeyword(_ANY, shapes.TEXT, _reference),
    "$defs": SchemaKeyword(_ANY, shapes.NAMED_SCHEMAS, _no_check),
    "definitions": SchemaKeyword(_ANY, shapes.NAMED_SCHEMAS, _no_check),
}  # fmt: skip

_LATER: Final[Mapping[str, SchemaKeyword]] = {
    "dependentRequired": SchemaKeyword(_OBJECT, shapes.NAMED_NAMES, _dependent),
    "dependentSchemas": SchemaKeyword(_OBJECT, shapes.NAMED_SCHEMAS, _dependent),
    "unevaluatedItems": SchemaKeyword(_ARRAY, shapes.SCHEMA, _unevaluated_items),
    "unevaluatedProperties": SchemaKeyword(_OBJECT, shapes.SCHEMA, _unevaluated_properties),
    "minContains": SchemaKeyword(_ARRAY, shapes.COUNT, _no_check),
    "maxContains": SchemaKeyword(_ARRAY, shapes.COUNT, _no_check),
}  # fmt: skip
_NEWEST: Final[Mapping[str, SchemaKeyword]] = {
    **_LATER,
    "items": SchemaKeyword(_ARRAY, shapes.SCHEMA, _items),
    "prefixItems": SchemaKeyword(_ARRAY, shapes.SCHEMAS, _listed_items),
    "$dynamicRef": SchemaKeyword(_ANY, shapes.TEXT, _reference),
}
_OLDER: Final[Mapping[str, SchemaKeyword]] = {
    "items": SchemaKeyword(_ARRAY, shapes.SCHEMA_OR_SCHEMAS, _items),
    "additionalItems": SchemaKeyword(_ARRAY, shapes.SCHEMA, _additional_items),
}
KEYWORDS: Final[Mapping[str, Mapping[str, SchemaKeyword]]] = {
    "2020-12": {**_KEYWORDS, **_NEWEST},
    "2019-09": {**_KEYWORDS, **_LATER, **_OLDER, "$recursiveRef": SchemaKeyword(_ANY, shapes.TEXT, _reference)},
    "draft-07": {**_KEYWORDS, **_OLDER, "dependencies": SchemaKeyword(_OBJECT, shapes.DEPENDENCIES, _dependent)},
    "own": {**_KEYWORDS, **_NEWEST, "contentEncoding": SchemaKeyword(_TEXT, shapes.TEXT, _format)},
}
"""The keywords of each dialect. "own" is for schemas made from hints."""


# --- One string for all values that are equal in JSON Schema: 1 and 1.0 are, 1 and true are not.
# Sets and dicts of a peer's values use these strings as keys. Python's hash of a number is its remainder by 2**61 - 1, so numbers can be chosen that
# all collide, and looking up one of n would take n comparisons. The hash of a string is keyed with a secret.


def canonical_text(value: Any, meter: StepMeter) -> str:
    """The canonical string of a value. Raises `StepsExceeded`."""
    if isinstance(value, str):
        meter.spend(1 + (len(value) >> 10))
        return f"{len(value)}:{value}"
    parts: list[str] = []
    _write_canonical(value, parts.append, meter)
    return "".join(parts)


def _write_canonical(value: Any, put: Callable[[str], None], meter: StepMeter) -> None:
    meter.left -= 2
    if meter.left < 0:
        meter.refill_or_raise()
    if isinstance(value, str):
        meter.left -= len(value) >> 10
        put(f"{len(value)}:{value}")
    elif value is None or isinstance(value, bool):
        put(str(value))
    elif isinstance(value, int):
        put(f"{value:x},")
    elif isinstance(value, float):
        put(f"{int(value):x}," if value.is_integer() else f"{value.hex()},")
    elif is_array(value):
        put("[")
        for one in value:
            _write_canonical(one, put, meter)
        put("]")
    elif is_object(value):
        meter.spend(len(value))
        put("{")
        for name in sorted(value):
            meter.left -= len(name) >> 10
            put(f"{len(name)}:{name}")
            _write_canonical(value[name], put, meter)
        put("}")
    else:  # no JSON, which only local values contain: equal to nothing else
        put(f"<{id(value)}>")
