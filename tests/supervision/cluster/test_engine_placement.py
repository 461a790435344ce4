"""The engine and other machines: where a node is placed, who reports its events, and foreign nodes on this machine. All of them are played."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import Ref, inbox, kill, spawn
from greenroom.supervision.cluster.bootstrap import LEAVE, NodeImportFailed, NodeReady
from greenroom.supervision.cluster.daemon_protocol import (
    HostedNodeEnded,
    HostedNodeStarted,
    MachineJoined,
    NodePlaced,
    NodeReleased,
    PlacementFailed,
    PlacementRequest,
    ProcessForked,
    ProcessGone,
    ProcessNotStarted,
    SignalProcess,
    StartForwarded,
    StartProcess,
    SystemReady,
    SystemReplaced,
)
from greenroom.supervision.cluster.machines import SYSTEM, NothingFits
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.node_records import NodeFailed, NodeProcessEnded, NodeStarted, ProcessEnding

from .played_engine import KILL, Town, idle, town
from .played_processes import machine, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


NEEDS = {"gpu": True}
B = machine("b", gpu=True)


@asynccontextmanager
async def is_placing(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Town]:
    """This test is the membership, and the machine host of machine b."""
    async with town(monkeypatch) as at:
        joining = asyncio.create_task(at.engine.call(NodeEngine.join, Ref(at.me.pid)))
        await at.begun()
        await joining
        yield at


async def placed(at: Town, **wanted: Any) -> asyncio.Task[NodeStarted]:
    """A node with a reserved place on machine b."""
    asked = await at.start(requires=NEEDS, **wanted)
    assert await at.me.receive() == PlacementRequest("node", NEEDS, 0)
    assert at.started() == []
    at.engine.send(NodePlaced("node", B, "system-b", at.me.pid))
    await settled()
    assert [order.requires for order in at.daemon.of(StartProcess)] == [{SYSTEM: "system-b"}]
    at.engine.send(StartForwarded("node"))
    return asked


async def test_a_joining_machine_gets_the_members_and_later_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        joining = asyncio.create_task(at.engine.call(NodeEngine.join, Ref(at.me.pid)))
        await settled()
        other = MachineJoined("b-1", "{}", "system-b")
        at.engine.send(other)
        assert await at.me.receive() == other
        await at.begun()
        here, joined = await joining
        assert (here.name, joined) == ("a", [other])
        assert (await at.engine.call(NodeEngine.join, Ref(at.me.pid)))[1] == [other], "it is ready"


async def test_a_node_of_another_machine_is_ready_signalled_and_ended_by_its_machine_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with is_placing(monkeypatch) as at:
        asked = await placed(at)
        at.engine.send(HostedNodeStarted("node", 55))
        at.engine.send(HostedNodeStarted("unknown", 56))
        assert (await at.running())["node"] == 55
        at.engine.send(NodeReady("node", 55, at.me.pid))
        await asked
        ended = await at.end()
        assert await at.me.receive() == LEAVE
        await asyncio.sleep(2.1)
        assert await at.me.receive() == SignalProcess("node", signal.SIGTERM)
        at.engine.send(HostedNodeEnded("unknown", 0, ""))
        at.engine.send(HostedNodeEnded("node", 0, "its words"))
        assert await ended == ProcessEnding(code=0, asked=True, words="its words")
        assert await at.me.receive(lambda each: isinstance(each, NodeReleased)) == NodeReleased("node")
        assert at.signals() == []


async def test_modules_that_are_not_on_the_other_machine_are_told_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with is_placing(monkeypatch) as at:
        asked = await placed(at)
        at.engine.send(HostedNodeStarted("node", 55))
        at.engine.send(NodeImportFailed("node", "there is no module called x"))
        assert await at.me.receive() == SignalProcess("node", KILL)
        at.engine.send(HostedNodeEnded("node", -9, ""))
        with pytest.raises(NodeFailed, match=r"could not import what it needs.*--path.*no module called x"):
            await asked


async def test_a_node_that_fits_nowhere_fails_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with is_placing(monkeypatch) as at:
        asked = await at.start(requires=NEEDS)
        at.engine.send(PlacementFailed("node", NothingFits(NEEDS, ("a",))))
        with pytest.raises(NothingFits, match="gpu=true"):
            await asked
        assert at.started() == []


async def test_a_node_that_stays_at_home_has_its_process_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async with is_placing(monkeypatch) as at:
        await at.want(requires=NEEDS)
        at.engine.send(NodePlaced("node", machine("a"), "", None))
        await settled()
        assert [order.requires for order in at.daemon.of(StartProcess)] == [{}]


async def test_a_place_that_comes_too_late_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with is_placing(monkeypatch) as at:
        asked = await at.start(requires=NEEDS, start_timeout=3)
        assert await at.me.receive() == PlacementRequest("node", NEEDS, 0)
        with pytest.raises(NodeFailed, match="it was not ready within 3 s"):
            await asked
        assert await at.me.receive() == NodeReleased("node")
        at.engine.send(NodePlaced("node", B, "system-b", at.me.pid))
        assert [await at.me.receive(), await at.me.receive()] == [
            NodeReleased("node")
        ] * 2  # to the machine host, and to the engine
        assert at.started() == []


async def test_a_node_that_is_ended_while_its_process_is_on_its_way_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with is_placing(monkeypatch) as at:
        asked = await placed(at)
        assert (await (await at.end())) == ProcessEnding(lost=True, asked=True)
        assert [await at.me.receive(), await at.me.receive()] == [NodeReleased("node")] * 2
        with pytest.raises(NodeFailed):
            await asked


@pytest.mark.parametrize(
    "told", [ProcessNotStarted("node", "it has left"), SystemReplaced("admin", 1, 0.1)], ids=["it", "we"]
)
async def test_where_no_process_was_made_another_place_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    async with is_placing(monkeypatch) as at:
        asked = await placed(at)
        at.engine.send(told)
        assert await at.me.receive(lambda each: isinstance(each, PlacementRequest)) == PlacementRequest(
            "node", NEEDS, 0
        )
        at.engine.send(NodePlaced("node", B, "system-c", at.me.pid))
        await settled()
        assert at.daemon.of(StartProcess)[-1].requires == {SYSTEM: "system-c"}
        assert not asked.done()


async def test_a_restarted_membership_is_asked_again_for_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    async with is_placing(monkeypatch) as at, inbox() as other:
        await at.want(requires=NEEDS)
        assert await at.me.receive() == PlacementRequest("node", NEEDS, 0)
        await at.engine.call(NodeEngine.join, Ref(other.pid))
        assert await other.receive() == PlacementRequest("node", NEEDS, 0)


async def test_a_host_that_ends_before_its_two_nodes_have_a_place_ends_both_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with is_placing(monkeypatch) as at:
        host = spawn(idle)
        asked = [await at.start(name, host, requires=NEEDS) for name in ("one", "two")]
        kill(host)
        for each in asked:
            with pytest.raises(NodeFailed):
                await each
        assert "one" not in await at.running()


async def test_the_nodes_of_a_machine_that_is_lost_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with is_placing(monkeypatch) as at:
        machine_host = spawn(idle)
        await at.want(requires=NEEDS)
        at.engine.send(NodePlaced("node", B, "system-b", machine_host))
        at.engine.send(HostedNodeStarted("node", 55))
        at.engine.send(NodeReady("node", 55, at.me.pid))
        await settled()
        kill(machine_host)
        ended = await at.me.receive(lambda each: isinstance(each, NodeProcessEnded))
        assert ended.ending == ProcessEnding(lost=True)
        assert at.peers.cut == ["node"], "should it be there all the same, it ends of that"


async def test_guests_of_a_machine_host_that_died_are_ended_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        taking = asyncio.create_task(at.engine.call(NodeEngine.accept_foreign_nodes, Ref(at.me.pid)))
        await at.begun()
        assert await at.me.receive() == SystemReady({"daemon": 1, "forkserver": 2}, 1234, 0.1, "system-1")
        assert (await taking)[1] == "system-1"
        for order in (ProcessForked("left", 55), ProcessForked("guest", 56), ProcessGone("left", 55, 0)):
            at.engine.send(order)
            assert await at.me.receive() == order
        async with inbox() as other:
            await at.engine.call(NodeEngine.accept_foreign_nodes, Ref(other.pid))
            assert at.signals() == [("guest", KILL)]
