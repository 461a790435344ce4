"""A host with servers: reports when they run, and continues until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from greenroom.supervision import Node, inbox
from greenroom.transports.client.server_command import Command

MISBEHAVING = str(Path(__file__).with_name("misbehaving_server.py"))
DIRECT = (sys.executable, "-S", MISBEHAVING, "--stay")
WAYS = {
    "direct": DIRECT,
    # The end of the input reaches no server here: it runs in the background, and stays anyway.
    "shell": ("/bin/sh", "-c", '"$@" & wait', "sh", *DIRECT),
}


async def main(way: str, count: int) -> None:
    async with Node(), inbox() as me:
        print("begin", flush=True)  # noqa: T201 - it is waited for
        wires = [Command(*WAYS[way], inherit=True).open(me.pid) for _ in range(count)]
        while any(wire.process_id is None for wire in wires):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        print("ready", flush=True)  # noqa: T201 - it is waited for
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
