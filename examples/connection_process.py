"""Three servers, two of whose connections run in a connection process: it is killed during their calls, and the third server is not affected.

Run it: `python examples/connection_process.py`. It prints

    the bank and the shop share a process: True
    the post is in the program's own process: True
    killed: bank StreamLost (SIGKILL), shop StreamLost (SIGKILL), post done
    after: bank done, shop done, post done
    in another process: True
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from greenroom import ClientError, Command, Host, Server
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.host import ConnectionProcess
from greenroom.supervision import Node

HERE = Path(__file__).resolve()
BESIDE = ConnectionProcess("beside", memory=512 * 1024 * 1024)

server = Server("work")


@server.tool
async def work(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return "done"


async def outcome(host: Host, id: str, seconds: float) -> str:
    """The outcome of a call."""
    try:
        return f"{id} {await host.call(f'{id}:work', seconds=seconds)}"
    except ClientError as error:
        how = "SIGKILL" if "SIGKILL" in str(error) else str(error)
        return f"{id} {type(error).__name__} ({how})"


async def main() -> None:
    """Run a host whose servers are this file, as child processes."""
    program = Command(sys.executable, HERE, "serve")
    servers = {
        "bank": UpstreamSpec(program, isolation=BESIDE),
        "shop": UpstreamSpec(program, isolation=BESIDE),
        "post": UpstreamSpec(program),
    }
    async with Node(log=False), Host(servers) as host:
        await asyncio.gather(*(host.server(id).ping() for id in servers))
        bank, shop, post = [await host.federation.process_id(id) for id in servers]
        print("the bank and the shop share a process:", bank == shop != os.getpid())
        print("the post is in the program's own process:", post == os.getpid())

        calls = [asyncio.ensure_future(outcome(host, id, 0.5)) for id in servers]
        await asyncio.sleep(0.2)
        os.kill(bank, signal.SIGKILL)
        print("killed:", ", ".join(await asyncio.gather(*calls)))
        print("after:", ", ".join([await outcome(host, id, 0.0) for id in servers]))
        print("in another process:", await host.federation.process_id("bank") != bank)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server.run()
    else:
        asyncio.run(main())
