"""Handlers that tests run in workers: a module that any process can import."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import McpError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.actors.context import Context


def add(a: int, b: int) -> int:
    return a + b


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def pid() -> int:
    return os.getpid()


def fails(what: str) -> str:
    raise ValueError(what)


def complains() -> str:
    raise ToolError("no luck")


def refuses() -> str:
    raise McpError(-32001, "not today", {"why": "rain"})


async def naps(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


def quits() -> str:
    raise SystemExit(3)


def shapes() -> Any:
    return object()


def greedy() -> str:
    raise MemoryError


def picture() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(10)


def echo(value: Any) -> Any:
    return value


def sleeps(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


async def waits(ctx: Context) -> str:
    _ = ctx.info("begun")
    await asyncio.Event().wait()
    return "never"


def waits_in_thread(ctx: Context) -> str:
    _ = ctx.info("begun")
    ctx.cancelled.wait_in_thread()
    return "noticed"


LET_GO = threading.Event()


def stays(ctx: Context) -> str:
    _ = ctx.info("begun")
    LET_GO.wait(60)
    return "stayed"


async def pauses(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "paused"


async def tells(ctx: Context, times: int = 3) -> str:
    for number in range(times):
        _ = ctx.progress(number + 1, times, "going")
        _ = ctx.info({"at": number}, "steps")
    _ = ctx.notify("notifications/mine", {"x": [1, None, "y"]})
    return "told"


async def reports(ctx: Context, seconds: float, times: int, kind: str = "progress") -> str:
    """Report every so many seconds, to a client that need not be told."""
    for number in range(times):
        await asyncio.sleep(seconds)
        _ = ctx.progress(number) if kind == "progress" else ctx.debug(number)
    await asyncio.sleep(seconds)
    return "reported"


async def floods(ctx: Context, times: int) -> int:
    return sum(bool(ctx.progress(number + 1)) for number in range(times))


async def asks(ctx: Context) -> str:
    said = await ctx.sample("What now?")
    return f"{said.text}!"


def asks_from_thread(ctx: Context) -> str:
    return f"{ctx.wait(ctx.sample('What now?')).text}!"


async def asks_both(ctx: Context) -> str:
    first, second = await asyncio.gather(ctx.roots(), ctx.sample("What now?"))
    return f"{[each.uri for each in first]} {second.text}"


async def knows(ctx: Context) -> dict[str, Any]:
    return {
        "session": ctx.session_id,
        "version": ctx.protocol_version,
        "client": dict(ctx.client_info),
        "can": dict(ctx.client_capabilities),
        "state": ctx.state,
        "principal": ctx.principal,
        "request": ctx.request_id,
        "name": ctx.name,
    }


async def reads_state(ctx: Context) -> str:
    return repr(ctx.state)


def document(city: str, ctx: Context) -> str:
    return f"{city} at {ctx.uri}"


def page() -> str:
    return "a page"


def pack_for(city: str, days: int = 1) -> str:
    return f"Pack for {days} days in {city}"


def cities(value: str) -> list[str]:
    return [each for each in ("Oslo", "Omsk", "Rome") if each.startswith(value)]


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timer(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return timer


def bare(n: int) -> int:
    return n * 2


doubled = timed(bare)
wrapped_later = bare
bare = timed(bare)


@timed
def tripled(n: int) -> int:
    return n * 3


class Shop:
    @staticmethod
    def price(item: str) -> str:
        return f"{item}: 3"

    def sell(self, item: str) -> str:
        return item


SHOP = Shop()
LAMBDA = lambda: 1  # noqa: E731 - what it is about


def outer() -> Any:
    def inner() -> int:
        return 1

    return inner


NOTED: list[str] = []
"""What `notes` was given, in the order in which it ran: its workers are in the test's own process."""


def notes(text: str) -> str:
    NOTED.append(text)
    return text
