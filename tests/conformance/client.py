"""The client that the official suite judges: `client.py URL`, on the public interface alone.

Which scenario it is in, the suite says in the environment. It begins by the handshake, does what the scenario is about, and ends with 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from greenroom import Client, ElicitationRequest, SamplingRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def initialize(client: Client) -> None:
    """Say hello, and look at what there is: this server has nothing, and is not asked for it."""
    if "tools" in client.server_capabilities:
        await client.list_tools()


async def tools_call(client: Client) -> None:
    """List the tools, and add two numbers."""
    [tool] = [tool for tool in await client.list_tools() if tool.name == "add_numbers"]
    print(await client.call(tool.name, a=5, b=3))


async def defaults(client: Client) -> None:
    """Have the server ask, and accept what it proposes."""
    for tool in await client.list_tools():
        print((await client.call_tool(tool.name)).text)


async def sse_retry(client: Client) -> None:
    """Call the tool whose stream is cut: its answer comes on the next one."""
    for tool in await client.list_tools():
        print((await client.call_tool(tool.name)).text)


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": initialize,
    "tools_call": tools_call,
    "elicitation-sep1034-client-defaults": defaults,
    "sse-retry": sse_retry,
}


async def agree(request: ElicitationRequest) -> Any:
    """The user sends the form as it is."""
    return request.accept()


async def parrot(request: SamplingRequest) -> str:
    """The model says what it heard."""
    return request.text


async def main(url: str, scenario: str) -> None:
    """One scenario."""
    play = SCENARIOS[scenario]
    async with Client(
        url, sampling=parrot, elicitation=agree, client_info={"name": "conformance", "version": "1.0"}
    ) as client:
        await play(client)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    wanted = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if wanted not in SCENARIOS:
        sys.exit(f"{wanted} is not played here")
    asyncio.run(main(sys.argv[-1], wanted))
