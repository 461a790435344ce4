"""The driver of mcp's client for the fault trials; runs in an environment with mcp."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import fault_trials
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


class Theirs(fault_trials.Client):
    """With default settings."""

    async def open(self, target):  # noqa: ANN001, ANN201 - its library's types are elsewhere
        """Connect."""
        self.stack = AsyncExitStack()
        way = (
            streamable_http_client(target)
            if isinstance(target, str)
            else stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
        )
        streams = await self.stack.enter_async_context(way)
        self.session = await self.stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await self.session.initialize()

    async def call(self, tool, arguments, seconds):  # noqa: ANN001, ANN201
        """Call."""
        result = await self.session.call_tool(tool, arguments, read_timeout_seconds=seconds)
        return result.content[0].text if result.content else ""

    async def list(self):  # noqa: ANN201
        """List."""
        return len((await self.session.list_tools()).tools)


fault_trials.main(Theirs)
