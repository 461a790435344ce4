"""The playhouse on FastMCP 4.x: `fastmcp4.py stdio`, or `http`, `sse` or `alone` (JSON, no sessions) and a port.

It serves both eras. In the handshake era a tool asks while it runs; in the stateless era it returns its questions and is called again, as FastMCP's
documentation says. What it says to listeners is the SDK's part, since FastMCP declares nothing to listen to.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Annotated, Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_headers
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from pydantic import BaseModel, Field

DIAL = "play://dial"

server = FastMCP("playhouse", version="1.0", instructions="Break a leg.")
server.add_extension(TasksExtension(url="memory://"))
bus = InMemorySubscriptionBus()
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


def in_session(ctx: Context) -> bool:
    """Whether the tool can ask while it runs."""
    return ctx.request_context is not None and ctx.request_context.protocol_version < "2026-07-28"


def form(message: str) -> types.ElicitRequest:
    """A question to the user."""
    schema = Booking.model_json_schema()
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def for_model(question: str) -> types.CreateMessageRequest:
    """A question to the client's model."""
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=50))


def asking(state: str | None = None, /, **requests: Any) -> types.InputRequiredResult:
    """The result that asks all of this."""
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def taken(said: Any) -> str:
    """What the user has answered."""
    if said.action != "accept":
        return str(said.action)
    booking = Booking.model_validate(said.content)
    return f"{booking.name} takes {booking.seats}"


def places(said: Any) -> str:
    """Where the client works, as it says."""
    return ", ".join(f"{root.uri} ({root.name})" for root in said.roots)


@server.tool
async def ask_model(question: str, ctx: Context) -> str | types.InputRequiredResult:
    """Have the client's model answer."""
    if in_session(ctx):
        params = for_model(question).params
        said: Any = await ctx.session.create_message(params.messages, max_tokens=50, related_request_id=ctx.request_id)
    elif ctx.input_responses is None:
        return asking(model=for_model(question))
    else:
        said = ctx.input_responses["model"]
    return f"{said.model} says {said.content.text}"


@server.tool
async def ask_user(ctx: Context) -> str | types.InputRequiredResult:
    """Have the user fill in a form."""
    if in_session(ctx):
        said = await ctx.elicit("Who comes?", response_type=Booking)
        return f"{said.data.name} takes {said.data.seats}" if said.action == "accept" else said.action
    return asking(user=form("Who comes?")) if ctx.input_responses is None else taken(ctx.input_responses["user"])


@server.tool
async def pay(ctx: Context) -> str | types.InputRequiredResult:
    """Have the user pay at the box office."""
    if in_session(ctx):
        said: Any = await ctx.session.elicit_url(
            "Please pay.", "https://box.example/pay", "e1", related_request_id=ctx.request_id
        )
    elif ctx.input_responses is None:
        params = types.ElicitRequestURLParams(message="Please pay.", url="https://box.example/pay")
        return asking(page=types.ElicitRequest(params=params))
    else:
        said = ctx.input_responses["page"]
    return "paid" if said.action == "accept" else said.action


@server.tool
async def where(ctx: Context) -> str | types.InputRequiredResult:
    """Where the client works."""
    if in_session(ctx):
        return places(await ctx.session.list_roots())
    return (
        asking(roots=types.ListRootsRequest()) if ctx.input_responses is None else places(ctx.input_responses["roots"])
    )


@server.tool
async def ask_all(question: str, ctx: Context) -> str | types.InputRequiredResult:
    """Ask the user, the model and the client itself, all at once."""
    said: Any = ctx.input_responses
    if said is None:
        return asking(user=form("Who comes?"), model=for_model(question), roots=types.ListRootsRequest())
    where_it_works = ", ".join(str(root.uri) for root in said["roots"].roots)
    return f"{taken(said['user'])}, {said['model'].model} says {said['model'].content.text}, {where_it_works}"


@server.tool
async def ask_twice(ctx: Context) -> str | types.InputRequiredResult:
    """Ask one question after the other; the first answer is in the state of the second round."""
    if ctx.input_responses is None:
        return asking(first=form("Who comes?"))
    if ctx.request_state is None:
        return asking(taken(ctx.input_responses["first"]), second=form("And with whom?"))
    return f"{ctx.request_state}, then {taken(ctx.input_responses['second'])}"


@server.tool
def seat(
    section: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Section"})],
    row: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Row"})] = 1,
) -> str:
    """Find a seat, and say which headers repeat the arguments."""
    headers = get_http_headers()
    return f"{section} {row}, by {headers.get('mcp-param-section')} and {headers.get('mcp-param-row')}"


@server.tool(task=TaskConfig(poll_interval=timedelta(milliseconds=200)))
async def rehearse(lines: int) -> str:
    """Go through the lines; none of them is never done."""
    if not lines:
        await asyncio.Event().wait()
    return f"rehearsed {lines}"


@server.tool(task=TaskConfig(poll_interval=timedelta(milliseconds=200)))
async def cast_part(ctx: Context) -> str | types.InputRequiredResult:
    """Ask who plays, as a task."""
    if ctx.input_responses is None:
        return asking(user=form("Who plays?"))
    return f"{Booking.model_validate(ctx.input_responses['user'].content).name} plays"


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
    await bus.publish(ResourceUpdated(uri=DIAL))
    if DIAL in watched:
        await ctx.session.send_resource_updated(DIAL)
    return "turned"


@server.tool
async def grow(ctx: Context) -> str:
    """Offer one more tool."""
    server.add_tool(grown)
    await bus.publish(ToolsListChanged())
    await ctx.send_notification(types.ToolListChangedNotification())
    return "grown"


@server.tool
async def shrink(ctx: Context) -> str:
    """Take it back."""
    server.local_provider.remove_tool("grown")
    await bus.publish(ToolsListChanged())
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
low.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus))
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
