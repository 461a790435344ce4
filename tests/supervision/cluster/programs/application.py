"""An application with a cluster: it prints the pids of its processes on a line, and then does what it was told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from greenroom.supervision import GenServer, Node, Supervisor, start
from greenroom.supervision.cluster.cluster import Cluster, NodeOwner
from greenroom.supervision.cluster.cluster_settings import MainModule, NodeSpec
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.remote_spawn import start_on

PATH = str(Path(__file__).resolve())


class Tool(GenServer):
    """A server with a user's code, in a node."""

    def execute(self, *command: str) -> int:
        """Start a program, and do not wait for it."""
        return subprocess.Popen(command, start_new_session=True).pid

    def stopped(self) -> None:
        """Block."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def spin(self) -> None:
        """Compute for ever."""
        while True:
            pass


async def main(way: str) -> None:
    """`way` says how it goes on: it waits, ends in order, ends at once, or has nodes that do not respond."""
    async with Node("application"):
        cluster = Cluster()
        await start(Supervisor, [cluster.child_spec()])
        spec = NodeSpec(main=MainModule(path=PATH))
        hosts = [await cluster.start_node(spec) for _ in range(3)]
        tools = [await start_on(await host.call(NodeOwner.node_name), Tool) for host in hosts]
        executed = await tools[0].call(Tool.execute, "sleep", "1000")
        running = await cluster.engine.call(NodeEngine.running)
        if way == "busy":
            tools[1].cast(Tool.stopped)
            tools[2].cast(Tool.spin)
        print(json.dumps({**running, "executed": executed}), flush=True)  # noqa: T201 - it is waited for
        if way in ("wait", "busy"):
            await asyncio.Event().wait()
        elif way == "at once":
            os._exit(3)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
