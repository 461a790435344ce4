"""The playhouse on FastMCP 4.x: `fastmcp4.py stdio`, or `http`, `sse` or `alone` (JSON, no sessions) and a port."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel

DIAL = "play://dial"

server = FastMCP("playhouse", version="1.0", instructions="Break a leg.")
house: dict[str, Any] = {"dial": 0}
watched: set[str] = set()
waits: dict[str, asyncio.Event] = {}


class Day(BaseModel):
    """The weather of one day."""

    high: float
    sky: str


class Forecast(BaseModel):
    """The weather of the coming days in a city."""

    city: str
    days: list[Day]


class Booking(BaseModel):
    """The guest's name, and the number of seats."""

    name: str
    seats: int = 2


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def forecast(city: str, days: int = 2) -> Forecast:
    """Forecast the weather of a city."""
    return Forecast(city=city, days=[Day(high=20.5 + day, sky="rain" if day % 2 else "clear") for day in range(days)])


@server.tool
def fail() -> str:
    """Fail, and say why."""
    raise ToolError("The prop broke.")


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Count, and report each number."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"{number} of {to}")
    return f"counted to {to}"


@server.tool
async def narrate(ctx: Context) -> str:
    """Log at three levels."""
    for level, data in (("debug", "whispered"), ("info", "said"), ("error", {"said": "loud"})):
        await ctx.log(data, level, "play")
    return "told"


@server.tool
async def ask_model(question: str, ctx: Context) -> str:
    """Have the client's model answer."""
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question))
    said = await ctx.session.create_message([asked], max_tokens=50, related_request_id=ctx.request_id)
    return f"{said.model} says {said.content.text}"


@server.tool
async def ask_user(ctx: Context) -> str:
    """Have the user fill in a form."""
    said = await ctx.elicit("Who comes?", response_type=Booking)
    return f"{said.data.name} takes {said.data.seats}" if said.action == "accept" else said.action


@server.tool
async def pay(ctx: Context) -> str:
    """Have the user pay at the box office."""
    said = await ctx.session.elicit_url(
        "Please pay.", "https://box.example/pay", "e1", related_request_id=ctx.request_id
    )
    return "paid" if said.action == "accept" else said.action


@server.tool
async def where(ctx: Context) -> str:
    """Where the client works."""
    return ", ".join(f"{root.uri} ({root.name})" for root in (await ctx.session.list_roots()).roots)


@server.tool
async def wait(key: str, ctx: Context) -> str:
    """Wait until the call is cancelled."""
    stopped = waits.setdefault(key, asyncio.Event())
    await ctx.report_progress(0, 1, "waiting")
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


@server.tool
async def stopped(key: str) -> str:
    """Say when the call that waits under this key was cancelled."""
    async with asyncio.timeout(5):
        await waits.setdefault(key, asyncio.Event()).wait()
    return "stopped"


@server.tool
async def turn(value: int, ctx: Context) -> str:
    """Turn the dial, and tell its subscribers."""
    house["dial"] = value
    if DIAL in watched:
        await ctx.session.send_resource_updated(DIAL)
    return "turned"


@server.tool
async def grow(ctx: Context) -> str:
    """Offer one more tool."""
    server.add_tool(grown)
    await ctx.send_notification(types.ToolListChangedNotification())
    return "grown"


@server.tool
async def shrink(ctx: Context) -> str:
    """Take it back."""
    server.local_provider.remove_tool("grown")
    await ctx.send_notification(types.ToolListChangedNotification())
    return "gone"


def grown() -> str:
    """One more."""
    return "I am new."


@server.resource(DIAL, name="dial", mime_type="text/plain")
def read_dial() -> str:
    """Where the dial stands."""
    return str(house["dial"])


@server.resource("play://scene/{number}", name="scene", mime_type="text/plain")
def scene(number: str) -> str:
    """One scene of the play."""
    return f"Scene {number}"


@server.prompt
def greet(who: str, mood: str = "fine") -> str:
    """How to greet a guest."""
    return f"Greet {who}, {mood}."


@server.completion
async def complete(_ref: Any, argument: Any, _context: Any) -> types.Completion:
    """How one may feel."""
    return types.Completion(values=[mood for mood in ("calm", "cheerful", "cross") if mood.startswith(argument.value)])


async def subscribe(_ctx: Any, params: Any) -> types.EmptyResult:
    """A client subscribes."""
    watched.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(_ctx: Any, params: Any) -> types.EmptyResult:
    """A client unsubscribes."""
    watched.discard(str(params.uri))
    return types.EmptyResult()


low = server._mcp_server
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


def main(mode: str, port: str = "0") -> None:
    """Serve as told."""
    if mode == "stdio":
        server.run(show_banner=False)
    elif mode == "sse":
        server.run("sse", port=int(port), show_banner=False)
    else:
        alone = mode == "alone"
        server.run("http", port=int(port), json_response=alone, stateless_http=alone, show_banner=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
