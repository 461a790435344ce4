"""Our own client under fire; as the peers' drivers are."""

from __future__ import annotations

from typing import Any

from benchmarks.client import burning
from greenroom import Client, ClientSettings


class Ours(burning.Client):
    """As it ships, but that it asks now and then whether the server is there: that is how one that was stopped is found out."""

    async def open(self, target: str | list[str]) -> None:
        """Connect."""
        self.client = Client(target, settings=ClientSettings(ping_interval=1.0, ping_timeout=1.0))
        await self.client.open()

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> str:
        """Call."""
        return str((await self.client.within(seconds).call_tool(tool, arguments)).text)

    async def list(self) -> int:
        """List."""
        return len(await self.client.list_tools())


if __name__ == "__main__":
    burning.main(Ours)
