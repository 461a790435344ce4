"""A host with servers in connection processes: says when they run, and goes on until it is killed. `host.py BOOK MARK`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from greenroom import Command, Host
from greenroom.actors.federation.upstream_spec import UpstreamSpec

LEDGER = Path(__file__).parents[2] / "under_fire" / "programs" / "ledger.py"


async def main(book: str, mark: str) -> None:
    """Two connection processes with a server each."""
    route = Command(sys.executable, LEDGER, book, env={"GREENROOM_TEST_MARK": mark})
    async with Host({id: UpstreamSpec(route, isolation="process") for id in ("one", "two")}) as host:
        await asyncio.gather(*(host.server(id).call("where") for id in ("one", "two")))
        print("ready", flush=True)  # noqa: T201 - it is waited for
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
