"""The `around` hook: it sees, changes or refuses all calls, reads, prompts and completions."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import Client, Context, Hooks, McpError, Server, ToolError, ToolFailed
from greenroom.actors.settings import BadSetting
from greenroom.protocol.errors import PeerError


def shop(around: Any) -> Server:
    server = Server("shop", hooks=Hooks(around=around))

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    def fail() -> str:
        raise ToolError("closed")

    @server.resource("shop://{name}")
    async def shelf(name: str) -> str:
        return name

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello, {name}"

    @server.completion("name", prompt="greet")
    async def names(typed: str) -> list[str]:
        return [f"{typed}n"]

    return server


async def test_the_around_hook_runs_around_user_code_only() -> None:
    seen: list[tuple[str, str, bool]] = []

    async def around(method: str, ctx: Context, proceed: Any) -> dict[str, Any]:
        before = ctx.name
        result = await proceed()
        assert before == ctx.name
        seen.append((method, before, bool(result.get("isError"))))
        return result  # type: ignore[no-any-return]

    async with Client(shop(around)) as client:
        assert await client.call("add", a=1) == 2
        with pytest.raises(ToolFailed):
            await client.call("add", a="one")
        assert (await client.read_resource("shop://tea")).text == "tea"
        await client.get_prompt("greet", name="Ann")
        await client.complete("greet", "name", "An")
        await client.list_tools()
        await client.ping()
    assert seen == [
        ("tools/call", "add", False),
        ("tools/call", "add", True),
        ("resources/read", "shelf", False),
        ("prompts/get", "greet", False),
        ("completion/complete", "name", False),
    ]


async def test_the_around_hook_changes_results_and_sees_failures() -> None:
    heard: list[str] = []

    async def around(method: str, ctx: Context, proceed: Any) -> Any:
        try:
            result = await proceed()
        except ToolError as error:
            heard.append(str(error))
            raise
        return {**result, "_meta": {"by": f"{method} {ctx.name}"}}

    async with Client(shop(around)) as client:
        meta = (await client.call_tool("add", {"a": 1})).meta
        assert meta is not None
        assert meta["by"] == "tools/call add"
        with pytest.raises(ToolFailed, match="closed"):
            await client.call("fail")
    assert heard == ["closed"]


async def test_the_around_hook_can_refuse_a_call_before_the_tool_runs() -> None:
    async def around(method: str, ctx: Context, proceed: Any) -> Any:
        if ctx.params.get("name") == "add":
            raise McpError(-32001, "not today")
        return await proceed()

    async with Client(shop(around)) as client:
        with pytest.raises(PeerError, match="not today"):
            await client.call("add", a=1)


async def test_an_around_hook_that_returns_nothing_crashes_its_own_call_only() -> None:
    async def around(method: str, ctx: Context, proceed: Any) -> None:
        await proceed()

    async with Client(shop(around)) as client:
        with pytest.raises(ToolFailed, match="Tool execution failed"):
            await client.call("add", a=1)
        with pytest.raises(PeerError, match="Internal error"):
            await client.read_resource("shop://tea")


@pytest.mark.parametrize("around", [print, 5, "x"])
def test_an_around_hook_that_is_not_async_is_refused(around: Any) -> None:
    with pytest.raises(BadSetting, match="around must be an `async def`"):
        Hooks(around=around)
