"""What models' providers refuse of a tool: each refuses the whole request, with all the other tools in it.

Names are made legal elsewhere (`provider_names`), and what stands at the root of a schema is folded (`provider_schemas`). What is left is
named here, so that such a tool can be left out, and whoever wrote it can be told. A rule is here if the provider documents it, or answers it with
status 400; the schemas that each provider's strict mode takes are not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from .meter import Meter, TooMuch
from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Provider: TypeAlias = Literal["anthropic", "openai", "gemini"]
PROVIDERS: Final[tuple[Provider, ...]] = get_args(Provider)


class _Rules(NamedTuple):
    """Of one provider."""

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
    """What the provider is called."""
    return _RULES[provider].title


def refusals(provider: Provider, name: str, description: str, schema: Mapping[str, Any]) -> list[str]:
    """Why this provider refuses a tool, one thing after the other; empty when it takes it.

    `name` and `schema` are as the provider would be given them.
    """
    rules = _RULES[provider]
    found: list[str] = []
    if not rules.name.fullmatch(name):
        found.append(f"its name has to be {rules.names}")
    if rules.description is not None and len(description) > rules.description:
        found.append(f"its description has {len(description)} characters, and may have {rules.description}")
    properties: Any = schema.get("properties")
    if rules.properties is not None and is_object(properties):
        wrong = [key for key in properties if not rules.properties.fullmatch(key)]
        if wrong:
            found.append(f"names of its arguments have to be {rules.keys}: not {_some(wrong)}")
    if rules.every_list_has_items:
        try:
            bare = list(_bare_lists(schema, "", Meter(), 0))
        except TooMuch:
            found.append("its schema is too large to be looked at")
        else:
            if bare:
                found.append(f"lists in its schema have to say what their items are: not so {_some(bare)}")
    return found


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _bare_lists(schema: Any, where: str, meter: Meter, depth: int) -> Iterator[str]:
    """Where a list is that does not say what is in it."""
    if not is_object(schema) or depth > _DEEPEST:
        return
    meter.spend(5 + len(where) // 16)
    if schema.get("type") == "array" and not {"items", "prefixItems"} & schema.keys():
        yield where or "the arguments"
    for keyword in _MAPS:
        inner: Any = schema.get(keyword)
        if is_object(inner):
            for name, one in inner.items():
                yield from _bare_lists(one, f"{where}.{name}" if where else name, meter, depth + 1)
    for keyword in _LISTS:
        branches: Any = schema.get(keyword)
        for one in branches if is_array(branches) else ():
            yield from _bare_lists(one, where, meter, depth + 1)
    for keyword in _SINGLE:
        yield from _bare_lists(schema.get(keyword), where, meter, depth + 1)
