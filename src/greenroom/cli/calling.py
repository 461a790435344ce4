"""``greenroom call``: one call of a tool, from words on a line to what it answered.

`key=value` is text, unless the tool's own schema says number, boolean, list or object there; `key:=value` is JSON whatever it says.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from base64 import b64decode
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.wire import is_array, is_object

from .asking import asked
from .door import echo, is_terminal, styled
from .endings import FAILED, FINE, Ended, Misused, harmless, visible, within_project, write_file
from .showing import as_json, unlisted
from .targets import first, way

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from types import TracebackType

    from greenroom.client import ClientTools
    from greenroom.protocol.received import ToolReply

_TRUTH: Final = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def call(
    *,
    words: Sequence[str],
    args_json: str | None,
    save: Path | None,
    yes: bool,
    json: bool,
    command: Sequence[str] | None,
    **given: Any,
) -> int:
    """Call it; 1 when the tool says that it failed."""
    target, (tool, *rest) = first(words, command, "which tool")
    where = way(target, command, given)
    reply, code = asyncio.run(_called(where, tool, rest, args_json, yes=yes))
    if json:
        as_json(reply.raw or reply.to_wire())
    else:
        _show(reply, save)
    return code or (FAILED if reply.is_error else FINE)


async def _called(
    where: Any, tool: str, words: Sequence[str], args_json: str | None, *, yes: bool
) -> tuple[ToolReply, int]:
    with Progress() as bar:
        async with asked(where, yes=yes, aside=bar.aside) as (client, desk):
            schema: Mapping[str, Any] = {}
            if words:
                tools = {each.name: each for each in await client.list_tools()}
                if tool not in tools:
                    raise Misused(unlisted("tool", tool, tools))
                schema = tools[tool].input_schema
            arguments = from_json(args_json) if args_json is not None else from_words(words, schema)
            if args_json is not None and words:
                arguments |= from_words(words, schema)
            called = client.within(None).call_tool(tool, arguments, on_progress=bar.step)
            try:
                reply: ToolReply = await desk.patiently(client.times.tool, "tools/call", called)
            except PeerError as error:
                if not words and error.code == ErrorCode.INVALID_PARAMS:
                    await _is_there(client, tool)
                raise
            return reply, desk.code


async def _is_there(client: ClientTools, tool: str) -> None:
    """Raises `Misused` for a tool that the server does not list. One that lists none is not asked twice."""
    try:
        tools = {each.name: each for each in await client.list_tools()}
    except PeerError:
        return
    if tool not in tools:
        raise Misused(unlisted("tool", tool, tools)) from None


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


# --- A bar on stderr for a call that takes its time; only where somebody sees it, and gone before anything else is written.

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Somebody else has the screen: it is taken away, and does not come back before they are done."""
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
    """`███░░░  50 %`, or how much where nobody knows of how much."""
    if not total or total <= 0:
        return f"… {done:g}"
    share = max(0.0, min(1.0, done / total))
    full = round(share * _WIDTH)
    return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}"
