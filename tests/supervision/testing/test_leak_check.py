"""The leak check finds and names leftovers, and waits for what is about to end."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest

from greenroom.supervision import GenServer, kill, start, stop
from greenroom.supervision.behaviours.threads import Threads
from greenroom.supervision.testing import LeakError, leak_check, no_leaks, run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator


class Slow(GenServer):
    async def hang(self) -> None:
        await asyncio.get_running_loop().create_future()


class Stubborn(GenServer):
    def __init__(self, released: asyncio.Event) -> None:
        self.released = released

    async def hang(self) -> None:
        self.caller.reply(None)
        while not self.released.is_set():
            with suppress(asyncio.CancelledError):
                await self.released.wait()


@contextmanager
def leaking(*words: str) -> Generator[None]:
    """The block leaks, and the check says so in these words."""
    block = no_leaks()
    block.__enter__()
    yield
    with pytest.raises(LeakError) as caught:
        block.__exit__(None, None, None)
    for each in words:
        assert re.search(each, str(caught.value)), str(caught.value)


@asynccontextmanager
async def leaking_here(*words: str) -> AsyncGenerator[None]:
    """The same in a running loop."""
    block = no_leaks()
    await block.__aenter__()
    yield
    with pytest.raises(LeakError) as caught:
        await block.__aexit__(None, None, None)
    for each in words:
        assert re.search(each, str(caught.value)), str(caught.value)


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    """A thread that runs until the test is over."""
    over = threading.Event()
    made = threading.Thread(target=over.wait, name="the-leftover")
    yield made
    over.set()
    made.join()


def test_a_thread_is_named_with_the_line_it_is_at(thread: threading.Thread) -> None:
    with leaking(r"1 thing was left behind:\n  thread 'the-leftover' of Event.wait\(\), at .*threading.py:\d+"):
        thread.start()


def test_a_thread_that_is_just_ending_is_none() -> None:
    with no_leaks():
        threading.Timer(0.1, int).start()


def test_a_descriptor_of_a_thread_that_ends_while_descriptors_are_listed_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()
    reading = threading.Event()

    def hold() -> None:
        with Path(os.devnull).open():
            reading.set()
            over.wait()

    holder = threading.Thread(target=hold)
    list_descriptors = leak_check._descriptors

    def list_while_the_thread_ends() -> list[tuple[int, str]]:
        listed = list(list_descriptors())
        if gc_calls:
            over.set()
            holder.join()
        return listed

    gc_calls: list[None] = []
    monkeypatch.setattr(leak_check, "_descriptors", list_while_the_thread_ends)
    monkeypatch.setattr(gc, "collect", lambda: gc_calls.append(None))
    with no_leaks():
        holder.start()
        reading.wait()


def test_a_descriptor_is_named_with_what_it_leads_to() -> None:
    with leaking("2 things were left behind", r"file descriptor \d+: \S+"):
        ends = os.pipe()
    for end in ends:
        os.close(end)


def test_a_descriptor_of_another_file_under_the_same_number_is_found() -> None:
    first = os.open(os.devnull, os.O_RDONLY)
    with leaking(f"file descriptor {first}: "):
        os.close(first)
        assert os.open(__file__, os.O_RDONLY) == first
    os.close(first)


def test_an_os_process_is_named_with_its_command() -> None:
    program = "input('the leftover')"
    with leaking(r"OS process \d+: .*the leftover", "file descriptor"):
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    child.communicate(b"\n")
    assert child.returncode == 0


async def test_a_task_is_named_with_the_line_it_waits_at_and_the_line_that_made_it() -> None:
    async def forgotten() -> None:
        await asyncio.sleep(3600)

    async with leaking_here(
        r"task 'lost' of .*forgotten\(\), waiting at .*await asyncio.sleep\(3600\), made at .*test_leak_check.py:\d+"
    ):
        task = asyncio.create_task(forgotten(), name="lost")
        await asyncio.sleep(0)
    task.cancel()


async def test_tasks_that_are_just_ending_are_none() -> None:
    async with no_leaks():
        cancelled = asyncio.create_task(asyncio.sleep(3600))
        cancelled.cancel()
        short = asyncio.create_task(asyncio.sleep(0))
    assert cancelled.done()
    assert short.done()


async def test_a_process_is_named() -> None:
    async with leaking_here(r"left behind:\n  process Slow <node\.\d+>"):
        slow = await start(Slow)
    await stop(slow)


async def test_a_handler_is_named_with_its_process() -> None:
    slow = await start(Slow)
    async with leaking_here(r"handler of Slow <node\.\d+>, waiting at .*create_future"):
        slow.cast(Slow.hang)
        await asyncio.sleep(1)
    kill(slow)


async def test_idle_threads_are_no_leftovers() -> None:
    slow = await start(Slow)
    async with no_leaks():
        with pytest.raises(TypeError):
            await slow.ask("anything")
        await Threads(1).run(int)


def test_existing_resources_are_no_leftovers(thread: threading.Thread) -> None:
    thread.start()
    with no_leaks():
        pass


def test_a_block_that_raises_is_not_checked(thread: threading.Thread) -> None:
    block = no_leaks()
    block.__enter__()
    thread.start()
    block.__exit__(KeyError, KeyError(), None)


# --- around a whole test


def lose(kept: list[asyncio.Task[None]]) -> None:
    kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(3600), name="lost"))


def test_a_run_that_leaves_a_task_fails() -> None:
    async def main() -> None:
        lose(kept)

    kept: list[asyncio.Task[None]] = []
    with pytest.raises(LeakError, match="task 'lost'"):
        run(main)
    run(main, leaks=False)


def test_a_run_that_leaves_a_thread_fails(thread: threading.Thread) -> None:
    async def main() -> None:
        thread.start()

    with pytest.raises(LeakError, match="the-leftover"):
        run(main)


def test_a_handler_that_does_not_let_go_is_a_fault_in_a_strict_run() -> None:
    released = asyncio.Event()

    async def main() -> None:
        stubborn = await start(Stubborn, released)
        await stubborn.call(Stubborn.hang)

    with pytest.raises(AssertionError, match=r"Stubborn <node\.1> did not unwind in time"):
        run(main, strict=True)
    run(main)


def test_a_run_ends_its_processes_and_pools_itself() -> None:
    async def main() -> None:
        await start(Slow)
        await asyncio.to_thread(int)
        await anyio.to_thread.run_sync(int)

    run(main)


def test_an_error_of_the_test_is_not_hidden_by_what_it_left() -> None:
    async def main() -> None:
        lose(kept)
        raise KeyError("the first cause")

    kept: list[asyncio.Task[None]] = []
    with pytest.raises(KeyError, match="the first cause"):
        run(main)


def test_the_fixture_is_for_tests_without_a_loop(no_leaks: None) -> None:
    assert no_leaks is None
