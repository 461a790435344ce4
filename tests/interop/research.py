"""A server whose one tool does what a tool of another server does, as a task, to be compared with it."""

from __future__ import annotations

import asyncio

from greenroom import Accepted, Context, Server

server = Server("research", version="1.0")
STAGES = 4
SECONDS = 0.05


@server.tool("simulate-research-query", task_support="required")
async def research(topic: str, ctx: Context, ambiguous: bool = False) -> str:  # noqa: FBT001, FBT002 - an argument of JSON
    """Look into a topic, and ask what is meant by it."""
    meaning = ""
    for stage in range(STAGES):
        if stage == STAGES // 2 and ambiguous:
            form = {
                "type": "object",
                "properties": {"interpretation": {"type": "string", "enum": ["technical", "historical", "current"]}},
                "required": ["interpretation"],
            }
            match await ctx.elicit(f"What is meant by {topic}?", form):
                case Accepted(said):
                    meaning = said["interpretation"]
                case other:
                    meaning = other.action
        await asyncio.sleep(SECONDS)
    return f"{topic} {meaning}"


if __name__ == "__main__":
    server.run()
