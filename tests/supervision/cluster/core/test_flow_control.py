"""Long calls whose callee replies from a task and sends events: each has one end, and never more events in flight than were granted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    GenServer,
    NoReply,
    ProcessExited,
    Ref,
    ask_later,
    current_node,
    inbox,
    kill,
    receive,
    spawn,
    start,
    wait_down,
)
from greenroom.supervision.cluster.flow_control import CalleeEnded, Credit, Receipts, answer_in_task

from .two_nodes import Far, pair, until

if TYPE_CHECKING:
    from greenroom.supervision import Caller
    from greenroom.supervision.cluster.peers import Peers

pytestmark = pytest.mark.greenroom(clock="real", name="one")

MOST, MOST_SIZE, OFTEN, OFTEN_SIZE = 8, 100, 4, 50


class Streamer(GenServer):
    """Sends as many events as it is asked for, and replies; or waits for a message that ends its tasks."""

    def __init__(self) -> None:
        self.credit = Credit(MOST, MOST_SIZE)
        self.tasks: list[asyncio.Task[Any]] = []
        self.highest = 0

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        self.tasks.append(answer_in_task(caller, self._answer(*request)))
        return NoReply()

    async def _answer(self, what: str, *args: Any) -> Any:
        match what:
            case "events":
                to, count, size = args
                for number in range(count):
                    await self.credit.wait(size)
                    self.highest = max(self.highest, self.credit.events)
                    Ref(to).send([number, b"x" * size])
                return count
            case "fail":
                raise ValueError("as asked")
            case "answer":
                return args[0]
            case _:
                return await asyncio.get_running_loop().create_future()

    def handle_info(self, message: Any) -> None:
        match message:
            case ["taken", events, size]:
                self.credit.earn(events, size)
            case "cancel":
                for each in self.tasks:
                    each.cancel()
            case _:
                pass

    def state(self) -> tuple[int, int, int]:
        """The most events that were in flight, those that are, and the number of running tasks."""
        return self.highest, self.credit.events, sum(not each.done() for each in self.tasks)


async def started(two: Far) -> Ref[Streamer]:
    """One on the other node, as it is reached over the link."""
    return Ref((await two.start(Streamer)).pid)


def tables(peers: Peers) -> list[int]:
    """The number of calls and watches that a node has open with others."""
    found = [(each.calls, each.callers, each.watches, each._numbers) for each in peers._remotes.values()]
    return [len(table) for of_one in found for table in of_one]


async def settled(one: Peers, two: Far) -> None:
    """Neither node has anything open."""
    await until(lambda: not any(tables(one)) and not any(tables(two.peers)))


# --- credit


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 130)), max_size=60))
def test_credit_is_never_exceeded_and_never_runs_dry(acts: list[tuple[bool, int]]) -> None:
    credit, receipts = Credit(MOST, MOST_SIZE), Receipts(OFTEN, OFTEN_SIZE)
    way: list[int] = []
    told: list[tuple[int, int]] = []

    def take() -> None:
        if way and receipts.take(way.pop(0)):
            told.append(receipts.drain())

    for sends, size in acts:
        if sends and credit.has_room(size):
            credit.spend(size)
            way.append(size)
        elif not sends:
            take()
            if told and size % 2:
                credit.earn(*told.pop(0))
        assert credit.events <= MOST
        assert credit.size <= MOST_SIZE or credit.events == 1
    while way:
        take()
    for each in told:
        credit.earn(*each)
    assert credit.events < OFTEN, "the rest is too little to be told"
    assert credit.has_room(MOST_SIZE - OFTEN_SIZE)


async def test_after_the_end_nothing_waits_for_credit() -> None:
    credit = Credit(1)
    await credit.wait()
    waiting = asyncio.ensure_future(credit.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    credit.end()
    await waiting
    assert credit.has_room()


@pytest.mark.parametrize("size", [0, 10, 99, 1000])
async def test_a_stream_arrives_whole_and_in_order_while_little_of_it_is_on_its_way(size: int) -> None:
    async with pair() as (one, two), inbox() as me:
        there, receipts = await started(two), Receipts(OFTEN, OFTEN_SIZE)
        asked = ask_later(there, ["events", me.pid, 100, size])
        for number in range(100):
            assert await receive() == [number, b"x" * size]
            if receipts.take(size):
                there.send(["taken", *receipts.drain()])
        assert await asked.wait() == 100
        highest, _, under_way = await there.call(Streamer.state)
        assert highest <= MOST
        assert not under_way
        await settled(one, two)


async def test_a_receiver_that_takes_nothing_delays_only_its_sender_and_may_leave() -> None:
    async with pair() as (one, two), inbox() as me:
        there = await started(two)
        asked = ask_later(there, ["events", me.pid, 100, 0])
        for number in range(MOST):
            assert await receive() == [number, b""]
        assert await there.ask(["answer", 7]) == 7
        assert await there.call(Streamer.state) == (MOST, MOST, 1)
        asked.abandon()
        await settled(one, two)
        assert await there.call(Streamer.state) == (MOST, MOST, 0)


# --- one end


async def test_an_answer_and_an_error_are_ends() -> None:
    async with pair() as (one, two):
        there = await started(two)
        assert await there.ask(["answer", [1]]) == [1]
        with pytest.raises(ValueError, match="as asked"):
            await there.ask(["fail"])
        await settled(one, two)


async def test_a_task_that_is_cancelled_is_an_end() -> None:
    async with pair() as (one, two):
        there = await started(two)
        asked = ask_later(there, ["wait"])
        there.send("cancel")
        with pytest.raises(CalleeEnded):
            await asked.wait()
        await settled(one, two)


async def test_a_process_that_ends_takes_its_task_along() -> None:
    async with pair() as (one, two):
        there = await started(two)
        asked = ask_later(there, ["wait"])
        assert await there.ask(["answer", 1]) == 1
        kill(there)
        with pytest.raises(ProcessExited, match="killed"):
            await asked.wait()
        await settled(one, two)


async def test_a_caller_that_dies_ends_its_call() -> None:
    async with pair() as (one, two):
        there = await started(two)

        async def asks() -> None:
            await there.ask(["wait"])

        asker = spawn(asks)
        async with asyncio.timeout(10):
            while (await there.call(Streamer.state))[2] != 1:
                pass
        kill(asker)
        await wait_down(asker)
        await settled(one, two)
        assert (await there.call(Streamer.state))[2] == 0


async def test_a_process_that_receives_sees_what_was_asked() -> None:
    async def answers() -> None:
        caller = await receive()
        caller.reply(["asked", caller.request])

    assert await Ref[Any](spawn(answers)).ask("this") == ["asked", "this"]


ACTS = ("answer", "answer", "fail", "wait", "wait", "wait", "leave", "leave", "cancel", "kill", "cut", "turn")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 7)), max_size=25))
async def test_whatever_is_done_each_call_has_one_end_and_nothing_is_left(acts: list[tuple[str, int]]) -> None:
    async with pair() as (one, two):
        there = await started(two)
        asked: list[tuple[str, Any]] = []
        ends: list[int] = []
        left: set[int] = set()

        def ask(what: str) -> None:
            number = len(asked)
            asked.append((what, ask_later(there, [what, number])))
            asked[-1][1].when_done(lambda: ends.append(number))

        for what, which in acts:
            match what:
                case "answer" | "fail" | "wait":
                    ask(what)
                case "leave" if asked:
                    number = which % len(asked)
                    if not asked[number][1].done:
                        left.add(number)
                    asked[number][1].abandon()  # after the end it is nothing
                case "cancel":
                    there.send("cancel")
                case "kill":
                    kill(there)
                case "cut":
                    one.disconnect("two")
                case _:
                    await asyncio.sleep(0)
        kill(there)
        for number, (what, request) in enumerate(asked):
            if number in left:
                continue
            try:
                assert await request.wait(10) == number
                assert what == "answer"
            except ValueError:
                assert what == "fail"
            except CalleeEnded:
                assert ("cancel", ANY) in acts
            except ProcessExited as error:
                assert error.reason in {KILLED, NO_PROCESS, NO_CONNECTION}
                assert error.reason != NO_CONNECTION or ("cut", ANY) in acts
        await until(lambda: len(ends) == len(asked))
        assert sorted(ends) == list(range(len(asked)))
        await settled(one, two)


async def test_at_home_it_is_the_same() -> None:
    here = await start(Streamer)
    asked = ask_later(here, ["wait"])
    assert await here.ask(["answer", 1]) == 1
    asked.abandon()
    await until(lambda: not any(not each.done() for each in _tasks(here)))
    with pytest.raises(ValueError, match="as asked"):
        await here.ask(["fail"])


def _tasks(ref: Ref[Streamer]) -> list[asyncio.Task[Any]]:
    process: Any = current_node().process(ref.pid)
    found: list[asyncio.Task[Any]] = process.behaviour.tasks
    return found
