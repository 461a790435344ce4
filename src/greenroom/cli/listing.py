"""``greenroom list``: what a server has, as it says it itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.wire import is_array, is_object

from .door import echo
from .endings import FAILED, Ended
from .showing import arguments, as_json, entry, first_line, heading
from .spelling import visible
from .targets import connected, way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.client import Client


_LONGEST: Final = 80


class Part(NamedTuple):
    """One of a server's lists."""

    word: str
    method: str
    key: str
    capability: str


PARTS: Final = (
    Part("tools", "tools/list", "tools", "tools"),
    Part("resources", "resources/list", "resources", "resources"),
    Part("templates", "resources/templates/list", "resourceTemplates", "resources"),
    Part("prompts", "prompts/list", "prompts", "prompts"),
)


def show(*, target: str | None, only: Sequence[str], json: bool, command: Sequence[str] | None, **given: Any) -> None:
    """Show the lists."""
    where = way(target, command, given)
    lists = asyncio.run(_lists(where, only))
    if json:
        as_json(lists)
        return
    if not any(lists.values()):
        echo("it has nothing of these")
    for word, entries in lists.items():
        if entries:
            heading(f"{word} ({len(entries)})")
            for each in entries:
                _line(word, each)


async def _lists(where: Any, only: Sequence[str]) -> dict[str, list[Any]]:
    async with connected(where) as client:
        return await every_list(client, only)


async def every_list(client: Client, only: Sequence[str] = ()) -> dict[str, list[Any]]:
    """All pages of the lists, as the wire has them; a list that the server does not know is empty."""
    from greenroom.actors.federation.curator import every_page  # noqa: PLC0415 - whoever asks for help needs none
    from greenroom.protocol.errors import ErrorCode, PeerError  # noqa: PLC0415

    found: dict[str, list[Any]] = {}
    for part in PARTS:
        if only and part.word not in only:
            continue
        found[part.word] = []
        if part.capability not in client.server_capabilities:
            continue
        try:
            found[part.word] = await every_page(client.line, part.method, part.key, client.settings.max_pages)
        except PeerError as error:
            if error.code != ErrorCode.METHOD_NOT_FOUND:
                raise
        if strange := [each for each in found[part.word] if not is_object(each)]:
            what = visible(repr(strange[0]), _LONGEST)
            raise Ended(
                FAILED, f"the server answered {part.method} with what is no {part.word.removesuffix('s')}: {what}"
            )
    return found


def _line(word: str, each: Mapping[str, Any]) -> None:
    name = str(each.get("uri") or each.get("uriTemplate") or each.get("name"))
    asked: Any = each.get("arguments")
    beside = {
        "tools": arguments(each.get("inputSchema")),
        "prompts": ", ".join(
            f"{one.get('name')}{'' if one.get('required') else '?'}"
            for one in (asked if is_array(asked) else ())
            if is_object(one)
        ),
    }.get(word, str(each.get("name") or ""))
    said = first_line(each.get("description") or each.get("title"))
    entry(name, beside, [said] if said else [])
