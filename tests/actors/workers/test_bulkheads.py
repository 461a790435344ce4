"""Thread limits by tool and by principal: which calls wait, in which order, and when a slot is released."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.bulkheads import Bulkheads

if TYPE_CHECKING:
    from collections.abc import Callable


class Gate:
    """A function that blocks its thread until it is let go; tells when it has begun."""

    def __init__(self) -> None:
        self.began = 0
        self._go = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self._begin)
        self._go.wait()
        return "done"

    def _begin(self) -> None:
        self.began += 1
        self._changed.set()

    def open(self) -> None:
        self._go.set()

    async def has_begun(self, times: int) -> None:
        while self.began < times:
            self._changed.clear()
            await self._changed.wait()


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_bounds_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="per_tool"):
        Bulkheads(per_tool=0)
    with pytest.raises(ValueError, match="per_principal"):
        Bulkheads(per_principal=0)


async def test_forty_slow_calls_of_one_tool_keep_no_other_waiting() -> None:
    bulkheads = Bulkheads(per_tool=8, per_principal=16)
    gate = Gate()
    slow = [asyncio.create_task(bulkheads.run("slow", f"p{n % 3}", None, gate)) for n in range(40)]
    await gate.has_begun(8)
    assert (bulkheads.running, bulkheads.waiting) == (8, 32)
    assert await bulkheads.run("quick", "p0", None, lambda: "here") == "here"
    gate.open()
    assert await asyncio.gather(*slow) == ["done"] * 40
    assert (bulkheads.running, bulkheads.waiting) == (0, 0)


async def test_one_principals_flood_over_many_tools_keeps_no_other_principal_waiting() -> None:
    bulkheads = Bulkheads(per_tool=8, per_principal=4)
    gate = Gate()
    flood = [asyncio.create_task(bulkheads.run(f"tool{n % 5}", "loud", None, gate)) for n in range(30)]
    await gate.has_begun(4)
    assert bulkheads.running == 4
    assert await bulkheads.run("tool0", "quiet", None, lambda: "here") == "here"
    gate.open()
    await asyncio.gather(*flood)


async def test_a_call_that_waits_for_its_principal_holds_no_slot_of_its_tool() -> None:
    bulkheads = Bulkheads(per_tool=1, per_principal=1)
    gate = Gate()
    first = asyncio.create_task(bulkheads.run("a", "p", None, gate))
    await gate.has_begun(1)
    waits = asyncio.create_task(bulkheads.run("b", "p", None, lambda: "late"))
    await _settled()
    assert await bulkheads.run("b", "q", None, lambda: "now") == "now"
    assert not waits.done()
    gate.open()
    assert await waits == "late"
    await first


async def test_waiting_calls_are_served_in_order() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    order: list[int] = []
    first = asyncio.create_task(bulkheads.run("t", "p", None, gate))
    await gate.has_begun(1)
    others: list[asyncio.Task[Any]] = []
    for number in range(10):
        others.append(asyncio.create_task(bulkheads.run("t", f"p{number % 2}", None, order.append, number)))
        await _settled()
    gate.open()
    await asyncio.gather(first, *others)
    assert order == list(range(10))


async def test_a_thousand_waiting_calls_of_one_principal_delay_another_by_one() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    order: list[str] = []
    first = asyncio.create_task(bulkheads.run("t", "greedy", None, gate))
    await gate.has_begun(1)
    flood = [asyncio.create_task(bulkheads.run("t", "greedy", None, order.append, "greedy")) for _ in range(1000)]
    await _settled()
    quiet = [asyncio.create_task(bulkheads.run("t", name, None, order.append, name)) for name in ("ann", "bob")]
    await _settled()
    assert bulkheads.waiting == 1002
    gate.open()
    await asyncio.gather(first, *flood, *quiet)
    assert order[:4] == ["greedy", "ann", "bob", "greedy"]
    assert (bulkheads.running, bulkheads.waiting) == (0, 0)


async def test_a_principal_at_its_bound_is_passed_over_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a released slot grows with the waiting principals, not with their calls."""
    bulkheads = Bulkheads(per_tool=2, per_principal=1)
    gate, looked = Gate(), 0
    running = [asyncio.create_task(bulkheads.run(tool, "p", None, gate)) for tool in ("a",)]
    await gate.has_begun(1)
    flood = [asyncio.create_task(bulkheads.run("b", "p", None, gate)) for _ in range(500)]
    await _settled()
    has_room = bulkheads._has_room

    def counted(ticket: Any) -> bool:
        nonlocal looked
        looked += 1
        return has_room(ticket)

    monkeypatch.setattr(bulkheads, "_has_room", counted)
    for _ in range(10):
        assert await bulkheads.run("b", "q", None, lambda: "here") == "here"
    assert looked <= 10 * 3
    gate.open()
    await asyncio.gather(*running, *flood)


async def test_a_call_cancelled_in_the_turn_of_its_admission_takes_no_slot() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    first = asyncio.create_task(bulkheads.run("t", "p", None, gate))
    await gate.has_begun(1)
    gives_up = [asyncio.create_task(bulkheads.run("t", "p", None, lambda: "never")) for _ in range(3)]
    waits = [asyncio.create_task(bulkheads.run("t", who, None, lambda: "turn")) for who in ("p", "q")]
    await _settled()
    tickets = list(bulkheads._tools.waiting["t"])
    for each in tickets[:3]:
        each.admitted.cancel()  # in the very turn of the loop in which the slot comes free: their tasks have not heard of it
    bulkheads._release(_taken())
    assert sum(each.admitted.done() and not each.admitted.cancelled() for each in tickets) == 1
    bulkheads._take(_taken())  # what was given back above
    gate.open()
    await asyncio.gather(first, *waits)
    await asyncio.wait(gives_up)


def _taken() -> Any:
    return SimpleNamespace(tool="t", principal="p")


async def test_a_tool_may_have_a_bound_of_its_own() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    calls = [asyncio.create_task(bulkheads.run("t", "p", 3, gate)) for _ in range(4)]
    await gate.has_begun(3)
    assert bulkheads.running == 3
    gate.open()
    await asyncio.gather(*calls)


async def test_a_slot_is_held_until_the_thread_really_ends() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    stuck = asyncio.create_task(bulkheads.run("t", "p", None, gate))
    await gate.has_begun(1)
    stuck.cancel()
    await asyncio.wait([stuck])
    assert stuck.cancelled()
    assert bulkheads.running == 1
    waits = asyncio.create_task(bulkheads.run("t", "p", None, lambda: "after"))
    await _settled()
    assert not waits.done()
    gate.open()
    assert await waits == "after"
    assert bulkheads.running == 0


async def test_a_cancelled_wait_leaves_no_gap_and_takes_no_slot() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    first = asyncio.create_task(bulkheads.run("t", "p", None, gate))
    await gate.has_begun(1)
    gives_up = asyncio.create_task(bulkheads.run("t", "p", None, lambda: "never"))
    waits = asyncio.create_task(bulkheads.run("t", "p", None, lambda: "turn"))
    await _settled()
    gives_up.cancel()
    gate.open()
    assert await waits == "turn"
    await first
    await asyncio.wait([gives_up])
    assert (bulkheads.running, bulkheads.waiting) == (0, 0)


async def test_a_call_cancelled_at_its_turn_passes_the_slot_on() -> None:
    bulkheads = Bulkheads(per_tool=1)
    gate = Gate()
    first = asyncio.create_task(bulkheads.run("t", "p", None, gate))
    await gate.has_begun(1)
    chosen = asyncio.create_task(bulkheads.run("t", "p", None, lambda: "never"))
    waits = asyncio.create_task(bulkheads.run("t", "p", None, lambda: "turn"))
    await _settled()
    first.add_done_callback(lambda _: chosen.cancel())
    gate.open()
    assert await waits == "turn"
    await asyncio.wait([first, chosen])
    assert (bulkheads.running, bulkheads.waiting) == (0, 0)


async def test_any_exception_of_a_thread_is_raised_to_its_caller() -> None:
    bulkheads = Bulkheads()
    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt()):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            await bulkheads.run("t", "p", None, fail)
    assert bulkheads.running == 0


@pytest.mark.deep
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(
        st.one_of(
            st.tuples(st.just("call"), st.integers(0, 2), st.integers(0, 2)),
            st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
            st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0)),
        ),
        max_size=40,
    ),
)
async def test_no_limit_is_exceeded_and_no_call_waits_that_could_run(
    per_tool: int, per_principal: int, steps: list[tuple[str, int, int]]
) -> None:
    bulkheads = Bulkheads(per_tool, per_principal)
    calls: list[tuple[asyncio.Task[Any], int, int]] = []
    running: dict[int, Callable[[], None]] = {}

    async def call(number: int, tool: int, principal: int) -> None:
        ticket = await bulkheads._acquire(tool, principal, per_tool)
        over = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        running[number] = end
        try:
            await over
        finally:
            del running[number]
            bulkheads._release(ticket)

    for what, first, second in steps:
        if what == "call":
            task = asyncio.create_task(call(len(calls), first, second))
            calls.append((task, first, second))
        elif what == "end" and running:
            running[list(running)[first % len(running)]]()
        elif what == "cancel" and calls:
            calls[first % len(calls)][0].cancel()
        await _settled()
        held = [calls[number] for number in running]
        for key in range(3):
            assert sum(tool == key for _, tool, _ in held) <= per_tool
            assert sum(principal == key for _, _, principal in held) <= per_principal
        for number, (task, tool, principal) in enumerate(calls):
            if not task.done() and number not in running:
                full = sum(t == tool for _, t, _ in held) == per_tool
                assert full or sum(p == principal for _, _, p in held) == per_principal
    for task, _, _ in calls:
        task.cancel()
    if calls:
        await asyncio.wait([task for task, _, _ in calls])
    assert (bulkheads.running, bulkheads.waiting) == (0, 0)
    assert bulkheads._tools.waiting == {}
    assert bulkheads._principals.taken == {}
