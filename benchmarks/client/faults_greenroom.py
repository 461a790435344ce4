"""The driver of our client for the fault trials, like the peers' drivers."""

from __future__ import annotations

from typing import Any

from greenroom import Client, ClientSettings

from . import fault_trials


class Ours(fault_trials.Client):
    """With default settings, except that it pings the server, which detects a stopped server."""

    mode = "auto"

    async def open(self, target: str | list[str]) -> None:
        """Connect."""
        self.client = Client(target, settings=ClientSettings(ping_interval=1.0, ping_timeout=1.0, mode=self.mode))
        await self.client.open()

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> str:
        """Call."""
        return str((await self.client.within(seconds).call_tool(tool, arguments)).text)

    async def list(self) -> int:
        """List."""
        return len(await self.client.list_tools())


if __name__ == "__main__":
    fault_trials.main(Ours)
