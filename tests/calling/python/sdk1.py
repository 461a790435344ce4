"""The playhouse on the Python SDK 1.x: `sdk1.py stdio`, or `http`, `sse` or `alone` (JSON, no sessions) and a port."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from pydantic import AnyUrl, BaseModel

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DIAL = "play://dial"

server = FastMCP("playhouse", instructions="Break a leg.")
house: dict[str, Any] = {"dial": 0, "level": "debug"}
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


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def forecast(city: str, days: int = 2) -> Forecast:
    """Forecast the weather of a city."""
    return Forecast(city=city, days=[Day(high=20.5 + day, sky="rain" if day % 2 else "clear") for day in range(days)])


@server.tool()
def fail() -> str:
    """Fail, and say why."""
    raise ValueError("The prop broke.")


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and report each number."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"{number} of {to}")
    return f"counted to {to}"


@server.tool()
async def narrate(ctx: Context) -> str:
    """Log at three levels; those that are not wanted are left out here, since the SDK leaves that to its users."""
    for level, data in (("debug", "whispered"), ("info", "said"), ("error", {"said": "loud"})):
        if LEVELS.index(level) >= LEVELS.index(house["level"]):
            await ctx.session.send_log_message(level, data, "play", related_request_id=ctx.request_id)
    return "told"


@server.tool()
async def ask_model(question: str, ctx: Context) -> str:
    """Have the client's model answer."""
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question))
    said = await ctx.session.create_message([asked], max_tokens=50, related_request_id=ctx.request_id)
    return f"{said.model} says {said.content.text}"


@server.tool()
async def ask_user(ctx: Context) -> str:
    """Have the user fill in a form."""
    said = await ctx.elicit("Who comes?", Booking)
    return f"{said.data.name} takes {said.data.seats}" if said.action == "accept" else said.action


@server.tool()
async def pay(ctx: Context) -> str:
    """Have the user pay at the box office."""
    said = await ctx.elicit_url("Please pay.", "https://box.example/pay", "e1")
    return "paid" if said.action == "accept" else said.action


@server.tool()
async def where(ctx: Context) -> str:
    """Where the client works."""
    return ", ".join(f"{root.uri} ({root.name})" for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def wait(key: str, ctx: Context) -> str:
    """Wait until the call is cancelled."""
    stopped = waits.setdefault(key, asyncio.Event())
    await ctx.report_progress(0, 1, "waiting")
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


@server.tool()
async def stopped(key: str) -> str:
    """Say when the call that waits under this key was cancelled."""
    async with asyncio.timeout(5):
        await waits.setdefault(key, asyncio.Event()).wait()
    return "stopped"


@server.tool()
async def turn(value: int, ctx: Context) -> str:
    """Turn the dial, and tell its subscribers."""
    house["dial"] = value
    if DIAL in watched:
        await ctx.session.send_resource_updated(AnyUrl(DIAL))
    return "turned"


@server.resource(DIAL, name="dial", mime_type="text/plain")
def read_dial() -> str:
    """Where the dial stands."""
    return str(house["dial"])


@server.resource("play://scene/{number}", name="scene", mime_type="text/plain")
def scene(number: str) -> str:
    """One scene of the play."""
    return f"Scene {number}"


@server.prompt()
def greet(who: str, mood: str = "fine") -> str:
    """How to greet a guest."""
    return f"Greet {who}, {mood}."


@server.completion()
async def complete(_ref: Any, argument: Any, _context: Any) -> types.Completion:
    """How one may feel."""
    return types.Completion(values=[mood for mood in ("calm", "cheerful", "cross") if mood.startswith(argument.value)])


low = server._mcp_server


@low.subscribe_resource()
async def subscribe(uri: AnyUrl) -> None:
    """A client subscribes."""
    watched.add(str(uri))


@low.unsubscribe_resource()
async def unsubscribe(uri: AnyUrl) -> None:
    """A client unsubscribes."""
    watched.discard(str(uri))


@low.set_logging_level()
async def level(wanted: str) -> None:
    """Which messages are wanted."""
    house["level"] = wanted


declared = low.get_capabilities


def capabilities(*given: Any) -> types.ServerCapabilities:
    """The SDK declares no subscriptions, although there are handlers for them: its users put that right themselves."""
    found = declared(*given)
    found.resources.subscribe = True
    return found


low.get_capabilities = capabilities


def main(mode: str, port: str = "0") -> None:
    """Serve as told."""
    server.settings.port = int(port)
    server.settings.json_response = server.settings.stateless_http = mode == "alone"
    server.run({"stdio": "stdio", "sse": "sse"}.get(mode, "streamable-http"))


if __name__ == "__main__":
    main(*sys.argv[1:])
