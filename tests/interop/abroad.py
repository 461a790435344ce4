"""Our client signs in elsewhere: to a server that others wrote, with their authorization server: `python -m tests.interop.abroad`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.serving import served

from greenroom import Client, Fetcher, Guard, OAuth

from .peers import HERE, PLACE

LIFETIME = 2.0


async def browse(url: str, /) -> str:
    """The user, who agrees."""
    answer = await Fetcher(Guard(loopback=True))(url)
    assert answer.status == 302, answer.body
    return answer.headers["location"]


async def play(url: str) -> None:
    """Each step prints a line."""
    async with Client(url, auth=OAuth(browser=browse)) as client:
        history = await client.call("history")
        assert str(history).split() == ["register", "authorize", "code"], history
        print("ok registration\nok sign in")
        await asyncio.sleep(LIFETIME + 0.5)
        history = await client.call("history")
        assert str(history).split() == ["register", "authorize", "code", "refresh"], history
        print("ok refresh")


def main() -> None:
    """Start their server, and sign in."""
    with tempfile.TemporaryDirectory(prefix="abroad-") as place:
        command = [str(PLACE / "mcp-2" / "bin" / "python"), str(HERE / "python" / "guarded.py")]
        with served(command, Path(place) / "log") as url:
            asyncio.run(play(url))


if __name__ == "__main__":
    main()
