"""The machines of a cluster as an application knows them; the convention, the links and a machine host are played."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from greenroom.supervision import ActorError, Options, Ref, inbox, kill, start, stop
from greenroom.supervision.cluster import membership
from greenroom.supervision.cluster.daemon_protocol import (
    MACHINE_HOST,
    MachineAbsent,
    MachineJoined,
    NodePlaced,
    NodeReleased,
    PlacementFailed,
    PlacementRequest,
    SystemRenewed,
)
from greenroom.supervision.cluster.machines import ANNOUNCED, MachineDown, MachineUp
from greenroom.supervision.cluster.membership import ClusterMembership
from greenroom.supervision.cluster.peers import NodeDown, NodeUp

from .played_processes import PlayedEngine, PlayedMachineHost, PlayedPeers, machine, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision.cluster.machines import Machine

pytestmark = pytest.mark.greenroom(name="machine:b")  # whose machine host is played here
AGAIN = 1.0
UP = MachineUp("b", {"gpu": True})
B = machine("b", gpu=True)
NEEDS = {"gpu": True}


def joined(who: Machine, system: str = "system-1") -> MachineJoined:
    return MachineJoined(who.id, str(who.announcement()[ANNOUNCED]), system)


class Town(NamedTuple):
    """An application on machine a, and the machines that were there first."""

    who: Ref[ClusterMembership]
    engine: Ref[PlayedEngine]
    peers: PlayedPeers

    async def machines(self) -> list[str]:
        await settled()
        return [each.id for each in await self.who.call(ClusterMembership.machines)]

    async def told(self) -> list[Any]:
        """What the engine has been told."""
        await settled()
        return await self.engine.call(PlayedEngine.all_told)

    async def machine_host(self, here: Machine = B, system: str = "system-1") -> Ref[PlayedMachineHost]:
        """Machine b's, and time enough to be found."""
        ref = await Options(name=MACHINE_HOST).start(PlayedMachineHost, here, system)
        await asyncio.sleep(1.1 * AGAIN)
        return ref


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> PlayedPeers:
    """The links of the application's node."""
    made = PlayedPeers()
    monkeypatch.setattr(membership, "links_of_home", lambda: made)
    return made


@asynccontextmanager
async def town(peers: PlayedPeers, *others: MachineJoined, room: int | None = 0) -> AsyncGenerator[Town]:
    engine = await start(PlayedEngine, machine("a", 9, room=room), others)
    yield Town(await start(ClusterMembership, Ref(engine.pid)), engine, peers)


# --- coming and going


async def test_a_machine_is_there_when_it_has_joined_and_can_be_reached(peers: PlayedPeers) -> None:
    async with town(peers) as at, inbox() as me:
        await at.who.call(ClusterMembership.watch, Ref(me.pid))
        machine_host = await at.machine_host()
        at.who.send(joined(B))
        assert await me.receive() == UP
        assert await at.machines() == ["b-1"]
        assert peers.dialled == [B.addresses]
        at.who.send(joined(B))
        at.who.send(NodeUp(B.node))
        kill(machine_host)
        assert await me.receive() == MachineDown("b", "its machine host has ended: killed")
        assert await at.machines() == []
        await at.machine_host()
        assert await me.receive() == UP


async def test_a_link_that_is_lost_says_why_and_is_tried_again(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at, inbox() as me:
        await at.who.call(ClusterMembership.watch, Ref(me.pid))
        await at.machine_host()
        assert await me.receive() == UP
        at.who.send(NodeDown("node-7", "another"))
        at.who.send(NodeDown(B.node, "it was silent"))
        assert await me.receive() == MachineDown("b", "it was silent")
        before = len(peers.dialled)
        assert await me.receive() == UP
        assert len(peers.dialled) == before + 1
        assert me.pending() == ()


async def test_watchers_that_unwatched_or_ended_get_no_events(peers: PlayedPeers) -> None:
    async with town(peers) as at, inbox() as me, inbox() as other:
        async with inbox() as gone:
            pass
        for each in (gone, me, other):
            await at.who.call(ClusterMembership.watch, Ref(each.pid))
        await at.who.call(ClusterMembership.unwatch, Ref(other.pid))
        await at.who.call(ClusterMembership.unwatch, Ref(other.pid))
        await at.machine_host()
        at.who.send(joined(B))
        assert await me.receive() == UP
        assert other.pending() == ()


async def test_an_unreachable_machine_is_dialled_each_second_and_reported_once(
    peers: PlayedPeers, caplog: pytest.LogCaptureFixture
) -> None:
    peers.fails = ActorError("no process listens there")
    async with town(peers, joined(B)) as at:
        await asyncio.sleep(3.5 * AGAIN)
        assert len(peers.dialled) == 4
        why = "machine b cannot be used: no process listens there"
        assert [each.levelname for each in caplog.records if each.getMessage() == why] == ["WARNING"]
        peers.fails = None
        await at.machine_host()
        await asyncio.sleep(AGAIN)
        assert await at.machines() == ["b-1"]


async def test_a_machine_host_that_refuses_is_logged_as_an_error(
    peers: PlayedPeers, caplog: pytest.LogCaptureFixture
) -> None:
    peers.connected = (B.node,)
    async with town(peers, joined(B)) as at:
        await at.machines()
        assert not peers.dialled, "it is connected"
    assert [(each.levelname, "machine b cannot be used" in each.getMessage()) for each in caplog.records] == [
        ("ERROR", True)
    ]


async def test_another_version_is_told_of_and_never_takes_nodes(
    peers: PlayedPeers, caplog: pytest.LogCaptureFixture
) -> None:
    other = machine("b", version="2.0")
    async with town(peers, joined(other)) as at:
        at.who.send(joined(other))
        assert await at.machines() == []
        assert [each for each in caplog.messages if "install the same version on both" in each] == [
            "machine a runs greenroom 1.0, and machine b runs greenroom 2.0: install the same version on both"
        ]


@pytest.mark.parametrize("announced", ["", "nonsense", "{}", '{"name": 5}'])
async def test_a_system_without_our_announcement_is_ignored(peers: PlayedPeers, announced: str) -> None:
    async with town(peers) as at:
        at.who.send(MachineJoined("x", announced, "system-x"))
        assert await at.machines() == []
        assert peers.dialled == []


async def test_the_applications_own_machine_is_no_other(peers: PlayedPeers) -> None:
    async with town(peers) as at:
        here = await at.who.call(ClusterMembership.here)
        at.who.send(joined(here))
        assert await at.machines() == []
        assert peers.dialled == []


async def test_a_machine_that_started_anew_is_not_taken_for_the_one_before(
    peers: PlayedPeers, caplog: pytest.LogCaptureFixture
) -> None:
    again = machine("b", 2, gpu=True)
    async with town(peers, joined(B)) as at:
        await at.machine_host(again, "system-2")
        assert await at.machines() == []
        assert "machine b has started anew" in caplog.messages
        at.who.send(joined(again, "system-2"))
        assert await at.machines() == ["b-2"]
        before = len(peers.dialled)
        await asyncio.sleep(3 * AGAIN)
        assert len(peers.dialled) == before, "the former machine is not dialled any more"


async def test_of_two_machines_with_one_name_the_first_is_used_until_it_goes(
    peers: PlayedPeers, caplog: pytest.LogCaptureFixture
) -> None:
    twin = machine("b", 2, gpu=True)
    async with town(peers, joined(B)) as at:
        first = await at.machine_host()
        assert await at.machines() == ["b-1"]
        at.who.send(joined(twin, "system-2"))
        await asyncio.sleep(5 * AGAIN)
        assert await at.machines() == ["b-1"]
        said = [each for each in caplog.messages if "two machines are called b" in each]
        assert len(said) == 1
        assert "at tcp:10.0.0.1:7400 and tcp:10.0.0.2:7400" in said[0]
        await stop(first)
        await at.machine_host(twin, "system-2")
        await asyncio.sleep(2 * AGAIN)
        assert await at.machines() == ["b-2"]


async def test_a_machine_that_left_the_convention_takes_no_nodes_and_is_told_to_register(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at:
        machine_host = await at.machine_host()
        assert await at.machines() == ["b-1"]
        at.who.send(MachineAbsent("unknown", "system-7"))
        at.who.send(MachineAbsent(B.id, "system-0"))
        assert await at.machines() == ["b-1"], "another system of it, and another machine"
        at.who.send(MachineAbsent(B.id, "system-1"))
        assert await at.machines() == []
        await asyncio.sleep(2.5 * AGAIN)
        assert await machine_host.call(PlayedMachineHost.all_heard) == ["rejoin"] * 3
        at.who.send(SystemRenewed("unknown", "system-7"))
        at.who.send(SystemRenewed(B.id, "system-2"))
        assert await at.machines() == []
        at.who.send(joined(B, "system-2"))
        assert await at.machines() == ["b-1"]


async def test_a_machine_that_left_and_cannot_be_reached_is_forgotten_in_the_end(peers: PlayedPeers) -> None:
    peers.fails = ActorError("no process listens there")
    async with town(peers, joined(B)) as at:
        await settled()
        at.who.send(MachineAbsent(B.id, "system-1"))
        await asyncio.sleep(590)
        assert peers.forgotten == []
        await asyncio.sleep(20)
        assert peers.forgotten == [B.node]
        before = len(peers.dialled)
        await asyncio.sleep(60)
        assert len(peers.dialled) == before
        peers.fails = None
        await at.machine_host()
        at.who.send(joined(B))
        assert await at.machines() == ["b-1"]


async def test_the_membership_stops_watching_the_links_however_it_ends(peers: PlayedPeers) -> None:
    async with town(peers) as at:
        assert peers.watchers == [at.who]
        kill(at.who)
        await settled()
        assert peers.watchers == []


async def test_unknown_messages_change_nothing(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at:
        await at.machine_host()
        at.who.send("nonsense")
        assert await at.machines() == ["b-1"]


# --- placing


async def test_a_node_goes_where_there_is_what_it_requires(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at:
        machine_host = await at.machine_host()
        await at.machines()
        at.who.send(PlacementRequest("node", NEEDS, 0))
        assert await at.told() == [NodePlaced("node", B, "system-1", machine_host.pid)]
        assert await machine_host.call(PlayedMachineHost.all_heard) == [("reserve", "node")]


async def test_a_node_stays_at_home_where_that_fits(peers: PlayedPeers) -> None:
    async with town(peers, room=None) as at:
        here = await at.who.call(ClusterMembership.here)
        at.who.send(PlacementRequest("node", {"machine": "a"}, 0))
        assert await at.told() == [NodePlaced("node", here, "", None)]


async def test_a_node_that_fits_nowhere_is_told_with_what_there_is(peers: PlayedPeers) -> None:
    async with town(peers) as at:
        at.who.send(PlacementRequest("node", NEEDS, 0))
        (told,) = await at.told()
        assert isinstance(told, PlacementFailed)
        assert "a node requires gpu=true, and no machine of the cluster has that; there are: a" in str(told.error)


async def _asked(at: Any) -> tuple[Any, asyncio.Event]:
    """The other machine's machine host, who is asked for a place and holds his answer back until that is set."""
    machine_host = await at.machine_host()
    await at.machines()
    gate = asyncio.Event()
    await machine_host.call(PlayedMachineHost.hold, gate)
    at.who.send(PlacementRequest("node", NEEDS, 0))
    await settled()
    return machine_host, gate


async def test_a_cancelled_node_gives_its_place_back(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at:
        machine_host, gate = await _asked(at)
        at.who.send(NodeReleased("node"))
        await settled()
        gate.set()
        assert await at.told() == []
        assert await machine_host.call(PlayedMachineHost.all_heard) == [("reserve", "node"), ("release", "node")]


async def test_a_machine_that_is_lost_while_it_is_asked_takes_no_node(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at:
        _, gate = await _asked(at)
        at.who.send(NodeDown(B.node, "it was silent"))
        gate.set()
        (told,) = await at.told()
        assert isinstance(told, PlacementFailed)
        assert "every machine that fits is full" in str(told.error)
        assert "b was lost just now" in str(told.error)


async def test_a_machine_host_that_dies_while_it_is_asked_is_a_refusal_with_its_reason(peers: PlayedPeers) -> None:
    async with town(peers, joined(B)) as at:
        machine_host = await at.machine_host()
        await at.machines()
        await machine_host.call(PlayedMachineHost.hold, asyncio.Event())
        at.who.send(PlacementRequest("node", NEEDS, 0))
        await settled()
        kill(machine_host)
        (told,) = await at.told()
        assert isinstance(told, PlacementFailed)
        assert told.error.full  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        assert await at.machines() == []
