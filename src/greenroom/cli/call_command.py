"""``greenroom call``, ``read`` and ``prompt``: one request to a server, from the typed words to the printed answer.

`key=value` is text, unless the tool's schema has a number, boolean, list or object there; `key:=value` is JSON in any case.
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
from greenroom.protocol.serialization import is_array, is_object

from .click_app import echo, is_terminal, styled
from .command_output import print_heading, print_json, unlisted_text
from .exit_codes import FAILED, OK, CommandFailed, UsageError, terminal_safe, visible, within_project, write_file
from .target_client import split_target, target_options
from .terminal_prompts import connected_with_prompts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from greenroom.client import Client, ClientTools
    from greenroom.protocol.received_results import ResourceReply, ToolReply

    from .target_client import TargetClient
    from .terminal_prompts import TerminalPrompts

    CommandRequest = Callable[[TargetClient, TerminalPrompts, "ProgressBar", str, Any], Awaitable[Any]]

_TRUTH: Final = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}


def _run_request(
    words: Sequence[str],
    what: str,
    given: dict[str, Any],
    request: CommandRequest,
    *,
    parse: Callable[[list[str]], Any] = list,
    yes: bool = False,
) -> tuple[Any, int]:
    """Send the request that the words behind the target name; the answer, and the exit code of the questions that the server asked."""
    command = given.pop("command")
    target, (name, *rest) = split_target(words, command, what)
    where = target_options(target, command, given)
    parsed_words = parse(rest)

    async def answered() -> tuple[Any, int]:
        with ProgressBar() as bar:
            async with connected_with_prompts(where, yes=yes, aside=bar.aside) as (client, prompts):
                return await request(client, prompts, bar, name, parsed_words), prompts.exit_code

    return asyncio.run(answered())


def call(*, words: Sequence[str], args_json: str | None, save: Path | None, yes: bool, json: bool, **given: Any) -> int:
    """Call a tool; exit code 1 if the result is an error."""

    async def request(
        client: TargetClient, prompts: TerminalPrompts, bar: ProgressBar, tool: str, words: list[str]
    ) -> Any:
        schema: Mapping[str, Any] = await _schema_of(client, tool) if words else {}
        arguments = arguments_from_json(args_json) if args_json is not None else {}
        arguments |= arguments_from_words(words, schema)
        called = client.within(None).call_tool(tool, arguments, on_progress=bar.step)
        try:
            return await prompts.within_patience(client.times.tool, "tools/call", called)
        except PeerError as error:
            if not words and error.code == ErrorCode.INVALID_PARAMS:
                with suppress(PeerError):  # a server that cannot list tools keeps its own error
                    await _schema_of(client, tool)
            raise

    reply, code = _run_request(words, "a tool", given, request, yes=yes)
    if json:
        print_json(reply.raw or reply.to_wire())
    else:
        _print_reply(reply, save)
    return code or (FAILED if reply.is_error else OK)


async def _schema_of(client: ClientTools, tool: str) -> Mapping[str, Any]:
    """The schema of a tool's arguments. Raises `UsageError` for a tool that the server does not list."""
    tools = {each.name: each for each in await client.list_tools()}
    if tool not in tools:
        raise UsageError(unlisted_text("tool", tool, tools)) from None
    return tools[tool].input_schema


def arguments_from_json(text: str) -> dict[str, Any]:
    """The arguments from --args-json: JSON, `@file`, or `-` for stdin."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--args-json: {text[1:]}: {getattr(error, 'strerror', None) or error}") from None
    try:
        found: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"--args-json is not JSON: {error}") from None
    if not is_object(found):
        raise UsageError("--args-json has to be a JSON object with a member for each argument")
    return dict(found)


def arguments_from_words(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments from `key=value` and `key:=json`."""
    properties: Any = schema.get("properties")
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip(":"):
            raise UsageError(f"{word!r} is not an argument: write key=value, or key:=JSON")
        raw = key.endswith(":")
        key = key.removesuffix(":")
        if key in found:
            raise UsageError(f"{key} is given twice: for a list write {key}:='[…]'")
        of_one: Any = properties.get(key) if is_object(properties) else None
        found[key] = _json_value(key, value) if raw else typed_value(key, value, of_one if is_object(of_one) else {})
    return found


def typed_value(key: str, value: str, schema: Mapping[str, Any]) -> Any:
    """A typed value converted to the type in its schema. Raises `UsageError`."""
    wanted = _schema_types(schema)
    if "string" in wanted or not wanted:
        return value
    if "boolean" in wanted and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    try:
        found: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        if "array" in wanted:
            return [typed_value(key, part, _item_schema(schema)) for part in value.split(",")]
        raise UsageError(f"argument {key} must be of type {' or '.join(sorted(wanted))}, not {value!r}") from None
    return found


def _item_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a list's items, also if the list is one alternative of an anyOf or oneOf."""
    items: Any = schema.get("items")
    if is_object(items):
        return items
    parts: Any = schema.get("anyOf") or schema.get("oneOf")
    found = (_item_schema(each) for each in (parts if is_array(parts) else ()) if is_object(each))
    return next((each for each in found if each), dict[str, Any]())


def _schema_types(schema: Mapping[str, Any]) -> set[str]:
    types: Any = schema.get("type")
    if isinstance(types, str):
        return {types}
    if is_array(types):
        return {each for each in types if isinstance(each, str)}
    found: set[str] = set()
    for word in ("anyOf", "oneOf"):
        parts: Any = schema.get(word)
        for each in parts if is_array(parts) else ():
            if is_object(each):
                found |= _schema_types(each) or {"string"}  # a schema without a type accepts text
    return found


def _json_value(key: str, value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise UsageError(f"the value of {key} after := is not JSON ({error}): for text write {key}=…") from None


# --- Output of the answer.


def _print_reply(reply: ToolReply, save: Path | None) -> None:
    for number, block in enumerate(reply.to_wire()["content"], 1):
        echo(terminal_safe(_block_text(block, number, save)))
    if not reply.content and reply.structured_content is not None:
        print_json(reply.structured_content)
    if reply.is_error and is_terminal():
        echo(styled("the tool reports an error", "bad"), error=True)


def _block_text(block: Mapping[str, Any], number: int, save: Path | None) -> str:
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
                return _file_text(blob, str(inside.get("mimeType", "")), number, save)
            raise CommandFailed(FAILED, f"the tool's answer has a resource with neither text nor blob: {inside!r}")
        case _:
            return _file_text(str(block.get("data", "")), str(block.get("mimeType", "")), number, save)


def _file_text(data: str, kind: str, number: int, save: Path | None) -> str:
    try:
        content = b64decode("".join(data.split()), validate=True)
    except ValueError as error:
        raise CommandFailed(FAILED, f"the tool's answer has {kind or 'data'} that is not base64: {error}") from None
    if save is None:
        return f"[{kind or 'data'}, {len(content)} bytes: --save FOLDER saves it]"
    within_project(save).mkdir(parents=True, exist_ok=True)
    ending = kind.partition("/")[2].partition("+")[0].partition(";")[0]
    path = save / f"{number}.{ending if ending.isalnum() else 'bin'}"
    write_file(path, content)
    return f"→ {path} ({kind or 'data'}, {len(content)} bytes)"


# --- ``greenroom read`` and ``greenroom prompt``.


def read(*, words: Sequence[str], save: Path | None, json: bool, **given: Any) -> int:
    """Read a resource and print or save its content."""

    async def request(
        client: TargetClient, prompts: TerminalPrompts, _bar: ProgressBar, resource: str, words: list[str]
    ) -> Any:
        read = client.within(None).read_resource(await _resource_uri(client, resource, words))
        return await prompts.within_patience(client.settings.request_timeout, "resources/read", read)

    reply, code = _run_request(words, "a resource", given, request)
    if json:
        print_json(reply.raw)
    elif save is not None:
        _save_contents(reply, save)
    else:
        for one in reply.contents:
            data = f"[{visible(one.uri)}: {len(one.blob or b'')} bytes: --save saves them]"
            echo(terminal_safe(one.text) if one.text is not None else styled(data, "dim"))
    return code


async def _resource_uri(client: Client, resource: str, words: Sequence[str]) -> str:
    """The URI for the typed words: a URI, a resource's name, or a template's name with its values."""
    from greenroom.actors.mentions.mention_reader import expand  # noqa: PLC0415 - not for help

    if "://" in resource and "{" not in resource and not words:
        return resource
    for template in await client.list_resource_templates():
        if resource in (template.name, template.title, template.uri_template):
            return expand(template.uri_template, _words_in_order(template.uri_template, words))
    if words:
        raise UsageError(f"{resource!r} is not a template and takes no values")
    resources = await client.list_resources()
    for each in resources:
        if resource in (each.name, each.title, each.uri):
            return each.uri
    if ":" in resource:
        return resource  # servers need not list all of their URIs, so this one is tried
    names = [each.name for each in resources] + [each.name for each in await client.list_resource_templates()]
    raise UsageError(unlisted_text("resource", resource, names))


def _words_in_order(template: str, words: Sequence[str]) -> list[str]:
    """The values in the order of the template's placeholders, if all were typed as `name=value`; otherwise the words unchanged."""
    from greenroom.actors.mentions.mention_reader import placeholders  # noqa: PLC0415 - not for help

    names = placeholders(template)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if len(given) < len(words) or not given.keys() <= set(names):
        return list(words)  # a value may contain =
    missing = [name for name in names if name not in given]
    if missing:
        raise UsageError(f"{template} also needs {', '.join(f'{name}=…' for name in missing)}")
    return [given[name] for name in names]


def _save_contents(reply: ResourceReply, path: Path) -> None:
    data = b"".join(one.text.encode() if one.text is not None else (one.blob or b"") for one in reply.contents)
    if str(path) == "-":
        if sys.stdout.isatty():
            echo(terminal_safe(data.decode(errors="replace")), newline=False)
        else:
            sys.stdout.buffer.write(data)
        return
    write_file(path, data)
    echo(f"→ {path} ({len(data)} bytes)", error=True)


def prompt(*, words: Sequence[str], json: bool, **given: Any) -> int:
    """Get a prompt and print its messages."""

    async def request(
        client: TargetClient, prompts: TerminalPrompts, _bar: ProgressBar, name: str, arguments: dict[str, str]
    ) -> Any:
        got = client.within(None).get_prompt(name, arguments)
        try:
            return await prompts.within_patience(client.settings.request_timeout, "prompts/get", got)
        except PeerError as error:
            if error.code == ErrorCode.INVALID_PARAMS:
                await _check_prompt(client, name, arguments)
            raise

    reply, code = _run_request(words, "a prompt", given, request, parse=lambda rest: dict(map(_prompt_argument, rest)))
    if json:
        print_json(reply.raw)
        return code
    for message in reply.raw.get("messages", ()):
        print_heading(str(message.get("role")))
        content = message.get("content")
        for block in content if is_array(content) else [content]:
            text = block.get("type") == "text"
            echo(terminal_safe(str(block.get("text"))) if text else styled(visible(f"[{block.get('type')}]"), "dim"))
    return code


async def _check_prompt(client: Client, name: str, arguments: Mapping[str, str]) -> None:
    """Raises `UsageError` for a prompt that the server does not list, and for arguments that it does not take or lacks."""
    try:
        prompts = {each.name: each for each in await client.list_prompts()}
    except PeerError:
        return
    if name not in prompts:
        raise UsageError(unlisted_text("prompt", name, prompts)) from None
    known = {each.name: each for each in prompts[name].arguments}
    if strange := [each for each in arguments if each not in known]:
        choices = ", ".join(map(visible, known)) or "none"
        raise UsageError(f"{name} has no argument {strange[0]!r}; it has {choices}") from None
    if missing := [each.name for each in known.values() if each.required and each.name not in arguments]:
        raise UsageError(f"{name} needs {', '.join(f'{visible(each)}=…' for each in missing)}") from None


def _prompt_argument(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UsageError(f"{word!r} is not an argument: write key=value")
    return key, value


# --- A progress bar on stderr for a long call: shown on a terminal only, and erased before other output.

_WIDTH: Final = 30
_LONGEST: Final = 200


class ProgressBar:
    """A line on stderr that is rewritten with each progress report."""

    def __init__(self) -> None:
        """The bar is invisible until the first step."""
        self._shown = sys.stderr.isatty()
        self._written = False
        self._aside = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def step(self, step: Any) -> None:
        """Show a progress report."""
        if not self._shown or self._aside:
            return
        line = f"{bar_text(step.progress, step.total)} {visible(str(step.message or ''), _LONGEST)}".rstrip()
        line = line[: shutil.get_terminal_size((80, 24)).columns - 1]  # the erase sequence clears one row only
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._written = True

    @contextmanager
    def aside(self) -> Generator[None]:
        """Hide the bar while the block runs, so that other code can use the screen."""
        self.pause()
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1

    def pause(self) -> None:
        """Erase the bar."""
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False


def bar_text(done: float, total: float | None) -> str:
    """`███░░░  50 %`, or the amount done if the total is unknown."""
    if not total or total <= 0:
        return f"… {done:g}"
    share = max(0.0, min(1.0, done / total))
    full = round(share * _WIDTH)
    return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}"
