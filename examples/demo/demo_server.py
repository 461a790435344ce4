"""The server of the demonstration: tools that succeed and fail in every way, with the public API only."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time

from greenroom import Context, Pool, Server, ToolError

from .upstreams import host

server = Server(
    "greenroom-demo",
    version="1",
    title="Greenroom's demonstration",
    instructions="Call `leave`, `raise_interrupt` or `segfault`, and then `add`: other calls are not affected. `block` shows the watchdog. "
    "`clock__now`, `library__find` and `shaky__count` are tools of other servers, one of which keeps dying.",
)
server.mount(host, shared=True)


@server.tool
async def add(a: int, b: int) -> int:
    """Works: adds two numbers."""
    return a + b


@server.tool
async def wait(seconds: float = 1.0) -> str:
    """Waits, without delaying other calls. It can be cancelled."""
    await asyncio.sleep(min(seconds, 60.0))
    return f"waited for {seconds:g} seconds"


@server.tool
def grind(seconds: float = 1.0) -> str:
    """Works for a while in a thread: a plain function may block, and no other call waits."""
    time.sleep(min(seconds, 60.0))
    return f"ground for {seconds:g} seconds"


@server.tool
async def fail() -> str:
    """Fails with an error text, which the model sees."""
    raise ToolError("the stage door is locked; try the front of the house")


@server.tool
async def crash() -> str:
    """Raises an unexpected exception: the caller gets a general error, and the log has the traceback."""
    return f"one divided by zero is {1 / 0}"


@server.tool
def leave() -> str:
    """Calls sys.exit(), which would end an unsupervised server with all of its calls."""
    sys.exit(0)


@server.tool
async def raise_interrupt() -> str:
    """Raises KeyboardInterrupt, as if a user had pressed Ctrl-C."""
    raise KeyboardInterrupt


@server.tool
async def block(seconds: float = 1.5) -> str:
    """Blocks the event loop, like an `async def` that never awaits: all calls wait, and the watchdog reports this one."""
    time.sleep(min(seconds, 10.0))  # noqa: ASYNC251 - the mistake that is shown here
    return f"blocked all calls for {seconds:g} seconds"


@server.tool(isolation="thread")
async def block_alone(seconds: float = 1.5) -> str:
    """The same mistake in a thread with a loop of its own: no other call waits."""
    time.sleep(min(seconds, 10.0))  # noqa: ASYNC251 - as above
    return f"blocked no other call for {seconds:g} seconds"


@server.tool(isolation=Pool(size=1, warm=1))
def segfault() -> str:
    """Reads address zero in a process of its own: that process dies, and the caller learns how."""
    return str(ctypes.string_at(0))


@server.tool
async def stream(ctx: Context, steps: int = 5) -> str:
    """Reports progress step by step, if the request has a progress token."""
    for step in range(min(steps, 100)):
        await ctx.progress(step, steps, f"step {step + 1} of {steps}")
        await asyncio.sleep(0.2)
    return "done"


@server.resource("demo://programme", mime_type="text/plain")
async def programme() -> str:
    """The names of the tools."""
    return "add, wait, grind, fail, crash, leave, raise_interrupt, block, block_alone, segfault, stream"


@server.prompt
def tour() -> str:
    """Asks a model to try everything."""
    return "Call every tool of this server once, the one called `leave` in the middle, and tell me which of them affected other calls."
