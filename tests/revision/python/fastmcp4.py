"""The contract of the checks on FastMCP 4.x: `fastmcp4.py stdio`, `fastmcp4.py PORT` for HTTP, or `fastmcp4.py guarded PORT` for callers with a token.

Written as FastMCP's own documentation does it: a tool that asks returns its questions, and is called again with the answers.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from pydantic import Field


def guard(port: str) -> RemoteAuthProvider:
    """Who comes in: two users, each with a token."""
    users = {name: {"client_id": "check", "sub": name, "scopes": ["use"]} for name in ("one", "two")}
    verifier = StaticTokenVerifier(users, required_scopes=["use"])
    return RemoteAuthProvider(
        token_verifier=verifier, authorization_servers=["https://as.example"], base_url=f"http://127.0.0.1:{port}"
    )


server = FastMCP("contract", version="1.0", auth=guard(sys.argv[2]) if sys.argv[1] == "guarded" else None)
calls: dict[str, str] = {}
FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@server.tool
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


@server.tool
async def check_slow_state(key: str) -> str:
    """The state of a slow call."""
    return calls.get(key, "unknown")


def asked(topic: str, ctx: Context) -> str | types.InputRequiredResult:
    """The question, or the answer to it."""
    found = (ctx.input_responses or {}).get("answer")
    if isinstance(found, types.ElicitResult) and found.content:
        return f"{topic}: {found.content['answer']}"
    params = types.ElicitRequestFormParams(message=f"About {topic}?", requested_schema=FORM)
    return types.InputRequiredResult(
        input_requests={"answer": types.ElicitRequest(params=params)}, request_state=f"asked about {topic}"
    )


@server.tool
async def check_ask(topic: str, ctx: Context) -> str | types.InputRequiredResult:
    """Ask the user."""
    return asked(topic, ctx)


@server.tool
async def check_ask_other(topic: str, ctx: Context) -> str | types.InputRequiredResult:
    """Ask the user the same."""
    return asked(topic, ctx)


@server.tool
async def check_url(topic: str, ctx: Context) -> str | types.InputRequiredResult:
    """Send the user to a page."""
    if ctx.input_responses:
        return topic
    params = types.ElicitRequestURLParams(message="Please look.", url="https://check.example/page")
    return types.InputRequiredResult(input_requests={"page": types.ElicitRequest(params=params)})


@server.tool
async def check_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
    count: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Count"})] = 0,
) -> str:
    """Take two arguments that are mirrored into headers."""
    return f"{region} {count}"


@server.tool
async def check_log(ctx: Context) -> str:
    """Log at three levels."""
    for level in ("debug", "info", "error"):
        await ctx.log("a message", level)
    return "logged"


@server.tool
async def check_trace(ctx: Context) -> str:
    """The trace context of the request."""
    meta: Any = ctx.request_context.meta if ctx.request_context else None
    found = meta.get("traceparent") if isinstance(meta, dict) else getattr(meta, "traceparent", None)
    return str(found)


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
    return "done"


@server.tool
async def test_trigger_tool_change(ctx: Context) -> str:
    """Tell that the tools have changed."""
    await ctx.send_notification(types.ToolListChangedNotification())
    return "told"


@server.tool
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Tell that the prompts have changed."""
    await ctx.send_notification(types.PromptListChangedNotification())
    return "told"


@server.prompt
def greet(name: str) -> str:
    """How to greet."""
    return f"Greet {name}."


@server.completion
async def complete(_ref: Any, argument: Any, _context: Any) -> types.Completion:
    """Names."""
    return types.Completion(values=[name for name in ("ada", "bob") if name.startswith(argument.value)])


@server.resource("check://static", mime_type="text/plain")
def static() -> str:
    """A text."""
    return "static"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run(show_banner=False)
    else:
        server.run("http", port=int(sys.argv[-1]), show_banner=False)
