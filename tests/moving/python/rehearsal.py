"""A rehearsal, on the official SDK: a lifespan, what a call says while it runs, and what it asks the user."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


@dataclass
class Room:
    """The room, which is open while the server runs."""

    key: str
    lines: list[str]


@asynccontextmanager
async def rehearsal_room(server: MCPServer) -> AsyncIterator[Room]:
    """Open the room, and lock it in the end."""
    room = Room("brass", [])
    yield room
    room.lines.clear()


mcp = MCPServer("rehearsal", version="1", lifespan=rehearsal_room)


class Casting(BaseModel):
    """A part, and whether an understudy plays it."""

    part: str
    understudy: bool = False


@mcp.tool()
async def run_through(scenes: int, ctx: Context) -> dict[str, int]:
    """Play all scenes."""
    for scene in range(scenes):
        await ctx.info(f"scene {scene + 1}")
        await ctx.report_progress(scene + 1, scenes, "on stage")
    await ctx.warning("the curtain sticks")
    return {"scenes": scenes}


@mcp.tool()
async def say(line: str, ctx: Context) -> list[str]:
    """Say a line, and hear all that were said."""
    room = ctx.request_context.lifespan_context
    room.lines.append(f"{line} ({room.key})")
    return room.lines


@mcp.tool()
async def cast(actor: str, ctx: Context) -> str:
    """Ask which part an actor plays."""
    answer = await ctx.elicit(f"What does {actor} play?", schema=Casting)
    if answer.action == "accept":
        return f"{actor} plays {answer.data.part}, understudy: {answer.data.understudy}"
    return f"{actor} plays nothing"


if __name__ == "__main__":
    mcp.run()
