"""The recorded program of the Python SDK 2.x: `recorded.py serve` is its server, and `recorded.py call COMMAND…` its client, each on stdio."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("recorded", version="1.0", instructions="Break a leg.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("on purpose")


@server.resource("play://script", mime_type="text/plain")
def script() -> str:
    """What is said."""
    return "To be"


@server.prompt()
def greet(name: str) -> str:
    """Say hello."""
    return f"Greet {name}"


async def call(command: list[str]) -> None:
    """Each step in its order, so that the ids of two runs are the same."""
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, mode="legacy") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "fail"]
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        assert (await client.call_tool("fail", {})).is_error
        assert (await client.call_tool("add", {"a": "one"})).is_error
        assert (await client.list_resources()).resources[0].name == "script"
        assert (await client.read_resource("play://script")).contents[0].text == "To be"
        assert (await client.list_prompts()).prompts[0].name == "greet"
        assert (await client.get_prompt("greet", {"name": "Ann"})).messages[0].content.text == "Greet Ann"
        await client.send_ping()
        try:
            await client.read_resource("play://nothing")
        except MCPError as error:
            assert error.error.code in (-32002, -32602)
        else:
            raise AssertionError


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        server.run("stdio")
    else:
        asyncio.run(call(sys.argv[2:]))
