"""Model providers' rules for tools: what they refuse, and names and schemas that they accept.

A provider refuses a whole request, with all its tools, for one tool that breaks its rules. Names are made legal (`provider_name`), and what stands
at the root of a schema is folded (`provider_schema`). `refusals` names what is left, so that such a tool can be left out and its author told.
A rule is here if the provider documents it, or answers it with status 400. The schemas of the providers' strict modes are not covered.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from greenroom.errors import GreenroomError

from .serialization import is_array, is_object, to_jsonable
from .validation_errors import StepMeter, StepsExceeded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Provider: TypeAlias = Literal["anthropic", "openai", "gemini"]
PROVIDERS: Final[tuple[Provider, ...]] = get_args(Provider)


class _Rules(NamedTuple):
    """The rules of one provider."""

    title: str
    name: re.Pattern[str]
    names: str
    properties: re.Pattern[str] | None
    keys: str
    description: int | None
    every_list_has_items: bool


_RULES: Final[Mapping[Provider, _Rules]] = {
    "anthropic": _Rules(
        "Anthropic",
        re.compile(r"[a-zA-Z0-9_-]{1,128}"),
        "1 to 128 letters, digits, _ and -",
        re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
        "1 to 64 letters, digits, _, . and -",
        None,
        every_list_has_items=False,
    ),
    "openai": _Rules(
        "OpenAI",
        re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        "1 to 64 letters, digits, _ and -",
        None,
        "",
        1024,
        every_list_has_items=True,
    ),
    "gemini": _Rules(
        "Gemini",
        re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"),
        "1 to 64 letters, digits, _, . and -, of which the first is a letter or _",
        re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
        "1 to 64 letters, digits and _, of which the first is no digit",
        None,
        every_list_has_items=False,
    ),
}
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_SHOWN: Final = 3
_DEEPEST: Final = 64


def title_of(provider: Provider) -> str:
    """The provider's name for messages."""
    return _RULES[provider].title


def refusals(provider: Provider, name: str, description: str, schema: Mapping[str, Any]) -> list[str]:
    """The reasons why this provider would refuse a tool; empty if it accepts it.

    `name` and `schema` are as they would be sent to the provider.
    """
    rules = _RULES[provider]
    found: list[str] = []
    if not rules.name.fullmatch(name):
        found.append(f"its name must be {rules.names}")
    if rules.description is not None and len(description) > rules.description:
        found.append(f"its description has {len(description)} characters, and may have {rules.description}")
    properties: Any = schema.get("properties")
    if rules.properties is not None and is_object(properties):
        wrong = [key for key in properties if not rules.properties.fullmatch(key)]
        if wrong:
            found.append(f"names of its arguments must be {rules.keys}: not {_some(wrong)}")
    if rules.every_list_has_items:
        try:
            bare = list(_lists_without_items(schema, "", StepMeter(), 0))
        except StepsExceeded:
            found.append("its schema is too large to check")
        else:
            if bare:
                found.append(f"lists in its schema must declare their items: missing at {_some(bare)}")
    return found


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _lists_without_items(schema: Any, where: str, meter: StepMeter, depth: int) -> Iterator[str]:
    """The places of lists without `items`."""
    if not is_object(schema) or depth > _DEEPEST:
        return
    meter.spend(5 + len(where) // 16)
    if schema.get("type") == "array" and not {"items", "prefixItems"} & schema.keys():
        yield where or "the arguments"
    for keyword in _MAPS:
        inner: Any = schema.get(keyword)
        if is_object(inner):
            for name, one in inner.items():
                yield from _lists_without_items(one, f"{where}.{name}" if where else name, meter, depth + 1)
    for keyword in _LISTS:
        branches: Any = schema.get(keyword)
        for one in branches if is_array(branches) else ():
            yield from _lists_without_items(one, where, meter, depth + 1)
    for keyword in _SINGLE:
        yield from _lists_without_items(schema.get(keyword), where, meter, depth + 1)


# --- Tool names for providers: letters, digits, `_` and `-`, at most 64, beginning with a letter or `_`.
# `git:log` becomes `git__log`, which is readable and can be reversed without a table. A name that does not fit (too long, other characters, a `__` of
# its own) is shortened and gets a digest: `server__tool__digest`. A name's result depends on that name alone, so it is stable between runs and
# whatever servers come and go; and since the three forms have one, two and three parts, a server cannot choose a name that reads as another tool's.
# The rule is the intersection of all: one provider documents `^[a-zA-Z0-9_-]{1,64}$` and accepts 128, another accepts 64 and no dot, a third wants a
# letter or an underscore first; the whole request is refused for one wrong name.

LONGEST: Final = 64
SHORTEST_LIMIT: Final = 32
"""Room for a digest and a readable part."""
_JOINT: Final = "__"
_DIGEST: Final = 10
_LEAST_OF_A_PART: Final = 8

_PART: Final = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_WHOLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_CLAUDE: Final = re.compile(r"[^A-Za-z0-9_-]")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9-]+")


class NameClash(GreenroomError):
    """Two tools would have the same name. `names` are both."""

    def __init__(self, shared: str, names: tuple[str, str]) -> None:
        """`shared` is the common name."""
        super().__init__(shared, names)
        self.shared = shared
        self.names = names

    def __str__(self) -> str:
        return f"{self.names[0]} and {self.names[1]} would both be called {self.shared!r}"


def claude_name(server: str, tool: str) -> str:
    """The name of a tool in Claude Code: `mcp__git__log`. It may be ambiguous, so it is only read, never written."""
    return f"mcp__{_CLAUDE.sub('_', server)}__{_CLAUDE.sub('_', tool)}"


def provider_name(name: str, separator: str = ":", longest: int = LONGEST) -> str:
    """The name of a tool for a provider. `name` may have a separator in it."""
    server, found, tool = name.partition(separator)
    parts = (server, tool) if found else (name,)
    plain = _JOINT.join(parts)
    if all(_PART.fullmatch(part) for part in parts) and _WHOLE.fullmatch(plain) and len(plain) <= longest:
        return plain
    return _shortened_name(parts if found else ("tool", name), name, longest)


def _shortened_name(parts: tuple[str, ...], name: str, longest: int) -> str:
    """Shortened parts, and the digest of the whole name."""
    head, tail = (_OTHERS.sub("_", part).strip("_") or "x" for part in parts)
    if not (head[0].isalpha() or head[0] == "_"):
        head = f"_{head}"
    room = longest - _DIGEST - 2 * len(_JOINT)
    head = head[: max(_LEAST_OF_A_PART, room - len(tail))].rstrip("_")
    tail = tail[: room - len(head)].rstrip("_") or "x"
    digest = b32encode(sha256(name.encode("utf-8", "surrogatepass")).digest()).decode().lower()[:_DIGEST]
    return _JOINT.join((head, tail, digest))


class ProviderNames:
    """The provider names of a catalogue, in both directions."""

    def __init__(self, names: Iterable[str], separator: str = ":", longest: int = LONGEST) -> None:
        """Raises `NameClash` if two names would be equal: with digests of fifty bits that takes an attacker's effort."""
        if longest < SHORTEST_LIMIT:
            raise ValueError(f"longest is {SHORTEST_LIMIT} or more, not {longest}")
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in names:
            short = provider_name(name, separator, longest)
            other = self._back.setdefault(short, name)
            if other != name:
                raise NameClash(short, (other, name))
            self._there[name] = short

    def of(self, name: str) -> str:
        """The provider's name of a tool. Raises `KeyError` for a name that is not in the catalogue."""
        return self._there[name]

    def back(self, name: str) -> str | None:
        """The tool that a provider's name means; None if there is none."""
        return self._back.get(name)

    def __iter__(self) -> Iterator[str]:
        """The providers' names."""
        return iter(self._back)

    def __len__(self) -> int:
        return len(self._back)


# --- Input schemas for providers, which do not accept every JSON Schema.
# The root must be an object, without `oneOf`, `anyOf`, `allOf`, `enum`, `const` and `not`; for one such tool the whole request is refused. Their
# content is folded into the root: every property of any branch is allowed, and properties that all branches require are required. So a model may be
# offered more than the tool accepts; before it is sent, a call is checked against the tool's own schema, and the model gets the error.

_EITHER: Final = ("oneOf", "anyOf")
_REFUSED: Final = frozenset({"oneOf", "anyOf", "allOf", "enum", "const", "not"})
_NOTHING: Final[Mapping[str, Any]] = {}
_PROVIDER_SCHEMAS_DEEPEST: Final = 8


def provider_schema(schema: Any) -> dict[str, Any]:
    """A tool's input schema for any provider. A schema that all providers accept is returned as it is."""
    if not is_object(schema):
        return {"type": "object"}
    if schema.get("type") == "object" and _REFUSED.isdisjoint(schema):
        return dict(to_jsonable(schema))
    folded: dict[str, Any] = {name: to_jsonable(value) for name, value in schema.items() if name not in _REFUSED}
    folded["type"] = "object"
    try:
        properties, required = _folded_schema(schema, schema, 0, StepMeter())
    except StepsExceeded:  # branches that refer to each other multiply at each level
        properties, required = {}, []
    if properties:
        folded["properties"] = {name: to_jsonable(one) for name, one in properties.items()}
    folded.pop("required", None)
    if required:
        folded["required"] = required
    if properties and folded.get("additionalProperties") is not False:
        folded.pop("additionalProperties", None)
    return folded


def _folded_schema(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, meter: StepMeter
) -> tuple[dict[str, Any], list[str]]:
    """All properties of a schema and its branches, and those that every branch requires."""
    meter.spend(10)
    own = schema.get("properties")
    properties: dict[str, Any] = dict(own) if is_object(own) else {}
    wanted = schema.get("required")
    required: list[str] = [name for name in wanted if isinstance(name, str)] if is_array(wanted) else []
    if depth < _PROVIDER_SCHEMAS_DEEPEST:
        for branch in _branches(schema, "allOf", root):
            more, needed = _folded_schema(branch, root, depth + 1, meter)
            _merge_properties(properties, more, meter)
            required += needed
        for keyword in _EITHER:
            choices = [_folded_schema(branch, root, depth + 1, meter) for branch in _branches(schema, keyword, root)]
            for more, _ in choices:
                _merge_properties(properties, more, meter)
            if choices:
                required += [name for name in choices[0][1] if all(name in needed for _, needed in choices)]
    return properties, [name for name in dict.fromkeys(required) if name in properties]


def _merge_properties(properties: dict[str, Any], more: Mapping[str, Any], meter: StepMeter) -> None:
    """Merge properties; a property that differs between two branches may match either."""
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
        seen = _dereferenced(branch, root)
        if is_object(seen):
            yield seen


def _dereferenced(branch: Any, root: Mapping[str, Any]) -> Any:
    """The schema, or the target of its `$ref`, if that is in the usual place."""
    reference = branch.get("$ref") if is_object(branch) else None
    if not isinstance(reference, str):
        return branch
    head, _, name = reference.rpartition("/")
    place = root.get(head.removeprefix("#/"), _NOTHING) if head in ("#/$defs", "#/definitions") else _NOTHING
    return place.get(name) if is_object(place) else None
