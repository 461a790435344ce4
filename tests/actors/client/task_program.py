"""A server whose tools run as tasks. As a program it serves stdio."""

from __future__ import annotations

import asyncio
import os

from greenroom import Accepted, Context, McpError, Server, ToolError

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}


def name_in(answer: object) -> str:
    """The name in the answer to a form."""
    match answer:
        case Accepted({"name": str() as name}):
            return name
        case _:
            return f"no name: {answer!r}"


def make_server() -> Server:
    """The server."""
    server = Server("tasks")
    marks: dict[str, list[str]] = {"began": [], "ended": []}

    @server.tool(task_support="optional")
    async def bake(loaves: int, seconds: float = 0.05) -> dict[str, int]:
        await asyncio.sleep(seconds)
        return {"loaves": loaves}

    @server.tool(task_support="required")
    async def fail(how: str) -> str:
        if how == "error":
            raise McpError(-31000, "the mill is shut", {"until": "noon"})
        raise ToolError("no flour")

    @server.tool(task_support="optional")
    async def ask(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.elicit(question, NAME)) for question in ("first?", "second?")]
        third = await ctx.elicit("third?", NAME)
        return " ".join(map(name_in, (*(one.result() for one in asked), third)))

    @server.tool(task_support="optional", defer_task=True)
    async def ask_before(ctx: Context) -> str:
        who = await ctx.elicit("before?", NAME)
        started = await ctx.start_task()
        after = await ctx.elicit("after?", NAME)
        return f"{name_in(who)} {started} {name_in(after)}"

    @server.tool(task_support="optional")
    async def endless(mark: str) -> str:
        marks["began"].append(mark)
        try:
            await asyncio.Event().wait()
        finally:
            marks["ended"].append(mark)
        return "never"

    @server.tool
    async def crash() -> None:
        os._exit(3)

    @server.tool
    async def seen(what: str) -> list[str]:
        return marks[what]

    return server


if __name__ == "__main__":
    make_server().run()
