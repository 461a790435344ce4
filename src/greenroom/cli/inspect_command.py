"""``greenroom inspect`` and ``greenroom list``: what a server declares, what is odd about it, and what has changed since it was saved."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from greenroom.actors.federation.offering import LISTS, PARTS
from greenroom.protocol.serialization import is_array, is_object

from .click_app import echo, styled
from .command_output import arguments_text, first_line, print_entry, print_heading, print_json
from .exit_codes import FAILED, OK, CommandFailed, UsageError, visible, write_file
from .target_client import connected, target_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from greenroom.client import Client

_COLOURS = {"wrong": "bad", "odd": "odd", "sly": "bad"}


def inspect(
    *,
    target: str | None,
    save: Path | None,
    against: Path | None,
    strict: bool,
    json: bool,
    command: Sequence[str] | None,
    **given: Any,
) -> int:
    """Show what the server declares. Exit code 1 with --strict if something is odd, and with --against if something has changed."""
    before = None if against is None else _read_saved(against)
    found = asyncio.run(_inspected(target_options(target, command, given)))
    if save is not None:
        write_file(save, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        echo(f"→ {save}", error=True)
    odd = oddities(found["lists"], found["instructions"], any_output=found["era"] == "modern")
    changed = [] if before is None else list(differences(before, found))
    if json:
        listed_oddities = [each._asdict() for each in odd]
        print_json({**found, "oddities": listed_oddities, **({} if before is None else {"changed": changed})})
    else:
        _print_inspection(found)
        for each in odd:
            echo(styled(visible(str(each)), _COLOURS[each.degree]))
        if not odd:
            echo(styled("nothing odd found", "good"))
        for line in changed:
            echo(styled(visible(f"changed: {line}"), "odd"))
        if before is not None and not changed:
            echo(styled(f"unchanged since {against} was saved", "good"))
    return FAILED if (strict and odd) or changed else OK


async def _inspected(where: Any) -> dict[str, Any]:
    async with connected(where, asks_anew=True) as client:
        lists = await every_list(client)
        welcome = client.welcome
        return {
            "server": dict(welcome.server_info),
            "protocol": welcome.version,
            "era": "modern" if welcome.is_stateless else "legacy",
            "evidence": welcome.evidence,
            "capabilities": dict(welcome.capabilities),
            "instructions": welcome.instructions,
            "lists": lists,
            "cached": [
                {
                    "method": each.method,
                    "param": each.param,
                    "scope": "public" if each.public else "private",
                    "seconds_left": round(each.seconds_left, 3),
                }
                for each in client.cached()
            ],
        }


def _read_saved(path: Path) -> Any:
    try:
        found: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not is_object(found) or not is_object(found.get("lists")):
        raise UsageError(f"{path} was not written by greenroom inspect --save")
    return found


def differences(before: Any, after: Any) -> Iterator[str]:
    """The differences between two saved results, as lines."""
    for word in ("server", "protocol", "capabilities", "instructions"):
        if before.get(word) != after.get(word):
            yield word
    for word, listed in LISTS.items():
        was = {str(each.get(listed.name)): each for each in before["lists"].get(word, ()) if is_object(each)}
        now = {str(each.get(listed.name)): each for each in after["lists"].get(word, ()) if is_object(each)}
        one = word.removesuffix("s")
        yield from (f"{one} {name} is gone" for name in was if name not in now)
        yield from (f"{one} {name} is new" for name in now if name not in was)
        for name, old in was.items():
            new = now.get(name, old)
            if new != old:
                parts = sorted(part for part in {*old, *new} if old.get(part) != new.get(part))
                yield f"{one} {name} has changed: {', '.join(parts)}"


def _print_inspection(found: dict[str, Any]) -> None:
    server = found["server"]
    print_heading(f"{server.get('title') or server.get('name')} {server.get('version', '')}")
    can = ", ".join(sorted(found["capabilities"])) or "no capabilities"
    extensions = found["capabilities"].get("extensions")
    lines = [f"speaks {found['protocol']} ({found['era']}): {found['evidence']}", f"capabilities: {can}"]
    if is_object(extensions) and extensions:
        lines.append(f"extensions: {', '.join(sorted(extensions))}")
    if found["era"] == "modern":
        lines.append(f"cached: {', '.join(map(_cached_text, found['cached'])) or 'nothing'}")
    for line in lines:
        echo(f"  {visible(line)}")
    if found["instructions"]:
        print_entry("instructions", notes=[str(found["instructions"])])
    for word, entries in found["lists"].items():
        for each in entries:
            name = each.get(LISTS[word].name)
            beside = arguments_text(each.get("inputSchema")) if word == "tools" else str(each.get("name") or "")
            summary = first_line(each.get("description"))
            print_entry(f"{word.removesuffix('s')} {name}", beside, [summary] if summary else [])


def _cached_text(each: Mapping[str, Any]) -> str:
    """A cached page or resource, for how many seconds more, and for which callers."""
    where = "" if each["param"] is None else f" at {each['param']!r}"
    return f"{each['method']}{where} for {each['seconds_left']:.0f} s ({each['scope']})"


# --- ``greenroom list``: the server's lists of tools, resources, templates and prompts.

_LONGEST: Final = 80


def show(*, target: str | None, only: Sequence[str], json: bool, command: Sequence[str] | None, **given: Any) -> None:
    """Print the lists."""
    where = target_options(target, command, given)
    lists = asyncio.run(_lists(where, only))
    if json:
        print_json(lists)
        return
    if not any(lists.values()):
        echo("the server lists none of these")
    for word, entries in lists.items():
        if entries:
            print_heading(f"{word} ({len(entries)})")
            for each in entries:
                _print_line(word, each)


async def _lists(where: Any, only: Sequence[str]) -> dict[str, list[Any]]:
    async with connected(where) as client:
        return await every_list(client, only)


async def every_list(client: Client, only: Sequence[str] = ()) -> dict[str, list[Any]]:
    """All pages of the lists, as JSON values; a list whose method the server does not support is empty."""
    from greenroom.actors.federation.offering import fetch_list  # noqa: PLC0415 - `--help` needs none

    found: dict[str, list[Any]] = {}
    for part in PARTS:
        if only and part not in only:
            continue
        found[part] = (await fetch_list(client.line, part, client.settings.max_pages)).entries
        if strange := [each for each in found[part] if not is_object(each)]:
            what = f"an entry that is not a {part.removesuffix('s')}: {visible(repr(strange[0]), _LONGEST)}"
            raise CommandFailed(FAILED, f"the server answered {LISTS[part].method} with {what}")
    return found


def _print_line(word: str, each: Mapping[str, Any]) -> None:
    name = str(each.get("uri") or each.get("uriTemplate") or each.get("name"))
    arguments: Any = each.get("arguments")
    beside = {
        "tools": arguments_text(each.get("inputSchema")),
        "prompts": ", ".join(
            f"{one.get('name')}{'' if one.get('required') else '?'}"
            for one in (arguments if is_array(arguments) else ())
            if is_object(one)
        ),
    }.get(word, str(each.get("name") or ""))
    summary = first_line(each.get("description") or each.get("title"))
    print_entry(name, beside, [summary] if summary else [])


# --- Oddities in a server's declarations: names that providers refuse, invalid schemas, descriptions with hidden content. Pure functions.
# Each oddity is a line for the server's author, or for a user who considers trusting the server. `wrong` breaks clients; `odd` deserves attention; `sly` may be an
# attempt to steer a model.

Severity: TypeAlias = Literal["wrong", "odd", "sly"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PORTABLE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")
_LONGEST_DESCRIPTION: Final = 4096
_SUSPICIOUS: Final = (
    (
        re.compile(
            r"(?i)\b(ignore|disregard|forget)\b.{0,30}\b(previous|prior|above|other|all)\b.{0,20}\b(instruction|prompt|rule|tool)"
        ),
        "tells the model to ignore other instructions",
    ),
    (
        re.compile(
            r"(?i)\b(do not|don't|never)\b.{0,20}\b(tell|mention|show|reveal|inform)\b.{0,20}\b(user|anyone|human)"
        ),
        "asks the model to hide something from the user",
    ),
    (
        re.compile(r"(?i)<\s*(important|system|secret|hidden|instructions?)\s*>"),
        "has a tag like one of a system prompt",
    ),
    (
        re.compile(r"(?i)(\.ssh/|id_rsa|\.env\b|/etc/passwd|\.aws/credentials|mcp\.json)"),
        "names a file that holds secrets",
    ),
    (
        re.compile(
            r"(?i)\b(instead of|before|whenever)\b.{0,20}\b(using|calling)\b.{0,20}\b(any|another|other)\b.{0,10}\btools?\b"
        ),
        "gives instructions about the use of other tools",
    ),
)


class Oddity(NamedTuple):
    """An oddity of one declaration."""

    degree: Severity
    where: str
    """The declaration: `tool forecast`, `resource note://x`."""
    what: str

    def __str__(self) -> str:
        return f"{self.degree}: {self.where}: {self.what}"


def oddities(
    lists: Mapping[str, Sequence[Any]], instructions: str | None = None, *, any_output: bool = False
) -> list[Oddity]:
    """All oddities, in the order of the lists. `any_output`: results may be of any type, as they may in the stateless era."""
    found = [Oddity("sly", "instructions", what) for what in _suspicious_phrases(instructions or "")]
    found += _duplicates(lists)
    for word, listed in LISTS.items():
        for each in lists.get(word, ()):
            where = f"{word.removesuffix('s')} {each.get(listed.name)}"
            if word == "tools":
                found += _tool_oddities(where, each, any_output=any_output)
            else:
                found += _entry_oddities(word, listed.name, where, each)
    return found


def _duplicates(lists: Mapping[str, Sequence[Any]]) -> Iterator[Oddity]:
    for word, listed in LISTS.items():
        counted = Counter(str(each.get(listed.name)) for each in lists.get(word, ()) if is_object(each))
        for name, times in counted.items():
            if times > 1:
                yield Oddity(
                    "wrong",
                    f"{word.removesuffix('s')} {name}",
                    f"is listed {times} times: a call by this name is ambiguous",
                )


def _tool_oddities(where: str, tool: Any, *, any_output: bool) -> Iterator[Oddity]:
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield Oddity("wrong", where, "its name must be 1 to 128 letters, digits, _, - and .")
    elif not _PORTABLE_NAME.fullmatch(name):
        yield Oddity("odd", where, "its name is not legal at every model provider: at most 64 letters, digits, _ and -")
    yield from _provider_refusals(where, tool)
    yield from _description_oddities(where, tool, needed=True)
    for key in ("inputSchema", "outputSchema"):
        if key in tool or key == "inputSchema":
            yield from _schema_oddities(where, key, tool.get(key), any_type=any_output and key == "outputSchema")


def _provider_refusals(where: str, tool: Mapping[str, Any]) -> Iterator[Oddity]:
    """Reasons for which a provider refuses the tool, and with it every request that contains the tool. The name is checked separately."""
    from greenroom.protocol.provider_rules import PROVIDERS, title_of  # noqa: PLC0415 - much to load
    from greenroom.protocol.tool_formats import refusal_reasons  # noqa: PLC0415 - as above

    by_reason: dict[str, list[str]] = {}
    for provider in PROVIDERS:
        for why in refusal_reasons(provider, {**tool, "name": "legal"}):
            by_reason.setdefault(why, []).append(title_of(provider))
    for why, titles in by_reason.items():
        yield Oddity("wrong", where, f"{' and '.join(titles)} refuses it, and every request that contains it: {why}")


def _schema_oddities(where: str, key: str, schema: Any, *, any_type: bool) -> Iterator[Oddity]:
    from greenroom.protocol.validation import BadSchema, check_schema  # noqa: PLC0415 - much to load

    if not is_object(schema):
        yield Oddity("wrong", where, f"its {key} is not an object")
        return
    if schema.get("type") != "object" and not any_type:
        yield Oddity("wrong", where, f'its {key} needs "type": "object"')
    try:
        check_schema(schema)
    except BadSchema as error:
        yield Oddity("wrong", where, f"its {key} is not a valid JSON Schema: {error}")
        return
    properties = schema.get("properties")
    if key != "inputSchema" or not is_object(properties):
        return
    bare = [name for name, one in properties.items() if is_object(one) and not one.get("description")]
    if bare and len(properties) > 1:
        yield Oddity("odd", where, f"no description for {', '.join(bare)}: add one for the model")
    for name, one in properties.items():
        for what in _suspicious_phrases(str(one.get("description") or "")) if is_object(one) else ():
            yield Oddity("sly", f"{where}, argument {name}", what)
    required = schema.get("required")
    names: Sequence[Any] = required if is_array(required) else ()
    strange = [str(name) for name in names if not isinstance(name, str) or name not in properties]
    if strange:
        yield Oddity("wrong", where, f"it requires properties that it does not define: {', '.join(strange)}")


def _entry_oddities(word: str, key: str, where: str, one: Any) -> Iterator[Oddity]:
    """Oddities of a resource, a template or a prompt."""
    uri, is_prompt = one.get(key), word == "prompts"
    if not is_prompt and (not isinstance(uri, str) or not _URI.fullmatch(uri.replace("{", "").replace("}", ""))):
        yield Oddity("wrong", where, f"its {key} is not a URI")
    if not one.get("name"):
        yield Oddity("wrong", where, "it has no name")
    yield from _description_oddities(where, one, needed=is_prompt)
    arguments: Any = one.get("arguments") if is_prompt else ()
    for argument in arguments if is_array(arguments) else ():
        if is_object(argument) and not argument.get("description"):
            yield Oddity("odd", where, f"the argument {argument.get('name')} has no description: add one")


def _description_oddities(where: str, one: Mapping[str, Any], *, needed: bool) -> Iterator[Oddity]:
    text = str(one.get("description") or "")
    if needed and not text.strip():
        yield Oddity("odd", where, "it has no description: a model has to guess its purpose")
    if len(text) > _LONGEST_DESCRIPTION:
        yield Oddity("odd", where, f"its description has {len(text)} characters, which a model reads in each request")
    for what in _suspicious_phrases(f"{one.get('title') or ''}\n{text}"):
        yield Oddity("sly", where, what)


def _suspicious_phrases(text: str) -> Iterator[str]:
    hidden = {
        unicodedata.name(each, hex(ord(each))) for each in text if unicodedata.category(each) in ("Cf", "Co", "Cn")
    }
    hidden |= {hex(ord(each)) for each in text if unicodedata.category(each) == "Cc" and each not in "\n\t\r"}
    if hidden:
        yield f"it has invisible characters: {', '.join(sorted(hidden)[:3])}"
    for pattern, what in _SUSPICIOUS:
        if pattern.search(text):
            yield f"it {what}"
