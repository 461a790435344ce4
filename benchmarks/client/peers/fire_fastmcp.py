"""FastMCP's client under fire; run in an environment that has it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import burning
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


class Theirs(burning.Client):
    """As it ships."""

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


burning.main(Theirs)
