"""The stage, moved from FastMCP: two servers mounted in one, a lifespan, and one function around every call."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from greenroom import Context, Hooks, Host, Server, ToolError

lights = Server("lights")
trapdoor = Server("trapdoor")
evening: dict[str, Any] = {}


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


async def curtain(method: str, ctx: Context, proceed: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Counts the tool calls, and does not let the director disappear."""
    if method == "tools/call":
        evening["calls"] += 1
        if ctx.params.get("arguments", {}).get("who") == "the director":
            raise ToolError("not the director")
    return await proceed()


stage = Server("stage", version="1", hooks=Hooks(around=curtain))
stage.mount(Host({"lights": lights, "trapdoor": trapdoor}))


@stage.lifespan
async def opened() -> AsyncIterator[None]:
    """The evening's state while the server runs."""
    evening.update(play="Hamlet", calls=0)
    yield


@stage.tool
async def playing() -> dict[str, str | int]:
    """Return the play and the number of calls."""
    return dict(evening)


if __name__ == "__main__":
    stage.run()
