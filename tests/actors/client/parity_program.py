"""A server with something of everything, whose values are the same in both eras. As a program it serves stdio."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from greenroom import Accepted, Context, Server, ToolError


@dataclass
class Guest:
    """A form."""

    name: str
    seats: Annotated[float, Meta(ge=0.5)] = 1.5


def make_server() -> Server:
    """The server."""
    server = Server("parity", version="2.1", instructions="Say anything.")
    _answer(server)
    _talk(server)
    _change(server)
    return server


def _answer(server: Server) -> None:
    """What has only requests and answers."""

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def maybe(value: int | None) -> int | None:
        return value

    @server.tool
    def names(count: int) -> list[str]:
        return [f"name {number}" for number in range(count)]

    @server.tool
    def fail() -> str:
        raise ToolError("no paint")

    @server.tool
    def seat(section: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Section"})]) -> str:
        return section

    @server.resource("parity://each/{name}", "each", mime_type="text/plain")
    def each(name: str) -> str:
        return name

    @server.prompt
    def greet(who: str, mood: str = "fine") -> str:
        return f"Greet {who}, {mood}."

    @server.completion("mood", prompt="greet")
    def moods(begun: str) -> list[str]:
        return [mood for mood in ("calm", "cross") if mood.startswith(begun)]


def _talk(server: Server) -> None:
    """What says something before it answers, and what asks."""
    stopped = asyncio.Event()

    @server.tool
    async def report(ctx: Context) -> str:
        for done in (1, 2):
            await ctx.progress(done, 2, f"step {done}")
        await ctx.debug("quiet")
        await ctx.warning("loud")
        return "reported"

    @server.tool
    async def ask_all(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            form = group.create_task(ctx.elicit("Who?", Guest))
            said = group.create_task(ctx.sample("Hello", max_tokens=5))
            places = group.create_task(ctx.roots())
        match form.result():
            case Accepted(guest):
                who = f"{guest.name} {guest.seats}"
            case other:
                who = other.action
        return f"{who}, {said.result().text}, {[place.uri for place in places.result()]}"

    @server.tool
    async def ask_in_turn(ctx: Context) -> str:
        first = await ctx.elicit("Who?", Guest)
        page = await ctx.elicit_url("Pay.", "https://pay.example/{elicitation_id}")
        return f"{first.action}, {page.action}"

    @server.tool
    async def wait(ctx: Context) -> str:
        try:
            await ctx.progress(0)
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @server.tool
    async def was_stopped() -> bool:
        async with asyncio.timeout(20):
            await stopped.wait()
        return True


def _change(server: Server) -> None:
    """What changes."""
    dial = 0

    @server.tool
    def turn(value: int) -> str:
        nonlocal dial
        dial = value
        server.notify_resource_updated("parity://dial")
        return "turned"

    @server.tool
    def grow() -> str:
        server.registry.register_tool("grown", lambda: "new")
        return "grown"

    @server.resource("parity://dial", "dial", mime_type="text/plain")
    def read_dial() -> str:
        return str(dial)


if __name__ == "__main__":
    make_server().run()
