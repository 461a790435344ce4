"""Introspection of a server, and changes of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    ActorError,
    CallTimeout,
    GenServer,
    NotRegistered,
    Options,
    Ref,
    inbox,
    introspect,
    is_alive,
    start,
    stop,
)

from .servers import Crashed, Subject

if TYPE_CHECKING:
    from greenroom.supervision import Inbox


class Keeper(GenServer):
    """Has a slot and a dict."""

    __slots__ = ("__dict__", "kept", "never_set")

    def __init__(self, kept: Any) -> None:
        self.kept = kept
        self.count = 0

    def ask_for_it(self) -> Any:
        self.count += 1
        return self.kept


async def keeper(me: Inbox) -> Ref[Keeper]:
    return await Options(name="get_state").start_link(Keeper, me.pid)


@pytest.mark.otp("gen_server_SUITE", "get_state")
async def test_the_state_of_a_server_is_its_fields_by_name_and_by_pid_and_suspended_too() -> None:
    async with inbox() as me:
        ref = await keeper(me)
        for who in ("get_state", ref, ref.pid):
            state = await introspect.get_state(who)
            assert state == {"kept": me.pid, "count": 0}
            assert state["kept"] is me.pid
            assert await introspect.get_state(who, timeout=5) == state
        await introspect.suspend(ref)
        assert await introspect.get_state(ref) == {"kept": me.pid, "count": 0}
        await introspect.resume(ref)
        assert await ref.call(Keeper.ask_for_it) == me.pid


@pytest.mark.otp("gen_server_SUITE", "replace_state")
async def test_the_state_is_replaced_by_what_a_function_makes_of_it() -> None:
    async with inbox() as me:
        ref = await keeper(me)
        new = {"kept": "replaced", "count": 7}
        assert await introspect.replace_state("get_state", lambda _: new) == new
        assert await introspect.get_state(ref) == new
        again = await introspect.replace_state(ref, lambda state: {"kept": f"{state['kept']} again"}, 5)
        assert again == {"kept": "replaced again"}
        assert await introspect.get_state(ref) == again

        await introspect.suspend(ref)
        await introspect.replace_state(ref, lambda state: {**state, "count": 1})
        await introspect.resume(ref)
        assert await ref.call(Keeper.ask_for_it) == "replaced again"
        assert (await introspect.get_state(ref))["count"] == 2


@pytest.mark.otp("gen_server_SUITE", "replace_state")
async def test_a_function_that_raises_leaves_the_state_as_it_was_and_the_server_alive() -> None:
    def fails(state: dict[str, Any]) -> dict[str, Any]:
        state["kept"] = "half way"
        raise Crashed("fail")

    async with inbox() as me:
        ref = await keeper(me)
        before = await introspect.get_state(ref)
        with pytest.raises(Crashed, match="fail"):
            await introspect.replace_state(ref, fails)
        assert is_alive(ref)
        assert await introspect.get_state(ref) == before


class Strict(GenServer):
    """Has slots only, as supervisors do."""

    __slots__ = ("maybe", "one", "two")

    def __init__(self) -> None:
        self.one, self.two = 1, 2


async def test_a_state_with_an_unknown_slot_replaces_nothing() -> None:
    ref = await start(Strict)
    with pytest.raises(AttributeError):
        await introspect.replace_state(ref, lambda _: {"one": 10, "maybe": 2, "three": 3})
    assert await introspect.get_state(ref) == {"one": 1, "two": 2}


@pytest.mark.otp("sys_SUITE", "suspend")
async def test_the_status_of_a_server_says_who_it_is_and_what_waits() -> None:
    async with inbox() as me:
        ref = await Options(name="status", label="a subject").start_link(Subject)
        status = await introspect.status("status")
        assert (status.pid, status.label, status.behaviour) == (ref.pid, "a subject", Subject)
        assert (status.names, status.parent, status.suspended, status.waiting) == (("status",), me.pid, False, 0)
        await introspect.suspend(ref)
        for _ in range(3):
            ref.send((me.pid, "handle"))
        status = await introspect.status(ref)
        assert (status.suspended, status.waiting) == (True, 3)
        assert me.pending() == ()
        with pytest.raises(CallTimeout):
            await ref.within(1).call(Subject.ping)
        await introspect.resume(ref)
        assert [await me.receive() for _ in range(3)] == [(ref.pid, "handled info")] * 3


@pytest.mark.otp("sys_SUITE", "suspend")
async def test_a_suspended_server_with_a_bounded_mailbox_says_no_when_it_is_full() -> None:
    ref = await Options(mailbox=2).start(Subject)
    await introspect.suspend(ref)
    await introspect.suspend(ref)
    assert [ref.send("kept") for _ in range(2)] == [True, True]
    assert (await introspect.status(ref)).waiting == 2
    assert not ref.send("one too many")
    await introspect.resume(ref)
    await introspect.resume(ref)
    assert await ref.call(Subject.ping) == "pong"
    for _ in range(5):
        assert (await introspect.status(ref)).waiting == 0
    await introspect.suspend(ref)
    assert [ref.send("kept") for _ in range(3)] == [True, True, False]


async def test_introspection_of_a_missing_process_or_a_routine_is_an_error() -> None:
    with pytest.raises(NotRegistered):
        await introspect.get_state("missing")
    async with inbox() as me:
        with pytest.raises(ActorError, match="is no server"):
            await introspect.get_state(me)
    ref = await start(Subject)
    await stop(ref)
    with pytest.raises(ActorError):
        await introspect.suspend(ref)
    with pytest.raises(ValueError, match="seconds"):
        await introspect.get_state(await start(Subject), -1)
