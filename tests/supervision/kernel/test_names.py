"""Names: one process each, freed when its code is done, in the node's table or in another registry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    ActorError,
    AlreadyRegistered,
    GenServer,
    Node,
    NotAnActor,
    NotRegistered,
    Options,
    Pid,
    Ref,
    StartFailed,
    inbox,
    kill,
    monitor,
    register,
    registered,
    send,
    spawn,
    start,
    stop,
    unregister,
    wait_down,
    whereis,
)

from .sample_servers import Log, forever, turns


class Fails(GenServer):
    """A server whose start fails."""

    def init(self) -> None:
        raise ValueError("no")


async def test_a_name_belongs_to_one_process() -> None:
    ref, other = await start(Log), await start(Log)
    register("log", ref.pid)
    assert whereis("log") == ref.pid
    with pytest.raises(AlreadyRegistered, match=rf"'log' is already registered by {ref.pid}") as caught:
        register("log", other.pid)
    assert (caught.value.name, caught.value.pid) == ("log", ref.pid)
    with pytest.raises(AlreadyRegistered):
        await Options(name="log").start(Log)
    register(("any", "hashable"), ref.pid)
    assert registered() == ("log", ("any", "hashable"))
    assert send("log", 1)
    assert await ref.call(Log.read) == [1]
    unregister("log")
    assert whereis("log") is None
    assert not send("log", 2)
    with pytest.raises(NotRegistered):
        unregister("log")
    register("log", other.pid)
    assert whereis("log") == other.pid


async def test_names_are_free_when_their_process_is_gone(node: Node) -> None:
    ref = await Options(name="one").start(Log)
    register("two", ref.pid)
    kill(ref)
    assert registered() == ()
    assert node.names == {}
    await Options(name="one").start(Log)


async def test_a_name_given_to_another_is_not_taken_away_by_the_first_ones_death() -> None:
    ref, other = await Options(name="log").start(Log), await start(Log)
    unregister("log")
    register("log", other.pid)
    kill(ref)
    assert whereis("log") == other.pid


async def test_a_process_registers_itself() -> None:
    async def known() -> None:
        register("me")
        await forever()

    pid = spawn(known)
    await turns()
    assert whereis("me") == pid
    with pytest.raises(NotAnActor, match="only a process can register itself"):
        register("missing")


@pytest.mark.parametrize("name", [None, Pid("node", 1, 1), []])
async def test_an_impossible_name_is_refused(name: Any) -> None:
    ref = await start(Log)
    with pytest.raises(TypeError, match=r"cannot be a name|unhashable"):
        register(name, ref.pid)
    if name is not None:
        with pytest.raises(TypeError, match=r"cannot be a name|unhashable"):
            Options(name=name)


async def test_the_dead_and_the_dying_get_no_name() -> None:
    gone, dying = await start(Log), await start(Log)
    await stop(gone)
    with pytest.raises(ActorError, match=r"cannot register 'x': <.*> is not alive on this node"):
        register("x", gone.pid)

    async def hang() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(1.0)

    dying.cast(Log.do_async, hang)
    await turns()
    kill(dying)
    with pytest.raises(NotRegistered):
        register("x", dying.pid)
    assert registered() == ()


async def test_a_start_that_fails_leaves_no_name_and_no_process(node: Node) -> None:
    for options in (Options(name="x"), Options(name=Shelf(), timeout=1.0)):
        with pytest.raises(StartFailed):
            await options.start(Fails)
        assert whereis(options.name) is None
    with pytest.raises(AlreadyRegistered):
        await Options(name=Shelf(Pid("other", 1, 1))).start(Log)
    assert node.processes == {}


class Shelf:
    """A registry of one name."""

    def __init__(self, pid: Pid | None = None) -> None:
        self.pid = pid

    def whereis(self) -> Pid | None:
        return self.pid

    def register(self, pid: Pid) -> None:
        if self.pid is not None:
            raise AlreadyRegistered(self, self.pid)
        self.pid = pid

    def unregister(self, pid: Pid) -> None:
        if self.pid == pid:
            self.pid = None


async def test_a_name_may_live_in_any_other_registry() -> None:
    shelf = Shelf()
    assert whereis(shelf) is None
    assert not send(shelf, 1)
    with pytest.raises(NotRegistered):
        await Ref[Log](shelf).call(Log.read)
    ref = await Options(name=shelf).start(Log)
    assert whereis(shelf) == ref.pid
    assert send(shelf, 1)
    assert await Ref[Log](shelf).call(Log.read) == [1]
    assert registered() == ()
    async with inbox() as me:
        watching = monitor(shelf)
        kill(shelf)
        down = await me.receive()
        assert (down.ref, down.pid, down.name) == (watching, ref.pid, shelf)
    with pytest.raises(NotRegistered):
        await Ref[Log](shelf).call(Log.read)
    unregister(shelf)
    with pytest.raises(NotRegistered):
        unregister(shelf)
    other = await start(Log)
    register(shelf, other.pid)
    assert whereis(shelf) == other.pid
    await stop(shelf)
    assert await wait_down(shelf) is not None
