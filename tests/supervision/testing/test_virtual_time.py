"""The clock of a virtual loop: when it jumps, stands still, and follows real time."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from greenroom.supervision import CallTimeout, GenServer, Node, Threads, current_node, start
from greenroom.supervision.testing import VirtualLoop, advance, run
from greenroom.supervision.testing.virtual_time import ActivitySample, ExternalActivity


def now() -> float:
    return asyncio.get_running_loop().time()


class Slow(GenServer):
    async def work(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return now()

    async def hang(self) -> None:
        await asyncio.get_running_loop().create_future()


# --- jumping


async def test_a_test_runs_in_an_open_node(node: Node) -> None:
    assert node.running
    assert current_node() is node


async def test_ten_years_pass_at_once() -> None:
    began = time.monotonic()
    await asyncio.sleep(10 * 365 * 86_400)
    assert now() == pytest.approx(10 * 365 * 86_400)
    assert time.monotonic() - began < 5


async def test_a_timer_that_is_due_fires_at_once_in_any_year() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(10):
        await asyncio.sleep(365 * 86_400)
        done = loop.create_future()
        loop.call_at(loop.time(), done.set_result, None)
        await done


async def test_timers_fire_in_order_and_each_at_its_own_time() -> None:
    fired: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()

    def fire(delay: float) -> None:
        fired.append((delay, now()))

    for delay in (0.3, 0.1, 7.25, 0.2):
        loop.call_later(delay, fire, delay)
    await asyncio.sleep(10)
    assert fired == [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (7.25, 7.25)]


async def test_everything_that_asks_the_loop_moves_with_it() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.sleep(3600)
    with anyio.move_on_after(60) as scope:
        await anyio.sleep(3600)
    assert scope.cancelled_caught
    assert anyio.current_time() == now() == 120


async def test_deadlines_of_calls_move_with_it() -> None:
    slow = await start(Slow)
    assert await slow.call(Slow.work, 3) == 3
    with pytest.raises(CallTimeout):
        await slow.call(Slow.work, 6)
    assert now() == 8


async def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    asyncio.get_running_loop().call_later(50, now).cancel()
    await asyncio.sleep(1)
    assert now() == 1


# --- threads


async def test_the_clock_stands_while_a_thread_works() -> None:
    passed = asyncio.create_task(asyncio.sleep(1))
    await asyncio.to_thread(time.sleep, 0.1)
    await anyio.to_thread.run_sync(time.sleep, 0.1)
    assert now() == 0
    assert not passed.done()
    await passed


async def test_the_clock_jumps_at_once_past_idle_threads() -> None:
    await asyncio.to_thread(int)
    await anyio.to_thread.run_sync(int)
    began = time.monotonic()
    for _ in range(100):
        await asyncio.sleep(1)
    assert now() == 100
    assert time.monotonic() - began < 2


async def test_a_thread_that_waits_for_the_loop_does_not_hold_the_clock() -> None:
    def asks() -> float:
        anyio.from_thread.run(anyio.sleep, 30)
        return anyio.from_thread.run_sync(now)

    assert await anyio.to_thread.run_sync(asks) == 30


async def test_a_deadline_passes_while_a_thread_is_stuck_at_a_lock() -> None:
    stuck = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.to_thread(stuck.wait)
    assert now() == 30
    stuck.set()


async def test_advance_moves_the_clock_past_a_thread_that_works() -> None:
    done = threading.Event()

    def works() -> None:
        while not done.is_set():
            sum(range(1000))

    job = asyncio.create_task(asyncio.to_thread(works))
    await asyncio.sleep(0)
    await advance(100)
    assert now() == 100
    assert not job.done()
    done.set()
    await job
    assert now() == 100


def test_a_thread_that_works_too_long_has_the_clock_go_on_by_real_time() -> None:
    done = threading.Event()

    def works() -> None:
        while not done.is_set():
            sum(range(1000))

    async def main() -> None:
        job = asyncio.create_task(asyncio.to_thread(works))
        await asyncio.sleep(0.2)
        done.set()
        await job

    began = time.monotonic()
    with asyncio.Runner(loop_factory=partial(VirtualLoop, patience=0.1)) as runner:
        runner.run(main())
    assert time.monotonic() - began > 0.25


@pytest.mark.greenroom(leaks=False, reason="the thread outlives the loop it was asked by, on purpose")
async def test_an_answer_from_a_thread_of_ones_own_is_waited_for() -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[int] = loop.create_future()

    def late() -> None:
        time.sleep(0.1)
        loop.call_soon_threadsafe(answer.set_result, 7)

    thread = threading.Thread(target=late)
    thread.start()
    async with asyncio.timeout(0.01):
        assert await answer == 7
    await asyncio.to_thread(thread.join)


async def test_a_thread_that_answers_and_ends_just_before_the_loop_looks_around_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[int] = loop.create_future()
    sample = ExternalActivity.sample

    def late(outside: ExternalActivity, jobs: int, *, all_threads: bool = False) -> ActivitySample:
        if not answer.done():
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(answer.set_result, 7))
            thread.start()
            thread.join()
        return sample(outside, jobs, all_threads=all_threads)

    monkeypatch.setattr(ExternalActivity, "sample", late)
    assert await answer == 7


def test_an_executor_that_was_there_before_counts_while_it_has_a_job() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()

        async def main() -> float:
            async with asyncio.timeout(0.01):
                await asyncio.get_running_loop().run_in_executor(pool, time.sleep, 0.1)
            return now()

        assert run(main) == 0


def test_an_executor_of_processes_holds_the_clock() -> None:
    with ProcessPoolExecutor(1) as pool:

        async def main() -> float:
            async with asyncio.timeout(0.01):
                await asyncio.get_running_loop().run_in_executor(pool, time.sleep, 0.2)
            return now()

        assert run(main, leaks=False) == 0  # the pool's own


# --- descriptors


async def test_a_pipe_goes_by_real_time() -> None:
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    came = asyncio.Event()
    loop.add_reader(reader, came.set)
    thread = threading.Timer(0.1, os.write, (writer, b"x"))
    thread.daemon = True
    thread.start()
    async with asyncio.timeout(20):
        await came.wait()
    assert now() < 10
    loop.remove_reader(reader)
    os.close(reader)
    os.close(writer)
    thread.join()


async def test_a_child_process_goes_by_real_time() -> None:
    program = "import sys, time; time.sleep(0.1); print('late')"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await child.communicate()
    assert out.split() == [b"late"]
    assert 0 < now() < 60


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_kept_thread_that_is_older_than_the_loop_counts_while_it_works_for_it(turn: int) -> None:
    # The second of the two finds the first one's thread, idle, and gives it work.
    before = now()
    await asyncio.wait_for(Threads(1).run(time.sleep, 0.02), 10)
    assert now() == before


async def test_a_connection_with_both_ends_here_lets_the_clock_jump() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await asyncio.sleep(100)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1")
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        assert now() == 100
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_unix_connection_with_both_ends_here_lets_the_clock_jump(tmp_path: os.PathLike[str]) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    path = f"{os.fspath(tmp_path)}/s"
    async with await asyncio.start_unix_server(silent, path):
        reader, writer = await asyncio.open_unix_connection(path)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await reader.readline()
        assert now() == 3600
        writer.close()
        await reader.read()


def test_a_real_clock_is_real() -> None:
    async def main() -> float:
        began = now()
        await asyncio.sleep(0.01)
        with pytest.raises(TypeError, match="needs a VirtualLoop"):
            await advance(1)
        return now() - began

    assert run(main, clock="real") >= 0.01
