"""The landlord of a machine: whose place is whose, who is ended, and what applications are told of it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from greenroom.supervision import Ref, inbox, kill, spawn, start
from greenroom.supervision.cluster.daemon_protocol import (
    Born,
    Departed,
    EndHost,
    Gone,
    Left,
    Lodged,
    NoRoom,
    Ready,
    Renewed,
    WrongVersion,
)
from greenroom.supervision.cluster.landlord import Landlord

from .played import PlayedEngine, machine, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision.cluster.machines import Machine

KILL = int(signal.SIGKILL)
COMES_WITHIN = 60


class House(NamedTuple):
    landlord: Ref[Landlord]
    engine: Ref[PlayedEngine]

    async def ended(self) -> list[tuple[str, int]]:
        await settled()
        return await self.engine.call(PlayedEngine.all_ended)

    async def lodgers(self) -> dict[str, int]:
        await settled()
        return await self.landlord.call(Landlord.lodgers)


@asynccontextmanager
async def house(here: Machine | None = None) -> AsyncGenerator[House]:
    engine = await start(PlayedEngine, here or machine("b", room=1))
    yield House(await start(Landlord, Ref(engine.pid)), engine)


async def idle() -> None:
    await asyncio.Event().wait()


async def test_a_process_that_does_not_come_loses_its_place_and_one_that_came_keeps_it() -> None:
    async with house() as at, inbox() as me:
        await at.landlord.call(Landlord.reserve, "late", me.pid)
        with pytest.raises(NoRoom, match="takes 1 nodes, and has as many"):
            await at.landlord.call(Landlord.reserve, "other", me.pid)
        await asyncio.sleep(COMES_WITHIN + 1)
        assert await at.lodgers() == {}
        await at.landlord.call(Landlord.reserve, "other", me.pid)
        at.landlord.send(Born("other", 77))
        assert await me.receive() == Lodged("other", 77)
        await asyncio.sleep(COMES_WITHIN + 1)
        assert await at.lodgers() == {"other": 77}
        assert await at.ended() == []


async def test_a_place_that_was_given_back_is_not_taken_by_the_clock_of_the_one_before() -> None:
    async with house() as at, inbox() as me:
        await at.landlord.call(Landlord.reserve, "node", me.pid)
        await asyncio.sleep(COMES_WITHIN - 1)
        await at.landlord.call(Landlord.release, "node")
        await at.landlord.call(Landlord.reserve, "node", me.pid)
        await asyncio.sleep(COMES_WITHIN - 1)
        assert await at.lodgers() == {"node": 0}


@pytest.mark.parametrize("told", [False, True], ids=["asked", "told"])
async def test_who_is_not_to_come_after_all_is_ended_when_it_has(told: bool) -> None:  # noqa: FBT001
    async with house() as at, inbox() as me:

        async def release(name: str) -> None:
            if told:
                at.landlord.send(Departed(name))
            else:
                await at.landlord.call(Landlord.release, name)

        await release("nobody")
        await at.landlord.call(Landlord.reserve, "node", me.pid)
        await release("node")
        assert await at.lodgers() == {}
        assert await at.ended() == []
        await at.landlord.call(Landlord.reserve, "node", me.pid)
        at.landlord.send(Born("node", 77))
        await release("node")
        assert await at.ended() == [("node", KILL)]
        assert await at.lodgers() == {"node": 77}, "there is no room before it has ended"
        at.landlord.send(Gone("node", 77, -KILL, "its last words"))
        assert await at.lodgers() == {}
        assert [await me.receive(), await me.receive()] == [Lodged("node", 77), Left("node", -KILL, "its last words")]


async def test_two_nodes_of_one_name_are_one_too_many() -> None:
    async with house(machine("b")) as at, inbox() as me:
        await at.landlord.call(Landlord.reserve, "node", me.pid)
        with pytest.raises(NoRoom, match="machine b has a node called node already"):
            await at.landlord.call(Landlord.reserve, "node", me.pid)


async def test_what_came_without_a_place_is_ended_and_its_end_is_nobodys_business(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with house() as at, inbox() as me:
        at.landlord.send(Born("stranger", 78))
        assert await at.ended() == [("stranger", KILL)]
        at.landlord.send(Gone("stranger", 78, -KILL))
        assert await at.lodgers() == {}
        assert me.pending() == ()
    assert "node stranger came without a place, and is ended" in caplog.messages


async def test_nodes_of_an_application_that_is_gone_are_ended_and_others_are_not() -> None:
    async with house(machine("b")) as at, inbox() as me:
        owner = spawn(idle)
        for name, whose in (("here", owner), ("coming", owner), ("mine", me.pid)):
            await at.landlord.call(Landlord.reserve, name, whose)
        at.landlord.send(Born("here", 77))
        kill(owner)
        assert await at.ended() == [("here", KILL)]
        assert await at.lodgers() == {"here": 77, "mine": 0}


async def test_a_signal_for_a_node_goes_to_its_process() -> None:
    async with house() as at:
        at.landlord.send(EndHost("node", signal.SIGTERM))
        assert await at.ended() == [("node", signal.SIGTERM)]


async def test_who_is_asked_to_register_twice_in_short_has_another_thespian_system() -> None:
    async with house() as at:
        for wait in (0, 4, 4, 6, 4):
            await asyncio.sleep(wait)
            at.landlord.cast(Landlord.rejoin)
        await settled()
        assert await at.engine.call(PlayedEngine.all_rejoined) == [False, True, True, False, True]


async def test_applications_hear_of_a_new_thespian_system_as_long_as_they_are_there() -> None:
    async with house() as at, inbox() as me:
        gone = spawn(idle)
        for who in (me.pid, me.pid, gone):
            pid, there, system = await at.landlord.call(Landlord.enlist, machine("a"), who)
            assert (pid, there.name, system) == (at.landlord.pid, "b", "system-1")
        kill(gone)
        at.landlord.send(Ready({}, 1, 0.1, "system-2"))
        assert await me.receive() == Renewed("b-1", "system-2")
        await settled()
        assert me.pending() == (), "once, however often it was enlisted"
        assert (await at.landlord.call(Landlord.enlist, machine("a"), me.pid))[2] == "system-2"


async def test_an_application_of_another_version_is_refused_with_both_named() -> None:
    async with house() as at, inbox() as me:
        with pytest.raises(WrongVersion, match=r"machine b runs greenroom 1\.0, and machine a runs greenroom 2\.0"):
            await at.landlord.call(Landlord.enlist, machine("a", version="2.0"), me.pid)
        at.landlord.send(Ready({}, 1, 0.1, "system-2"))
        await settled()
        assert me.pending() == ()


async def test_what_is_no_message_of_its_own_changes_nothing() -> None:
    async with house() as at, inbox() as me:
        await at.landlord.call(Landlord.reserve, "node", me.pid)
        at.landlord.send("nonsense")
        assert await at.lodgers() == {"node": 0}
