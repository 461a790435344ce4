"""Two machines: a tool and a server's connection run on the second one, which loses power during a call, and comes back.

Here both are this computer: the second machine is a program that listens on 127.0.0.1. On a separate machine it is the same program with another
address, and this file stays unchanged.

Run it: `python examples/machines.py`. It prints

    render has joined: it has gpu=True
    frame 1, drawn on render
    the wiki says forty-two
    render is lost
    Tool execution failed: its process was lost: its exit status is unknown
    tools/call: the process that kept the connection was lost: its exit status is unknown (it may have been done or not)
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

logging.disable(logging.CRITICAL)  # the log would repeat each loss
HERE = Path(__file__).resolve()
NEEDS = {"gpu": True}


# --- code for the second machine, which needs this file as well


def draw(frame: int) -> str:
    """Draw one frame."""
    return f"frame {frame}, drawn on {os.environ['MACHINE']}"


async def draw_for_ever(ctx: Context) -> None:
    """Draw without end."""
    await ctx.progress(0)
    await asyncio.Event().wait()


wiki = Server("wiki")


@wiki.tool
async def ask() -> str:
    """Answer at once."""
    return "forty-two"


@wiki.tool
async def ponder(ctx: Context) -> None:
    """Never answer."""
    await ctx.progress(0)
    await asyncio.Event().wait()


# --- the second machine


class Machine:
    """The machine's program, which an operator would run as a system service."""

    def __init__(self, name: str, convention: str, key: Path) -> None:
        """Start the program."""
        self.name = name
        words = f"--convention {convention} --key-file {key} --listen 127.0.0.1 --name {name} --capability gpu=true"
        self._words = [sys.executable, "-m", "greenroom.supervision.cluster.member", *words.split()]
        self.switch_on()

    def switch_on(self) -> None:
        """Start the program again."""
        environment = {**os.environ, "MACHINE": self.name}
        self._program = subprocess.Popen(self._words, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - fixed words

    def lose_power(self) -> None:
        """Kill the program."""
        self._program.kill()
        self._program.wait()

    def stop(self) -> None:
        """Stop the program in order."""
        self._program.terminate()
        self._program.wait()


# --- the application


async def main() -> None:
    """Run a cluster with one machine."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "cluster.key"
        write_key(key)
        convention = f"127.0.0.1:{free_port()}"
        cluster = Cluster(ClusterSettings(convention=convention, key_file=key, listen="127.0.0.1", machine="local"))
        async with Node(log=False), inbox() as me:
            await start(Supervisor, [cluster.child_spec()])
            await cluster.machines.call(ClusterMembership.watch, Ref[Any](me.pid))
            render = Machine("render", convention, key)
            try:
                await use(cluster, me, render)
            finally:
                render.stop()


async def use(cluster: Cluster, me: Inbox, render: Machine) -> None:
    """Call tools that run on the machine, and a server whose connection runs there."""
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
    """Wait until a machine joins."""
    event = await me.receive(lambda event: isinstance(event, MachineUp), timeout=30)
    print(event.name, "has joined: it has", ", ".join(f"{name}={value}" for name, value in event.capabilities.items()))


async def ready(host: Host, name: str) -> None:
    """Wait until a server is connected again: calls to an unreachable server are refused at once."""
    async with aclosing(host.watch()) as standings:
        async for standing in standings:
            if standing.id == name and standing.state.value == "ready":
                return


def free_port() -> int:
    """A free port for the cluster; a real cluster has a fixed one."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        wiki.run()
    else:
        asyncio.run(main())
