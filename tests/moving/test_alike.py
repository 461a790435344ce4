"""The comparison of two servers shows what differs, and takes for meant only what is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import Client, Context, Server, ToolError

from .alike import differences, plain_schema
from .looking import Seen, call, look, prompt, read
from .meant import MEANT, meant_by, unmeant
from .pairs import PAIRS


def shop(*, price: Any = int, greeting: str = "Hello") -> Server:
    server = Server("shop")

    @server.tool
    async def buy(what: str, ctx: Context) -> dict[str, int]:
        await ctx.progress(1, 2)
        await ctx.info(f"buying {what}")
        return {what: 3}

    async def sell(what: Any) -> str:
        raise ToolError("sold out")

    sell.__annotations__["what"] = price
    server.tool(sell)

    @server.resource("shop://{shelf}", mime_type="text/plain")
    async def shelf(shelf: str) -> str:
        return shelf

    @server.prompt
    def greet(name: str) -> str:
        return f"{greeting}, {name}"

    return server


ASKED = (call("buy", what="tea"), call("sell", what=1), read("shop://a"), prompt("greet", name="Ann"), call("none"))


def apart(left: Server, right: Server) -> dict[str, tuple[Any, Any]]:
    async def both() -> list[Seen]:
        return list(await asyncio.gather(look(left, ASKED), look(right, ASKED)))

    return {where: (one, other) for where, one, other in differences(*asyncio.run(both()))}


def test_the_same_server_twice_is_the_same() -> None:
    assert apart(shop(), shop()) == {}


def test_the_smallest_part_that_differs_is_found() -> None:
    found = apart(shop(), shop(price=str, greeting="Bye"))
    assert found["tools sell.inputSchema.properties.what.type"] == ("integer", "string")
    assert found["answer 3.answer.messages[0].content.text"] == ("Hello, Ann", "Bye, Ann")
    assert unmeant([(where, *both) for where, both in found.items()], set())


def test_notifications_in_between_are_recorded() -> None:
    seen = asyncio.run(look(shop(), ASKED))
    assert seen.answers[0]["told"] == [
        {"log": "info", "data": "buying tea"},
        {"progress": 1, "total": 2, "message": None},
    ]
    assert seen.answers[4]["answer"]["error"] == -32602


def test_a_part_in_place_is_the_same_as_a_part_by_reference() -> None:
    seat = {"type": "object", "properties": {"title": {"type": "string", "title": "Title"}}, "required": ["title"]}
    by_reference = {"type": "array", "items": {"$ref": "#/$defs/Seat"}, "$defs": {"Seat": {**seat, "title": "Seat"}}}
    plain = plain_schema(by_reference)
    assert plain == plain_schema({"type": "array", "items": seat})
    assert plain["items"]["properties"] == {"title": {"type": "string"}}  # a property that is called title stays
    tree = {"$ref": "#/$defs/N", "$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}}
    assert plain_schema(tree) == {"properties": {"next": {"again": 1}}}


WRONG: list[tuple[str, Any, Any]] = [
    ("tools a.inputSchema.additionalProperties", True, False),
    ("tools a.outputSchema", {"type": "object"}, None),
    ("answer 1.answer.structuredContent", {"a": 1}, None),
    ("answer 1.answer.structuredContent", None, {"result": "x"}),
    ("answer 1.answer.content[0].text", '{"a": 1}', '{"a":2}'),
    ("answer 1.answer.content[0].text", "Error executing tool a: no", "yes"),
    ("answer 1.answer.content", [{"text": "1"}, {"text": "2"}], [{"text": "[1]"}]),
    ("answer 1.answer", {"isError": False}, {"error": -32602}),
    ("answer 1.answer", {"contents": []}, {"error": -32002}),
    ("tools a.description", "Find it.", "Find her."),
    ("tools find_it.title", "What is on", None),
    ("tools a._meta", {"room": "attic"}, None),
    ("resources a://b.mimeType", "image/png", None),
    ("tools a", None, {"name": "a"}),
]


@pytest.mark.parametrize(("where", "left", "right"), WRONG)
def test_unlisted_differences_are_not_excused(where: str, left: Any, right: Any) -> None:
    assert meant_by(where, left, right) is None


def test_each_difference_that_is_met_is_noted() -> None:
    used: set[str] = set()
    assert not unmeant([("tools a.inputSchema.additionalProperties", None, False)], used)
    assert used == {"Arguments that a function does not have"}
    assert used < set(MEANT)


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("name", sorted({pair.name for pair in PAIRS}))
async def test_each_server_that_was_moved_runs_here(name: str) -> None:
    pair = next(pair for pair in PAIRS if pair.name == name)
    async with Client(pair.port) as client:
        assert await client.list_tools()
