"""The facade, called over the wire in memory."""

from __future__ import annotations

from greenroom.probe import WireProbe
from greenroom.server import Server


async def test_a_function_with_a_decorator_is_a_tool() -> None:
    server = Server("x")

    @server.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    async with server.started() as company, WireProbe(company) as probe:
        assert probe.welcome["serverInfo"]["name"] == "x"
        [tool] = (await probe.request("tools/list"))["tools"]
        assert tool["name"] == "echo"
        assert tool["description"] == "Say it again."
        assert (await probe.call("echo", text="hello"))["content"] == [{"type": "text", "text": "hello"}]
