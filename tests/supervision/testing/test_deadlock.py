"""When nothing can ever happen, a virtual loop raises at once, and lists what each task waits for."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import GenServer, current_node, start
from greenroom.supervision.testing import Deadlock, Livelock, VirtualLoop, run
from greenroom.supervision.testing.virtual_time import handled_process, is_worker, suspended_frames

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def now() -> float:
    return asyncio.get_running_loop().time()


class Slow(GenServer):
    async def hang(self) -> None:
        await asyncio.get_running_loop().create_future()


async def _for_a_future() -> None:
    await asyncio.get_running_loop().create_future()


async def _for_a_server() -> None:
    slow = await start(Slow)
    await slow.within(None).call(Slow.hang)


async def _for_a_thread_that_waits() -> None:
    lock = threading.Event()
    task = asyncio.create_task(asyncio.to_thread(lock.wait))
    try:
        await asyncio.shield(task)
    finally:
        lock.set()


async def _in_a_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_for_a_future(), name="the-stuck-one")


async def _listening() -> None:
    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async with await asyncio.start_server(connected, "127.0.0.1") as server:
        await server.serve_forever()


async def _swallowing() -> None:
    while True:
        try:
            await _for_a_future()
        except asyncio.CancelledError:
            return


@pytest.mark.parametrize(
    ("stuck", "told"),
    [
        (_for_a_future, r"test_deadlock.py:\d+ in _for_a_future: await asyncio.get_running_loop"),
        (_for_a_server, r"process Slow <node\.\d+>, in a handler\n .*in Slow.hang: await"),
        (_for_a_thread_that_waits, r"thread asyncio_0 at "),
        (_in_a_task_group, r"task 'the-stuck-one'"),
        (_listening, "serve_forever"),
        (_swallowing, "_swallowing"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_deadlock_lists_all_waiting_tasks(stuck: Callable[[], Awaitable[None]], told: str) -> None:
    began = time.monotonic()
    with pytest.raises(Deadlock, match=told) as caught:
        run(stuck)
    assert "nothing can ever happen" in str(caught.value)
    assert time.monotonic() - began < 5


async def test_a_task_in_the_nodes_own_code_is_not_taken_for_a_worker() -> None:
    closer = asyncio.create_task(current_node().close(), name="closer")
    assert not is_worker(closer)
    assert suspended_frames(closer) != []
    assert handled_process(closer) is None
    closer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closer


def test_the_deadlock_shows_the_line_in_its_traceback() -> None:
    with pytest.raises(Deadlock) as caught:
        run(_for_a_future)
    cause = caught.value.__cause__
    assert isinstance(cause, asyncio.CancelledError)
    assert "_for_a_future" in [entry.name for entry in traceback.extract_tb(cause.__traceback__)]


def test_a_deadlocked_test_runs_its_cleanup() -> None:
    cleaned: list[float] = []

    async def main() -> None:
        try:
            await _for_a_future()
        finally:
            await asyncio.sleep(1)
            cleaned.append(now())

    with pytest.raises(Deadlock):
        run(main)
    assert cleaned == [1]


def test_an_infinite_sleep_is_no_timer() -> None:
    with pytest.raises(Deadlock):
        run(lambda: asyncio.sleep(float("inf")))


def test_a_deadlock_in_the_clean_up_is_told_too() -> None:
    async def main() -> None:
        try:
            await _for_a_future()
        finally:
            await _for_a_future()

    with pytest.raises(Deadlock):
        run(main)


def test_a_clock_that_goes_round_for_nothing_is_told() -> None:
    async def main() -> None:
        def tick() -> None:
            asyncio.get_running_loop().call_later(1, tick)

        tick()
        asyncio.get_running_loop().main = asyncio.current_task()  # type: ignore[attr-defined]
        await _for_a_future()

    with (
        pytest.raises(asyncio.CancelledError, match="after 1000 timers"),
        asyncio.Runner(loop_factory=partial(VirtualLoop, rounds=1000)) as runner,
    ):
        runner.run(main())
    assert issubclass(Livelock, Deadlock)


def test_a_plain_runner_is_told_of_a_deadlock_too() -> None:
    with pytest.raises(Deadlock), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_for_a_future())
