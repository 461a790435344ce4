"""Processes that are started as routines and become servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorError,
    Continue,
    Crash,
    Down,
    Exit,
    Node,
    NoReply,
    NotAnActor,
    On,
    Pid,
    Ref,
    Registry,
    StartFailed,
    acknowledge,
    become,
    exit,
    inbox,
    kill,
    monitor,
    register,
    self_pid,
    send,
    spawn,
    spawn_link,
    start,
    start_routine,
    start_routine_link,
    trap_exit,
    via,
    whereis,
)

from .servers import Bailout, Stopped, Subject

if TYPE_CHECKING:
    from greenroom.supervision import Inbox


async def by_hand(name: Any = None, claim: Any = None, first: NoReply | None = None) -> None:
    """Prepare, acknowledge the start, and become a server."""
    trap_exit()
    if isinstance(name, str):
        register(name)
    elif name is not None:
        name.register(self_pid())
    acknowledge()
    become(Subject(), name=claim, first=first)


async def names(kind: str) -> Any:
    return "my_server" if kind == "local" else via(await start(Registry), "my_server")


async def serves_and_stops(ref: Ref[Subject], me: Inbox) -> None:
    assert await ref.call(Subject.started) == "ok"
    assert await ref.call(Subject.stop) == "ok"
    match await me.receive(timeout=5):
        case Exit(pid=pid, reason=Crash(error=Stopped())):
            assert pid == ref.pid
        case other:
            pytest.fail(f"{other!r} is not the end that was asked for")


@pytest.mark.otp("gen_server_SUITE", "spec_init")
@pytest.mark.parametrize("kind", ["local", "registry"])
async def test_a_process_that_registered_itself_becomes_a_server_of_that_name(kind: str) -> None:
    name = await names(kind)
    async with inbox() as me:
        ref = await start_routine_link(by_hand, name, name)
        assert whereis(name) == ref.pid
        await serves_and_stops(ref, me)
        assert whereis(name) is None


@pytest.mark.otp("gen_server_SUITE", "spec_init")
async def test_a_process_without_a_name_becomes_a_server() -> None:
    async with inbox() as me:
        await serves_and_stops(await start_routine_link(by_hand), me)
        await serves_and_stops(await start_routine_link(by_hand, None, None, NoReply(idle_after=5.0)), me)


@pytest.mark.otp("gen_server_SUITE", "spec_init")
@pytest.mark.parametrize("kind", ["local", "registry"])
async def test_a_name_that_is_claimed_and_not_registered_ends_the_process(kind: str) -> None:
    name = await names(kind)
    async with inbox() as me:
        ref = await start_routine_link(by_hand, None, name)
        match await me.receive(timeout=1):
            case Exit(pid=pid, reason=Crash(error=ActorError() as error)):
                assert pid == ref.pid
                assert "not registered to this process" in str(error)
            case other:
                pytest.fail(f"{other!r}")


@pytest.mark.otp("gen_server_SUITE", "otp_5854")
@pytest.mark.parametrize("kind", ["local", "registry"])
async def test_a_name_that_another_process_has_cannot_be_claimed(kind: str) -> None:
    name = await names(kind)
    async with inbox() as me:
        if isinstance(name, str):
            register(name)
        else:
            name.register(me.pid)
        ref = await start_routine_link(by_hand, None, name)
        ended = await me.receive(timeout=1)
        assert isinstance(ended, Exit)
        assert ended.pid == ref.pid
        assert "not registered to this process" in str(ended.reason)
        assert whereis(name) == me.pid


@pytest.mark.otp("gen_server_SUITE", "spec_init")
async def test_a_server_with_a_name_and_no_timeout_lives_on() -> None:
    name = await names("registry")
    async with inbox():
        ref = await start_routine_link(by_hand, name, name)
        await asyncio.sleep(1)
        by_name: Ref[Subject] = Ref(name)
        assert await by_name.call(Subject.started) == "ok"
        assert by_name.pid == ref.pid


@pytest.mark.otp("gen_server_SUITE", "spec_init")
async def test_only_a_spawned_process_can_become_a_server() -> None:
    with pytest.raises(NotAnActor):
        become(Subject())
    async with inbox():
        with pytest.raises(ActorError, match="only a process made by"):
            become(Subject())


async def test_a_process_becomes_a_server_without_a_starter_who_waits(node: Node) -> None:
    async def main() -> None:
        become(Subject(), name=On("plain", node.name))

    async def named() -> None:
        register("plain")
        await main()

    pid = spawn(named)
    ref: Ref[Subject] = Ref(pid)
    assert await ref.call(Subject.ping) == "pong"


async def test_acknowledge_without_a_waiting_starter_is_a_no_op() -> None:
    async def main() -> None:
        acknowledge()
        become(Subject())

    ref: Ref[Subject] = Ref(spawn(main))
    assert await ref.call(Subject.ping) == "pong"


async def test_the_first_action_of_become_comes_before_earlier_messages() -> None:
    async with inbox() as me:

        async def main() -> None:
            send(self_pid(), "after")
            become(Subject(), first=NoReply(then=Continue(me.pid)))

        ref = await start_routine_link(main)
        assert [await me.receive(), await me.receive()] == [(ref.pid, "continue"), (ref.pid, "after")]


async def test_a_start_by_hand_that_fails_is_told_with_the_reason() -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise Bailout

    async def ends() -> None:
        return None

    async with inbox() as me:
        for each in (start_routine, start_routine_link):
            with pytest.raises(StartFailed) as failed:
                await each(fails)
            assert isinstance(failed.value.__cause__, Bailout)
            with pytest.raises(StartFailed) as ended:
                await each(ends)
            assert ended.value.reason == NORMAL
        assert me.pending() == ()


@pytest.mark.otp("gen_server_SUITE", "spec_init_local_registered_parent")
@pytest.mark.otp("gen_server_SUITE", "spec_init_global_registered_parent")
@pytest.mark.parametrize("kind", ["local", "registry"])
async def test_a_server_made_by_hand_knows_its_parent_by_pid_whatever_it_is_called(kind: str) -> None:
    parents_name = "parent" if kind == "local" else via(await start(Registry), "parent")
    name = await names(kind)
    async with inbox() as me:
        if isinstance(parents_name, str):
            register(parents_name)
        else:
            parents_name.register(me.pid)
        ref: Ref[Subject] = await start_routine_link(by_hand, name, name)
        assert await ref.call(Subject.started) == "ok"
        ref.tell((me.pid, "stop"))
        assert await me.receive(timeout=1) == (ref.pid, "stopped")


async def test_a_killed_routine_has_not_started_whatever_it_acknowledges_while_unwinding() -> None:
    begun: asyncio.Future[Pid] = asyncio.get_running_loop().create_future()

    async def main() -> None:
        begun.set_result(self_pid())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            acknowledge()
            raise

    starting = asyncio.create_task(start_routine(main))
    kill(await begun)
    with pytest.raises(StartFailed) as caught:
        await starting
    assert caught.value.reason == KILLED


async def test_the_end_of_its_parent_ends_a_server_made_by_hand_that_traps_exits() -> None:
    async with inbox() as me:

        async def parent() -> None:
            ref = await start_routine_link(by_hand)
            send(me.pid, ref)
            await asyncio.Event().wait()

        pid = spawn_link(parent)
        ref = await me.receive()
        watch = monitor(ref)
        exit(pid, SHUTDOWN)
        down = await me.receive(lambda message: isinstance(message, Down))
        assert (down.ref, down.reason) == (watch, SHUTDOWN)
