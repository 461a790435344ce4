"""The same server as the SDK's in `python/recorded.py`, of ours: what the SDK's client said to it is played to it again."""

from __future__ import annotations

from greenroom import Server, ToolError

server = Server("recorded", version="1.0", instructions="Break a leg.")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("on purpose")


@server.resource("play://script", mime_type="text/plain")
def script() -> str:
    """What is said."""
    return "To be"


@server.prompt
def greet(name: str) -> str:
    """Say hello."""
    return f"Greet {name}"


if __name__ == "__main__":
    server.run()
