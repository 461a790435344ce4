"""A node that admits guests: `host.py ADDRESS KEY_FILE`. It prints its address, and serves until it is ended."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from greenroom import Host, Server, ToolError

weather = Server("weather")


def note(what: str) -> None:
    """Leave a file for the test, which watches from outside."""
    Path(f"{sys.argv[2]}.{what}").touch()


@weather.tool
def forecast(city: str) -> str:
    """The forecast."""
    return f"sunny in {city}"


@weather.tool
async def slow(seconds: float) -> str:
    """Take long; the file shows that it has begun."""
    note("slow")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "done"


@weather.tool
def fail() -> str:
    """Raise an error."""
    raise ToolError("there is no weather today")


@weather.tool
def large(size: int) -> str:
    """Return so many characters."""
    return "x" * size


@weather.resource("sky://now")
def sky() -> str:
    """Changes."""
    return "blue"


@weather.tool
def change() -> str:
    """Change the resource."""
    weather.notify_resource_updated("sky://now")
    return "changed"


@weather.prompt
def pack(city: str) -> str:
    """A prompt about what to take along."""
    return f"what to pack for {city}"


async def main() -> None:
    """Serve until the process is ended."""
    host = Host({"weather": weather, "offline": "http://127.0.0.1:9/mcp"})
    listener = host.admit_guests(Path(sys.argv[2]), address=sys.argv[1])
    async with host:
        print(listener.address, flush=True)  # noqa: T201
        await asyncio.get_running_loop().create_future()


logging.getLogger("greenroom").setLevel(logging.CRITICAL)
asyncio.run(main())
