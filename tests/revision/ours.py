"""The contract of the checks on greenroom: `ours.py stdio`, `ours.py PORT` for HTTP, or `ours.py guarded PORT` for callers with a token."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from greenroom import Accepted, Context, Server, Settings
from greenroom.auth.auth_info import AuthInfo
from greenroom.auth.resource_server import OAuthResource


def guard(port: str) -> OAuthResource:
    """Who comes in: two users, each with a token."""

    def authorize(token: str, _resource: object, _request: object) -> AuthInfo | None:
        return AuthInfo(subject=token, scopes=frozenset({"use"})) if token in {"one", "two"} else None

    return OAuthResource(
        resource=f"http://127.0.0.1:{port}/mcp",
        authorization_servers=["https://as.example"],
        scopes_supported=["use"],
        authorizer=authorize,
    )


GUARDED = sys.argv[1:2] == ["guarded"]
server = Server("contract", version="1.0", settings=Settings(page_size=8), auth=guard(sys.argv[2]) if GUARDED else None)
calls: dict[str, str] = {}


@dataclass
class Answer:
    """What the user is asked for."""

    answer: str


@server.tool
async def check_slow(key: str, ctx: Context) -> str:
    """Wait until the call is cancelled."""
    calls[key] = "waiting"
    try:
        await ctx.progress(0, 1)
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        calls[key] = "stopped"
        raise
    calls[key] = "finished"
    return "finished"


@server.tool
async def check_slow_state(key: str) -> str:
    """The state of a slow call."""
    return calls.get(key, "unknown")


@server.tool
async def check_ask(topic: str, ctx: Context) -> str:
    """Ask the user."""
    match await ctx.elicit(f"About {topic}?", Answer):
        case Accepted(given):
            return f"{topic}: {given.answer}"
        case other:
            return other.action


@server.tool
async def check_ask_other(topic: str, ctx: Context) -> str:
    """Ask the user the same."""
    return await check_ask(topic, ctx)


@server.tool
async def check_url(topic: str, ctx: Context) -> str:
    """Send the user to a page."""
    await ctx.elicit_url("Please look.", "https://check.example/page")
    return topic


@server.tool
async def check_header(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "",
    count: Annotated[int, Meta(extra_json_schema={"x-mcp-header": "Count"})] = 0,
) -> str:
    """Take two arguments that are mirrored into headers."""
    return f"{region} {count}"


@server.tool
async def check_log(ctx: Context) -> str:
    """Log at three levels."""
    await ctx.debug("a message")
    await ctx.info("a message")
    await ctx.error("a message")
    return "logged"


@server.tool
def check_trace(ctx: Context) -> str:
    """The trace context of the request."""
    return str(ctx.meta.get("traceparent"))


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100)
    return "done"


@server.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools, and change it back."""
    server.registry.register_tool("passing", lambda: "gone")
    server.registry.unregister_tool("passing")
    return "changed"


@server.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts, and change it back."""
    server.registry.register_prompt("passing", lambda: "gone")
    server.registry.unregister_prompt("passing")
    return "changed"


@server.tool(long_running=True)
async def check_task() -> str:
    """Work that may become a task."""
    return "done"


@server.prompt
def greet(name: str) -> str:
    """How to greet."""
    return f"Greet {name}."


@server.completion("name", prompt="greet")
def names(begun: str) -> list[str]:
    """Names."""
    return [name for name in ("ada", "bob") if name.startswith(begun)]


@server.resource("check://static", "static", mime_type="text/plain")
def static() -> str:
    """A text."""
    return "static"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run(grace=1.0)
    else:
        server.run("http", port=int(sys.argv[-1]))
