"""A question that a handler does not await is an error that says so, however the handler uses it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from greenroom import Client, Context, Server

server = Server("forgetful")


@server.tool
async def thrown_away(ctx: Context) -> str:
    ctx.elicit("Really?", bool)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    return "done"


@server.tool
async def returned(ctx: Context) -> Any:
    return ctx.elicit("Really?", bool)


@server.tool
async def asked_for_a_member(ctx: Context) -> Any:
    answer: Any = ctx.elicit("Really?", bool)
    return answer.value


@server.tool
async def taken_for_true(ctx: Context) -> str:
    said: Any = ctx.sample("Well?")
    return "yes" if said else "no"


@server.tool
async def gone_through(ctx: Context) -> list[str]:
    found: Any = ctx.roots()
    return [each.uri for each in found]


@server.tool
def in_a_thread(ctx: Context) -> str:
    answer: Any = ctx.elicit_url("Go there", "https://a.example")
    return type(answer).__name__


@server.prompt
async def prompt(ctx: Context) -> str:
    ctx.roots()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    return "done"


NAMES = {
    "thrown_away": "elicit", "returned": "elicit", "asked_for_a_member": "elicit", "taken_for_true": "sample", "gone_through": "roots",
    "in_a_thread": "elicit_url",
}  # fmt: skip


@pytest.mark.parametrize("tool", NAMES)
async def test_the_error_names_what_was_not_awaited(tool: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with Client(server) as client:
            reply = await client.call_tool(tool)
    assert reply.is_error
    assert f"ctx.{NAMES[tool]}() was not awaited: write `answer = await ctx.{NAMES[tool]}(…)`" in reply.text


async def test_a_prompt_that_does_not_await_its_question_is_an_error_too() -> None:
    async with Client(server) as client:
        with pytest.raises(Exception, match=r"ctx\.roots\(\) was not awaited"):
            await client.get_prompt("prompt")


@server.tool
async def as_a_task(ctx: Context) -> str:
    import asyncio  # noqa: PLC0415 - only here

    answer = await asyncio.create_task(ctx.elicit("Really?", bool))
    return type(answer).__name__


@server.tool
def waited_for(ctx: Context) -> str:
    return type(ctx.wait(ctx.elicit("Really?", bool))).__name__


@pytest.mark.parametrize("tool", ["as_a_task", "waited_for"])
async def test_a_question_awaited_in_another_way_is_no_mistake(tool: str) -> None:
    async with Client(server, elicitation=lambda request: request.accept(value=True)) as client:
        assert await client.call(tool) == "Accepted"
