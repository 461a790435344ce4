"""Unread requests of a connection that dies were never sent: its successor sends them, and without one they fail at once."""

from __future__ import annotations

import asyncio

import pytest
from tests.connections import start_connection

from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import RequestLost
from greenroom.supervision import Supervisor, kill, start, stop

from .fake_server import Stage


async def test_a_successor_sends_what_was_not_read() -> None:
    stage = Stage()
    line = ConnectionLine("stage")
    top = await start(Supervisor, [connection_spec(stage, line=line)])
    await line.ready()
    pending = line.begin("ping")
    kill(line.pid)
    assert await pending == {}
    assert asyncio.get_running_loop().time() == 0.0
    await stop(top)


async def test_without_one_it_is_lost_at_once() -> None:
    line = await start_connection(Stage())
    await line.ready()
    pending = line.begin("ping")
    kill(line.pid)
    with pytest.raises(RequestLost) as lost:
        await pending
    assert not lost.value.maybe_done
    assert asyncio.get_running_loop().time() == 0.0
