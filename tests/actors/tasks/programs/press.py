"""A server whose tasks are in a file: `press.py FILE PORT`. It is there to be killed."""

from __future__ import annotations

import asyncio
import sys

from greenroom import Context, McpError, Server, SqliteTasks, ToolError

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}

server = Server("press", task_store=SqliteTasks(sys.argv[1]))


@server.tool(task_support="required")
async def wait() -> str:
    """Never come back."""
    await asyncio.Event().wait()
    return "never"


@server.tool(task_support="required")
async def ask(ctx: Context) -> str:
    """Ask the user, who does not answer."""
    await ctx.elicit("who?", FORM, timeout=None)
    return "never"


@server.tool(task_support="required")
async def say(text: str, after: float = 0.0) -> str:
    """Say it back."""
    await asyncio.sleep(after)
    return text


@server.tool(task_support="required")
async def fail(text: str) -> str:
    """Fail, and say why."""
    raise ToolError(text)


@server.tool(task_support="required")
async def refuse(text: str) -> str:
    """Answer with an error of the protocol."""
    raise McpError(-32050, text, {"until": "tomorrow"})


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[2]))
