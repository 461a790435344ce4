"""Casts, plain messages, broadcasts, and continuations, which come first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NORMAL,
    Continue,
    Down,
    NoReply,
    Options,
    Ref,
    Registry,
    Reply,
    Stop,
    abcast,
    inbox,
    kill,
    monitor,
    send,
    start,
    start_link,
    start_monitor,
    via,
    wait_down,
)
from greenroom.supervision.registry import dispatch, join

from .servers import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Inbox, Pid


@pytest.mark.otp("gen_server_SUITE", "cast")
@pytest.mark.otp("gen_server_SUITE", "info")
@pytest.mark.parametrize("kind", ["cast", "info"])
async def test_a_message_is_handled_wakes_later_and_stops(kind: str) -> None:
    async with inbox() as me:
        ref, watch = await Options(name="my_test_name").start_monitor(Subject)
        by_name: Ref[Subject] = Ref("my_test_name")
        tell: Callable[[object], bool] = by_name.tell if kind == "cast" else by_name.send
        assert tell((me.pid, "handle"))
        assert await me.receive(timeout=1) == (ref.pid, f"handled {kind}")
        assert tell((me.pid, "delayed", 0.001))
        assert await me.receive(timeout=1) == (ref.pid, "delayed")
        assert tell((me.pid, "stop"))
        assert await me.receive(timeout=1) == (ref.pid, "stopped")
        assert (await me.receive(timeout=1)).ref is watch


@pytest.mark.otp("gen_server_SUITE", "cast")
@pytest.mark.otp("gen_server_SUITE", "info")
async def test_telling_a_missing_process_is_no_error() -> None:
    ref = await start(Subject)
    kill(ref)
    await wait_down(ref)
    missing: Ref[Subject] = Ref("missing")
    for each in (ref, missing):
        assert not each.tell("anything")
        assert not each.send("anything")
        assert not each.cast(Subject.ping)
    assert not send("missing", "anything")


class Room(Subject):
    """Reports each message to a process."""

    def tell_me(self, pid: Pid, what: str) -> None:
        send(pid, (self.pid, what))


@pytest.mark.otp("gen_server_SUITE", "abcast")
async def test_a_broadcast_reaches_all_living_servers_without_waiting() -> None:
    async with inbox() as me:
        first = await Options(name="my_test_name").start(Room)
        second = await start(Room)
        gone = await start(Room)
        kill(gone)
        await wait_down(gone)
        by_name: Ref[Room] = Ref("my_test_name")
        missing: Ref[Room] = Ref("missing")
        abcast([by_name, gone, missing, second], Room.tell_me, me.pid, "all")
        told = {await me.receive(timeout=1) for _ in range(2)}
        assert told == {(first.pid, "all"), (second.pid, "all")}


@pytest.mark.otp("gen_server_SUITE", "abcast")
async def test_a_broadcast_reaches_all_under_one_key_of_a_registry() -> None:
    registry = await start(Registry, "duplicate")

    class Member(Subject):
        async def init(self) -> None:
            await join(registry, "members")

    async with inbox() as me:
        members = [await start(Member) for _ in range(3)]
        for wanted, message in (("handled info", (me.pid, "handle")), ("stopped", (me.pid, "stop"))):
            assert dispatch(registry, "members", message) == 3
            assert {await me.receive(timeout=1) for _ in members} == {(ref.pid, wanted) for ref in members}


async def test_a_registered_name_is_found_wherever_it_lives() -> None:
    registry = await start(Registry)
    name = via(registry, "me")
    async with inbox() as me:
        ref = await Options(name=name).start_link(Subject)
        assert send(name, (me.pid, "handle"))
        assert await me.receive(timeout=1) == (ref.pid, "handled info")
        assert monitor(name).pid == ref.pid


async def follows(me: Inbox, ref: Ref[Any], *words: str) -> None:
    """These words come, in this order, and nothing else does."""
    assert [await me.receive(timeout=1) for _ in words] == [(ref.pid, word) for word in words]
    assert me.pending() == ()


@pytest.mark.otp("gen_server_SUITE", "continue")
async def test_a_continue_comes_before_earlier_messages() -> None:
    async with inbox() as me:
        ref = await start_link(Subject, (Continue(me.pid), "after"))
        await follows(me, ref, "continue", "after")
        for before in ([], ["before"]):
            first = Continue((me.pid, Continue(me.pid))) if before else Continue(me.pid)
            assert await ref.ask(("do", first, "after")) == "ok"
            await follows(me, ref, *before, "continue", "after")
            ref.tell((me.pid, "do", first, "after"))
            await follows(me, ref, *before, "continue", "after")
            ref.send((me.pid, "do", first, "after"))
            await follows(me, ref, *before, "continue", "after")


class Answering(Subject):
    """Answers a call in its continuation."""

    def handle_call(self, request: Any, caller: Any) -> Any:
        send(self.pid, "after")
        return NoReply(then=Continue((caller, request)))

    def handle_continue(self, token: Any) -> None:
        caller, self.hear = token
        self._say("continue")
        caller.reply("answered")


@pytest.mark.otp("gen_server_SUITE", "continue")
async def test_a_continuation_may_answer_the_call_that_led_to_it() -> None:
    async with inbox() as me:
        ref = await start_link(Answering)
        assert await ref.ask(me.pid) == "answered"
        await follows(me, ref, "continue", "after")


@pytest.mark.otp("gen_server_SUITE", "continue")
@pytest.mark.parametrize("way", ["init", "call", "cast", "info", "continue"])
async def test_a_continuation_may_stop_the_server(way: str) -> None:
    ends = Continue(Stop(NORMAL))
    async with inbox() as me:
        ref, watch = await start_monitor(Subject, ends if way == "init" else None)
        match way:
            case "call":
                assert await ref.ask(Reply("ok", ends)) == "ok"
            case "cast":
                ref.tell((me.pid, "do", ends))
            case "info":
                ref.send((me.pid, "do", ends))
            case "continue":
                ref.send((me.pid, "do", Continue((me.pid, ends))))
                assert await me.receive(timeout=1) == (ref.pid, "before")
            case _:
                pass
        assert await me.receive(timeout=1) == Down(watch, ref.pid, NORMAL)
