"""A dead actor and an answered call are freed at once, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import SHUTDOWN, GenServer, Inbox, Reject, exit, inbox, kill, monitor, start, start_link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.deep

LIVES = 100


class Counter(GenServer):
    """Counts."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    async def add_slowly(self, amount: int) -> int:
        await asyncio.sleep(0)
        return self.add(amount)

    def refuse(self) -> None:
        raise Reject(KeyError("no"))

    async def refuse_slowly(self) -> None:
        await asyncio.sleep(0)
        raise Reject(KeyError("no"))


async def linked(me: Inbox) -> None:
    ref = await start_link(Counter)
    exit(ref, SHUTDOWN)
    await me.receive()


async def monitored(me: Inbox) -> None:
    ref = await start(Counter)
    monitor(ref)
    kill(ref)
    await me.receive()


async def called(me: Inbox) -> None:
    ref = await start_link(Counter)
    await ref.call(Counter.add, 1)
    ref.cast(Counter.add, 1)
    await ref.call(Counter.add_slowly, 1)
    exit(ref, SHUTDOWN)
    await me.receive()


async def refused(me: Inbox) -> None:
    ref = await start_link(Counter)
    with pytest.raises(KeyError):
        await ref.call(Counter.refuse)
    exit(ref, SHUTDOWN)
    await me.receive()


@pytest.mark.parametrize("life", [linked, monitored, called, refused])
async def test_a_life_leaves_no_cycle(life: Callable[[Inbox], Awaitable[None]]) -> None:
    async with inbox() as me:
        await life(me)  # what a first time leaves behind is not every time's
        gc.collect()
        gc.disable()
        try:
            for _ in range(LIVES):
                await life(me)
            left = gc.collect()
        finally:
            gc.enable()
    assert left < LIVES, f"{left / LIVES:.1f} objects of each life are in cycles"


@pytest.mark.parametrize("method", [Counter.refuse, Counter.refuse_slowly])
async def test_a_refused_caller_sees_its_error_and_nothing_of_how_it_was_raised(
    method: Callable[[Counter], Awaitable[None] | None],
) -> None:
    ref = await start(Counter)
    with pytest.raises(KeyError) as caught:
        await ref.call(method)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
