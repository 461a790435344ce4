"""``greenroom call``, ``read`` and ``prompt``: one request of a server, from words on a line to what it answered.

`key=value` is text, unless the tool's own schema says number, boolean, list or object there; `key:=value` is JSON whatever it says.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from base64 import b64decode
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.wire import is_array, is_object

from .asking import asked
from .door import echo, is_terminal, styled
from .endings import FAILED, FINE, Ended, Misused, harmless, visible, within_project, write_file
from .showing import as_json, heading, unlisted
from .targets import first, way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from greenroom.client import Client, ClientTools
    from greenroom.protocol.received import ResourceReply, ToolReply

    from .asking import Desk
    from .targets import Reached

    Request = Callable[[Reached, Desk, "Progress", str, Any], Awaitable[Any]]

_TRUTH: Final = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def _answered(
    words: Sequence[str],
    what: str,
    given: dict[str, Any],
    request: Request,
    *,
    parse: Callable[[list[str]], Any] = list,
    yes: bool = False,
) -> tuple[Any, int]:
    """What the server answers to a request of what was typed behind the target, and the exit code so far."""
    command = given.pop("command")
    target, (name, *rest) = first(words, command, what)
    where = way(target, command, given)
    said = parse(rest)

    async def answered() -> tuple[Any, int]:
        with Progress() as bar:
            async with asked(where, yes=yes, aside=bar.aside) as (client, desk):
                return await request(client, desk, bar, name, said), desk.code

    return asyncio.run(answered())


def call(*, words: Sequence[str], args_json: str | None, save: Path | None, yes: bool, json: bool, **given: Any) -> int:
    """Call it; 1 when the tool says that it failed."""

    async def request(client: Reached, desk: Desk, bar: Progress, tool: str, words: list[str]) -> Any:
        schema: Mapping[str, Any] = await _schema_of(client, tool) if words else {}
        arguments = from_json(args_json) if args_json is not None else {}
        arguments |= from_words(words, schema)
        called = client.within(None).call_tool(tool, arguments, on_progress=bar.step)
        try:
            return await desk.patiently(client.times.tool, "tools/call", called)
        except PeerError as error:
            if not words and error.code == ErrorCode.INVALID_PARAMS:
                with suppress(PeerError):  # a server that lists none is not asked twice
                    await _schema_of(client, tool)
            raise

    reply, code = _answered(words, "which tool", given, request, yes=yes)
    if json:
        as_json(reply.raw or reply.to_wire())
    else:
        _show(reply, save)
    return code or (FAILED if reply.is_error else FINE)


async def _schema_of(client: ClientTools, tool: str) -> Mapping[str, Any]:
    """What arguments it takes. Raises `Misused` for a tool that the server does not list."""
    tools = {each.name: each for each in await client.list_tools()}
    if tool not in tools:
        raise Misused(unlisted("tool", tool, tools)) from None
    return tools[tool].input_schema


def from_json(text: str) -> dict[str, Any]:
    """All arguments at once: JSON, `@file`, or `-` for stdin."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Misused(f"--args-json: {text[1:]}: {getattr(error, 'strerror', None) or error}") from None
    try:
        found: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Misused(f"--args-json is no JSON: {error}") from None
    if not is_object(found):
        raise Misused("--args-json is one JSON object, with a member for each argument")
    return dict(found)


def from_words(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """From `key=value` and `key:=json`."""
    properties: Any = schema.get("properties")
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip(":"):
            raise Misused(f"{word!r} is no argument: write key=value, or key:=JSON")
        raw = key.endswith(":")
        key = key.removesuffix(":")
        if key in found:
            raise Misused(f"{key} is there twice: for a list write {key}:='[…]'")
        of_one: Any = properties.get(key) if is_object(properties) else None
        found[key] = _parsed(key, value) if raw else typed(key, value, of_one if is_object(of_one) else {})
    return found


def typed(key: str, value: str, schema: Mapping[str, Any]) -> Any:
    """A value as its schema wants it. Raises `Misused`."""
    wanted = _types(schema)
    if "string" in wanted or not wanted:
        return value
    if "boolean" in wanted and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    try:
        found: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        if "array" in wanted:
            return [typed(key, part, _items(schema)) for part in value.split(",")]
        raise Misused(f"{key} is {' or '.join(sorted(wanted))}, not {value!r}") from None
    return found


def _items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is in a list, also where a list is one of several things that may be."""
    items: Any = schema.get("items")
    if is_object(items):
        return items
    parts: Any = schema.get("anyOf") or schema.get("oneOf")
    found = (_items(each) for each in (parts if is_array(parts) else ()) if is_object(each))
    return next((each for each in found if each), dict[str, Any]())


def _types(schema: Mapping[str, Any]) -> set[str]:
    said: Any = schema.get("type")
    if isinstance(said, str):
        return {said}
    if is_array(said):
        return {each for each in said if isinstance(each, str)}
    found: set[str] = set()
    for word in ("anyOf", "oneOf"):
        parts: Any = schema.get(word)
        for each in parts if is_array(parts) else ():
            if is_object(each):
                found |= _types(each) or {"string"}  # one that says nothing takes anything
    return found


def _parsed(key: str, value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise Misused(f"{key} is no JSON behind := ({error}): for text write {key}=…") from None


# --- what came of it


def _show(reply: ToolReply, save: Path | None) -> None:
    for number, block in enumerate(reply.to_wire()["content"], 1):
        echo(harmless(_block(block, number, save)))
    if not reply.content and reply.structured_content is not None:
        as_json(reply.structured_content)
    if reply.is_error and is_terminal():
        echo(styled("the tool says that this is an error", "bad"), error=True)


def _block(block: Mapping[str, Any], number: int, save: Path | None) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"→ {block.get('uri')}  {block.get('name', '')}"
        case "resource":
            inside: Any = block.get("resource")
            if is_object(inside) and isinstance(text := inside.get("text"), str):
                return text
            if is_object(inside) and isinstance(blob := inside.get("blob"), str):
                return _file(blob, str(inside.get("mimeType", "")), number, save)
            raise Ended(FAILED, f"the tool's answer has a resource in it that has neither text nor blob: {inside!r}")
        case _:
            return _file(str(block.get("data", "")), str(block.get("mimeType", "")), number, save)


def _file(data: str, kind: str, number: int, save: Path | None) -> str:
    try:
        content = b64decode("".join(data.split()), validate=True)
    except ValueError as error:
        raise Ended(FAILED, f"the tool's answer has {kind or 'data'} in it that is no base64: {error}") from None
    if save is None:
        return f"[{kind or 'data'}, {len(content)} bytes: --save FOLDER writes it down]"
    within_project(save).mkdir(parents=True, exist_ok=True)
    ending = kind.partition("/")[2].partition("+")[0].partition(";")[0]
    path = save / f"{number}.{ending if ending.isalnum() else 'bin'}"
    write_file(path, content)
    return f"→ {path} ({kind or 'data'}, {len(content)} bytes)"


# --- ``greenroom read`` and ``greenroom prompt``: a resource's content, and a prompt as the server fills it in.


def read(*, words: Sequence[str], save: Path | None, json: bool, **given: Any) -> int:
    """Read it."""

    async def request(client: Reached, desk: Desk, _bar: Progress, resource: str, words: list[str]) -> Any:
        read = client.within(None).read_resource(await _uri(client, resource, words))
        return await desk.patiently(client.settings.request_timeout, "resources/read", read)

    reply, code = _answered(words, "which resource", given, request)
    if json:
        as_json(reply.raw)
    elif save is not None:
        _save(reply, save)
    else:
        for one in reply.contents:
            data = f"[{visible(one.uri)}: {len(one.blob or b'')} bytes: --save writes them]"
            echo(harmless(one.text) if one.text is not None else styled(data, "dim"))
    return code


async def _uri(client: Client, resource: str, words: Sequence[str]) -> str:
    """The URI: given as one, or a resource's name, or a template's with its words."""
    from greenroom.actors.mentions.reader import expand  # noqa: PLC0415 - not for help

    if "://" in resource and "{" not in resource and not words:
        return resource
    for template in await client.list_resource_templates():
        if resource in (template.name, template.title, template.uri_template):
            return expand(template.uri_template, _in_order(template.uri_template, words))
    if words:
        raise Misused(f"{resource!r} is no template, and takes no words")
    there = await client.list_resources()
    for each in there:
        if resource in (each.name, each.title, each.uri):
            return each.uri
    if ":" in resource:
        return resource  # a URI that is not listed: the server knows it or not
    names = [each.name for each in there] + [each.name for each in await client.list_resource_templates()]
    raise Misused(unlisted("resource", resource, names))


def _in_order(template: str, words: Sequence[str]) -> list[str]:
    """The words in the order of the template's places, where all were typed as `name=value` with its names."""
    from greenroom.actors.mentions.reader import placeholders  # noqa: PLC0415 - not for help

    names = placeholders(template)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if len(given) < len(words) or not given.keys() <= set(names):
        return list(words)  # a value may have an = in it
    missing = [name for name in names if name not in given]
    if missing:
        raise Misused(f"{template} wants {', '.join(f'{name}=…' for name in missing)} as well")
    return [given[name] for name in names]


def _save(reply: ResourceReply, path: Path) -> None:
    data = b"".join(one.text.encode() if one.text is not None else (one.blob or b"") for one in reply.contents)
    if str(path) == "-":
        if sys.stdout.isatty():
            echo(harmless(data.decode(errors="replace")), newline=False)
        else:
            sys.stdout.buffer.write(data)
        return
    write_file(path, data)
    echo(f"→ {path} ({len(data)} bytes)", error=True)


def prompt(*, words: Sequence[str], json: bool, **given: Any) -> int:
    """Get it."""

    async def request(client: Reached, desk: Desk, _bar: Progress, name: str, arguments: dict[str, str]) -> Any:
        got = client.within(None).get_prompt(name, arguments)
        try:
            return await desk.patiently(client.settings.request_timeout, "prompts/get", got)
        except PeerError as error:
            if error.code == ErrorCode.INVALID_PARAMS:
                await _is_there(client, name, arguments)
            raise

    reply, code = _answered(words, "which prompt", given, request, parse=lambda rest: dict(map(_pair, rest)))
    if json:
        as_json(reply.raw)
        return code
    for message in reply.raw.get("messages", ()):
        heading(str(message.get("role")))
        content = message.get("content")
        for block in content if is_array(content) else [content]:
            text = block.get("type") == "text"
            echo(harmless(str(block.get("text"))) if text else styled(visible(f"[{block.get('type')}]"), "dim"))
    return code


async def _is_there(client: Client, name: str, arguments: Mapping[str, str]) -> None:
    """Raises `Misused` for a prompt that the server does not list, and for arguments that it does not take or lacks."""
    try:
        prompts = {each.name: each for each in await client.list_prompts()}
    except PeerError:
        return
    if name not in prompts:
        raise Misused(unlisted("prompt", name, prompts)) from None
    known = {each.name: each for each in prompts[name].arguments}
    if strange := [each for each in arguments if each not in known]:
        there = ", ".join(map(visible, known)) or "none"
        raise Misused(f"{name} has no argument {strange[0]!r}; it has {there}") from None
    if missing := [each.name for each in known.values() if each.required and each.name not in arguments]:
        raise Misused(f"{name} wants {', '.join(f'{visible(each)}=…' for each in missing)}") from None


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise Misused(f"{word!r} is no argument: write key=value")
    return key, value


# --- A bar on stderr for a call that takes its time; only where a user sees it, and gone before anything else is written.

_WIDTH: Final = 30
_LONGEST: Final = 200


class Progress:
    """One line that is written over and over."""

    def __init__(self) -> None:
        """Nothing is shown before the first step."""
        self._shown = sys.stderr.isatty()
        self._written = False
        self._aside = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def step(self, step: Any) -> None:
        """How far it is."""
        if not self._shown or self._aside:
            return
        line = f"{bar(step.progress, step.total)} {visible(str(step.message or ''), _LONGEST)}".rstrip()
        line = line[: shutil.get_terminal_size((80, 24)).columns - 1]  # of a second row nothing would be taken away
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._written = True

    @contextmanager
    def aside(self) -> Generator[None]:
        """Other code has the screen: the bar is taken away, and does not come back before that is done."""
        self.pause()
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1

    def pause(self) -> None:
        """Take it away."""
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False


def bar(done: float, total: float | None) -> str:
    """`███░░░  50 %`, or how much where the total is not known."""
    if not total or total <= 0:
        return f"… {done:g}"
    share = max(0.0, min(1.0, done / total))
    full = round(share * _WIDTH)
    return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}"
