"""Helpers for tests of the client: a connection to a fake server for the length of a block, and waits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.connections import start_connection

from greenroom.actors.client.settings import ClientSettings

from .fake_server import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.actors.client.client_handler import ClientHandler
    from greenroom.actors.client.connection_line import ConnectionLine
    from greenroom.actors.client.interfaces import Phase, Status


@asynccontextmanager
async def playing(
    stage: Stage | None = None, *, handler: ClientHandler | None = None, ready: bool = True, **settings: Any
) -> AsyncGenerator[tuple[ConnectionLine, Stage]]:
    """A line and its fake server, ready unless `ready` is False. `settings` are those of the connection."""
    stage = stage or Stage()
    line = await start_connection(stage, ClientSettings(**settings), handler, name="stage")
    try:
        if ready:
            await line.ready()
        yield line, stage
    finally:
        stage.hanging = False
        await line.close()


async def phase(line: ConnectionLine, wanted: Phase, also: Callable[[Status], bool] = lambda _: True) -> Status:
    """Wait until the connection is in that phase."""
    async for status in line.watch():
        if status.phase is wanted and also(status):
            return status
    raise AssertionError
