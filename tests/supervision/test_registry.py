"""The registry: unique and duplicate keys, owners that die, names through `via`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    ActorError,
    AlreadyRegistered,
    GenServer,
    NotRegistered,
    Options,
    Ref,
    Registry,
    Reject,
    Unexpected,
    inbox,
    is_alive,
    kill,
    receive,
    register,
    spawn,
    start,
    unregister,
    via,
    wait_down,
    whereis,
)
from greenroom.supervision.registry import count, dispatch, join, keys, leave, lookup, update, values

if TYPE_CHECKING:
    from greenroom.supervision import Node, Report


class Room(GenServer):
    """A process to be found."""

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def measure(self) -> int:
        return self.size

    async def enter(self, registry: Ref[Registry], key: str, value: Any = None) -> None:
        try:
            await join(registry, key, value)
        except AlreadyRegistered as taken:
            raise Reject(taken) from taken

    async def go(self, registry: Ref[Registry], key: str) -> None:
        await leave(registry, key)


@pytest.mark.otp("registry_unique_test", "via callbacks")
@pytest.mark.otp("registry_unique_test", "uses value provided in via")
async def test_a_name_of_a_registry_is_a_name_like_any_other() -> None:
    registry = await start(Registry)
    name = via(registry, "attic", "cold")
    ref = await Options(name=name).start(Room, 7)
    assert whereis(name) == ref.pid
    by_name: Ref[Room] = Ref(name)
    assert await by_name.call(Room.measure) == 7
    assert lookup(registry, "attic") == [(ref.pid, "cold")]
    assert keys(registry, ref.pid) == ["attic"]


@pytest.mark.otp("registry_unique_test", "has unique registrations across processes")
async def test_a_unique_key_has_one_owner() -> None:
    registry = await start(Registry)
    first = await Options(name=via(registry, "attic")).start(Room)
    with pytest.raises(AlreadyRegistered) as taken:
        await Options(name=via(registry, "attic")).start(Room)
    assert taken.value.pid == first.pid
    second = await start(Room)
    with pytest.raises(AlreadyRegistered):
        await second.call(Room.enter, registry, "attic")
    assert count(registry) == 1


@pytest.mark.otp("registry_duplicate_test", "has duplicate registrations across processes")
@pytest.mark.otp("registry_duplicate_test", "raises if attempt to be used on via")
async def test_a_duplicate_key_has_its_owners_in_the_order_they_came() -> None:
    registry = await start(Registry, "duplicate")
    rooms = [await start(Room, size) for size in range(3)]
    for room in rooms:
        await room.call(Room.enter, registry, "house", "here")
    assert [pid for pid, _ in lookup(registry, "house")] == [room.pid for room in rooms]
    with pytest.raises(ActorError, match="duplicate keys"):
        whereis(via(registry, "house"))
    assert keys(registry, rooms[1].pid) == ["house"]
    assert values(registry, "house", rooms[1].pid) == ["here"]


@pytest.mark.otp("registry_unique_test", "has unique registrations even if partition is delayed")
async def test_an_entry_goes_with_its_owner_at_once() -> None:
    registry = await start(Registry)
    ref = await Options(name=via(registry, "attic")).start(Room)
    kill(ref)
    assert lookup(registry, "attic") == [], "seen before the registry has heard of it"
    assert whereis(via(registry, "attic")) is None
    again = await Options(name=via(registry, "attic")).start(Room)
    assert whereis(via(registry, "attic")) == again.pid, "the old owner's Down does not take the new one's entry"
    await registry.call(Registry.unregister, "missing", again.pid)
    assert whereis(via(registry, "attic")) == again.pid
    assert count(registry) == 1


@pytest.mark.otp("registry_unique_test", "links and unlinks on register/unregister")
@pytest.mark.otp("registry_duplicate_test", "links and unlinks on register/unregister")
@pytest.mark.parametrize("kind", ["unique", "duplicate"])
async def test_a_process_that_leaves_is_no_longer_monitored(kind: Any) -> None:
    registry = await start(Registry, kind)
    room = await start(Room)
    await room.call(Room.enter, registry, "a")
    await room.call(Room.enter, registry, "b")
    await room.call(Room.go, registry, "a")
    assert keys(registry, room.pid) == ["b"]
    await room.call(Room.go, registry, "b")
    server = registry._process
    assert server is not None
    assert server.watching is None
    await room.call(Room.enter, registry, "a")
    assert count(registry) == 1


@pytest.mark.otp("registry_unique_test", "updates current process value")
async def test_values_change_in_place() -> None:
    registry = await start(Registry)
    ref = await Options(name=via(registry, "attic", 1)).start(Room)
    assert await registry.call(Registry.update, "attic", ref.pid, lambda value: value + 1) == 2
    assert lookup(registry, "attic") == [(ref.pid, 2)]
    other = await start(Room)
    for key, pid in (("cellar", ref.pid), ("attic", other.pid)):
        with pytest.raises(NotRegistered):
            await registry.call(Registry.update, key, pid, never)
    async with inbox() as me:
        await join(registry, "hall", 1)
        assert await update(registry, "hall", lambda value: value + 1) == 2
        assert lookup(registry, "hall") == [(me.pid, 2)]
        with pytest.raises(ZeroDivisionError):
            await update(registry, "hall", lambda value: value / 0)
        assert lookup(registry, "hall") == [(me.pid, 2)], "and the registry lives on"


def never(_: Any) -> NoReturn:
    raise AssertionError


@pytest.mark.otp("registry_duplicate_test", "dispatches to multiple keys in serial")
async def test_dispatch_reaches_every_process_under_the_key() -> None:
    registry = await start(Registry, "duplicate")

    async def member(me: Any) -> None:
        await join(registry, "news")
        me.send("ready")
        me.send(await receive())

    async with inbox() as me:
        here: Ref[Any] = Ref(me.pid)
        for _ in range(3):
            spawn(member, here)
        for _ in range(3):
            assert await me.receive() == "ready"
        assert dispatch(registry, "weather", "never delivered") == 0
        assert dispatch(registry, "news", "hello") == 3
        for _ in range(3):
            assert await me.receive() == "hello"


@pytest.mark.otp("registry_duplicate_test", "rejects invalid tuple syntax")
async def test_the_dead_cannot_be_entered_and_nonsense_is_refused() -> None:
    registry = await start(Registry)
    room = await start(Room)
    kill(room)
    await wait_down(room)
    with pytest.raises(ActorError, match="not alive"):
        await registry.call(Registry.register, "attic", room.pid)
    with pytest.raises(Exception, match="keys must be 'unique' or 'duplicate', not 'both'"):
        await start(Registry, "both")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    name = via(registry, "attic")
    kill(registry)
    with pytest.raises(NotRegistered):
        await Options(name=name).start(Room)


async def test_a_registry_can_have_a_name_and_be_found_by_it() -> None:
    registry = await start(Registry)
    register("rooms", registry.pid)
    by_name: Ref[Registry] = Ref("rooms")
    await Options(name=via(by_name, "attic")).start(Room, 3)
    room: Ref[Room] = Ref(via(by_name, "attic"))
    assert await room.call(Room.measure) == 3


async def test_a_name_of_a_registry_is_a_value_and_can_be_given_back() -> None:
    registry = await start(Registry)
    ref = await Options(name=via(registry, "attic")).start(Room)
    name = via(registry, "attic")
    assert {name: 1}[via(registry, "attic", "whatever it carries")] == 1
    assert name != via(registry, "cellar")
    assert repr(name) == f"'attic' in {registry}"
    unregister(name)
    assert (whereis(name), is_alive(ref)) == (None, True)


async def test_a_process_enters_itself_while_the_registry_is_what_runs() -> None:
    class Own(Registry):
        def init(self) -> None:
            register(via(Ref(self.pid), "registry"))

    registry: Ref[Any] = await start(Own)
    assert whereis(via(registry, "registry")) == registry.pid


async def test_an_unexpected_message_to_a_registry_is_reported(node: Node) -> None:
    reports: list[Report] = []
    node.reports.subscribe(reports.append)
    registry = await start(Registry)
    registry.send("what is this?")
    assert count(registry) == 0
    await registry.call(Registry.unregister, "nothing", registry.pid)
    assert [report for report in reports if isinstance(report, Unexpected)]
