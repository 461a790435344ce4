"""The attacked server: `PORT [CONFIG [SETTINGS]]`, both as JSON, or `stdio`. It reports its memory, and sends as often as told to."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Any

from greenroom import Context, Server, Settings
from greenroom.supervision import current_node
from greenroom.transports.http_config import HttpConfig

PORT, CONFIG, SETTINGS = [*sys.argv[1:], "{}", "{}"][:3]
PAGE = 4096
server = Server("stage", settings=Settings(**json.loads(SETTINGS)))


@server.tool
async def echo(text: str) -> str:
    """Answer at once."""
    return text


@server.tool
async def chatter(ctx: Context, words: int, size: int, pause: float = 0.0) -> str:
    """Send a message again and again before the reply."""
    for count in range(words):
        await ctx.info(f"{count:08}".ljust(size, "."))
        await asyncio.sleep(pause)
    return "said"


@server.tool
async def whisper(ctx: Context, text: str, words: int, pause: float = 0.01) -> str:
    """Send this text several times before returning it."""
    for _ in range(words):
        await ctx.info(text)
        await asyncio.sleep(pause)
    return text


@server.tool
async def shout(words: int, size: int, pause: float = 0.0) -> int:
    """Notify all sessions, again and again; returns how many there were the last time."""
    heard = 0
    for count in range(words):
        heard = await server.broadcast(
            "notifications/message", {"level": "error", "data": f"{count:08}".ljust(size, ".")}
        )
        await asyncio.sleep(pause)
    return heard


@server.tool
async def wait(seconds: float) -> str:
    """Take that long."""
    await asyncio.sleep(seconds)
    return "waited"


@server.resource("note://{name}")
def note(name: str) -> str:
    """A resource to subscribe to."""
    return name


@server.tool
async def cost() -> dict[str, int]:
    """What this process holds: memory in bytes, and the number of everything that could be left behind."""
    gc.collect()
    return _cost()


def _cost() -> dict[str, int]:
    loop: Any = asyncio.get_running_loop()
    node = current_node()
    return {
        "memory": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE,
        "processes": len(node.processes),
        "names": len(node.names),
        "timers": sum(not each.cancelled() for each in loop._scheduled),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


if __name__ == "__main__" and PORT == "stdio":
    server.run()
elif __name__ == "__main__":
    server.run("http", config=HttpConfig(port=int(PORT), **json.loads(CONFIG)), grace=1.0)
