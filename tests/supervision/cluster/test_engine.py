"""The engine: a node in a process of its own is started, used, lost and stopped, and nothing is left."""

from __future__ import annotations

import logging
import os
import signal

import pytest

from greenroom.supervision import Crash, ProcessExited, stop, wait_down
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.cluster import NodeOwner
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.node_records import NodeLost

from .engine_fixtures import Hand, gone, staged

pytestmark = pytest.mark.greenroom(clock="real")


async def test_nothing_is_started_before_it_is_needed() -> None:
    async with staged() as stage:
        assert await stage.running() == {}


async def test_a_node_in_a_process_of_its_own() -> None:
    async with staged() as stage:
        host = await stage.host()
        hand = await stage.hand(host)
        pid = await host.call(NodeOwner.process_id)
        assert await hand.call(Hand.process_id) == pid != os.getpid()
        running = await stage.running()
        assert set(running) == {"daemon", "admin", "logger", "forkserver", await host.call(NodeOwner.node_name)}
    await gone(*running.values())


async def test_its_host_ends_with_what_ended_it() -> None:
    async with staged() as stage:
        host = await stage.host()
        hand = await stage.hand(host)
        os.kill(await host.call(NodeOwner.process_id), signal.SIGKILL)
        reason = await wait_down(host)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, NodeLost)
        assert reason.error.ending.signal == signal.SIGKILL
        assert "SIGKILL" in str(reason)
        with pytest.raises(ProcessExited):
            await hand.call(Hand.process_id)


async def test_stopping_the_host_stops_the_node_in_order() -> None:
    async with staged() as stage:
        host = await stage.host()
        pid = await host.call(NodeOwner.process_id)
        ending = await stage.cluster.engine.call(NodeEngine.end_node, await host.call(NodeOwner.node_name))
        assert ending.orderly
        assert not os_processes.is_alive(pid)


async def test_the_last_output_is_sent_before_the_node_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with staged() as stage:
        host = await stage.host()
        hand = await stage.hand(host)
        with caplog.at_level(logging.INFO):
            hand.cast(Hand.say, "a last line")
            await stop(host)
        assert "a last line" in caplog.messages
