"""A rehearsal, moved from the official SDK: a lifespan, what a call says while it runs, and what it asks the user."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from pydantic import BaseModel

from greenroom import Accepted, Context, Server


@dataclass
class Room:
    """The room, which is open while the server runs."""

    key: str = ""
    lines: list[str] = field(default_factory=list[str])


mcp = Server("rehearsal", version="1")
room = Room()


@mcp.lifespan
async def rehearsal_room() -> AsyncIterator[None]:
    """Open the room, and lock it in the end."""
    room.key = "brass"
    yield
    room.lines.clear()


class Casting(BaseModel):
    """A part, and whether an understudy plays it."""

    part: str
    understudy: bool = False


@mcp.tool
async def run_through(scenes: int, ctx: Context) -> dict[str, int]:
    """Play all scenes."""
    for scene in range(scenes):
        await ctx.info(f"scene {scene + 1}")
        await ctx.progress(scene + 1, scenes, "on stage")
    await ctx.warning("the curtain sticks")
    return {"scenes": scenes}


@mcp.tool
async def say(line: str) -> list[str]:
    """Say a line, and hear all that were said."""
    room.lines.append(f"{line} ({room.key})")
    return room.lines


@mcp.tool
async def cast(actor: str, ctx: Context) -> str:
    """Ask which part an actor plays."""
    match await ctx.elicit(f"What does {actor} play?", Casting):
        case Accepted(casting):
            return f"{actor} plays {casting.part}, understudy: {casting.understudy}"
        case _:
            return f"{actor} plays nothing"


if __name__ == "__main__":
    mcp.run()
