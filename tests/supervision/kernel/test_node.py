"""A node: opening, closing in order, cancelling the close, and opening again."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial
from typing import Any

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    ActorError,
    Node,
    NoNode,
    Options,
    ProcessExited,
    current_node,
    is_alive,
    kill,
    run,
    send_after,
    spawn,
    start,
    wait_down,
    whereis,
)
from greenroom.supervision.behaviours.refs import request
from greenroom.supervision.testing import run as stage

from .sample_servers import Log, Trapping, alone, forever, quiet, turns


def test_there_is_no_node_before_it_is_opened_and_after_it_is_closed() -> None:
    async def main() -> None:
        with pytest.raises(NoNode):
            current_node()
        with pytest.raises(NoNode):
            await start(Log)
        async with quiet() as node:
            assert current_node() is node
            assert repr(node) == "<Node node running, 0 processes>"
            ref = await start(Log)
        assert repr(node) == "<Node node closed, 0 processes>"
        with pytest.raises(NoNode):
            await start(Log)
        with pytest.raises(ProcessExited):
            await ref.call(Log.read)
        assert not ref.cast(Log.note, 1)
        with pytest.raises(ActorError, match="is not open"):
            node.create(None, "late")
        await node.close()

    alone(main)
    with pytest.raises(NoNode):
        current_node()


def test_a_loop_has_one_node_and_a_node_one_loop() -> None:
    async def main() -> None:
        async with quiet("one") as node:
            with pytest.raises(ActorError, match="is open already"):
                await node.open()
            with pytest.raises(ActorError, match="this event loop has a node already: <Node one"):
                await quiet("two").open()
        async with quiet("two"):
            pass

    alone(main)


def test_a_node_needs_a_name() -> None:
    with pytest.raises(ValueError, match="a node needs a name"):
        Node("")


def test_run_runs_a_program() -> None:
    async def main() -> int:
        ref = await start(Log)
        await ref.call(Log.note, 1)
        return len(await ref.call(Log.read))

    assert run(main, watchdog=None) == 1


def test_run_refuses_a_coroutine_instead_of_a_function() -> None:
    async def main() -> None: ...

    coroutine: Any = main()
    with pytest.raises(TypeError, match=r"write run\(main\), not run\(main\(\)\)"):
        run(coroutine)


def test_a_node_can_be_opened_again_and_forgets_its_former_life() -> None:
    node = quiet(stop_grace=1.0)
    pids: list[Any] = []

    async def main() -> None:
        async with node:
            ref = await Options(name="log").start(Log)
            pids.append(ref.pid)
            assert whereis("log") == ref.pid
            assert [is_alive(pid) for pid in pids] == [False] * (len(pids) - 1) + [True]
            send_after(0.5, "log", "from an earlier life")
            for _ in range(1000):
                spawn(forever)
            for process in tuple(node.processes.values())[::2]:
                kill(process.pid)

    alone(main)
    alone(main)

    async def twice_in_a_loop() -> None:
        await main()
        async with node:
            ref = await Options(name="log").start(Log)
            await asyncio.sleep(1.0)
            assert await ref.call(Log.read) == []
            assert await wait_down(pids[0]) != NORMAL

    alone(twice_in_a_loop)
    assert len(set(pids)) == 3


def test_a_node_that_closed_while_many_were_in_its_run_queue_works_again() -> None:
    node = quiet()

    async def first() -> None:
        await node.open()
        refs = [await start(Log) for _ in range(500)]
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(0)
        for ref in refs:
            ref.send("wake")
        await closing

    async def again() -> None:
        async with node:
            ref = await start(Log)
            ref.send("hello")
            ref.cast(Log.note_slowly, "world")
            assert await ref.call(Log.read) == ["hello", "world"]

    alone(first)
    alone(again)


def test_closing_leaves_nothing_behind() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
            return asyncio.Task(coro, loop=loop, **options)

        loop.set_task_factory(factory)
        before = set(threading.enumerate())
        async with Node(watchdog=10.0) as node:
            assert len(set(threading.enumerate()) - before) == 1
            await (await start(Log)).call(Log.do_async, forever_soon)
        assert set(threading.enumerate()) == before
        assert loop.get_task_factory() is factory
        assert asyncio.all_tasks() == {asyncio.current_task()}
        loop.set_task_factory(None)
        nodes.append(weakref.ref(node))

    async def forever_soon() -> None:
        await asyncio.sleep(1.0)

    nodes: list[weakref.ref[Node]] = []
    alone(main)
    gc.collect()
    assert nodes[0]() is None


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        logs = [await start(Log) for _ in range(20)]
        for number, log in enumerate(logs):
            log.cast(Log.do, partial(order.append, number))
        await turns()
        return order

    first, again, other, plain = (stage(main, seed=seed) for seed in (1, 1, 2, None))
    assert first == again
    assert plain == list(range(20))
    assert len({tuple(order) for order in (first, other, plain)}) == 3
    assert sorted(first) == sorted(other) == plain


def test_a_killed_process_is_reported_as_killed_also_by_a_closing_node() -> None:
    async def main() -> None:
        async with quiet(stop_grace=1.0, kill_grace=1.0):
            ref = await start(Trapping)
            call = request(ref, Log.do_async, forever)
            await turns()
        with pytest.raises(ProcessExited) as caught:
            await call.wait()
        assert caught.value.reason == KILLED

    alone(main)
