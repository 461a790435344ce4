"""Every process of the engine is killed in turn: nodes go on where they can, every loss is reported, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import pytest

from greenroom.supervision import (
    NO_CONNECTION,
    Crash,
    ProcessExited,
    Ref,
    Shutdown,
    Supervisor,
    inbox,
    is_alive,
    kill,
    monitor,
    receive,
    start,
    wait_down,
    which_children,
)
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.cluster import NodeOwner, node_child
from greenroom.supervision.cluster.cluster_settings import ClusterSettings
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.node_records import EngineFailed, NodeLost

from .engine_fixtures import LEFT, Hand, Stage, eventually, gone, spec, staged

pytestmark = pytest.mark.greenroom(clock="real")

PARTS = ("admin", "logger", "forkserver")


async def replaced(engine: Ref[NodeEngine], before: dict[str, int]) -> dict[str, int]:
    """Wait until all parts of the Thespian system were replaced."""
    async with asyncio.timeout(20.0):
        now = await engine.call(NodeEngine.running)
        while not all(now.get(part) not in (None, before[part]) for part in PARTS):
            await asyncio.sleep(0.005)  # Thespian's own processes: there is no event to wait for
            now = await engine.call(NodeEngine.running)
    return now


@pytest.mark.deep
@pytest.mark.parametrize("part", PARTS)
async def test_a_part_of_thespian_dies_and_no_node_notices(part: str) -> None:
    async with staged() as stage:
        host = await stage.host()
        hand = await stage.hand(host)
        pid = await host.call(NodeOwner.process_id)
        before = await stage.running()
        os.kill(before[part], signal.SIGKILL)
        after = await replaced(stage.cluster.engine, before)
        assert after["daemon"] == before["daemon"]
        assert await hand.call(Hand.process_id) == pid
        assert is_alive(host)
        await gone(*(before[each] for each in PARTS))
        other = await stage.host()
        assert await (await stage.hand(other)).call(Hand.process_id) != pid
        # Its fork server is gone; how it ends is known all the same.
        os.kill(pid, signal.SIGKILL)
        reason = await wait_down(host)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, NodeLost)
        assert reason.error.ending.signal == signal.SIGKILL


@pytest.mark.deep
@pytest.mark.parametrize("part", PARTS)
async def test_a_part_of_thespian_that_is_stopped_holds_up_no_node(part: str) -> None:
    async with staged() as stage:
        host = await stage.host()
        os.kill(await stage.part(part), signal.SIGSTOP)
        assert await (await stage.hand(host)).call(Hand.process_id) == await host.call(NodeOwner.process_id)
        os.kill(await host.call(NodeOwner.process_id), signal.SIGKILL)
        assert "SIGKILL" in str(await wait_down(host))


async def test_a_stopped_fork_server_is_replaced_when_it_is_needed() -> None:
    async with staged() as stage:
        await stage.host()
        fork_server = await stage.part("forkserver")
        os.kill(fork_server, signal.SIGSTOP)
        host = await stage.host()
        assert is_alive(host)
        assert not os_processes.is_alive(fork_server)


async def test_too_many_deaths_of_thespian_are_the_engines() -> None:
    async with staged(ClusterSettings(intensity=1, period=60.0)) as stage, inbox():
        await stage.host()
        engine = stage.cluster.engine.pid
        watch = monitor(engine)
        before = await stage.running()
        os.kill(before["forkserver"], signal.SIGKILL)
        os.kill((await replaced(stage.cluster.engine, before))["forkserver"], signal.SIGKILL)
        down = await receive(timeout=10.0)
        assert down.ref is watch
        assert isinstance(down.reason, Crash)
        assert isinstance(down.reason.error, EngineFailed)
        assert "2 times within 60 s" in str(down.reason)


async def test_when_the_daemon_dies_no_process_is_left_and_another_daemon_starts() -> None:
    async with staged() as stage, inbox():
        host = await stage.host()
        running = await stage.running()
        monitor(host)
        began = time.monotonic()
        os.kill(running["daemon"], signal.SIGKILL)
        down = await receive(timeout=10.0)
        assert isinstance(down.reason, Crash)
        assert isinstance(down.reason.error, NodeLost)
        await gone(*running.values())
        assert time.monotonic() - began < LEFT
        await eventually(lambda: is_alive(stage.cluster.engine))
        other = await stage.host()
        assert await (await stage.hand(other)).call(Hand.process_id) not in running.values()


async def test_nodes_under_supervisors_are_there_again_when_the_daemon_has_died() -> None:
    async with staged() as stage:
        trees = [await start(Supervisor, [node_child(stage.cluster, spec())]) for _ in range(3)]
        os.kill(await stage.part("daemon"), signal.SIGKILL)
        before = await gone_and_back(stage, 3)
        assert all(is_alive(tree) for tree in trees)
        assert len(before) == 3


async def gone_and_back(stage: Stage, count: int) -> dict[str, int]:
    """Wait until there is another daemon with so many nodes."""
    old = await stage.running()
    while True:
        with contextlib.suppress(ProcessExited):
            now = await stage.running()
            nodes = {name: pid for name, pid in now.items() if name not in ("daemon", *PARTS)}
            if now.get("daemon") != old["daemon"] and len(nodes) == count:
                return nodes
        await asyncio.sleep(0.01)


async def test_a_daemon_that_is_stopped_is_found_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.supervision.cluster.node_engine._PING", 0.05)
    monkeypatch.setattr("greenroom.supervision.cluster.node_engine._PATIENCE", 0.5)
    async with staged() as stage, inbox():
        host = await stage.host()
        running = await stage.running()
        monitor(host)
        os.kill(running["daemon"], signal.SIGSTOP)
        down = await receive(timeout=10.0)
        assert isinstance(down.reason, Crash)
        await gone(*running.values())


async def test_a_signal_for_the_whole_group_ends_the_nodes_and_nothing_else() -> None:
    async with staged() as stage:
        host = await stage.host()
        running = await stage.running()
        os.killpg(os.getpgid(running["admin"]), signal.SIGTERM)
        reason = await wait_down(host)
        assert isinstance(reason, Crash)
        assert "SIGTERM" in str(reason)
        assert await (await stage.hand(await stage.host())).call(Hand.process_id)
        after = await stage.running()
        assert {part: after[part] for part in ("daemon", *PARTS)} == {
            part: running[part] for part in ("daemon", *PARTS)
        }


async def test_an_idle_node_that_hangs_is_found_by_its_silence_and_killed() -> None:
    async with staged(ClusterSettings(heartbeat=0.3)) as stage, inbox():
        host = await stage.host()
        pid = await host.call(NodeOwner.process_id)
        monitor(host)
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        down = await receive(timeout=10.0)
        assert time.monotonic() - began < 5 * (3 * 0.3 + 0.3)
        assert isinstance(down.reason, Crash)
        assert isinstance(down.reason.error, NodeLost)
        assert down.reason.error.ending.hung
        assert "did not answer" in str(down.reason)
        assert not os_processes.is_alive(pid)


async def test_an_application_that_stands_still_loses_no_node() -> None:
    async with staged(ClusterSettings(heartbeat=0.3)) as stage:
        host = await stage.host()
        hand = await stage.hand(host)
        time.sleep(2.0)  # noqa: ASYNC251 - the loop is blocked more than twice as long as a node may be silent
        assert await hand.call(Hand.process_id) == await host.call(NodeOwner.process_id)
        for _ in range(20):
            assert await hand.call(Hand.process_id)
        assert is_alive(host)


async def test_ten_thousand_monitors_hear_of_a_lost_node_at_once() -> None:
    async with staged() as stage, inbox():
        host = await stage.host()
        hand = await stage.hand(host)
        for _ in range(10_000):
            monitor(hand)
        assert await hand.call(Hand.process_id)
        os.kill(await host.call(NodeOwner.process_id), signal.SIGKILL)
        began = time.monotonic()
        for _ in range(10_000):
            assert (await receive(timeout=10.0)).reason == NO_CONNECTION
        assert time.monotonic() - began < 2.0  # by silence alone it would be lost after three seconds


async def test_the_supervisor_of_a_node_decides_whether_it_is_restarted() -> None:
    async with staged() as stage:
        tree = await start(Supervisor, [node_child(stage.cluster, spec())], intensity=1, period=60.0)
        (first,) = await which_children(tree)
        host: Ref[NodeOwner] = Ref(first.pid)
        os.kill(await host.call(NodeOwner.process_id), signal.SIGKILL)
        await wait_down(host)

        async def another() -> Ref[NodeOwner]:
            while True:
                (now,) = await which_children(tree)
                if now.pid not in (None, first.pid):
                    return Ref(now.pid)
                await asyncio.sleep(0.005)

        second = await asyncio.wait_for(another(), 10.0)
        os.kill(await second.call(NodeOwner.process_id), signal.SIGKILL)
        assert isinstance(await wait_down(tree), Shutdown)


async def test_a_host_that_is_killed_takes_its_process_along() -> None:
    async with staged() as stage:
        host = await stage.host()
        pid = await host.call(NodeOwner.process_id)
        kill(host)
        await gone(pid)


async def test_when_the_engine_is_killed_no_process_is_left() -> None:
    async with staged() as stage:
        host = await stage.host()
        running = await stage.running()
        kill(stage.cluster.engine)
        assert isinstance(await wait_down(host), Crash)
        await gone(*running.values())
