"""The programme, on the official SDK: icons, resources, a template, prompts, and completions."""

import json

from mcp.server.mcpserver import Icon, Image, MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp_types import Completion, PromptReference

MASK = Icon(src="data:image/svg+xml,<svg/>", mime_type="image/svg+xml", sizes=["48x48"])
PLAYS = {"hamlet": "A prince hesitates.", "tempest": "A duke forgives."}

mcp = MCPServer("programme", title="The programme", version="2", website_url="https://theatre.example", icons=[MASK])


@mcp.resource("programme://season", title="This season", mime_type="application/json", icons=[MASK])
def season() -> str:
    """All plays of this season."""
    return json.dumps(sorted(PLAYS))


@mcp.resource("programme://plays/{play}", mime_type="text/plain")
async def about(play: str) -> str:
    """The subject of a play."""
    return PLAYS[play]


@mcp.resource("programme://poster", mime_type="image/png")
def poster() -> bytes:
    """The poster."""
    return b"\x89PNG poster"


@mcp.prompt(title="Praise a play", icons=[MASK])
def praise(play: str, tone: str = "warm") -> str:
    """Ask for a line on a poster."""
    return f"Write one {tone} line about {play}."


@mcp.prompt()
def audition(part: str) -> list[Message]:
    """Rehearse a part."""
    return [UserMessage(f"I read for {part}."), AssistantMessage("Begin when you are ready.")]


@mcp.completion()
async def plays(ref: object, argument: object, context: object) -> Completion | None:
    """The plays that begin so."""
    if isinstance(ref, PromptReference) and ref.name == "praise" and argument.name == "play":
        return Completion(values=[each for each in PLAYS if each.startswith(argument.value)])
    return None


@mcp.tool(icons=[MASK], meta={"counter": "foyer"})
def picture(play: str) -> Image:
    """A picture of a play."""
    return Image(data=f"a picture of {play}".encode(), format="png")


if __name__ == "__main__":
    mcp.run()
