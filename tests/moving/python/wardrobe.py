"""The wardrobe, on FastMCP: tools that fail in words, results with metadata, resources, templates, prompts, and what a session remembers."""

from dataclasses import dataclass
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from pydantic import Field

mcp = FastMCP("wardrobe", version="3", instructions="Costumes go back on their hooks.")
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


@mcp.tool(annotations={"destructiveHint": True}, meta={"room": "attic"})
def mend(name: str, stitches: int = 10) -> ToolResult:
    """Mend a costume."""
    return ToolResult(
        content=f"{name}: {stitches} stitches", structured_content={"name": name, "left": 0}, meta={"thread": "red"}
    )


@mcp.tool
async def borrow(name: str, ctx: Context) -> list[str]:
    """Borrow a costume: what this session has."""
    mine = [*(await ctx.get_state("mine") or []), name]
    await ctx.set_state("mine", mine)
    return mine


@mcp.tool
def sketch(name: str) -> Image:
    """A sketch of a costume."""
    return Image(data=f"a sketch of {name}".encode(), format="png")


@mcp.tool
async def measure(ctx: Context) -> str:
    """Ask the user for their size."""
    answer = await ctx.elicit("How tall are you?", response_type=int)
    return f"{answer.data} cm" if answer.action == "accept" else "by eye, then"


@mcp.resource("wardrobe://inventory", mime_type="application/json", meta={"kept": "daily"})
def inventory() -> dict[str, int]:
    """All that hangs here."""
    return HOOKS


@mcp.resource("wardrobe://{name}/label")
def label(name: str) -> str:
    """A costume's label."""
    return f"{name}, do not wash"


@mcp.prompt
def dress(part: str, era: str = "Elizabethan") -> list[Message]:
    """Ask for a costume."""
    return [Message(f"What does a {era} {part} wear?"), Message("Let me see.", role="assistant")]


if __name__ == "__main__":
    mcp.run(show_banner=False)
