"""Handlers that send much: a module that any worker can import."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from greenroom import Context, McpError

SAY = "What now?"


@dataclass
class Trip:
    """Where to."""

    city: str
    days: int = 1


def where() -> int:
    """The process that answers."""
    return os.getpid()


async def tells(ctx: Context, times: int) -> int:
    for number in range(times):
        _ = ctx.progress(number + 1, times, "going")
        _ = ctx.warning({"at": number}, "steps")
    return os.getpid()


def tells_from_thread(ctx: Context, times: int) -> int:
    for number in range(times):
        _ = ctx.progress(number + 1, times, "going")
        _ = ctx.warning({"at": number}, "steps")
    return os.getpid()


async def asks(ctx: Context) -> str:
    sampled, roots, trip = await asyncio.gather(ctx.sample(SAY), ctx.roots(), ctx.elicit("Where to?", Trip))
    return f"{sampled.text} {[root.uri for root in roots]} {_days(trip)}"


def asks_from_thread(ctx: Context) -> str:
    sampled, roots = ctx.wait(ctx.sample(SAY)), ctx.wait(ctx.roots())
    trip = ctx.wait(ctx.elicit("Where to?", Trip))
    return f"{sampled.text} {[root.uri for root in roots]} {_days(trip)}"


def _days(answer: Any) -> str:
    return f"{answer.value.days} in {answer.value.city}" if answer.action == "accept" else answer.action


async def waits(ctx: Context) -> None:
    _ = ctx.info(os.getpid())
    await asyncio.Event().wait()


def waits_in_thread(ctx: Context) -> str:
    _ = ctx.info(os.getpid())
    ctx.cancelled.wait_in_thread()
    return "noticed"


def refuses() -> None:
    raise McpError(-32001, "not today", {"why": ["rain"], "id": UUID(int=5), "price": Decimal("1.5")})


def picture() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def measured(text: str) -> int:
    return len(text)


def echo(value: Any) -> Any:
    return value


def page(city: str, ctx: Context) -> str:
    return f"{city} at {ctx.uri}, by {os.getpid()}"


def pack_for(city: str, days: int = 1) -> str:
    return f"Pack for {days} days in {city}"


def cities(value: str) -> list[str]:
    return [each for each in ("Oslo", "Omsk", "Rome") if each.startswith(value)]
