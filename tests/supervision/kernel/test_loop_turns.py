"""The loop gets its turn after a millisecond of work, however few messages that was."""

from __future__ import annotations

import asyncio
import time

import pytest

from greenroom.supervision import GenServer, start

pytestmark = pytest.mark.greenroom(clock="real")

MESSAGES = 200
WORK = 0.001


class Slow(GenServer):
    """A server whose messages take a millisecond of CPU time each."""

    def __init__(self, done: asyncio.Event, messages: int) -> None:
        self.done = done
        self.left = messages

    def work(self) -> None:
        until = time.monotonic() + WORK
        while time.monotonic() < until:
            pass
        self.left -= 1
        if not self.left:
            self.done.set()


async def turns(done: list[asyncio.Event]) -> int:
    """The number of loop turns until all is done."""
    count = 0
    while not all(event.is_set() for event in done):
        await asyncio.sleep(0)
        count += 1
    return count


async def test_a_process_with_costly_messages_does_not_keep_the_loop() -> None:
    done = asyncio.Event()
    ref = await start(Slow, done, MESSAGES)
    for _ in range(MESSAGES):
        ref.cast(Slow.work)
    assert await turns([done]) >= MESSAGES / 8


async def test_many_processes_with_a_costly_message_each_do_not_keep_the_loop() -> None:
    done = [asyncio.Event() for _ in range(MESSAGES // 4)]
    for each in done:
        ref = await start(Slow, each, 1)
        ref.cast(Slow.work)
    assert await turns(done) >= len(done)
