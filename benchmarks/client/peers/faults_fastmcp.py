"""The driver of FastMCP's client for the fault trials; runs in an environment with FastMCP."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import fault_trials
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


class Theirs(fault_trials.Client):
    """With default settings."""

    async def open(self, target):  # noqa: ANN001, ANN201 - its library's types are elsewhere
        """Connect."""
        self.client = Client(target if isinstance(target, str) else StdioTransport(target[0], target[1:]))
        await self.client.__aenter__()

    async def call(self, tool, arguments, seconds):  # noqa: ANN001, ANN201
        """Call."""
        result = await self.client.call_tool(tool, arguments, timeout=seconds)
        return result.content[0].text if result.content else ""

    async def list(self):  # noqa: ANN201
        """List."""
        return len(await self.client.list_tools())


fault_trials.main(Theirs)
