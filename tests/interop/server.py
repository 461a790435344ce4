"""The playhouse: the server that every client plays in. `server.py PORT` over HTTP, `server.py stdio FILE` over stdio.

Over stdio it writes its process id into the file first, so that a test can see whether it is gone when its client is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from greenroom import (
    Accepted,
    Context,
    HttpConfig,
    McpError,
    Server,
    ToolError,
    ToolResult,
    UrlElicitation,
    UrlElicitationRequired,
    image,
    text_resource,
    user_message,
)

PNG = b"\x89PNG\r\n\x1a\n"
EXTRAS = 60
BETWEEN = 0.02
"""Seconds between progress and reply: some clients lose progress that arrives in one piece with the reply."""

server = Server("playhouse", version="1.0", instructions="Break a leg.")
dial = 0
waits: dict[str, asyncio.Event] = {}
doors: dict[str, str] = {}
known: set[str] = set()


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass
class Day:
    """The weather of one day."""

    high: float
    sky: Literal["clear", "rain"]


@dataclass
class Forecast:
    """The weather of the coming days in a city."""

    city: str
    days: list[Day]


@server.tool
def forecast(city: str, days: int = 2) -> Forecast:
    """Forecast the weather of a city."""
    return Forecast(city, [Day(20.5 + day, "rain" if day % 2 else "clear") for day in range(days)])


@server.tool
def picture() -> object:
    """A small picture."""
    return image(PNG, "image/png")


@server.tool
def fail() -> str:
    """Fail, and say why."""
    raise ToolError("The prop broke.")


@server.tool
def crash() -> str:
    """Fail with an unexpected error."""
    raise ValueError("the secret of the house")


@server.tool
def refuse() -> str:
    """Answer with an error of the protocol; its code is of no reserved range."""
    raise McpError(1050, "Not tonight.", {"until": "tomorrow"})


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Count, and report each number."""
    for number in range(1, to + 1):
        await ctx.progress(number, to, f"{number} of {to}")
        await asyncio.sleep(BETWEEN)
    return f"counted to {to}"


@server.tool
async def narrate(ctx: Context) -> str:
    """Log at three levels."""
    await ctx.debug("whispered", "play")
    await ctx.info("said", "play")
    await ctx.error({"said": "loud"}, "play")
    return "told"


@server.tool
async def ask_model(question: str, ctx: Context) -> str:
    """Have the client's model answer."""
    said = await ctx.sample(question, max_tokens=50, system_prompt="Be brief.")
    return f"{said.model} says {said.text}"


PRICE = {
    "name": "price",
    "description": "What some seats cost.",
    "inputSchema": {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]},
}


@server.tool
async def haggle(seats: int, ctx: Context) -> str:
    """Have the client's model find a price with a tool."""
    question = user_message(f"What do {seats} seats cost?")
    first = await ctx.sample(question, tools=[PRICE], tool_choice="required")
    results = [ToolResult.of(use, f"{12 * use.input['seats']} crowns") for use in first.tool_uses]
    last = await ctx.sample([question, first, user_message(results)], tools=[PRICE], tool_choice="none")
    return f"{first.stop_reason}: {last.text}"


@dataclass
class Booking:
    """The guest's name, and the number of seats."""

    name: str
    seats: int = 2


@server.tool
async def ask_user(ctx: Context) -> str:
    """Have the user fill in a form."""
    match await ctx.elicit("Who comes?", Booking):
        case Accepted(booking):
            return f"{booking.name} takes {booking.seats}"
        case other:
            return other.action


@server.tool
async def pay(ctx: Context) -> str:
    """Have the user pay at the box office."""
    match await ctx.elicit_url("Please pay.", "https://box.example/pay?e={elicitation_id}"):
        case Accepted(id):
            server.elicitation_complete(id)
            return "paid"
        case other:
            return other.action


@server.tool
async def backstage(ctx: Context) -> str:
    """For users who have been to the stage door."""
    if ctx.session_id in known:
        return "welcome"
    page = UrlElicitation("Who are you?", "https://box.example/door?e={elicitation_id}")
    doors[page.id] = ctx.session_id
    raise UrlElicitationRequired(page)


@server.tool
async def door(id: str) -> str:
    """The stage door, a tool only for these tests: the user has been there."""
    known.add(doors.pop(id))
    return "seen" if server.elicitation_complete(id) else "strange"


@server.tool
async def ask_all(question: str, ctx: Context) -> str:
    """Ask the user, the model and the client itself, all at once."""
    async with asyncio.TaskGroup() as group:
        form = group.create_task(ctx.elicit("Who comes?", Booking))
        said = group.create_task(ctx.sample(question, max_tokens=50))
        places = group.create_task(ctx.roots())
    match form.result():
        case Accepted(booking):
            guest = f"{booking.name} takes {booking.seats}"
        case other:
            guest = other.action
    return (
        f"{guest}, {said.result().model} says {said.result().text}, {', '.join(each.uri for each in places.result())}"
    )


begun = 0


@server.tool
async def ask_twice(ctx: Context) -> str:
    """Ask one question after the other, and count how often this has begun."""
    global begun  # noqa: PLW0603 - what a second run would show
    begun += 1
    first, second = await ctx.elicit("Who comes?", Booking), await ctx.elicit("And with whom?", Booking)
    count, begun = begun, 0
    texts = [
        f"{each.value.name} takes {each.value.seats}" if isinstance(each, Accepted) else each.action
        for each in (first, second)
    ]
    return f"{texts[0]}, then {texts[1]}; begun {count}"


@server.tool
async def where(ctx: Context) -> str:
    """Where the client works."""
    return ", ".join(f"{root.uri} ({root.name})" for root in await ctx.roots())


@server.tool
def seat(
    section: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Section"})],
    row: Annotated[int, Meta(extra_json_schema={"x-mcp-header": "Row"})] = 1,
) -> str:
    """Find a seat. HTTP clients of the stateless era repeat its arguments in headers."""
    return f"{section} {row}"


@server.tool
async def wait(key: str, ctx: Context) -> str:
    """Wait until the call is cancelled."""
    stopped = waits.setdefault(key, asyncio.Event())
    await ctx.progress(0, 1, "waiting")
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


@server.tool
async def stopped(key: str) -> str:
    """Say when the call that waits under this key was cancelled."""
    async with asyncio.timeout(5):
        await waits.pop(key).wait()
    return "stopped"


@server.tool
async def blink(ctx: Context) -> str:
    """Close the stream of this call, and answer clients that come back."""
    ctx.interrupt_stream(retry=0.1)
    await asyncio.sleep(0.3)
    return "still here"


@server.tool(long_running=True)
async def rehearse(lines: int, ctx: Context) -> str:
    """Go through the lines, one after the other; none of them is never done."""
    for number in range(1, lines + 1):
        await asyncio.sleep(BETWEEN)
        await ctx.progress(number, lines)
    if not lines:
        await asyncio.Event().wait()
    return f"rehearsed {lines}"


@server.tool(task_support="optional")
async def forget() -> str:
    """Forget the lines."""
    raise ToolError("What was it?")


@server.tool(task_support="required")
async def cast_part(ctx: Context) -> str:
    """Ask who plays, as a task."""
    match await ctx.elicit("Who plays?", Booking):
        case Accepted(booking):
            return f"{booking.name} plays"
        case other:
            return other.action


@server.tool
def turn(value: int) -> str:
    """Turn the dial, and tell its subscribers."""
    global dial  # noqa: PLW0603 - a dial is the state of the house
    dial = value
    server.notify_resource_updated("play://dial")
    return "turned"


@server.tool
def grow() -> str:
    """Offer one more tool."""
    server.registry.register_tool("grown", lambda: "I am new.")
    return "grown"


@server.tool
def shrink() -> str:
    """Take it back."""
    server.registry.unregister_tool("grown")
    return "gone"


@server.resource("play://dial", "dial", mime_type="text/plain")
def read_dial() -> str:
    """Where the dial stands."""
    return str(dial)


@server.resource("play://poster", "poster", mime_type="image/png")
def poster() -> bytes:
    """The poster of the play."""
    return PNG


@server.resource("play://scene/{number}", "scene", mime_type="text/plain")
def scene(number: str) -> object:
    """One scene of the play."""
    return text_resource(f"play://scene/{number}", f"Scene {number}", mime_type="text/plain")


@server.resource("play://guests", "guests", mime_type="text/plain")
async def guests(ctx: Context) -> str:
    """Who has come, which the user knows."""
    match await ctx.elicit("Who has come?", Booking):
        case Accepted(booking):
            return booking.name
        case other:
            return other.action


@server.prompt
def greet(who: str, mood: str = "fine") -> str:
    """How to greet a guest."""
    return f"Greet {who}, {mood}."


@server.prompt
async def invite(ctx: Context) -> str:
    """Invite a guest, whom the user names."""
    match await ctx.elicit("Who is to come?", Booking):
        case Accepted(booking):
            return f"Invite {booking.name}."
        case other:
            return other.action


@server.completion("mood", prompt="greet")
def moods(begun: str) -> list[str]:
    """How one may feel."""
    return [mood for mood in ("calm", "cheerful", "cross") if mood.startswith(begun)]


def extra() -> str:
    """One of many."""
    return "extra"


for number in range(EXTRAS):
    server.registry.register_tool(f"extra_{number:02}", extra)


def main(arguments: list[str]) -> None:
    """Serve as told."""
    if arguments[0] == "stdio":
        with Path(arguments[1]).open("a", encoding="utf-8") as pids:
            pids.write(f"{os.getpid()}\n")
        server.run()
    else:
        # a heart that beats fast, so that every client meets what is no event
        server.run("http", port=int(arguments[0]), config=HttpConfig(heartbeat=0.1, old_sse=True))


if __name__ == "__main__":
    main(sys.argv[1:])
