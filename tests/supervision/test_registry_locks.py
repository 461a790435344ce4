"""Registry listeners and locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    KILLED,
    CallTimeout,
    Exited,
    GenServer,
    NotAnActor,
    Options,
    Ref,
    Registry,
    Task,
    inbox,
    kill,
    register,
    start,
    start_task_alone,
    via,
    wait_down,
)
from greenroom.supervision.registry import Registered, Unregistered, join, leave, lock

if TYPE_CHECKING:
    from greenroom.supervision import Pid

both = pytest.mark.parametrize("kind", ["unique", "duplicate"])


class Room(GenServer):
    """A process to be found."""


# --- listeners


@pytest.mark.otp("registry_unique_test", "allows listeners")
@pytest.mark.otp("registry_duplicate_test", "allows listeners")
@both
async def test_listeners_are_told_of_every_change(kind: Any) -> None:
    registry = await start(Registry, kind, listeners=["doorman", "missing"])
    async with inbox() as me:
        register("doorman")
        room = await Options(name=via(registry, "attic", "cold")).start(Room)
        assert await me.receive() == Registered(pid_of(registry), "attic", room.pid, "cold")
        await join(registry, "cellar")
        assert await me.receive() == Registered(pid_of(registry), "cellar", me.pid, None)
        await leave(registry, "cellar")
        assert await me.receive() == Unregistered(pid_of(registry), "cellar", me.pid)
        await leave(registry, "cellar")
        kill(room)
        assert await me.receive() == Unregistered(pid_of(registry), "attic", room.pid)
        assert me.pending() == ()


async def test_listeners_hear_of_an_end_before_they_hear_of_the_successor() -> None:
    async with inbox() as me:
        registry = await start(Registry, listeners=[me.pid])
        first = await Options(name=via(registry, "attic")).start(Room)
        assert await me.receive() == Registered(pid_of(registry), "attic", first.pid, None)
        kill(first)
        second = await Options(name=via(registry, "attic")).start(Room)
        assert await me.receive() == Unregistered(pid_of(registry), "attic", first.pid)
        assert await me.receive() == Registered(pid_of(registry), "attic", second.pid, None)
        await wait_down(first)
        await leave(registry, "nothing")
        assert me.pending() == ()


async def test_a_listener_in_a_registry_that_is_gone_is_passed_over() -> None:
    others = await start(Registry)
    registry = await start(Registry, listeners=[via(others, "doorman")])
    kill(others)
    room = await Options(name=via(registry, "attic")).start(Room)
    found: Ref[Room] = Ref(via(registry, "attic"))
    assert found.pid == room.pid


def pid_of(registry: Ref[Registry]) -> Pid:
    """Of a registry that runs."""
    assert registry.pid is not None
    return registry.pid


# --- locks


async def hold(registry: Ref[Registry], key: str, told: list[str], name: str, seconds: float = 1000) -> str:
    """Lock a key, say so, and keep it for a while."""
    async with lock(registry, key, None):
        told.append(name)
        await asyncio.sleep(seconds)
    return name


def holder(registry: Ref[Registry], told: list[str], name: str, seconds: float = 1000, key: str = "key") -> Task[str]:
    """A process that does so."""
    return start_task_alone(hold, registry, key, told, name, seconds)


async def settled(registry: Ref[Registry]) -> None:
    """Wait until the registry has handled all earlier events, and no lock is held or waited for."""
    await asyncio.sleep(1)
    server = registry._find().behaviour.inner
    assert isinstance(server, Registry)
    assert server.report_state().endswith("0 owners, 0 locks")
    assert server._otp_process.watching is None


@pytest.mark.otp("registry_test", "does not lock when using different keys")
@both
async def test_locks_of_different_keys_are_different_locks(kind: Any) -> None:
    registry, told = await start(Registry, kind), list[str]()
    tasks = [holder(registry, told, key, 1, key=key) for key in ("one", "other")]
    await asyncio.sleep(0.5)
    assert told == ["one", "other"]
    assert [await task.wait() for task in tasks] == ["one", "other"]
    await settled(registry)


@pytest.mark.otp("registry_test", "locks when using the same key")
@both
async def test_a_key_is_held_by_one_at_a_time_in_the_order_they_came(kind: Any) -> None:
    registry, told = await start(Registry, kind), list[str]()
    tasks = [holder(registry, told, name, 10) for name in ("first", "second", "third")]
    await asyncio.sleep(5)
    assert told == ["first"]
    await asyncio.sleep(10)
    assert told == ["first", "second"]
    assert [await task.wait(None) for task in tasks] == ["first", "second", "third"]
    await settled(registry)


@pytest.mark.otp("registry_test", "locks when the one holding the lock raises")
async def test_a_block_that_raises_gives_its_lock_back() -> None:
    registry, told = await start(Registry), list[str]()

    async def fail() -> NoReturn:
        async with lock(registry, "key"):
            await asyncio.sleep(1)
            raise ValueError("oops")

    failing = start_task_alone(fail)
    await asyncio.sleep(0.5)
    second = holder(registry, told, "second", 0)
    assert isinstance(await failing.poll(None), Exited)
    assert await second.wait() == "second"
    await settled(registry)


@pytest.mark.otp("registry_test", "locks when the one holding the lock terminates")
async def test_a_killed_holder_gives_its_lock_back_once_it_has_unwound() -> None:
    registry, told = await start(Registry), list[str]()

    async def slow() -> None:
        async with lock(registry, "key"):
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(0.5)
                told.append("unwound")

    first = start_task_alone(slow)
    await asyncio.sleep(0)
    second = holder(registry, told, "second", 0)
    await asyncio.sleep(0)
    kill(first)
    assert await second.wait() == "second"
    assert told == ["unwound", "second"]
    assert first.outcome == Exited(KILLED)
    await settled(registry)


async def test_a_holder_that_dies_with_a_lock_in_hand_gives_it_back() -> None:
    registry, told = await start(Registry), list[str]()

    class Holder(GenServer):
        def init(self) -> None:
            self.ticket = object()

        async def take(self) -> None:
            await registry.call(Registry.hold, "key", self.ticket)

    first = await start(Holder)
    await first.call(Holder.take)
    second = holder(registry, told, "second", 0)
    await asyncio.sleep(1)
    assert told == []
    kill(first)
    assert await second.wait() == "second"
    await settled(registry)


@pytest.mark.otp("registry_test", "locks when the one waiting for the lock terminates")
async def test_a_waiter_that_died_or_gave_up_is_passed_over() -> None:
    registry, told = await start(Registry), list[str]()
    first = holder(registry, told, "first", 100)
    await asyncio.sleep(1)
    second = holder(registry, told, "second")
    third = holder(registry, told, "third", 0)
    async with inbox():
        with pytest.raises(CallTimeout):
            async with lock(registry, "key", 5):
                told.append("never")
    assert await second.shutdown(brutally=True) is None
    assert await first.wait(None) == "first"
    assert await third.wait() == "third"
    assert told == ["first", "third"]
    await settled(registry)


async def test_only_a_process_holds_a_lock_and_only_its_ticket_gives_it_back() -> None:
    registry, told = await start(Registry), list[str]()
    with pytest.raises(NotAnActor):
        async with lock(registry, "key"):
            pass
    with pytest.raises(NotAnActor):
        await registry.call(Registry.hold, "key", object())
    async with inbox() as me:
        async with lock(registry, "key"):
            task = holder(registry, told, "second", 0)
            await registry.call(Registry.release, "key", me.pid, object())
            await registry.call(Registry.release, "other", me.pid, object())
            await asyncio.sleep(1)
            assert told == []
        assert await task.wait() == "second"
    await settled(registry)


async def test_a_process_that_leaves_a_key_keeps_its_lock_and_its_monitor() -> None:
    registry, told = await start(Registry), list[str]()
    async with inbox():
        await join(registry, "key")
        async with lock(registry, "key"):
            await leave(registry, "key")
            server = registry._find()
            assert server.watching is not None
        await join(registry, "key")
        async with lock(registry, "key"):
            pass
        assert await holder(registry, told, "second", 0).wait() == "second"
        assert len(server.watching) == 1, "its entry is left, and its lock is not"


async def test_a_process_holds_several_keys_and_a_waiter_that_dies_at_the_last_moment_is_passed_over() -> None:
    registry, told = await start(Registry), list[str]()
    async with inbox() as me:
        tickets = [object(), object()]
        for number, ticket in enumerate(tickets):
            await registry.call(Registry.hold, f"key {number}", ticket)
        first, second = (holder(registry, told, name, 0, key="key 0") for name in ("first", "second"))
        await asyncio.sleep(1)
        kill(first)
        await registry.call(Registry.release, "key 0", me.pid, tickets[0])
        assert await second.wait() == "second"
        assert told == ["second"]
        third = holder(registry, told, "third", 0, key="key 1")
        await asyncio.sleep(1)
        assert third.outcome is None
        await registry.call(Registry.release, "key 1", me.pid, tickets[1])
        assert await third.wait() == "third"
    await settled(registry)
