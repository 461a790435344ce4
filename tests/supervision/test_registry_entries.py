"""Registry entries: registering, searching, and leaving keys."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from greenroom.supervision import (
    ActorError,
    AlreadyRegistered,
    GenServer,
    NotRegistered,
    Options,
    Ref,
    Registry,
    inbox,
    kill,
    start,
    via,
    wait_down,
)
from greenroom.supervision.registry import (
    RegistryEntry,
    count,
    dispatch,
    join,
    keys,
    leave,
    lookup,
    select,
    update,
    values,
)

both = pytest.mark.parametrize("kind", ["unique", "duplicate"])
Kind = Literal["unique", "duplicate"]


class Room(GenServer):
    """A process to be found."""


@pytest.mark.otp("registry_unique_test", "counts 0 keys in an empty registry")
@pytest.mark.otp("registry_duplicate_test", "counts 0 keys in an empty registry")
@pytest.mark.otp("registry_unique_test", "empty list for empty registry")
@pytest.mark.otp("registry_duplicate_test", "empty list for empty registry")
@both
async def test_an_empty_registry_has_nothing_to_find(kind: Kind) -> None:
    registry = await start(Registry, kind)
    assert (count(registry), select(registry), lookup(registry, "attic")) == (0, [], [])


@pytest.mark.otp("registry_unique_test", "counts the number of keys in a registry")
@pytest.mark.otp("registry_unique_test", "has unique registrations")
async def test_a_process_has_a_unique_key_once_and_other_keys_beside_it() -> None:
    registry = await start(Registry)
    async with inbox() as me:
        await join(registry, "attic", "cold")
        with pytest.raises(AlreadyRegistered) as taken:
            await join(registry, "attic", "warm")
        assert taken.value.pid == me.pid
        assert values(registry, "attic", me.pid) == ["cold"]
        await join(registry, "cellar")
        assert keys(registry, me.pid) == ["attic", "cellar"]
        assert count(registry) == 2


@pytest.mark.otp("registry_duplicate_test", "counts the number of keys in a registry")
@pytest.mark.otp("registry_duplicate_test", "has duplicate registrations")
async def test_a_process_has_a_duplicate_key_as_often_as_it_wants_each_with_its_value() -> None:
    registry = await start(Registry, "duplicate")
    async with inbox() as me:
        await join(registry, "news", "sports")
        await join(registry, "weather")
        await join(registry, "news", "arts")
        assert keys(registry, me.pid) == ["news", "weather", "news"]
        assert values(registry, "news", me.pid) == ["sports", "arts"]
        assert count(registry) == 3
        assert dispatch(registry, "news", "hello") == 2
        assert me.pending() == ("hello", "hello")


@pytest.mark.otp("registry_unique_test", "compares using ===")
@pytest.mark.otp("registry_duplicate_test", "compares using matches")
@pytest.mark.otp("registry_duplicate_test", "uses exact complex keys in lookup and match")
@both
async def test_keys_are_compared_as_in_any_dict(kind: Kind) -> None:
    registry = await start(Registry, kind)
    async with inbox() as me:
        for key in (("room", 7), ("room", 8), frozenset("ab"), "1", 1):
            await join(registry, key, key)
        assert lookup(registry, ("room", 7)) == [(me.pid, ("room", 7))]
        assert lookup(registry, frozenset("ba")) == [(me.pid, frozenset("ab"))]
        assert lookup(registry, ("room",)) == []
        assert lookup(registry, 1.0) == [(me.pid, 1)], "as 1 == 1.0 in Python"
        unhashable: Any = ["room", 7]
        with pytest.raises(TypeError, match="unhashable"):
            await join(registry, unhashable)
        assert count(registry) == 5, "and the registry lives on"


@pytest.mark.otp("registry_unique_test", "supports match patterns")
@pytest.mark.otp("registry_duplicate_test", "supports match patterns")
@pytest.mark.otp("registry_unique_test", "supports guard conditions")
@pytest.mark.otp("registry_duplicate_test", "supports guards")
@pytest.mark.otp("registry_unique_test", "count_match supports match patterns")
@pytest.mark.otp("registry_duplicate_test", "count_match supports match patterns")
@pytest.mark.otp("registry_unique_test", "count_match supports guard conditions")
@pytest.mark.otp("registry_duplicate_test", "count_match supports guard conditions")
@both
async def test_entries_of_a_key_are_sought_by_their_value(kind: Kind) -> None:
    registry = await start(Registry, kind)
    async with inbox() as me:
        await join(registry, "attic", {"size": 1})
        assert lookup(registry, "attic", lambda value: value["size"] < 2) == [(me.pid, {"size": 1})]
        assert lookup(registry, "attic", lambda value: value["size"] > 2) == []
        assert lookup(registry, "cellar", lambda _: True) == []
        if kind == "duplicate":
            await join(registry, "attic", {"size": 3})
            assert lookup(registry, "attic", lambda value: value["size"] > 2) == [(me.pid, {"size": 3})]
            assert len(lookup(registry, "attic", lambda value: "size" in value)) == 2


@pytest.mark.otp("registry_unique_test", "select all")
@pytest.mark.otp("registry_duplicate_test", "select all")
@pytest.mark.otp("registry_unique_test", "select supports full match specs")
@pytest.mark.otp("registry_duplicate_test", "select supports full match specs")
@pytest.mark.otp("registry_unique_test", "select supports guard conditions")
@pytest.mark.otp("registry_duplicate_test", "select supports guard conditions")
@pytest.mark.otp("registry_unique_test", "select allows multiple specs")
@pytest.mark.otp("registry_duplicate_test", "select allows multiple specs")
@pytest.mark.otp("registry_unique_test", "count_select supports match specs")
@pytest.mark.otp("registry_duplicate_test", "count_select supports match specs")
@pytest.mark.otp("registry_unique_test", "count_select supports guard conditions")
@pytest.mark.otp("registry_duplicate_test", "count_select supports guard conditions")
@pytest.mark.otp("registry_unique_test", "count_select allows multiple specs")
@pytest.mark.otp("registry_duplicate_test", "count_select allows multiple specs")
@both
async def test_entries_are_sought_by_key_owner_and_value(kind: Kind) -> None:
    registry = await start(Registry, kind)
    room = await Options(name=via(registry, "attic")).start(Room)
    async with inbox() as me:
        await join(registry, "cellar", 3)
        every = [RegistryEntry("attic", room.pid, None), RegistryEntry("cellar", me.pid, 3)]
        assert select(registry) == every
        assert select(registry, lambda entry: entry.key in {"attic", "cellar"}) == every
        assert select(registry, lambda entry: entry.pid == room.pid) == every[:1]
        assert select(registry, lambda entry: entry.value == 3) == every[1:]
        assert count(registry, lambda entry: entry.value is not None) == 1
        assert count(registry, lambda entry: entry.key == "hall") == 0
        kill(room)
        assert select(registry) == every[1:], "seen before the registry has heard of it"


@pytest.mark.otp("registry_unique_test", "unregisters process by key")
@pytest.mark.otp("registry_duplicate_test", "unregisters by key")
@pytest.mark.otp("registry_unique_test", "unregisters with no entries")
@pytest.mark.otp("registry_duplicate_test", "unregisters with no entries")
@both
async def test_leaving_a_key_removes_all_its_entries_and_no_other(kind: Kind) -> None:
    registry = await start(Registry, kind)
    async with inbox() as me:
        await leave(registry, "attic")
        for _ in range(1 if kind == "unique" else 2):
            await join(registry, "attic")
        await join(registry, "cellar")
        await leave(registry, "attic")
        assert keys(registry, me.pid) == ["cellar"]
        await leave(registry, "cellar")
        assert keys(registry, me.pid) == []


@pytest.mark.otp("registry_unique_test", "unregister_match supports patterns")
@pytest.mark.otp("registry_duplicate_test", "unregister_match supports patterns")
@pytest.mark.otp("registry_unique_test", "unregister_match supports guards")
@pytest.mark.otp("registry_duplicate_test", "unregister_match supports guards")
@both
async def test_entries_are_left_by_their_value(kind: Kind) -> None:
    registry = await start(Registry, kind)
    async with inbox() as me:
        await join(registry, "attic", 1)
        await leave(registry, "attic", lambda value: value > 1)
        assert lookup(registry, "attic") == [(me.pid, 1)]
        with pytest.raises(ZeroDivisionError):
            await leave(registry, "attic", lambda value: value / 0)
        assert lookup(registry, "attic") == [(me.pid, 1)], "and the registry lives on"
        if kind == "duplicate":
            await join(registry, "attic", 2)
            await leave(registry, "attic", lambda value: value < 2)
            assert lookup(registry, "attic") == [(me.pid, 2)]
        await leave(registry, "attic", lambda value: value < 3)
        assert lookup(registry, "attic") == []


@pytest.mark.otp("registry_duplicate_test", "update_value is not supported")
async def test_update_refuses_a_duplicate_key() -> None:
    registry = await start(Registry, "duplicate")
    async with inbox():
        await join(registry, "news", 1)
        with pytest.raises(ActorError, match="it may have many values"):
            await update(registry, "news", lambda value: value + 1)


@pytest.mark.otp("registry_unique_test", "raises on unknown registry name")
@pytest.mark.otp("registry_duplicate_test", "raises on unknown registry name")
async def test_a_registry_that_is_not_there_is_an_error() -> None:
    nowhere: Ref[Registry] = Ref("nowhere")
    async with inbox():
        with pytest.raises(NotRegistered):
            await join(nowhere, "attic")
        with pytest.raises(NotRegistered):
            lookup(nowhere, "attic")


@pytest.mark.otp("registry_unique_test", "dispatches to a single key")
async def test_a_caller_chooses_among_the_owners_by_lookup() -> None:
    registry = await start(Registry)
    async with inbox() as me:
        await join(registry, "attic", "here")
        for pid, value in lookup(registry, "attic"):
            Ref[Any](pid).send((value, "hello"))
        assert await me.receive() == ("here", "hello")
        assert dispatch(registry, "attic", "all of you") == 1
        assert dispatch(registry, "cellar", "missing") == 0


@pytest.mark.otp("registry_unique_test", "doesn't grow ets on already_registered")
@pytest.mark.otp("registry_unique_test", "doesn't grow ets on already_registered across processes")
async def test_a_refused_entry_leaves_no_trace() -> None:
    registry = await start(Registry)
    room = await Options(name=via(registry, "attic")).start(Room)
    server = registry._find().behaviour.inner
    assert isinstance(server, Registry)
    before = server.report_state()
    async with inbox():
        with pytest.raises(AlreadyRegistered):
            await join(registry, "attic")
        with pytest.raises(AlreadyRegistered):
            await registry.call(Registry.register, "attic", room.pid)
    assert server.report_state() == before == "keys=unique, 1 keys, 1 owners, 0 locks"
    assert len(server._otp_process.watching or ()) == 1


@pytest.mark.otp("registry_test", "clean up registry on process crash")
@both
async def test_nothing_is_kept_of_the_dead(kind: Kind) -> None:
    registry = await start(Registry, kind)
    rooms = [await Options(name=via(registry, key)).start(Room) for key in ("attic", "cellar")]
    for room in rooms:
        kill(room)
        await wait_down(room)
    server = registry._find().behaviour.inner
    assert isinstance(server, Registry)
    await leave_nothing(registry)
    assert server.report_state() == f"keys={kind}, 0 keys, 0 owners, 0 locks"
    assert server._otp_process.watching is None


async def leave_nothing(registry: Ref[Registry]) -> None:
    """Wait until the registry has handled all earlier events."""
    async with inbox():
        await leave(registry, "nothing")
