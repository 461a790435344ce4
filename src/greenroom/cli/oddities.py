"""What is odd about what a server says of itself: names that providers refuse, schemas that are none, descriptions that hide something. Pure.

Each is a line for whoever wrote the server, or thinks of trusting it. `wrong` breaks clients; `odd` is worth a look; `sly` may be meant to steer a model.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from greenroom.protocol.wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Degree: TypeAlias = Literal["wrong", "odd", "sly"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_EVERYWHERE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")
_LONGEST: Final = 4096
_SLY: Final = (
    (
        re.compile(
            r"(?i)\b(ignore|disregard|forget)\b.{0,30}\b(previous|prior|above|other|all)\b.{0,20}\b(instruction|prompt|rule|tool)"
        ),
        "tells to ignore other instructions",
    ),
    (
        re.compile(
            r"(?i)\b(do not|don't|never)\b.{0,20}\b(tell|mention|show|reveal|inform)\b.{0,20}\b(user|anyone|human)"
        ),
        "asks to keep something from the user",
    ),
    (re.compile(r"(?i)<\s*(important|system|secret|hidden|instructions?)\s*>"), "has a tag as of a system's prompt"),
    (
        re.compile(r"(?i)(\.ssh/|id_rsa|\.env\b|/etc/passwd|\.aws/credentials|mcp\.json)"),
        "names a file with secrets in it",
    ),
    (
        re.compile(
            r"(?i)\b(instead of|before|whenever)\b.{0,20}\b(using|calling)\b.{0,20}\b(any|another|other)\b.{0,10}\btools?\b"
        ),
        "wants a say in how other tools are used",
    ),
)


class Oddity(NamedTuple):
    """One thing."""

    degree: Degree
    where: str
    """`tool forecast`, `resource note://x`."""
    what: str

    def __str__(self) -> str:
        return f"{self.degree}: {self.where}: {self.what}"


def oddities(lists: Mapping[str, Sequence[Any]], instructions: str | None = None) -> list[Oddity]:
    """All of them, in the order of the lists."""
    found = [Oddity("sly", "instructions", what) for what in _sly(instructions or "")]
    found += _twice(lists)
    for each in lists.get("tools", ()):
        found += _of_tool(each)
    for word, key in (("resources", "uri"), ("templates", "uriTemplate")):
        for each in lists.get(word, ()):
            found += _of_resource(word.removesuffix("s"), key, each)
    for each in lists.get("prompts", ()):
        found += _of_prompt(each)
    return found


def _twice(lists: Mapping[str, Sequence[Any]]) -> Iterator[Oddity]:
    keys = {"tools": "name", "resources": "uri", "templates": "uriTemplate", "prompts": "name"}
    for word, key in keys.items():
        counted = Counter(str(each.get(key)) for each in lists.get(word, ()) if is_object(each))
        for name, times in counted.items():
            if times > 1:
                yield Oddity(
                    "wrong",
                    f"{word.removesuffix('s')} {name}",
                    f"is there {times} times: nobody can say which is meant",
                )


def _of_tool(tool: Any) -> Iterator[Oddity]:
    where = f"tool {tool.get('name')}"
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield Oddity("wrong", where, "its name has to be 1 to 128 letters, digits, _, - and .")
    elif not _EVERYWHERE.fullmatch(name):
        yield Oddity("odd", where, "its name is not legal at every model provider: at most 64 letters, digits, _ and -")
    yield from _refused(where, tool)
    yield from _said(where, tool, needed=True)
    for key in ("inputSchema", "outputSchema"):
        if key in tool or key == "inputSchema":
            yield from _schema(where, key, tool.get(key))


def _refused(where: str, tool: Mapping[str, Any]) -> Iterator[Oddity]:
    """What makes a provider refuse the tool, and with it every request that has it; its name is looked at before that."""
    from greenroom.protocol.provider_rules import PROVIDERS, title_of  # noqa: PLC0415 - much to load
    from greenroom.protocol.tool_formats import refused_by  # noqa: PLC0415 - as above

    by_reason: dict[str, list[str]] = {}
    for provider in PROVIDERS:
        for why in refused_by(provider, {**tool, "name": "legal"}):
            by_reason.setdefault(why, []).append(title_of(provider))
    for why, titles in by_reason.items():
        yield Oddity("wrong", where, f"{' and '.join(titles)} refuses it, and every request that has it: {why}")


def _schema(where: str, key: str, schema: Any) -> Iterator[Oddity]:
    from greenroom.protocol.validation import BadSchema, check_schema  # noqa: PLC0415 - much to load

    if not is_object(schema):
        yield Oddity("wrong", where, f"its {key} is no object")
        return
    if schema.get("type") != "object":
        yield Oddity("wrong", where, f'its {key} has to say "type": "object"')
    try:
        check_schema(schema)
    except BadSchema as error:
        yield Oddity("wrong", where, f"its {key} is no JSON Schema: {error}")
        return
    properties = schema.get("properties")
    if key != "inputSchema" or not is_object(properties):
        return
    bare = [name for name, one in properties.items() if is_object(one) and not one.get("description")]
    if bare and len(properties) > 1:
        yield Oddity("odd", where, f"a model is told nothing of {', '.join(bare)}: describe them")
    for name, one in properties.items():
        for what in _sly(str(one.get("description") or "")) if is_object(one) else ():
            yield Oddity("sly", f"{where}, argument {name}", what)
    required = schema.get("required")
    names: Sequence[Any] = required if is_array(required) else ()
    strange = [str(name) for name in names if not isinstance(name, str) or name not in properties]
    if strange:
        yield Oddity("wrong", where, f"it requires what it does not have: {', '.join(strange)}")


def _of_resource(word: str, key: str, one: Any) -> Iterator[Oddity]:
    where = f"{word} {one.get(key)}"
    uri = one.get(key)
    if not isinstance(uri, str) or not _URI.fullmatch(uri.replace("{", "").replace("}", "")):
        yield Oddity("wrong", where, f"its {key} is no URI")
    if not one.get("name"):
        yield Oddity("wrong", where, "it has no name")
    yield from _said(where, one, needed=False)


def _of_prompt(one: Any) -> Iterator[Oddity]:
    where = f"prompt {one.get('name')}"
    if not one.get("name"):
        yield Oddity("wrong", where, "it has no name")
    yield from _said(where, one, needed=True)
    asked: Any = one.get("arguments")
    for argument in asked if is_array(asked) else ():
        if is_object(argument) and not argument.get("description"):
            yield Oddity("odd", where, f"nobody is told what {argument.get('name')} is: describe it")


def _said(where: str, one: Mapping[str, Any], *, needed: bool) -> Iterator[Oddity]:
    text = str(one.get("description") or "")
    if needed and not text.strip():
        yield Oddity("odd", where, "it has no description: a model has to guess what it does")
    if len(text) > _LONGEST:
        yield Oddity("odd", where, f"its description has {len(text)} characters: a model reads all of them, each time")
    for what in _sly(f"{one.get('title') or ''}\n{text}"):
        yield Oddity("sly", where, what)


def _sly(text: str) -> Iterator[str]:
    hidden = {
        unicodedata.name(each, hex(ord(each))) for each in text if unicodedata.category(each) in ("Cf", "Co", "Cn")
    }
    hidden |= {hex(ord(each)) for each in text if unicodedata.category(each) == "Cc" and each not in "\n\t\r"}
    if hidden:
        yield f"it has characters that nobody sees: {', '.join(sorted(hidden)[:3])}"
    for pattern, what in _SLY:
        if pattern.search(text):
            yield f"it {what}"
