"""A pair, started and asked: everything that differs, and is not meant to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .alike import differences
from .looking import look
from .meant import unmeant

if TYPE_CHECKING:
    from .looking import Request
    from .pairs import Pair


async def compare(pair: Pair, used: set[str]) -> list[tuple[str, Any, Any]]:
    """Ask both, side by side."""
    theirs, mine = await asyncio.gather(
        look(pair.original, pair.requests, pair.forms),
        look(pair.port, [_renamed(pair, each) for each in pair.requests], pair.forms),
    )
    for entries in theirs.lists.values():
        for entry in entries:
            entry["name"] = pair.renamed.get(entry["name"], entry["name"])
    return unmeant(list(differences(theirs, mine)), used)


def _renamed(pair: Pair, request: Request) -> Request:
    name: Any = request.params.get("name")
    return replace(request, params={**request.params, "name": pair.renamed[name]}) if name in pair.renamed else request
