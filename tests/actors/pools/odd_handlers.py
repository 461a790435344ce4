"""Handlers that send, ask, fail and die in uncommon ways: a module that any process can import."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from greenroom import Server, UrlElicitation, UrlElicitationRequired
from greenroom.actors.server_questions import Question

if TYPE_CHECKING:
    from greenroom.actors.context import Context

SERVER = Server("of the module that a worker has imported")
PAGE = "a-page-of-a-test"


class WordlessError(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def fails_without_words() -> str:
    raise WordlessError


def sends_away() -> str:
    raise UrlElicitationRequired(UrlElicitation("Who are you?", "https://box.example/door", id=PAGE))


def has_seen() -> str:
    """Tells that the user was there, by the server of its module."""
    return str(SERVER.elicitation_complete(PAGE))


async def paces(ctx: Context, times: int) -> int:
    """Says much, and no faster than it is heard."""
    taken = 0
    for number in range(times):
        taken += bool(ctx.progress(number + 1))
        if number % 50 == 0:
            await asyncio.sleep(0.05)
    return taken


async def asks_briefly(ctx: Context) -> str:
    """Does not wait for an answer for long."""
    try:
        async with asyncio.timeout(1):
            await ctx.sample("What now?")
    except TimeoutError:
        return "never mind"
    return "answered"


async def asks_and_leaves(ctx: Context) -> str:
    """Has a question open when it ends."""
    asking = asyncio.ensure_future(ctx.sample("What now?"))
    await asyncio.sleep(0.1)
    return f"gone, {asking.done()}"


WHO = Question.elicit("Who are you?", str, key="who")
GREETING = Question.sample("Greet the user")


def asks_in_rounds(ctx: Context) -> str:
    """Ends its first two runs with a question each, in a thread of the worker."""
    who = ctx.answers.require(WHO, state=[1, None, 2**70])
    greeting = ctx.answers.require(GREETING, state="second")
    return f"{greeting.text} {who} {ctx.request_state}"


async def steps_aside(ctx: Context) -> str:
    return f"{ctx.interrupt_stream(1)}"


async def changes() -> str:
    """Tells who listens, by the server of its module."""
    SERVER.notify_resource_updated("test://page", {"title": "new"})
    SERVER.notify_list_changed("tool")
    return "changed"


def changes_from_thread(ctx: Context) -> str:
    SERVER.notify_resource_updated("test://page", {"title": ctx.name})
    return "changed"
