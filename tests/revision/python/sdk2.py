"""The contract of the checks on the Python SDK 2.x: `sdk2.py stdio`, `sdk2.py PORT` for HTTP, or `sdk2.py guarded PORT` for callers with a token.

Written as the SDK's own documentation does it: questions by resolvers, states sealed by the SDK's default.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import mcp_types as types
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field


class Tokens(TokenVerifier):
    """Who comes in: two users, each with a token."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """The user that the token names."""
        if token not in {"one", "two"}:
            return None
        return AccessToken(token=token, client_id="check", subject=token, scopes=["use"], expires_at=None)


def guard(port: str) -> dict[str, Any]:
    """The options of a server that only lets these in."""
    resource = f"http://127.0.0.1:{port}/mcp"
    settings = AuthSettings(issuer_url="https://as.example", required_scopes=["use"], resource_server_url=resource)
    return {"auth": settings, "token_verifier": Tokens()}


server = MCPServer("contract", version="1.0", **(guard(sys.argv[2]) if sys.argv[1] == "guarded" else {}))
calls: dict[str, str] = {}


class Answer(BaseModel):
    """What the user is asked for."""

    answer: str


@server.tool()
async def check_slow(key: str, ctx: Context) -> str:
    """Wait until the call is cancelled."""
    calls[key] = "waiting"
    await ctx.report_progress(0, 1)
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        calls[key] = "stopped"
        raise
    calls[key] = "finished"
    return "finished"


@server.tool()
async def check_slow_state(key: str) -> str:
    """The state of a slow call."""
    return calls.get(key, "unknown")


async def ask(topic: str) -> Elicit[Answer]:
    """The question of both tools."""
    return Elicit(f"About {topic}?", Answer)


@server.tool()
async def check_ask(topic: str, answer: Annotated[Answer, Resolve(ask)]) -> str:
    """Ask the user."""
    return f"{topic}: {answer.answer}"


@server.tool()
async def check_ask_other(topic: str, answer: Annotated[Answer, Resolve(ask)]) -> str:
    """Ask the user the same."""
    return f"{topic}: {answer.answer}"


@server.tool()
async def check_url(topic: str, ctx: Context) -> str | types.InputRequiredResult:
    """Send the user to a page."""
    if ctx.input_responses:
        return topic
    params = types.ElicitRequestURLParams(message="Please look.", url="https://check.example/page")
    return types.InputRequiredResult(input_requests={"page": types.ElicitRequest(params=params)})


@server.tool()
async def check_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
    count: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Count"})] = 0,
) -> str:
    """Take two arguments that are mirrored into headers."""
    return f"{region} {count}"


@server.tool()
async def check_log(ctx: Context) -> str:
    """Log at three levels."""
    for level in ("debug", "info", "error"):
        await ctx.log(level, "a message")
    return "logged"


@server.tool()
async def check_trace(ctx: Context) -> str:
    """The trace context of the request."""
    return str((ctx.request_context.meta or {}).get("traceparent"))


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
    return "done"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Tell that the tools have changed."""
    await ctx.notify_tools_changed()
    return "told"


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Tell that the prompts have changed."""
    await ctx.notify_prompts_changed()
    return "told"


@server.prompt()
def greet(name: str) -> str:
    """How to greet."""
    return f"Greet {name}."


@server.completion()
async def complete(_ref: Any, argument: Any, _context: Any) -> types.Completion:
    """Names."""
    return types.Completion(values=[name for name in ("ada", "bob") if name.startswith(argument.value)])


@server.resource("check://static", mime_type="text/plain")
def static() -> str:
    """A text."""
    return "static"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", port=int(sys.argv[-1]))
