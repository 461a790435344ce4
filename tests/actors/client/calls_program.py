"""A server whose tools end in each way, for tests of the events of calls; as a program it speaks on its standard streams."""

from __future__ import annotations

import asyncio
import os

from greenroom import Context, Server, ToolError


def make_server() -> Server:
    """The server."""
    server = Server("calls")

    @server.tool
    def add(a: int, b: int) -> int:
        """Return the sum."""
        return a + b

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("no")

    @server.tool
    async def wait(ctx: Context) -> str:
        """Report once, and never return."""
        await ctx.progress(1)
        await asyncio.Event().wait()
        return ""

    @server.tool
    def die() -> str:
        """End the program."""
        os._exit(3)

    return server


if __name__ == "__main__":
    make_server().run()
