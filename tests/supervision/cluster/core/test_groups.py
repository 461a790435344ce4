"""Groups and registries that live on one node and are used from others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    ActorError,
    AlreadyRegistered,
    CallTimeout,
    Groups,
    On,
    Options,
    Ref,
    Registry,
    Semaphore,
    inbox,
    kill,
    permit,
    spawn,
    via,
)
from greenroom.supervision import groups as words
from greenroom.supervision import registry as entries
from greenroom.supervision.cluster.remote_spawn import launch_on, start_on
from greenroom.supervision.groups import ALL_GROUPS, GroupChange

from .two_nodes import Counter, pair, until

pytestmark = pytest.mark.greenroom(clock="real", name="one")


@pytest.mark.otp("pg_SUITE", "empty_group_by_remote_leave")
@pytest.mark.otp("pg_SUITE", "two")
@pytest.mark.otp("pg_SUITE", "process_owner_check")
async def test_groups_over_two_nodes() -> None:
    async with pair(), inbox() as me:
        await launch_on("two", Options(name="groups"), Groups)
        groups: Ref[Groups] = Ref(On("groups", "two"))
        watch, now = await groups.call(Groups.monitor, ALL_GROUPS, me.pid)
        assert now == {}
        away = await start_on("two", Counter)
        await words.join(groups, "room")
        await groups.call(Groups.join, "room", [away.pid])
        assert await me.receive() == GroupChange(watch, "joined", "room", (me.pid,))
        assert await me.receive() == GroupChange(watch, "joined", "room", (away.pid,))
        assert await groups.call(Groups.members, "room") == [me.pid, away.pid]
        assert await groups.call(Groups.which) == ["room"]
        assert await groups.call(Groups.broadcast, "room", "hello") == 2
        assert await me.receive() == "hello"
        assert await away.call(Counter.all_heard) == ["hello"]
        kill(away)
        assert await me.receive() == GroupChange(watch, "left", "room", (away.pid,))
        await words.leave(groups, "room")
        assert await groups.call(Groups.members, "room") == []
        with pytest.raises(ActorError, match="has to be asked"):
            words.members(groups, "room")


@pytest.mark.otp("pg_SUITE", "monitor_nonempty_scope")
@pytest.mark.otp("pg_SUITE", "group_leave")
async def test_members_leave_when_their_node_is_lost() -> None:
    async with pair() as (one, two), inbox() as me:
        groups = await Options(name="groups").start(Groups)
        await words.join(groups, "room")
        away = await start_on("two", Counter)
        await groups.call(Groups.join, "room", [away.pid])
        watch, now = await words.monitor(groups, "room")
        assert now == [me.pid, away.pid]
        one.disconnect("two")
        assert await me.receive() == GroupChange(watch, "left", "room", (away.pid,))
        assert words.members(groups, "room") == [me.pid]
        del two


async def test_a_registry_over_two_nodes() -> None:
    async with pair(), inbox() as me:
        await launch_on("two", Options(name="rooms"), Registry)
        rooms: Ref[Registry] = Ref(On("rooms", "two"))
        await entries.join(rooms, "red", {"size": 3})
        assert await rooms.call(Registry.lookup, "red") == [(me.pid, {"size": 3})]
        away = await start_on("two", Counter)
        with pytest.raises(AlreadyRegistered) as caught:
            await rooms.call(Registry.register, "red", away.pid)
        assert caught.value.pid == me.pid
        assert await rooms.call(Registry.dispatch, "red", "come") == 1
        assert await me.receive() == "come"
        await entries.leave(rooms, "red")
        assert await rooms.call(Registry.lookup, "red") == []
        for read in (lambda: entries.lookup(rooms, "red"), lambda: via(rooms, "red").whereis()):
            with pytest.raises(ActorError, match="has to be asked"):
                read()


async def test_entries_go_with_the_node_of_their_owner() -> None:
    async with pair() as (one, _):
        rooms = await Options(name="rooms").start(Registry)
        away = await start_on("two", Counter)
        await rooms.call(Registry.register, "red", away.pid, None)
        assert entries.lookup(rooms, "red") == [(away.pid, None)]
        one.disconnect("two")
        await until(lambda: not entries.lookup(rooms, "red"))


async def test_locks_over_two_nodes() -> None:
    async with pair():
        await launch_on("two", Options(name="rooms"), Registry)
        rooms: Ref[Registry] = Ref(On("rooms", "two"))
        held = asyncio.Event()
        order: list[str] = []

        async def holder(name: str, gate: Any) -> None:
            async with entries.lock(rooms, "key"):
                order.append(name)
                held.set()
                await gate.wait()

        first, second = asyncio.Event(), asyncio.Event()
        one = spawn(holder, "one", first)
        await held.wait()
        held.clear()
        spawn(holder, "two", second)
        second.set()
        assert order == ["one"]
        kill(one)
        await held.wait()
        assert order == ["one", "two"], "a lock is free when its holder is dead, wherever that was"


async def test_permits_over_two_nodes() -> None:
    async with pair(), inbox():
        gate: Ref[Semaphore] = await start_on("two", Semaphore, 1)
        async with permit(gate):
            with pytest.raises(CallTimeout):
                async with permit(gate, 0.01):
                    raise AssertionError
        async with permit(gate):
            assert list((await gate.call(Semaphore.held)).values()) == [1]
        assert await gate.call(Semaphore.held) == {}
