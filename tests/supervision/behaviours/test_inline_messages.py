"""Inline messages: an idle process handles them on the sender's stack, with the same effects as through the mailbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from greenroom.supervision import (
    Crash,
    GenServer,
    Node,
    NoReply,
    Reply,
    Shutdown,
    Stop,
    current_node,
    inbox,
    is_alive,
    monitor,
    start,
)

if TYPE_CHECKING:
    from greenroom.supervision import Ref


class Ledger(GenServer):
    """Records its messages."""

    def __init__(self) -> None:
        self.written: list[object] = []

    def write(self, word: str) -> int:
        self.written.append(word)
        return len(self.written)

    async def write_slowly(self, word: str) -> int:
        await asyncio.sleep(1)
        return self.write(word)

    def fail(self) -> None:
        raise LookupError("a fault")

    def handle_info(self, message: Any) -> Any:
        if message == "stop":
            return Stop(Shutdown("told to"))
        if message == "fail":
            raise LookupError("a fault")
        self.written.append(message)
        return None

    def all(self) -> list[object]:
        return self.written


async def ledger() -> Ref[Ledger]:
    ref: Ref[Ledger] = await start(Ledger)
    await ref.call(Ledger.all)
    return ref


async def test_an_idle_process_takes_a_message_and_a_method_at_once() -> None:
    ref = await ledger()
    assert ref.now(Ledger.write, "one") == 1
    assert ref.send_now("two")
    assert await ref.call(Ledger.all) == ["one", "two"]


async def test_a_process_with_messages_takes_them_in_their_order() -> None:
    ref = await ledger()
    ref.cast(Ledger.write, "one")
    assert ref.now(Ledger.write, "two") is None
    assert ref.send_now("three")
    assert await ref.call(Ledger.all) == ["one", "two", "three"]


async def test_a_process_that_works_takes_it_afterwards() -> None:
    ref = await ledger()
    ref.cast(Ledger.write_slowly, "slow")
    await asyncio.sleep(0)
    assert ref.now(Ledger.write, "two") is None
    assert await ref.call(Ledger.all) == ["slow", "two"]


async def test_a_coroutine_goes_to_a_worker() -> None:
    ref = await ledger()
    ref.now(Ledger.write_slowly, "slow")
    assert ref.send_now("two")
    assert await ref.call(Ledger.all) == ["slow", "two"]


@pytest.mark.parametrize("way", ["message", "method"])
async def test_its_crash_is_its_own(way: str) -> None:
    ref = await ledger()
    async with inbox() as me:
        monitor(ref)
        if way == "message":
            assert ref.send_now("fail")
        else:
            assert ref.now(Ledger.fail) is None
        assert not is_alive(ref)
        down = await me.receive()
    assert isinstance(down.reason, Crash)
    assert isinstance(down.reason.error, LookupError)


async def test_the_result_of_an_inline_message_is_applied() -> None:
    ref = await ledger()
    async with inbox() as me:
        monitor(ref)
        ref.send_now("stop")
        assert (await me.receive()).reason == Shutdown("told to")
    assert not ref.send_now("more")
    assert ref.now(Ledger.write, "more") is None


async def test_after_many_in_a_row_the_loop_has_its_turn(node: Node) -> None:
    ref = await ledger()
    at_once = [ref.now(Ledger.write, "x") is not None for _ in range(2 * node.inline_budget)]
    assert at_once.count(True) <= node.inline_budget
    assert len(await ref.call(Ledger.all)) == 2 * node.inline_budget


async def test_another_thread_leaves_it_to_the_node() -> None:
    ref = await ledger()
    assert await asyncio.to_thread(ref.now, Ledger.write, "one") is None
    assert await asyncio.to_thread(ref.send_now, "two")
    assert await ref.call(Ledger.all) == ["one", "two"]


async def test_a_seed_sends_all_through_the_mailbox() -> None:
    async def inside() -> None:
        async with Node(seed=1):
            ref = await ledger()
            assert ref.now(Ledger.write, "one") is None
            assert await ref.call(Ledger.all) == ["one"]

    await asyncio.to_thread(asyncio.run, inside())


class Odd(GenServer):
    """Uses its caller in a cast, or has a timer."""

    def __init__(self) -> None:
        self.taken: Any = None
        self.timeouts = 0

    def take_caller(self) -> None:
        self.taken = self.caller

    def ping(self) -> str:
        return "pong"

    def one(self, number: int) -> int:
        return number

    def doze(self) -> Any:
        return NoReply(idle_after=10.0)

    def doze_on(self) -> Any:
        return Reply("dozing", idle_after=10.0)

    def handle_info(self, message: Any) -> Any:
        self.timeouts += 1

    def look(self) -> int:
        return self.timeouts


def get_server(ref: Ref[Odd]) -> Any:
    process = current_node().process(ref.pid)
    assert process is not None
    return process.behaviour


async def odd() -> Ref[Odd]:
    ref: Ref[Odd] = await start(Odd)
    await ref.call(Odd.ping)
    return ref


async def test_a_cast_keeps_no_caller_that_could_answer_the_next_call() -> None:
    ref = await odd()
    ref.now(Odd.take_caller)
    server = get_server(ref)
    assert await ref.call(Odd.ping) == "pong"
    server.taken.reply("wrong")
    assert await ref.call(Odd.ping) == "pong"


async def test_arguments_that_do_not_fit_are_reported_and_the_server_goes_on() -> None:
    ref = await odd()
    assert ref.now(cast("Any", Odd.one)) is None
    assert await ref.call(Odd.ping) == "pong"


async def test_a_timer_that_it_sets_is_taken_back_by_the_next_message() -> None:
    ref = await odd()
    ref.now(Odd.doze)
    for _ in range(5):
        await asyncio.sleep(6)
        await ref.call(Odd.doze_on)
    assert await ref.call(Odd.look) == 0
