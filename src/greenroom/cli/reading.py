"""``greenroom read`` and ``greenroom prompt``: a resource's content, and a prompt as the server fills it in."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from greenroom.protocol.wire import is_array

from .asking import asked
from .door import echo, styled
from .endings import Misused
from .showing import as_json, heading
from .spelling import harmless, visible
from .targets import first, way

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from greenroom.client import Client
    from greenroom.protocol.received import PromptReply, ResourceReply


def read(*, words: Sequence[str], save: Path | None, json: bool, command: Sequence[str] | None, **given: Any) -> None:
    """Read it."""
    target, (resource, *rest) = first(words, command, "which resource")
    where = way(target, command, given)
    reply = asyncio.run(_read(where, resource, rest))
    if json:
        as_json(reply.raw)
        return
    if save is not None:
        _save(reply, save)
        return
    for one in reply.contents:
        echo(
            harmless(one.text)
            if one.text is not None
            else styled(f"[{visible(one.uri)}: {len(one.blob or b'')} bytes: --save writes them]", "dim")
        )


async def _read(where: Any, resource: str, words: Sequence[str]) -> ResourceReply:
    async with asked(where) as (client, desk):
        read = client.within(None).read_resource(await _uri(client, resource, words))
        reply: ResourceReply = await desk.patiently(client.settings.request_timeout, "resources/read", read)
        return reply


async def _uri(client: Client, resource: str, words: Sequence[str]) -> str:
    """The URI: given as one, or a resource's name, or a template's with its words."""
    from greenroom.actors.mentions.expansion import expand  # noqa: PLC0415 - not for help

    if "://" in resource and "{" not in resource and not words:
        return resource
    for template in await client.list_resource_templates():
        if resource in (template.name, template.title, template.uri_template):
            return expand(template.uri_template, list(words))
    if words:
        raise Misused(f"{resource!r} is no template, and takes no words")
    for each in await client.list_resources():
        if resource in (each.name, each.title, each.uri):
            return each.uri
    return resource  # the server knows best what it is called


def _save(reply: ResourceReply, path: Path) -> None:
    data = b"".join(one.text.encode() if one.text is not None else (one.blob or b"") for one in reply.contents)
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        return
    path.write_bytes(data)
    echo(f"→ {path} ({len(data)} bytes)", error=True)


def prompt(*, words: Sequence[str], json: bool, command: Sequence[str] | None, **given: Any) -> None:
    """Get it."""
    target, (name, *rest) = first(words, command, "which prompt")
    where = way(target, command, given)
    reply = asyncio.run(_prompt(where, name, dict(_pair(word) for word in rest)))
    if json:
        as_json(reply.raw)
        return
    for message in reply.raw.get("messages", ()):
        heading(str(message.get("role")))
        content = message.get("content")
        for block in content if is_array(content) else [content]:
            text = block.get("type") == "text"
            echo(harmless(str(block.get("text"))) if text else styled(visible(f"[{block.get('type')}]"), "dim"))


async def _prompt(where: Any, name: str, arguments: dict[str, str]) -> PromptReply:
    async with asked(where) as (client, desk):
        got = client.within(None).get_prompt(name, arguments)
        reply: PromptReply = await desk.patiently(client.settings.request_timeout, "prompts/get", got)
        return reply


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise Misused(f"{word!r} is no argument: write key=value")
    return key, value
