"""The machine host: reserved places, nodes that are killed, and the messages to applications."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from greenroom.supervision import Ref, inbox, kill, spawn, start
from greenroom.supervision.cluster.daemon_protocol import (
    HostedNodeEnded,
    HostedNodeStarted,
    NodeRefused,
    NodeReleased,
    ProcessForked,
    ProcessGone,
    SignalProcess,
    SystemReady,
    SystemRenewed,
    VersionMismatch,
)
from greenroom.supervision.cluster.machine_host import MachineHost

from .played_processes import PlayedEngine, machine, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision.cluster.machines import Machine

KILL = int(signal.SIGKILL)
COMES_WITHIN = 60


class House(NamedTuple):
    machine_host: Ref[MachineHost]
    engine: Ref[PlayedEngine]

    async def ended(self) -> list[tuple[str, int]]:
        await settled()
        return await self.engine.call(PlayedEngine.all_ended)

    async def hosted_nodes(self) -> dict[str, int]:
        await settled()
        return await self.machine_host.call(MachineHost.hosted_nodes)


@asynccontextmanager
async def house(here: Machine | None = None) -> AsyncGenerator[House]:
    engine = await start(PlayedEngine, here or machine("b", room=1))
    yield House(await start(MachineHost, Ref(engine.pid)), engine)


async def idle() -> None:
    await asyncio.Event().wait()


async def test_a_process_that_does_not_come_loses_its_place_and_one_that_came_keeps_it() -> None:
    async with house() as at, inbox() as me:
        await at.machine_host.call(MachineHost.reserve, "late", me.pid)
        with pytest.raises(NodeRefused, match="takes 1 nodes, and has as many"):
            await at.machine_host.call(MachineHost.reserve, "other", me.pid)
        await asyncio.sleep(COMES_WITHIN + 1)
        assert await at.hosted_nodes() == {}
        await at.machine_host.call(MachineHost.reserve, "other", me.pid)
        at.machine_host.send(ProcessForked("other", 77))
        assert await me.receive() == HostedNodeStarted("other", 77)
        await asyncio.sleep(COMES_WITHIN + 1)
        assert await at.hosted_nodes() == {"other": 77}
        assert await at.ended() == []


async def test_a_place_that_was_given_back_is_not_taken_by_the_clock_of_the_one_before() -> None:
    async with house() as at, inbox() as me:
        await at.machine_host.call(MachineHost.reserve, "node", me.pid)
        await asyncio.sleep(COMES_WITHIN - 1)
        await at.machine_host.call(MachineHost.release, "node")
        await at.machine_host.call(MachineHost.reserve, "node", me.pid)
        await asyncio.sleep(COMES_WITHIN - 1)
        assert await at.hosted_nodes() == {"node": 0}


@pytest.mark.parametrize("told", [False, True], ids=["asked", "told"])
async def test_a_released_node_is_ended_when_it_has_started(told: bool) -> None:  # noqa: FBT001
    async with house() as at, inbox() as me:

        async def release(name: str) -> None:
            if told:
                at.machine_host.send(NodeReleased(name))
            else:
                await at.machine_host.call(MachineHost.release, name)

        await release("unknown")
        await at.machine_host.call(MachineHost.reserve, "node", me.pid)
        await release("node")
        assert await at.hosted_nodes() == {}
        assert await at.ended() == []
        await at.machine_host.call(MachineHost.reserve, "node", me.pid)
        at.machine_host.send(ProcessForked("node", 77))
        await release("node")
        assert await at.ended() == [("node", KILL)]
        assert await at.hosted_nodes() == {"node": 77}, "there is no room before it has ended"
        at.machine_host.send(ProcessGone("node", 77, -KILL, "its last words"))
        assert await at.hosted_nodes() == {}
        assert [await me.receive(), await me.receive()] == [
            HostedNodeStarted("node", 77),
            HostedNodeEnded("node", -KILL, "its last words"),
        ]


async def test_two_nodes_of_one_name_are_one_too_many() -> None:
    async with house(machine("b")) as at, inbox() as me:
        await at.machine_host.call(MachineHost.reserve, "node", me.pid)
        with pytest.raises(NodeRefused, match="machine b has a node called node already"):
            await at.machine_host.call(MachineHost.reserve, "node", me.pid)


async def test_a_node_without_a_reserved_place_is_killed_and_its_end_is_reported_to_no_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with house() as at, inbox() as me:
        at.machine_host.send(ProcessForked("stranger", 78))
        assert await at.ended() == [("stranger", KILL)]
        at.machine_host.send(ProcessGone("stranger", 78, -KILL))
        assert await at.hosted_nodes() == {}
        assert me.pending() == ()
    assert "node stranger has no reserved place here, and is killed" in caplog.messages


async def test_nodes_of_an_application_that_is_gone_are_ended_and_others_are_not() -> None:
    async with house(machine("b")) as at, inbox() as me:
        owner = spawn(idle)
        for name, whose in (("here", owner), ("coming", owner), ("mine", me.pid)):
            await at.machine_host.call(MachineHost.reserve, name, whose)
        at.machine_host.send(ProcessForked("here", 77))
        kill(owner)
        assert await at.ended() == [("here", KILL)]
        assert await at.hosted_nodes() == {"here": 77, "mine": 0}


async def test_a_signal_for_a_node_goes_to_its_process() -> None:
    async with house() as at:
        at.machine_host.send(SignalProcess("node", signal.SIGTERM))
        assert await at.ended() == [("node", signal.SIGTERM)]


async def test_a_machine_told_twice_to_register_gets_another_thespian_system() -> None:
    async with house() as at:
        for wait in (0, 4, 4, 6, 4):
            await asyncio.sleep(wait)
            at.machine_host.cast(MachineHost.rejoin)
        await settled()
        assert await at.engine.call(PlayedEngine.all_rejoined) == [False, True, True, False, True]


async def test_applications_hear_of_a_new_thespian_system_as_long_as_they_are_there() -> None:
    async with house() as at, inbox() as me:
        gone = spawn(idle)
        for who in (me.pid, me.pid, gone):
            pid, there, system = await at.machine_host.call(MachineHost.register_application, machine("a"), who)
            assert (pid, there.name, system) == (at.machine_host.pid, "b", "system-1")
        kill(gone)
        at.machine_host.send(SystemReady({}, 1, 0.1, "system-2"))
        assert await me.receive() == SystemRenewed("b-1", "system-2")
        await settled()
        assert me.pending() == (), "once, however often it was enlisted"
        assert (await at.machine_host.call(MachineHost.register_application, machine("a"), me.pid))[2] == "system-2"


async def test_an_application_of_another_version_is_refused_with_both_named() -> None:
    async with house() as at, inbox() as me:
        with pytest.raises(VersionMismatch, match=r"machine b runs greenroom 1\.0, and machine a runs greenroom 2\.0"):
            await at.machine_host.call(MachineHost.register_application, machine("a", version="2.0"), me.pid)
        at.machine_host.send(SystemReady({}, 1, 0.1, "system-2"))
        await settled()
        assert me.pending() == ()


async def test_unknown_messages_change_nothing() -> None:
    async with house() as at, inbox() as me:
        await at.machine_host.call(MachineHost.reserve, "node", me.pid)
        at.machine_host.send("nonsense")
        assert await at.hosted_nodes() == {"node": 0}
