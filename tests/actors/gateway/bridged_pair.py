"""A client of either era in front of a gateway, and an upstream of either era behind it: over memory, or over HTTP at both sides."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom import Client, ClientSettings, Server, Settings
from greenroom.host import Host
from greenroom.protocol.dialect import STATELESS_DIALECT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

LEGACY, MODERN = "legacy", STATELESS_DIALECT.version

YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}

FRAGILE_UPSTREAM = """
import os, pathlib, signal, sys
from greenroom import Server

server = Server("up")
begun = pathlib.Path(sys.argv[1])

@server.tool
async def die() -> str:
    with begun.open("a") as log:
        log.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    return "not reached"

@server.tool
async def pid() -> int:
    return os.getpid()

server.run()
"""


class BridgedUpstream:
    """A server with a tool for each kind of message that a gateway carries."""

    def __init__(self) -> None:
        self.server = Server("up", settings=Settings(task_poll=0.05))
        self.waiting, self.cancelled = asyncio.Event(), asyncio.Event()
        self.runs = 0
        """How often the tools that ask have begun."""
        self.versions: set[str] = set()
        """The revisions in which its tools were called."""
        self.metas: list[dict[str, Any]] = []
        self._register_calls()
        self._register_questions()

    def _register_calls(self) -> None:
        server = self.server

        @server.tool
        def add(ctx: Any, a: int, b: int) -> int:
            self.versions.add(ctx.protocol_version)
            self.metas.append(dict(ctx.meta))
            return a + b

        @server.tool
        async def steps(ctx: Any, to: int) -> int:
            ctx.warning("counting", logger="steps")
            for done in range(to):
                ctx.progress(done + 1, to, f"step {done + 1}")
                await asyncio.sleep(0)
            return to

        @server.tool
        async def wait(ctx: Any) -> None:
            self.waiting.set()
            try:
                await ctx.cancelled.wait()
            finally:
                self.cancelled.set()

        @server.resource("note://one")
        def note() -> str:
            return "a note"

    def _register_questions(self) -> None:
        server = self.server

        @server.tool
        async def confirm(ctx: Any) -> str:
            self.runs += 1
            answer = await ctx.elicit("Sure?", YES)
            return f"{answer.action} {answer.value['yes']}"

        @server.tool
        async def think(ctx: Any) -> str:
            self.runs += 1
            return str((await ctx.sample("What now?")).text)

        @server.tool
        async def places(ctx: Any) -> list[str]:
            self.runs += 1
            return [root.uri for root in await ctx.roots()]

        @server.tool(task_support="optional")
        async def research(ctx: Any, topic: str) -> str:
            self.runs += 1
            answer = await ctx.elicit(f"Really {topic}?", YES)
            return f"{topic}: {answer.value['yes']}"

        @server.tool(task_support="optional")
        async def endless(ctx: Any) -> None:
            self.waiting.set()
            try:
                await ctx.cancelled.wait()
            finally:
                self.cancelled.set()


@dataclass
class BridgedPair:
    """What is on the two sides of one gateway."""

    front: str
    """The mode of the client."""
    back: str
    """The mode in which the gateway calls the upstream."""
    peer: Client
    server: Server
    up: BridgedUpstream
    asked: list[str] = field(default_factory=list[str])
    """The questions that the client's user was asked."""
    logged: list[tuple[str | None, Any]] = field(default_factory=list[tuple[str | None, Any]])


@asynccontextmanager
async def bridged_pair(
    front: str, back: str, *, over_http: bool = False, program: Path | None = None, asks: bool = True
) -> AsyncGenerator[BridgedPair]:
    """The pair, connected. `program` is one that runs in place of the upstream; without `asks` the client cannot be asked anything."""
    up, server = BridgedUpstream(), Server("front", settings=Settings(task_poll=0.05))
    async with AsyncExitStack() as stack:
        target: Any = up.server
        if program is not None:
            target = [sys.executable, str(program), str(program.with_suffix(".log"))]
        elif over_http:
            await stack.enter_async_context(up.server.started())
            target = await up.server.listen(port=0)
        server.mount(Host({"up": target}, settings=ClientSettings(mode=back), patience=20.0))
        await stack.enter_async_context(server.started())
        door: Any = await server.listen(port=0) if over_http else server
        pair: BridgedPair

        def agree(form: Any) -> Any:
            pair.asked.append(form.message)
            return form.accept({"yes": True})

        def say(_: Any) -> str:
            pair.asked.append("sampling")
            return "go on"

        def places() -> list[str]:
            pair.asked.append("roots")
            return ["file:///stage"]

        able: dict[str, Any] = {"elicitation": agree, "sampling": say, "roots": places} if asks else {}
        peer = Client(door, mode=front, on_log=lambda said: pair.logged.append((said.logger, said.data)), **able)
        pair = BridgedPair(front, back, peer, server, up)
        await stack.enter_async_context(peer)
        assert peer.server_info["name"] == "front"
        yield pair
