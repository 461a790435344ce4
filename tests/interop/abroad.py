"""Our client signs in elsewhere, to servers that others wrote with authorization servers of theirs: `python -m tests.interop.abroad python`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.served_program import served

from greenroom import Client
from greenroom.auth import OAuth
from greenroom.transports import Fetcher, Guard

from .peers import HERE, NODE, PLACE

LIFETIME = 2.0


async def browse(url: str, /) -> str:
    """The user, who agrees."""
    answer = await Fetcher(Guard(loopback=True))(url)
    assert answer.status == 302, answer.body
    return answer.headers["location"]


async def python(url: str) -> None:
    """The Python SDK's: its tokens end soon, and it says what it was asked for."""
    async with Client(url, auth=OAuth(browser=browse)) as client:
        history = await client.call("history")
        assert str(history).split() == ["register", "authorize", "code"], history
        print("ok sign in")
        await asyncio.sleep(LIFETIME + 0.5)
        history = await client.call("history")
        assert str(history).split() == ["register", "authorize", "code", "refresh"], history
        print("ok refresh")


async def typescript(url: str) -> None:
    """The TypeScript SDK's example: it takes tokens only that were given for it."""
    async with Client(url.replace("127.0.0.1", "localhost"), auth=OAuth(browser=browse)) as client:
        assert await client.call("greet", {"name": "Ann"}) == "Hello, Ann!"
        print("ok sign in")


THEIRS = {
    "python": ([str(PLACE / "mcp-2" / "bin" / "python"), str(HERE / "python" / "guarded.py")], python),
    "typescript": ([str(NODE), str(HERE / "node" / "guarded.cjs")], typescript),
}


def main(name: str) -> None:
    """Start their server, and sign in."""
    command, play = THEIRS[name]
    with (
        tempfile.TemporaryDirectory(prefix="abroad-") as place,
        served(command, Path(place) / "log") as url,
    ):
        asyncio.run(play(url))


if __name__ == "__main__":
    main(*sys.argv[1:])
