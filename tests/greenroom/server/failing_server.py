"""A server whose own code fails wherever it is called from; worker processes import it."""

from __future__ import annotations

import asyncio

from greenroom import Client, Server

server = Server("failing")


def fail(text: str) -> None:
    """The last of the author's frames."""
    raise ValueError(text)


def wrap(text: str) -> None:
    """An error with a cause."""
    try:
        fail(text)
    except ValueError as error:
        raise LookupError("wrapped") from error


@server.tool
def plain() -> None:
    fail("in a thread")


@server.tool
async def loop() -> None:
    fail("in the loop")


@server.tool(isolation="process")
def process() -> None:
    wrap("in a process")


@server.tool(long_running=True)
async def task() -> None:
    fail("in a task")


@server.prompt
async def prompt() -> str:
    fail("in a prompt")
    return ""


@server.resource("failing://resource")
def resource() -> str:
    fail("in a resource")
    return ""


async def main() -> None:
    """Have the tool called that runs in a worker."""
    async with Client(server) as client:
        assert (await client.call_tool("process")).is_error


if __name__ == "__main__":
    asyncio.run(main())
