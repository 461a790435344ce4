"""Results of a context's questions have the requested types, and decorators keep the types of functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from greenroom import Accepted, Context, Declined, Dismissed, Root, Sampled, Server, ToolResult, ToolUse


@dataclass
class Order:
    """The fields of a form."""

    cups: int


server = Server("cafe")


@server.tool
async def bare(city: str, days: int = 3) -> list[str]:
    """Decorated without a call."""
    return [city] * days


@server.tool("named", timeout=3)
def called(city: str) -> int:
    """Decorated with one."""
    return len(city)


async def right(ctx: Context) -> None:
    """Accepted by both checkers."""
    assert_type(await bare("Oslo", days=2), list[str])
    assert_type(called("Oslo"), int)
    answer = await ctx.elicit("What may it be?", Order)
    assert_type(answer, Accepted[Order] | Declined | Dismissed)
    match answer:
        case Accepted(value):
            assert_type(value, Order)
        case Declined() | Dismissed():
            pass
    by_hand = await ctx.elicit("?", {"type": "object", "properties": {}})
    assert_type(by_hand, Accepted[dict[str, Any]] | Declined | Dismissed)
    assert_type(await ctx.elicit("Sure?"), Accepted[None] | Declined | Dismissed)
    assert_type(await ctx.elicit("How many?", int), Accepted[int] | Declined | Dismissed)
    assert_type(await ctx.elicit_url("Pay.", "https://pay.example"), Accepted[str] | Declined | Dismissed)
    said = await ctx.sample("hello", tools=[{"name": "t"}], tool_choice="auto", include_context="none")
    assert_type(said, Sampled)
    assert_type(said.tool_uses, list[ToolUse])
    assert_type([ToolResult.of(use, "fine") for use in said.tool_uses], list[ToolResult])
    assert_type(await ctx.roots(), list[Root])
    assert_type(await ctx.progress(1, 2), bool)
    assert_type(ctx.wait(ctx.sample("hello")), Sampled)


async def wrong(ctx: Context) -> None:
    """Refused by both checkers."""
    await bare(7)  # expect-error: arg-type, reportArgumentType
    await ctx.log("loud", "x")  # expect-error: arg-type, reportArgumentType
    await ctx.sample("x", tool_choice="weather")  # expect-error: arg-type, reportArgumentType
    await ctx.progress("far")  # expect-error: arg-type, reportArgumentType
    answer = await ctx.elicit("What may it be?", Order)
    answer.value  # expect-error: union-attr, reportAttributeAccessIssue, reportUnknownMemberType
