"""The owner of a node: it waits for its engine, says why there is no process, and ends as the process did. The engine's daemon is played."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    SHUTDOWN,
    Crash,
    Down,
    Ref,
    StartFailed,
    exit,
    inbox,
    is_alive,
    kill,
    monitor,
    register,
    start,
)
from greenroom.supervision.cluster.bootstrap import LEAVE
from greenroom.supervision.cluster.cluster import NodeOwner
from greenroom.supervision.cluster.cluster_settings import NodeSpec
from greenroom.supervision.cluster.daemon_protocol import ProcessGone
from greenroom.supervision.cluster.node_records import NodeFailed, NodeLost, ProcessEnding

from .played_engine import NO_SUCH_PID, Town, town
from .played_processes import settled

if TYPE_CHECKING:
    from greenroom.supervision.cluster.node_engine import NodeEngine

SPEC = NodeSpec(name="node")


async def hosted(at: Town, engine: Ref[NodeEngine] | None = None) -> asyncio.Task[Ref[NodeOwner]]:
    """A task that starts one."""
    starting = asyncio.create_task(start(NodeOwner, engine or at.engine, SPEC))
    at.tasks.append(starting)
    await settled()
    return starting


async def test_the_owner_starts_with_its_node_and_ends_as_its_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at, inbox() as me:
        starting = await hosted(at)
        assert not starting.done()
        await at.ready()
        host = await starting
        assert (await host.call(NodeOwner.node_name), await host.call(NodeOwner.process_id)) == ("node", NO_SUCH_PID)
        monitor(host)
        host.send("nonsense")
        at.engine.send(ProcessGone("node", NO_SUCH_PID, -11))
        down: Down = await me.receive()
        assert isinstance(down.reason, Crash)
        assert isinstance(down.reason.error, NodeLost)
        assert str(down.reason.error) == "the process of node node was ended by signal 11 (SIGSEGV)"


async def test_when_it_is_stopped_its_process_is_ended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        starting = await hosted(at)
        await at.ready()
        host = await starting
        exit(host, SHUTDOWN)
        assert await at.me.receive() == LEAVE
        assert is_alive(host)
        at.engine.send(ProcessGone("node", NO_SUCH_PID, 0))
        await settled()
        assert not is_alive(host)


async def test_when_the_engine_dies_the_exit_status_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at, inbox() as me:
        starting = await hosted(at)
        await at.ready()
        monitor(await starting)
        kill(at.engine)
        down: Down = await me.receive()
        assert isinstance(down.reason, Crash)
        assert isinstance(down.reason.error, NodeLost)
        assert down.reason.error.ending == ProcessEnding(lost=True)


async def test_an_engine_that_dies_while_it_starts_a_process_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        starting = await hosted(at)
        at.daemon.end(1)
        with pytest.raises(StartFailed) as failed:
            await starting
        assert isinstance(failed.value.__cause__, NodeFailed)
        assert "the daemon exited with code 1" in str(failed.value.__cause__)
        assert "Its last words." in str(failed.value.__cause__)


async def test_an_engine_that_is_just_being_started_anew_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        starting = await hosted(at, Ref("an engine"))
        await asyncio.sleep(1)
        assert at.daemons == []
        register("an engine", at.engine.pid)
        await asyncio.sleep(0.1)
        assert at.started() == ["node"]
        await at.ready()
        assert is_alive(await starting)


async def test_an_engine_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        engine: Ref[Any] = Ref("no engine")
        with pytest.raises(StartFailed) as failed:
            await start(NodeOwner, engine, SPEC)
        assert isinstance(failed.value.__cause__, NodeFailed)
        assert "no process is registered as 'no engine'" in str(failed.value.__cause__)
        assert at.daemons == []
