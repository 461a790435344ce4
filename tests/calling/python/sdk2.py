"""The playhouse on the Python SDK 2.x: `sdk2.py stdio`, or `http`, `sse` or `alone` (JSON, no sessions) and a port.

It serves both eras, as the SDK's documentation says: tools that ask have parameters with resolvers, which ask in the way of the request's revision.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

from mcp import types
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from pydantic import BaseModel, Field

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DIAL = "play://dial"

server = MCPServer("playhouse", version="1.0", instructions="Break a leg.")
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
    raise ToolError("The prop broke.")


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
            await ctx.log(level, data, logger_name="play")
    return "told"


def for_model(question: str) -> Sample:
    """A question to the client's model."""
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question))
    return Sample([asked], max_tokens=50)


def for_user() -> Elicit[Booking]:
    """A question to the user."""
    return Elicit("Who comes?", Booking)


def then_for_user(first: Annotated[ElicitationResult[Booking], Resolve(for_user)]) -> Elicit[Booking]:
    """A question that is asked when the first is answered."""
    return Elicit(f"And with whom comes {first.data.name}?", Booking)


def for_client() -> ListRoots:
    """A question to the client itself."""
    return ListRoots()


def taken(said: Any) -> str:
    """What the user has answered."""
    return f"{said.data.name} takes {said.data.seats}" if isinstance(said, AcceptedElicitation) else said.action


@server.tool()
async def ask_model(question: str, said: Annotated[types.CreateMessageResult, Resolve(for_model)]) -> str:
    """Have the client's model answer."""
    return f"{said.model} says {said.content.text}"


@server.tool()
async def ask_user(said: Annotated[ElicitationResult[Booking], Resolve(for_user)]) -> str:
    """Have the user fill in a form."""
    return taken(said)


@server.tool()
async def pay(ctx: Context) -> str | types.InputRequiredResult:
    """Have the user pay at the box office."""
    if ctx.protocol_version < "2026-07-28":
        said = await ctx.elicit_url("Please pay.", "https://box.example/pay", "e1")
        return "paid" if said.action == "accept" else said.action
    if ctx.input_responses:
        return "paid" if ctx.input_responses["page"].action == "accept" else ctx.input_responses["page"].action
    params = types.ElicitRequestURLParams(message="Please pay.", url="https://box.example/pay")
    return types.InputRequiredResult(input_requests={"page": types.ElicitRequest(params=params)})


@server.tool()
async def where(places: Annotated[types.ListRootsResult, Resolve(for_client)]) -> str:
    """Where the client works."""
    return ", ".join(f"{root.uri} ({root.name})" for root in places.roots)


@server.tool()
async def ask_all(
    question: str,
    guest: Annotated[ElicitationResult[Booking], Resolve(for_user)],
    said: Annotated[types.CreateMessageResult, Resolve(for_model)],
    places: Annotated[types.ListRootsResult, Resolve(for_client)],
) -> str:
    """Ask the user, the model and the client itself, all at once."""
    return f"{taken(guest)}, {said.model} says {said.content.text}, {', '.join(str(each.uri) for each in places.roots)}"


@server.tool()
async def ask_twice(
    first: Annotated[ElicitationResult[Booking], Resolve(for_user)],
    second: Annotated[ElicitationResult[Booking], Resolve(then_for_user)],
) -> str:
    """Ask one question after the other."""
    return f"{taken(first)}, then {taken(second)}"


@server.tool()
async def seat(
    ctx: Context,
    section: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Section"})],
    row: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Row"})] = 1,
) -> str:
    """Find a seat, and say which headers repeat the arguments."""
    headers = ctx.headers or {}
    return f"{section} {row}, by {headers.get('mcp-param-section')} and {headers.get('mcp-param-row')}"


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
    await ctx.notify_resource_updated(DIAL)
    if DIAL in watched:
        await ctx.session.send_resource_updated(DIAL)
    return "turned"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool."""
    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def shrink(ctx: Context) -> str:
    """Take it back."""
    server.remove_tool("grown")
    await ctx.notify_tools_changed()
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


@server.prompt()
def greet(who: str, mood: str = "fine") -> str:
    """How to greet a guest."""
    return f"Greet {who}, {mood}."


@server.completion()
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


async def level(_ctx: Any, params: Any) -> types.EmptyResult:
    """Which messages are wanted."""
    house["level"] = params.level
    return types.EmptyResult()


low = server._lowlevel_server
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, level)


def main(mode: str, port: str = "0") -> None:
    """Serve as told."""
    if mode == "stdio":
        server.run()
    elif mode == "sse":
        server.run("sse", port=int(port))
    else:
        alone = mode == "alone"
        server.run("streamable-http", port=int(port), json_response=alone, stateless_http=alone)


if __name__ == "__main__":
    main(*sys.argv[1:])
