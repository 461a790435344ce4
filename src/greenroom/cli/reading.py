"""``greenroom read`` and ``greenroom prompt``: a resource's content, and a prompt as the server fills it in."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.wire import is_array

from .asking import asked
from .door import echo, styled
from .endings import Misused, harmless, visible, write_file
from .showing import as_json, heading, unlisted
from .targets import first, way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from greenroom.client import Client
    from greenroom.protocol.received import PromptReply, ResourceReply


def read(*, words: Sequence[str], save: Path | None, json: bool, command: Sequence[str] | None, **given: Any) -> int:
    """Read it."""
    target, (resource, *rest) = first(words, command, "which resource")
    where = way(target, command, given)
    reply, code = asyncio.run(_read(where, resource, rest))
    if json:
        as_json(reply.raw)
        return code
    if save is not None:
        _save(reply, save)
        return code
    for one in reply.contents:
        echo(
            harmless(one.text)
            if one.text is not None
            else styled(f"[{visible(one.uri)}: {len(one.blob or b'')} bytes: --save writes them]", "dim")
        )
    return code


async def _read(where: Any, resource: str, words: Sequence[str]) -> tuple[ResourceReply, int]:
    async with asked(where) as (client, desk):
        read = client.within(None).read_resource(await _uri(client, resource, words))
        reply: ResourceReply = await desk.patiently(client.settings.request_timeout, "resources/read", read)
        return reply, desk.code


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


def prompt(*, words: Sequence[str], json: bool, command: Sequence[str] | None, **given: Any) -> int:
    """Get it."""
    target, (name, *rest) = first(words, command, "which prompt")
    where = way(target, command, given)
    reply, code = asyncio.run(_prompt(where, name, dict(_pair(word) for word in rest)))
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


async def _prompt(where: Any, name: str, arguments: dict[str, str]) -> tuple[PromptReply, int]:
    async with asked(where) as (client, desk):
        got = client.within(None).get_prompt(name, arguments)
        try:
            reply: PromptReply = await desk.patiently(client.settings.request_timeout, "prompts/get", got)
        except PeerError as error:
            if error.code == ErrorCode.INVALID_PARAMS:
                await _is_there(client, name, arguments)
            raise
        return reply, desk.code


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
