"""A node: opening, closing in order, closing in a hurry, and opening again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from functools import partial
from typing import Any

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorError,
    ExitReason,
    GenServer,
    Leaked,
    Node,
    NoNode,
    Options,
    ProcessExited,
    Ref,
    current_node,
    is_alive,
    kill,
    run,
    send_after,
    spawn,
    start,
    start_link,
    trap_exit,
    wait_down,
    whereis,
)
from greenroom.supervision.behaviours.requests import process_of, request
from greenroom.supervision.testing import VirtualLoop
from greenroom.supervision.testing import run as stage

from .actors import Log, Trapping, forever, reports_of, turns


class Ends(GenServer):
    """Says how it ended."""

    traps_exit = True

    def __init__(self, ended: list[Any], name: str = "", seconds: float = 0.0) -> None:
        self.ended = ended
        self.name = name
        self.seconds = seconds

    async def terminate(self, reason: ExitReason) -> None:
        await asyncio.sleep(self.seconds)
        self.ended.append((self.name, reason) if self.name else reason)


def alone(main: Any) -> Any:
    """Run on virtual time in a loop that has no node yet."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def quiet(name: str = "node", **options: Any) -> Node:
    return Node(name, watchdog=None, **options)


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


def test_closing_stops_in_reverse_order_of_start_and_waits_for_each() -> None:
    ended: list[Any] = []

    async def main() -> None:
        async with quiet():
            for number in range(5):
                await start(Ends, ended, str(number), 1.0)

    alone(main)
    assert ended == [(str(number), SHUTDOWN) for number in (4, 3, 2, 1, 0)]


def test_closing_waits_no_longer_than_its_grace_for_one_that_is_no_supervisor() -> None:
    ended: list[Any] = []

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with quiet(stop_grace=3.0, kill_grace=1.0):
            await start(Ends, ended, "slow", 100.0)
            await start(Ends, ended, "quick", 2.0)
        return loop.time()

    assert alone(main) == 5.0
    assert ended == [("quick", SHUTDOWN)]


def test_closing_waits_for_a_patient_one_however_long_it_takes() -> None:
    class Patient(Ends):
        patient = True

    ended: list[Any] = []

    async def main() -> None:
        async with quiet(stop_grace=1.0):
            await start(Patient, ended, "", 100.0)

    alone(main)
    assert ended == [SHUTDOWN]


def test_closing_ends_what_traps_refuses_is_unlinked_or_has_not_begun() -> None:
    class Refuses(GenServer):
        traps_exit = True

        def __init__(self) -> None:
            self.unlinked: Ref[Log]

        async def init(self) -> None:
            self.unlinked = await start_link(Log)
            process = process_of(self.unlinked)
            assert process is not None
            process.links = self._otp_process.links = None

        async def handle_info(self, message: Any) -> None:
            await forever()

    class Starts(GenServer):
        async def init(self) -> None:
            trap_exit()
            await forever()

    async def main() -> None:
        async with quiet(stop_grace=1.0) as node:
            refuses = await start(Refuses)
            refuses.send("be busy")
            starting = asyncio.ensure_future(start(Starts))
            spawn(forever)
            await turns()
            spawn(forever)
        assert node.processes == {}
        assert node.names == {}
        with pytest.raises(ActorError, match=r"did not start: (killed|shutdown)"):
            await starting

    alone(main)


def test_whoever_calls_while_the_node_closes_is_answered() -> None:
    async def main() -> None:
        async with quiet() as node:
            ref = await start(Log)
            gate = asyncio.Event()
            ref.cast(Log.wait, gate)
            calls = [asyncio.ensure_future(ref.within(None).call(Log.read)) for _ in range(3)]
            await turns()
        assert not node.deadlines
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["Log <node.1> exited before it answered: shutdown"] * 3

    alone(main)


def test_nobody_can_keep_a_closing_node_open_by_starting_others() -> None:
    refused: list[BaseException] = []

    async def hydra() -> None:
        try:
            trap_exit()
            await forever()
        finally:
            try:
                spawn(hydra)
            except ActorError as error:
                refused.append(error)

    async def main() -> None:
        async with quiet(stop_grace=1.0):
            spawn(hydra)
            await turns()

    alone(main)
    assert [str(error) for error in refused] == ["<Node node running, 1 processes> is closing"]


def test_cancelling_the_close_kills_whoever_is_left_and_still_closes() -> None:
    ended: list[Any] = []

    async def main() -> None:
        node = quiet(stop_grace=100.0)
        await node.open()
        await start(Ends, ended, "slow", 50.0)
        waiting = asyncio.ensure_future((await start(Trapping)).within(None).call(Log.do_async, forever))
        calls = [request(await start(Log), Log.do_async, forever) for _ in range(3)]
        await turns()
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(1.0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not node.running
        assert node.processes == {}
        assert asyncio.get_running_loop().get_task_factory() is None
        for call in calls:
            with pytest.raises(ProcessExited):
                await call.wait()
        with pytest.raises(ProcessExited):
            await waiting
        async with quiet("next"):
            assert await (await start(Log)).call(Log.read) == []

    alone(main)
    assert ended == []


def test_leaving_the_block_can_be_cancelled_as_well() -> None:
    ended: list[Any] = []

    async def inside() -> None:
        async with quiet(stop_grace=100.0):
            await start(Ends, ended, "slow", 50.0)

    async def main() -> None:
        task = asyncio.ensure_future(inside())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(NoNode):
            current_node()

    alone(main)
    assert ended == []


def test_a_close_that_is_cancelled_twice_abandons_what_does_not_unwind() -> None:
    async def stubborn(released: asyncio.Event) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    async def main() -> None:
        released = asyncio.Event()
        node = quiet(kill_grace=100.0)
        leaked = reports_of(node, Leaked)
        await node.open()
        pid = spawn(stubborn, released)
        down = asyncio.ensure_future(wait_down(pid, None))
        await turns()
        closing = asyncio.ensure_future(node.close())
        for _ in range(2):
            await asyncio.sleep(1.0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() == 2.0
        assert node.processes == {}
        assert await down == SHUTDOWN
        assert [report.pid for report in leaked] == [pid]
        released.set()
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    alone(main)


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
