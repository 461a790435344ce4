"""Subscriptions at a server over HTTP that is killed and started again: each change is told, or there is a gap after it; and nothing is done twice."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from greenroom import ClientSettings, Host
from greenroom.supervision import Backoff

from .load_callers import station

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.mark.row("26-L7")
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_readers_of_a_resource_miss_no_change_over_restarts(mode: str, tmp_path: Path) -> None:
    book = tmp_path / "book"
    settings = ClientSettings(mode=mode, request_timeout=20.0, backoff=Backoff(first=0.02, longest=0.2))
    async with station(book) as server, Host({"again": server.url}, settings=settings) as host:
        words = host.server("again")
        noted: list[str] = []

        async def note() -> None:
            noted.append(f"note-{len(noted)}")
            await words.call("note", what=noted[-1])

        async with words.subscribe("note://last") as updates, asyncio.timeout(60):
            news = aiter(updates)
            for _ in range(3):
                await note()
                while (told := await anext(news)).gap:  # it may stand for this change; a later one is told
                    await note()
                assert told.params["uri"] == "note://last"
                await server.end(signal.SIGKILL)
                await server.start()
                while not (await anext(news)).gap:
                    pass  # of a change before the restart
    assert book.read_text().split() == noted
