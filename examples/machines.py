"""Two machines: a tool and a server's connection run on the other one, which loses its power in the middle of a call, and comes back.

Both are this computer here, so that it can be run: the other machine is a program that listens on 127.0.0.1, as everything does. On a machine of
its own it is the same program with another address, and not a line of this one is different.

Run it: `python examples/machines.py`. It prints

    render has joined: it has gpu=True
    frame 1, drawn on render
    the wiki says forty-two
    render is lost
    Tool execution failed: its process was lost: nobody could tell how it ended
    tools/call: the process that kept the connection was lost: nobody could tell how it ended (it may have been done or not)
    draw: Tool execution failed: its process could not be started: no machine of the cluster fits
    render has joined: it has gpu=True
    frame 2, drawn on render
    the wiki says forty-two
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Any

from greenroom import Client, Command, Context, Host, Pool, RequestLost, Server, ToolError
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.host import ConnectionProcess
from greenroom.supervision import Inbox, Node, Ref, Supervisor, inbox, start
from greenroom.supervision.cluster import Cluster, ClusterMembership, ClusterSettings, MachineDown, MachineUp, write_key

logging.disable(logging.CRITICAL)  # the reports tell of each loss, too
HERE = Path(__file__).resolve()
NEEDS = {"gpu": True}


# --- what runs on the other machine; this file has to be there as well


def draw(frame: int) -> str:
    """Draw one frame."""
    return f"frame {frame}, drawn on {os.environ['MACHINE']}"


async def draw_for_ever(ctx: Context) -> None:
    """Draw something that is never done."""
    await ctx.progress(0)
    await asyncio.Event().wait()


wiki = Server("wiki")


@wiki.tool
async def ask() -> str:
    """Give the answer, at once."""
    return "forty-two"


@wiki.tool
async def ponder(ctx: Context) -> None:
    """Never give an answer."""
    await ctx.progress(0)
    await asyncio.Event().wait()


# --- that machine


class Machine:
    """The program that an operator would start there, or rather have started by the system."""

    def __init__(self, name: str, convention: str, key: Path) -> None:
        """It runs from now on."""
        self.name = name
        words = f"--convention {convention} --key-file {key} --listen 127.0.0.1 --name {name} --capability gpu=true"
        self._words = [sys.executable, "-m", "greenroom.supervision.cluster.member", *words.split()]
        self.switch_on()

    def switch_on(self) -> None:
        """Begin."""
        environment = {**os.environ, "MACHINE": self.name}
        self._program = subprocess.Popen(self._words, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - our own words

    def lose_power(self) -> None:
        """Be gone without a word."""
        self._program.kill()
        self._program.wait()

    def stop(self) -> None:
        """End in order."""
        self._program.terminate()
        self._program.wait()


# --- the application


async def main() -> None:
    """Have a cluster, and one machine in it."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "cluster.key"
        write_key(key)
        convention = f"127.0.0.1:{free_port()}"
        cluster = Cluster(ClusterSettings(convention=convention, key_file=key, listen="127.0.0.1", machine="desk"))
        async with Node(log=False), inbox() as me:
            await start(Supervisor, [cluster.child_spec()])
            await cluster.machines.call(ClusterMembership.watch, Ref[Any](me.pid))
            render = Machine("render", convention, key)
            try:
                await use(cluster, me, render)
            finally:
                render.stop()


async def use(cluster: Cluster, me: Inbox, render: Machine) -> None:
    """A server with tools that need a machine, and a host that has a server asked from there."""
    server = Server("studio")
    pool = Pool(size=2, cluster=cluster, requires=NEEDS)
    server.tool(isolation=pool)(draw)
    server.tool(isolation=pool)(draw_for_ever)
    far = ConnectionProcess("far", cluster=cluster, requires=NEEDS)
    servers = {"wiki": UpstreamSpec(Command(sys.executable, HERE, "serve"), isolation=far)}
    await joined(me)
    async with Client(server) as client, Host(servers) as host:
        print(await client.call("draw", frame=1))
        print("the wiki says", await host.call("wiki:ask"))

        drawing = client.start_tool("draw_for_ever")
        pondering = host.server("wiki").start_tool("ponder")
        await anext(drawing.progress())
        await anext(pondering.progress())  # both are under way
        render.lose_power()
        await me.receive(lambda event: isinstance(event, MachineDown), timeout=30)
        print("render is lost")
        print((await drawing).text)
        try:
            await pondering
        except RequestLost as error:
            print(error)
        try:
            await client.call("draw", frame=2)
        except ToolError as error:
            print(error)

        render.switch_on()
        await joined(me)
        print(await client.call("draw", frame=2))
        await ready(host, "wiki")
        print("the wiki says", await host.call("wiki:ask"))


async def joined(me: Inbox) -> None:
    """Wait for a machine."""
    event = await me.receive(lambda event: isinstance(event, MachineUp), timeout=30)
    print(event.name, "has joined: it has", ", ".join(f"{name}={value}" for name, value in event.capabilities.items()))


async def ready(host: Host, name: str) -> None:
    """Wait until a server is there again: calls of one that is away are refused at once."""
    async with aclosing(host.watch()) as standings:
        async for standing in standings:
            if standing.id == name and standing.state.value == "ready":
                return


def free_port() -> int:
    """Where the cluster can meet; that of a real one is chosen once, and known to all."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        wiki.run()
    else:
        asyncio.run(main())
