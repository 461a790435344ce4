"""A connection over a child process: killed during a call, and restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
from tests.connections import start_connection

from greenroom import Client, ClientSettings
from greenroom.actors.client.errors import RequestLost
from greenroom.transports.client.errors import ProcessDied

from .wire_owner import misbehaving_server

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.mark.row("CT-11")
async def test_a_kill_during_a_call_is_reported_at_once_and_the_next_call_works() -> None:
    line = await start_connection(misbehaving_server(), ClientSettings(mode="legacy"))
    await line.ready()
    took: list[float] = []
    back: list[float] = []
    for _ in range(5):
        process = (await line.request("where"))["pid"]
        pending = line.begin("silent", {}, idempotent=False)
        await asyncio.sleep(0)
        began = time.perf_counter()
        os.kill(process, signal.SIGKILL)
        with pytest.raises(RequestLost) as caught:
            await pending.result()
        took.append(time.perf_counter() - began)
        assert isinstance(caught.value.cause, ProcessDied)
        assert caught.value.cause.signal == "SIGKILL"
        assert (await line.request("where"))["pid"] != process
        back.append(time.perf_counter() - began)
    await line.close()
    assert sorted(took)[2] < 0.05, took
    assert sorted(back)[2] < 1.0, back


@pytest.mark.row("CT-10")
async def test_a_list_serves_as_a_client_target() -> None:
    async with Client(list(misbehaving_server().words), mode="legacy") as client:
        assert client.server_info["name"] == "misbehaving"
