"""Tools of a traced server, importable by the processes of its pool."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from opentelemetry import baggage, trace

from greenroom import Context, Server

FORM: Final = {"type": "object", "properties": {"how": {"type": "string"}}}


def ids() -> dict[str, str]:
    """What a handler sees of its trace."""
    found = trace.get_current_span().get_span_context()
    return {
        "trace": trace.format_trace_id(found.trace_id),
        "span": trace.format_span_id(found.span_id),
        "user": str(baggage.get_baggage("user")),
    }


async def in_loop() -> dict[str, str]:
    """In the server's loop."""
    await asyncio.sleep(0)
    return ids()


def in_thread() -> dict[str, str]:
    """In a thread."""
    return ids()


async def in_own_loop() -> dict[str, str]:
    """In a thread with a loop."""
    return ids()


def in_process() -> dict[str, str]:
    """In another process."""
    return ids()


async def asking(ctx: Context) -> dict[str, str]:
    """The trace before and after a question to the user."""
    before = ids()
    await ctx.elicit("How are you?", FORM)
    return {**{f"{name} before": text for name, text in before.items()}, **ids()}


def asking_in_thread(ctx: Context) -> dict[str, str]:
    """The same in a thread."""
    before = ids()
    ctx.wait(ctx.elicit("How are you?", FORM))
    return {**{f"{name} before": text for name, text in before.items()}, **ids()}


async def working() -> dict[str, str]:
    """A tool that may run as a task."""
    return ids()


def traced_server(name: str = "traced", **options: Any) -> Server:
    """A server with all of them."""
    server = Server(name, **options)
    server.tool(in_loop)
    server.tool(in_thread)
    server.tool(isolation="thread")(in_own_loop)
    server.tool(isolation="process")(in_process)
    server.tool(asking)
    server.tool(asking_in_thread)
    server.tool(task_support="optional")(working)
    return server
