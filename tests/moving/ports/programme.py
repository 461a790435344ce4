"""The programme, moved from the official SDK: icons, resources, a template, prompts, and completions."""

import json

from greenroom import Icon, Image, Message, Server, Settings, assistant_message, image, user_message

MASK = Icon(src="data:image/svg+xml,<svg/>", mime_type="image/svg+xml", sizes=["48x48"])
PLAYS = {"hamlet": "A prince hesitates.", "tempest": "A duke forgives."}

mcp = Server(
    "programme",
    title="The programme",
    version="2",
    settings=Settings(website_url="https://theatre.example", icons=[MASK]),
)


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


@mcp.prompt
def audition(part: str) -> list[Message]:
    """Rehearse a part."""
    return [user_message(f"I read for {part}."), assistant_message("Begin when you are ready.")]


@mcp.completion("play", prompt="praise")
async def plays(typed: str) -> list[str]:
    """The plays that begin so."""
    return [each for each in PLAYS if each.startswith(typed)]


@mcp.tool(icons=[MASK], meta={"counter": "foyer"})
def picture(play: str) -> Image:
    """A picture of a play."""
    return image(f"a picture of {play}".encode(), "image/png")


if __name__ == "__main__":
    mcp.run()
