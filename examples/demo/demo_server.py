"""The server of the demonstration: every way that a tool can go well or wrong, on the public API only."""

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
    instructions="Call `leave`, `raise_interrupt` or `segfault`, and then `add`: nobody notices. `block` shows what a watchdog is for. "
    "`clock__now`, `library__find` and `shaky__count` are other servers' tools, and one of those servers keeps dying.",
)
server.mount(host, shared=True)


@server.tool
async def add(a: int, b: int) -> int:
    """Works: adds two numbers."""
    return a + b


@server.tool
async def wait(seconds: float = 1.0) -> str:
    """Waits, and lets all other calls go on. Cancel it, if you like."""
    await asyncio.sleep(min(seconds, 60.0))
    return f"waited for {seconds:g} seconds"


@server.tool
def grind(seconds: float = 1.0) -> str:
    """Works for a while in a thread: a plain function may block, and no other call waits."""
    time.sleep(min(seconds, 60.0))
    return f"ground for {seconds:g} seconds"


@server.tool
async def fail() -> str:
    """Fails, and says so: the model sees the words, and can try something else."""
    raise ToolError("the stage door is locked; try the front of the house")


@server.tool
async def crash() -> str:
    """Raises an unexpected error: the caller is told in general words, and the log has the traceback."""
    return f"one divided by zero is {1 / 0}"


@server.tool
def leave() -> str:
    """Calls sys.exit(): elsewhere this ends the whole server, and all calls with it."""
    sys.exit(0)


@server.tool
async def raise_interrupt() -> str:
    """Raises KeyboardInterrupt, as if a user had pressed Ctrl-C."""
    raise KeyboardInterrupt


@server.tool
async def block(seconds: float = 1.5) -> str:
    """Blocks the event loop, as an `async def` that never awaits does: all calls wait, and the watchdog names it."""
    time.sleep(min(seconds, 10.0))  # noqa: ASYNC251 - the mistake that is shown here
    return f"blocked everybody for {seconds:g} seconds"


@server.tool(isolation="thread")
async def block_alone(seconds: float = 1.5) -> str:
    """The same mistake in a thread with a loop of its own: no other call waits."""
    time.sleep(min(seconds, 10.0))  # noqa: ASYNC251 - as above
    return f"blocked nobody for {seconds:g} seconds"


@server.tool(isolation=Pool(size=1, warm=1))
def segfault() -> str:
    """Reads address zero, in a process of its own: that one dies, and the caller is told how."""
    return str(ctypes.string_at(0))


@server.tool
async def stream(ctx: Context, steps: int = 5) -> str:
    """Tells how far it is, step by step: ask with a progress token."""
    for step in range(min(steps, 100)):
        await ctx.progress(step, steps, f"step {step + 1} of {steps}")
        await asyncio.sleep(0.2)
    return "that was all"


@server.resource("demo://programme", mime_type="text/plain")
async def programme() -> str:
    """What is on tonight."""
    return "add, wait, grind, fail, crash, leave, raise_interrupt, block, block_alone, segfault, stream"


@server.prompt
def tour() -> str:
    """Asks a model to try everything."""
    return "Call every tool of this server once, the one called `leave` in the middle, and tell me which of them did any harm."
