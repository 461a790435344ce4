"""Timers: messages that are sent later, and the lanes that deadlines of calls wait in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision import CallTimeout, Node, Options, Ref, inbox, kill, send_after, start
from greenroom.supervision.behaviours.refs import request
from greenroom.supervision.kernel.clock import Deadlines
from greenroom.supervision.testing import run

from .sample_servers import Log, turns


async def test_a_message_is_sent_in_so_many_seconds() -> None:
    loop = asyncio.get_running_loop()
    async with inbox() as me:
        send_after(2.0, me.pid, "second")
        send_after(1.0, me.pid, "first")
        send_after(0, me.pid, "now")
        got = [(await me.receive(timeout=None), loop.time()) for _ in range(3)]
    assert got == [("now", 0), ("first", 1.0), ("second", 2.0)]


async def test_a_timer_can_be_cancelled_until_it_has_sent() -> None:
    async with inbox() as me:
        timer, late = send_after(1.0, me.pid, "never"), send_after(1.0, me.pid, "sent")
        timer.cancel()
        await asyncio.sleep(2.0)
        late.cancel()
        assert me.pending() == ("sent",)


async def test_a_timer_for_a_name_finds_who_has_it_then() -> None:
    first = await Options(name="log").start(Log)
    send_after(1.0, "log", "tick")
    send_after(1.0, first, "tick for the first")
    kill(first)
    second = await Options(name="log").start(Log)
    await asyncio.sleep(2.0)
    assert await second.call(Log.read) == ["tick"]


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
async def test_a_timer_cannot_run_backwards(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"a timer cannot run for .* seconds: give 0 or more"):
        send_after(seconds, "missing", "x")


# --- lanes


class Item:
    """A pending item with a deadline."""

    def __init__(self, number: int, told: list[tuple[float, int]]) -> None:
        self.number = number
        self.told = told
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        return self._future.done()

    def answer(self) -> None:
        self._future.set_result(None)

    def expire(self, seconds: float) -> None:
        self.answer()
        self.told.append((asyncio.get_running_loop().time(), self.number))


async def test_calls_with_many_deadlines_expire_each_at_its_own(node: Node) -> None:
    ref = await start(Log)
    gate = asyncio.Event()
    ref.cast(Log.wait, gate)
    loop = asyncio.get_running_loop()
    expired: list[tuple[float, float]] = []

    async def ask(seconds: float) -> None:
        began = loop.time()
        with pytest.raises(CallTimeout):
            await ref.within(seconds).call(Log.read)
        expired.append((seconds, loop.time() - began))

    lengths = [(number % 97) / 10 + 0.1 for number in range(500)]
    await asyncio.gather(*(ask(seconds) for seconds in lengths))
    assert all(abs(seconds - took) < 1e-6 for seconds, took in expired)
    assert len(expired) == 500
    assert len(node.deadlines) == 0
    gate.set()


async def test_answered_calls_do_not_pile_up_behind_one_that_waits(node: Node) -> None:
    ref, stuck = await start(Log), await start(Log)
    gate = asyncio.Event()
    stuck.cast(Log.wait, gate)
    waiting = request(stuck, Log.read)
    asking = asyncio.ensure_future(stuck.call(Log.read))
    await turns()
    for _ in range(5000):
        ref.cast(Log.note, 1)  # so that the call is queued, and has a deadline
        await ref.call(Log.note, 2)
    assert len(node.deadlines) < 600
    gate.set()
    assert await waiting.wait() == await asking == []


async def test_lanes_that_are_not_used_any_more_are_dropped(node: Node) -> None:
    ref = await start(Log)
    for number in range(1000):
        ref.cast(Log.note, 1)
        await ref.within(1 + number / 1000).call(Log.read)
        await asyncio.sleep(10.0)
    assert len(node.deadlines._lanes) < 100


@pytest.mark.parametrize("answered", [True, False])
async def test_deadlines_that_are_all_different_cost_as_one(node: Node, *, answered: bool) -> None:
    # As from callers that hand on the rest of their own time: each call has another deadline.
    looked = 0

    class Watched(asyncio.Future[Any]):
        def done(self) -> bool:
            nonlocal looked
            looked += 1
            return super().done()

    told: list[tuple[float, int]] = []
    deadlines = Deadlines(node)
    for number in range(5000):
        item = Item(number, told)
        item._future = Watched()
        deadlines.add(5.0 + number / 1000, item)
        if answered:
            item.answer()
    assert looked < 20_000
    assert len(deadlines._lanes) < (100 if answered else 5001)
    await asyncio.sleep(100.0)
    assert [number for _, number in told] == ([] if answered else list(range(5000)))
    assert len(deadlines) == 0


Steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "answer", "wait"]),
        st.sampled_from([0.0, 0.5, 1.0, 5.0]),
        st.integers(0, 50),
    ),
    max_size=60,
)


@pytest.mark.deep
@given(Steps)
def test_an_item_expires_once_at_its_time_and_never_when_it_is_over(steps: list[tuple[str, float, int]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        node: Any = Node()
        node.loop = loop
        deadlines = Deadlines(node)
        told: list[tuple[float, int]] = []
        items: list[Item] = []
        due: dict[int, float] = {}
        for step, seconds, which in steps:
            if step == "add":
                items.append(Item(len(items), told))
                due[len(items) - 1] = loop.time() + seconds
                deadlines.add(seconds, items[-1])
            elif step == "answer" and items:
                item = items[which % len(items)]
                if not item.over:
                    item.answer()
                    del due[item.number]
            else:
                await asyncio.sleep(seconds)
        await asyncio.sleep(10.0)
        assert sorted(told, key=lambda each: each[1]) == [(due[number], number) for number in sorted(due)]
        assert [at for at, _ in told] == sorted(at for at, _ in told)
        assert len(deadlines) == 0
        deadlines.close()

    run(main)


async def test_closing_disarms_everything(node: Node) -> None:
    told: list[tuple[float, int]] = []
    deadlines = Deadlines(node)
    for number in range(10):
        deadlines.add(1.0 + number, Item(number, told))
    await asyncio.sleep(2.5)
    deadlines.close()
    await asyncio.sleep(100.0)
    assert [number for _, number in told] == [0, 1]


async def test_a_ref_keeps_its_deadline_when_it_is_sent_around() -> None:
    ref = (await start(Log)).within(0.5)
    other = await start(Log)
    await other.call(Log.note, ref)
    (found,) = await other.call(Log.read)
    assert isinstance(found, Ref)
    assert found._seconds == 0.5
