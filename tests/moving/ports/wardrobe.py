"""The wardrobe, moved from FastMCP: tools that fail in words, results with metadata, resources, templates, prompts, and what a session remembers."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from greenroom import (
    Accepted,
    Context,
    Hooks,
    Image,
    Message,
    Server,
    Structured,
    ToolAnnotations,
    ToolError,
    assistant_message,
    image,
    user_message,
)


def nothing_borrowed(_: Any) -> list[str]:
    """The state of a new session."""
    return []


mcp = Server(
    "wardrobe", version="3", instructions="Costumes go back on their hooks.", hooks=Hooks(init=nothing_borrowed)
)
HOOKS = {"cloak": 3, "crown": 1}


@dataclass
class Costume:
    """A costume, and on how many hooks it hangs."""

    name: str
    hooks: int


@mcp.tool
def find(name: Annotated[str, Field(description="what it is called", min_length=1)]) -> Costume:
    """Find a costume."""
    if name not in HOOKS:
        raise ToolError(f"there is no {name}")
    return Costume(name, HOOKS[name])


@mcp.tool(annotations=ToolAnnotations(destructive_hint=True), meta={"room": "attic"})
def mend(name: str, stitches: int = 10) -> Structured:
    """Mend a costume."""
    return Structured({"name": name, "left": 0}, f"{name}: {stitches} stitches", {"thread": "red"})


@mcp.tool
async def borrow(name: str, ctx: Context) -> list[str]:
    """Borrow a costume: what this session has."""
    ctx.state.append(name)
    return list(ctx.state)


@mcp.tool
def sketch(name: str) -> Image:
    """A sketch of a costume."""
    return image(f"a sketch of {name}".encode(), "image/png")


@mcp.tool
async def measure(ctx: Context) -> str:
    """Ask the user for their size."""
    match await ctx.elicit("How tall are you?", int):
        case Accepted(size):
            return f"{size} cm"
        case _:
            return "by eye, then"


@mcp.resource("wardrobe://inventory", mime_type="application/json", meta={"kept": "daily"})
def inventory() -> str:
    """All that hangs here."""
    return json.dumps(HOOKS)


@mcp.resource("wardrobe://{name}/label")
def label(name: str) -> str:
    """A costume's label."""
    return f"{name}, do not wash"


@mcp.prompt
def dress(part: str, era: str = "Elizabethan") -> list[Message]:
    """Ask for a costume."""
    return [user_message(f"What does a {era} {part} wear?"), assistant_message("Let me see.")]


if __name__ == "__main__":
    mcp.run()
