"""Restarts that wait: growing delays with jitter, forgotten after a quiet time, and a supervisor that answers meanwhile."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from greenroom.supervision import (
    SHUTDOWN,
    AlreadyPresent,
    Backoff,
    ChildRestarting,
    DynamicSupervisor,
    Node,
    ReachedMaxRestartIntensity,
    Supervisor,
    child,
    count_children,
    inbox,
    is_alive,
    kill,
    restart_child,
    start_child,
    start_link,
    stop,
    template,
    terminate_child,
    which_child,
    which_children,
)
from greenroom.supervision.testing import run

from .sample_children import Counter, Dependent, Polite, World, heard, kept_of, of, pids, ref_of, settled

EVEN = Backoff(first=1.0, factor=2.0, longest=8.0, jitter=0.0, quiet=100.0)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_delay_grows_up_to_the_longest() -> None:
    source = random.Random(1)
    assert [EVEN.delay(tries, source) for tries in range(6)] == [1, 2, 4, 8, 8, 8]
    assert EVEN.delay(10**6, source) == 8


def test_the_most_of_a_delay_is_what_it_is_without_jitter() -> None:
    uneven = Backoff(first=1.0, longest=8.0, jitter=0.5)
    assert [uneven.most(tries) for tries in (0, 1, 2, 3, 4, 10**6)] == [1, 2, 4, 8, 8, 8]


def test_jitter_takes_off_at_most_its_part() -> None:
    source = random.Random(1)
    delays = [Backoff(first=4.0, jitter=0.25).delay(0, source) for _ in range(1000)]
    assert 3.0 < min(delays) < 3.05
    assert 3.95 < max(delays) <= 4.0


async def test_attempts_wait_longer_and_longer() -> None:
    async with inbox():
        world = World()
        sup = await start_link(Supervisor, [child(Dependent, world)], intensity=100, backoff=EVEN)
        world.there = False
        kill(await ref_of(sup))
        await asyncio.sleep(20)
        world.there = True
        await asyncio.sleep(20)
        assert [time - world.tries[0] for time in world.tries] == [0, 1, 3, 7, 15, 23]
        assert (await which_children(sup))[0].state == "running"


async def test_a_quiet_time_starts_anew_and_a_short_one_does_not() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter).but(backoff=EVEN)], intensity=100)

        async def back_after() -> float:
            kill(await ref_of(sup))
            begun = now()
            for _ in range(20):
                if (await which_children(sup))[0].state == "running":
                    break
                await asyncio.sleep(0.5)
            return now() - begun

        assert [await back_after() for _ in range(3)] == [1, 2, 4]
        await asyncio.sleep(99)
        assert await back_after() == 8
        await asyncio.sleep(100)
        assert await back_after() == 1


async def test_while_it_waits_the_child_is_restarting_and_the_supervisor_answers() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter)], backoff=EVEN)
        kill(await ref_of(sup))
        begun = now()
        assert (await which_child(sup, "Counter")).state == "restarting"
        assert await count_children(sup) == (1, 0, 0, 1)
        with pytest.raises(ChildRestarting):
            await restart_child(sup, "Counter")
        with pytest.raises(AlreadyPresent):
            await start_child(sup, child(Counter))
        assert is_alive(await start_child(sup, child(Counter).but(id="other")))
        assert now() == begun
        await terminate_child(sup, "Counter")
        assert (await which_child(sup, "Counter")).state == "undefined"
        await asyncio.sleep(10)
        assert (await which_child(sup, "Counter")).state == "undefined"


async def test_a_childs_own_backoff_goes_before_its_supervisors() -> None:
    async with inbox():
        sup = await start_link(
            Supervisor,
            [child(Counter), child(Counter).but(id="own", backoff=Backoff(first=5, jitter=0))],
            backoff=EVEN,
            intensity=5,
        )
        for pid in await pids(sup):
            kill(pid)
        await asyncio.sleep(1.5)
        assert [each.state for each in await which_children(sup)] == ["restarting", "running"]
        await asyncio.sleep(4)
        assert [each.state for each in await which_children(sup)] == ["running", "running"]


@pytest.mark.parametrize(
    ("strategy", "states"),
    [
        ("one_for_one", ["running", "restarting", "running"]),
        ("rest_for_one", ["running", "restarting", "undefined"]),
        ("one_for_all", ["undefined", "restarting", "undefined"]),
    ],
)
async def test_children_affected_by_a_restart_stop_at_once_and_start_with_it(strategy: Any, states: list[str]) -> None:
    async with inbox():
        told: list[Any] = []
        children = [child(Polite, 0.0, told, name).but(id=name) for name in "abc"]
        sup = await start_link(Supervisor, children, strategy=strategy, backoff=EVEN)
        kill(await ref_of(sup, 1))
        assert [each.state for each in reversed(await which_children(sup))] == states
        await asyncio.sleep(1)
        assert [each.state for each in reversed(await which_children(sup))] == ["running"] * 3


async def test_a_death_before_it_in_rest_for_one_takes_over() -> None:
    async with inbox():
        children = [child(Counter).but(id=name) for name in "abc"]
        sup = await start_link(Supervisor, children, strategy="rest_for_one", intensity=5, backoff=EVEN)
        kill(await ref_of(sup, 1))
        await asyncio.sleep(0.5)
        kill(await ref_of(sup, 0))
        await settled(sup)
        assert [each.state for each in reversed(await which_children(sup))] == ["restarting", "undefined", "undefined"]
        await asyncio.sleep(0.6)  # when the first one would have been due
        assert [each.state for each in reversed(await which_children(sup))] == ["restarting", "undefined", "undefined"]
        await asyncio.sleep(0.4)
        assert (await count_children(sup)).active == 3


async def test_too_many_is_still_too_many_and_told_without_waiting() -> None:
    async with inbox() as me:
        world = World()
        sup = await start_link(Supervisor, [child(Dependent, world)], intensity=2, period=60, backoff=EVEN)
        world.there = False
        with heard() as reports:
            kill(await ref_of(sup))
            begun = now()
            assert (await me.receive(timeout=None)).pid == sup.pid
        assert now() - begun == 3
        assert len(of(reports, ReachedMaxRestartIntensity)) == 1


async def test_dynamic_children_wait_each_for_itself() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Counter), intensity=10, backoff=EVEN)
        first, second = [await start_child(sup, number) for number in (1, 2)]
        kill(first)
        await asyncio.sleep(0.5)
        kill(second)
        assert await count_children(sup) == (1, 0, 0, 2)
        await asyncio.sleep(0.5)
        assert await count_children(sup) == (1, 1, 0, 2)
        await terminate_child(sup, second)
        await asyncio.sleep(5)
        assert await count_children(sup) == (1, 1, 0, 1)


@pytest.mark.parametrize("end", [stop, None])
async def test_a_supervisor_that_ends_while_it_waits_leaves_no_timer(end: Any) -> None:
    async with inbox():
        for sup in (
            await start_link(Supervisor, [child(Counter)], backoff=EVEN),
            await start_link(DynamicSupervisor, backoff=EVEN),
        ):
            if not await pids(sup):
                await start_child(sup, child(Counter))
            kill(await ref_of(sup))
            await settled(sup)
            (one,) = kept_of(sup)
            assert one.timer is not None
            if end is None:
                kill(sup)
            else:
                await end(sup)
            assert one.timer is None


def replay(seed: int) -> list[float]:
    delays: list[float] = []

    async def main() -> None:
        async with inbox():
            world = World()
            sup = await start_link(Supervisor, [child(Dependent, world)], intensity=100, backoff=Backoff())
            world.there = False
            kill(await ref_of(sup))
            await asyncio.sleep(60)
            delays.extend(world.tries)
            await stop(sup)

    run(main, seed=seed)
    return delays


def test_a_seed_replays_the_delays() -> None:
    assert replay(1) == replay(1) != replay(2)


def test_without_a_seed_a_node_draws_its_own() -> None:
    assert Node().random.random() != Node().random.random()


async def test_a_significant_child_that_waits_for_its_restart_has_not_ended() -> None:
    async with inbox() as me:
        significant = [child(Counter).but(id=n, restart="transient", significant=True) for n in "ab"]
        sup = await start_link(Supervisor, significant, auto_shutdown="all_significant", backoff=EVEN)
        kill((await pids(sup))[0])
        await asyncio.sleep(0.1)
        assert (await pids(sup))[0] is None
        await stop(await ref_of(sup, 1))
        await asyncio.sleep(0.5)
        assert is_alive(sup)
        await asyncio.sleep(1.0)
        await stop(await ref_of(sup, 0))
        assert (await me.receive()).reason == SHUTDOWN
