"""The supervision tree as data and as a drawing."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.supervision import (
    Backoff,
    DynamicSupervisor,
    GenServer,
    NotRegistered,
    Options,
    PartitionSupervisor,
    Ref,
    Supervisor,
    child,
    draw,
    inbox,
    kill,
    spawn_link,
    start,
    start_child,
    start_link,
    stop,
    template,
    terminate_child,
    tree,
    which_child,
)

from .sample_children import Counter, Polite, pids, settled


async def house() -> Ref[Supervisor]:
    return await Options(name="greenroom").start_link(
        Supervisor,
        [
            child(Counter).but(id="registry", name="registry"),
            child(Supervisor, [child(Counter), child(Polite)], strategy="rest_for_one").but(id="tasks"),
            child(DynamicSupervisor, template(Counter)).but(id="sessions"),
            child(PartitionSupervisor, child(Counter), partitions=2).but(id="pools"),
        ],
    )


async def test_the_drawing() -> None:
    async with inbox():
        sup = await house()
        sessions = (await which_child(sup, "sessions")).ref
        for number in range(3):
            await start_child(sessions, number)
        lines = [line.split(" <")[0] + line.partition(">")[2] for line in draw(tree(sup)).splitlines()]
        assert lines == [
            "Supervisor 'greenroom' (one_for_one)",
            "├─ registry: Counter 'registry'",
            "├─ tasks: Supervisor (rest_for_one)",
            "│   ├─ Counter",
            "│   └─ Polite",
            "├─ sessions: DynamicSupervisor (simple_one_for_one)",
            "│   ├─ Counter",
            "│   ├─ Counter",
            "│   └─ Counter",
            "└─ pools: PartitionSupervisor (2 partitions)",
            "    ├─ 0: Counter",
            "    └─ 1: Counter",
        ]


async def test_the_data() -> None:
    async with inbox():
        sup = await house()
        top = tree("greenroom")
        assert (top.pid, top.name, top.strategy, top.restart, top.size) == (
            sup.pid,
            "greenroom",
            "one_for_one",
            None,
            9,
        )
        registry = top.children[0]
        assert (registry.id, registry.label, registry.restart, registry.state) == (
            "registry",
            "Counter",
            "permanent",
            "running",
        )
        assert [each.id for each in top.children] == ["registry", "tasks", "sessions", "pools"]


async def test_a_child_that_does_not_run_is_shown_as_what_it_is() -> None:
    async with inbox():
        waiting = child(Counter).but(id="waiting", backoff=Backoff(first=100, longest=100))
        sup = await start_link(
            Supervisor, [waiting, child(Counter).but(id="stopped"), child(Counter).but(id="restarted")], intensity=5
        )
        first, _, third = await pids(sup)
        kill(first)
        kill(third)
        assert [each.state for each in tree(sup).children] == ["exited", "running", "exited"]
        await settled(sup)
        await terminate_child(sup, "stopped")
        branches = tree(sup).children
        assert [(each.state, each.restarts, each.pid is None) for each in branches] == [
            ("restarting", 0, True),
            ("undefined", 0, True),
            ("running", 1, False),
        ]
        assert [str(each) for each in branches[:2]] == ["waiting: Counter [restarting]", "stopped: Counter [undefined]"]
        assert str(branches[2]) == f"restarted: Counter {branches[2].pid} ↻1"


async def test_a_dying_process_that_has_not_unwound_is_stopping() -> None:
    class Stubborn(Counter):
        async def hang(self) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(0.5)

    async with inbox():
        ref = await start(Stubborn)
        ref.cast(Stubborn.hang)
        await asyncio.sleep(1)
        kill(ref)
        assert tree(ref).state == "stopping"
        await asyncio.sleep(1)
        with pytest.raises(NotRegistered) as gone:
            tree(ref)
        assert gone.value.who == ref.pid
        with pytest.raises(NotRegistered, match="'nothing of that name'"):
            tree("nothing of that name")


async def test_a_dynamic_child_shows_how_often_it_was_restarted() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Counter), intensity=5)
        await start_child(sup)
        for times in range(4):
            [branch] = tree(sup).children
            assert branch.restarts == times
            assert ("" if times == 0 else f" ↻{times}") == str(branch).partition(">")[2]
            assert branch.pid is not None
            kill(branch.pid)
            await settled(sup)


async def test_an_unsupervised_process_stands_below_its_starter() -> None:
    class Host(GenServer):
        async def init(self) -> None:
            self.guest = await start_link(Counter)
            spawn_link(asyncio.sleep, 1000)

    async with inbox() as me:
        host = await start_link(Host)
        whole = tree()
        assert whole.pid is None
        (box,) = [each for each in whole.children if each.pid == me.pid]
        (branch,) = box.children
        assert branch.pid == host.pid
        assert [each.label for each in branch.children] == ["Counter", "sleep"]
        assert tree(host) == branch
        assert whole.size == 5


async def test_a_tree_is_drawn_within_bounds() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Counter))
        for _ in range(1234):
            await start_child(sup)
        whole = tree(sup)
        few = draw(whole, max_children=2).splitlines()
        assert len(few) == 4
        assert few[3] == "└─ … and 1,232 more"
        few = draw(whole, max_lines=10).splitlines()
        assert len(few) == 10
        assert few[9] == "… and 1,226 more"
        assert len(draw(whole, max_lines=1235).splitlines()) == 1235
        assert draw(whole, max_lines=1) == "… and 1,235 more"
        await stop(sup)


class Link(GenServer):
    """Starts another process below itself."""

    async def grow(self) -> Ref[Link]:
        return await start_link(Link)


async def test_neither_depth_nor_width_matters() -> None:
    deep = 5_000
    async with inbox():
        top = ref = await start_link(Link)
        for _ in range(deep):
            ref = await ref.call(Link.grow)
        whole = tree(top)
        assert whole.size == deep + 1
        text = draw(whole, max_lines=100)
        assert text.endswith(f"… and {deep + 1 - 99:,} more")


async def test_a_supervisor_that_is_busy_can_be_looked_at() -> None:
    class Slow(GenServer):
        async def init(self) -> None:
            await asyncio.sleep(1000)

    async with inbox():
        sup = await start_link(Supervisor)
        sup.cast(Supervisor.start_child, child(Slow))
        await asyncio.sleep(1)
        assert [each.label for each in tree(sup).children] == ["Slow"]
