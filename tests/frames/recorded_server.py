"""The server whose frames are recorded: a tool, a resource or a prompt for everything that a scenario needs.

Everything that it says is the same in each run. Where a call has to last, it lasts until it is cancelled or until another call ends it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from greenroom import (
    Accepted,
    Context,
    Image,
    McpError,
    Server,
    Settings,
    ToolError,
    UrlElicitation,
    UrlElicitationRequired,
    audio,
    embedded,
    image,
    resource_link,
    text_resource,
    user_message,
)
from greenroom.auth import CustomAuth

PNG = b"\x89PNG\r\n\x1a\n"
PAGE = 8
KEYS: dict[str, dict[str, Any]] = {
    "right": {"subject": "ann", "scopes": ["use"]},
    "poor": {"subject": "bob", "scopes": []},
    "rich": {"subject": "eve", "scopes": ["use", "admin"]},
}


@dataclass
class Day:
    """What one day is like."""

    high: float
    sky: Literal["clear", "rain"]


@dataclass
class Booking:
    """Who comes, and how many seats they take."""

    name: str
    seats: int = 2


def make_server() -> Server:
    """A new one, with all of it."""
    settings = Settings(page_size=PAGE, call_timeout=None, ask_timeout=None, session_idle=None)
    server = Server("stage", version="1.0", title="The stage", instructions="Break a leg.", settings=settings)
    _add_results(server)
    _add_failures(server)
    _add_streams(server)
    _add_questions(server)
    _add_tasks(server)
    _add_resources(server)
    _add_prompts(server)
    return server


def _found(token: str) -> dict[str, Any] | None:
    return KEYS.get(token)


def make_guarded() -> Server:
    """One that asks for a token, and for one scope more at one of its tools."""
    server = Server("guarded", version="1.0", auth=CustomAuth(_found), required_scopes=["use"])

    @server.tool
    async def whoami(ctx: Context) -> str:
        """Whose call it is."""
        return str(ctx.auth.subject)

    @server.tool(scopes=["admin"])
    async def close_house() -> str:
        """For administrators."""
        return "closed"

    return server


def _add_results(server: Server) -> None:
    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def add_in_a_thread(a: int, b: int) -> int:
        """Add two numbers, in a thread."""
        return a + b

    @server.tool
    async def echo(text: Annotated[str, "What comes back."] = "") -> str:
        """Say the same."""
        return text

    @server.tool(title="The weather")
    async def forecast(city: str, days: int = 2) -> list[Day]:
        """What the sky will be like."""
        return [Day(20.5 + day, "rain" if len(city) % 2 else "clear") for day in range(days)]

    @server.tool
    async def media() -> list[object]:
        """One of each kind of content."""
        return [
            "text",
            image(PNG, "image/png"),
            audio(b"RIFF", "audio/wav"),
            resource_link("stage://script", "script"),
            embedded(text_resource("stage://note", "a note", mime_type="text/plain")),
        ]

    @server.tool
    async def nothing() -> None:
        """Return nothing."""


def _add_failures(server: Server) -> None:
    @server.tool
    async def fail() -> str:
        """Fail, and say why."""
        raise ToolError("The prop broke.")

    @server.tool
    async def crash() -> str:
        """Fail with an exception of the program's own."""
        raise ValueError("not for peers")

    @server.tool
    async def refuse() -> str:
        """Answer with an error of the protocol."""
        raise McpError(-32050, "Not tonight.", {"until": "tomorrow"})

    @server.tool
    async def lie() -> Annotated[int, "not a number"]:
        """Return something other than what is promised."""
        return "ten"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def _add_streams(server: Server) -> None:
    @server.tool
    async def count(to: int, ctx: Context) -> str:
        """Count, and report each number."""
        for number in range(1, to + 1):
            await ctx.progress(number, to, f"{number} of {to}")
        return f"counted to {to}"

    @server.tool
    async def narrate(ctx: Context) -> str:
        """Log at four levels."""
        await ctx.debug("whispered", "play")
        await ctx.info("said", "play")
        await ctx.warning({"said": "loud"})
        await ctx.error(["shouted", 1], "play")
        return "told"

    @server.tool
    async def announce(ctx: Context) -> str:
        """Send a notification of another kind."""
        await ctx.notify("notifications/curtain", {"up": True})
        return "announced"

    @server.tool
    async def wait(ctx: Context) -> str:
        """Wait until the call is cancelled."""
        await ctx.progress(0, 1, "waiting")
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def blink(ctx: Context) -> str:
        """Close the stream of this call, and answer those who come back for it."""
        await ctx.progress(1, 2)
        ctx.interrupt_stream(retry=0.0)
        await ctx.progress(2, 2)
        return "still here"

    @server.tool
    async def turn(ctx: Context) -> str:
        """Turn the dial, of which subscribers hear."""
        del ctx
        server.notify_resource_updated("stage://dial")
        return "turned"

    @server.tool
    async def grow(ctx: Context) -> str:
        """Offer one more tool, and take it back."""
        del ctx
        server.notify_list_changed("tool")
        return "grown"


def _add_questions(server: Server) -> None:
    @server.tool
    async def ask_model(question: str, ctx: Context) -> str:
        """Have the client's model answer."""
        said = await ctx.sample(user_message(question), max_tokens=50, system_prompt="Be brief.", temperature=0.5)
        return f"{said.model} says {said.text}"

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
    async def backstage() -> str:
        """For users who have been to the stage door."""
        raise UrlElicitationRequired(UrlElicitation("Who are you?", "https://box.example/door?e={elicitation_id}"))

    @server.tool
    async def where(ctx: Context) -> str:
        """Where the client works."""
        return ", ".join(f"{root.uri} ({root.name})" for root in await ctx.roots())

    @server.tool
    async def ask_ping(ctx: Context) -> str:
        """Whether the client is there."""
        await ctx.request("ping")
        return "there"


def _add_tasks(server: Server) -> None:
    @server.tool(long_running=True)
    async def rehearse(lines: int, ctx: Context) -> str:
        """Go through the lines; with none of them it is never done."""
        for number in range(1, lines + 1):
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


def _add_resources(server: Server) -> None:
    @server.resource("stage://script", "script", mime_type="text/plain")
    async def script() -> str:
        """What is said."""
        return "To be"

    @server.resource("stage://dial", "dial", mime_type="application/json")
    async def dial() -> str:
        """Where the dial stands."""
        return '{"at":7}'

    @server.resource("stage://poster", "poster", mime_type="image/png")
    async def poster() -> bytes:
        """The poster of the play."""
        return PNG

    @server.resource("stage://broken", "broken")
    async def broken() -> str:
        """Cannot be read."""
        raise ValueError("not for peers")

    @server.resource("stage://scene/{number}", "scene", mime_type="text/plain")
    async def scene(number: int) -> str:
        """One scene of the play."""
        return f"Scene {number}"


def _add_prompts(server: Server) -> None:
    @server.prompt
    async def greet(who: str, mood: str = "fine") -> str:
        """How to greet somebody."""
        return f"Greet {who}, {mood}."

    @server.prompt
    async def picture() -> list[str | Image]:
        """A picture to talk about."""
        return ["What is this?", image(PNG, "image/png")]

    @server.prompt
    async def stumble() -> str:
        """Cannot be rendered."""
        raise ValueError("not for peers")

    @server.completion("mood", prompt="greet")
    async def moods(begun: str) -> list[str]:
        """How one may feel."""
        return [mood for mood in ("calm", "cheerful", "cross") if mood.startswith(begun)]

    @server.completion("number", template="stage://scene/{number}")
    async def numbers(begun: str) -> list[str]:
        """Which scenes there are."""
        return [f"{begun}{digit}" for digit in range(3)]
