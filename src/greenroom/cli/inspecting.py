"""``greenroom inspect``: all that a server says of itself, what is odd about it, and what has changed since it was saved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.protocol.wire import is_object

from .door import echo, styled
from .endings import FAILED, FINE, Misused
from .listing import every_list
from .oddities import oddities
from .showing import arguments, as_json, entry, first_line, heading
from .spelling import visible
from .targets import connected, way
from .writing import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_COLOURS = {"wrong": "bad", "odd": "odd", "sly": "bad"}
_KEYS = {"tools": "name", "resources": "uri", "templates": "uriTemplate", "prompts": "name"}


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
    """Look at it. 1 with --strict when something is odd, and with --against when something is different."""
    before = None if against is None else _read(against)
    found = asyncio.run(_looked_at(way(target, command, given)))
    if save is not None:
        write_file(save, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        echo(f"→ {save}", error=True)
    odd = oddities(found["lists"], found["instructions"])
    changed = [] if before is None else list(differences(before, found))
    if json:
        told = [each._asdict() for each in odd]
        as_json({**found, "oddities": told, **({} if before is None else {"changed": changed})})
    else:
        _show(found)
        for each in odd:
            echo(styled(visible(str(each)), _COLOURS[each.degree]))
        if not odd:
            echo(styled("nothing about it is odd", "good"))
        for line in changed:
            echo(styled(visible(f"changed: {line}"), "odd"))
        if before is not None and not changed:
            echo(styled(f"it is as it was saved in {against}", "good"))
    return FAILED if (strict and odd) or changed else FINE


async def _looked_at(where: Any) -> dict[str, Any]:
    async with connected(where) as client:
        return {
            "server": dict(client.server_info),
            "protocol": client.protocol_version,
            "capabilities": dict(client.server_capabilities),
            "instructions": client.instructions,
            "lists": await every_list(client),
        }


def _read(path: Path) -> Any:
    try:
        found: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise Misused(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not is_object(found) or not is_object(found.get("lists")):
        raise Misused(f"{path} was not written by greenroom inspect --save")
    return found


def differences(before: Any, after: Any) -> Iterator[str]:
    """What is different, in lines."""
    for word in ("server", "protocol", "capabilities", "instructions"):
        if before.get(word) != after.get(word):
            yield word
    for word, key in _KEYS.items():
        was = {str(each.get(key)): each for each in before["lists"].get(word, ()) if is_object(each)}
        now = {str(each.get(key)): each for each in after["lists"].get(word, ()) if is_object(each)}
        one = word.removesuffix("s")
        yield from (f"{one} {name} is gone" for name in was if name not in now)
        yield from (f"{one} {name} is new" for name in now if name not in was)
        for name, old in was.items():
            new = now.get(name, old)
            if new != old:
                parts = sorted(part for part in {*old, *new} if old.get(part) != new.get(part))
                yield f"{one} {name} says another {', '.join(parts)}"


def _show(found: dict[str, Any]) -> None:
    server = found["server"]
    heading(f"{server.get('title') or server.get('name')} {server.get('version', '')}")
    can = ", ".join(sorted(found["capabilities"])) or "nothing besides"
    speaks = visible(f"speaks {found['protocol']}; can do {can}")
    echo(f"  {speaks}")
    if found["instructions"]:
        entry("instructions", notes=[str(found["instructions"])])
    for word, entries in found["lists"].items():
        for each in entries:
            name = each.get(_KEYS[word])
            beside = arguments(each.get("inputSchema")) if word == "tools" else str(each.get("name") or "")
            said = first_line(each.get("description"))
            entry(f"{word.removesuffix('s')} {name}", beside, [said] if said else [])
