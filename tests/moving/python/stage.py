"""The stage, on FastMCP: two servers mounted in one, a lifespan, and middleware around every call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext

lights = FastMCP("lights")
trapdoor = FastMCP("trapdoor")


@lights.tool
def dim(percent: int) -> dict[str, int]:
    """Dim the lights."""
    return {"percent": percent}


@lights.prompt
def mood(scene: str) -> str:
    """Ask for a mood."""
    return f"Which light suits {scene}?"


@trapdoor.tool
def drop(who: str) -> str:
    """Let a person disappear."""
    return f"{who} is gone"


class Curtain(Middleware):
    """Counts the tool calls, and does not let the director disappear."""

    def __init__(self) -> None:
        self.calls = 0

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Called for every tool."""
        self.calls += 1
        if context.message.arguments and context.message.arguments.get("who") == "the director":
            raise ToolError("not the director")
        return await call_next(context)


curtain = Curtain()


@asynccontextmanager
async def evening(server: FastMCP) -> AsyncIterator[dict[str, str]]:
    """The evening's state while the server runs."""
    yield {"play": "Hamlet"}


stage = FastMCP("stage", version="1", lifespan=evening, middleware=[curtain])
stage.mount(lights, namespace="lights")
stage.mount(trapdoor, namespace="trapdoor")


@stage.tool
async def playing(ctx: Context) -> dict[str, str | int]:
    """Return the play and the number of calls."""
    return {"play": ctx.lifespan_context["play"], "calls": curtain.calls}


if __name__ == "__main__":
    stage.run(show_banner=False)
