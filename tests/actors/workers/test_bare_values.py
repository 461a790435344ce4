"""Structured results and output schemas of any type in the stateless era; handshake revisions have them under `result`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from greenroom import Server, Structured
from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.transports.interfaces import EncodedReply, Peer

NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
EITHER: dict[str, Any] = {"anyOf": [{"type": "object"}, {"type": "null"}]}
ENVELOPE = {PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_CAPABILITIES_KEY: dict[str, Any]()}
PEER = Peer("http", "")


def tools() -> Server:
    server = Server("values")

    @server.tool
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @server.tool(output_schema=NUMBERS, validate_output=True)
    async def numbers(last: Any) -> Any:
        return Structured([1, 2, last])

    @server.tool(output_schema=EITHER, validate_output=True)
    async def either() -> Any:
        return Structured({"a": 1})

    @server.tool
    async def loose() -> Any:
        return Structured(["a", None])

    @server.tool(long_running=True)
    async def slow() -> dict[str, int]:
        return {"a": 1}

    return server


async def asked(server: Server, method: str, stateless: bool, **params: Any) -> dict[str, Any]:  # noqa: FBT001 - the era
    async with server.started() as company:
        if stateless:
            reply = await company.exchange(PEER, JsonRpcRequest(1, method, {**params, "_meta": ENVELOPE}))
        else:
            reply = await company.once(PEER, JsonRpcRequest(1, method, params), "2025-11-25")
    assert isinstance(reply, EncodedReply)
    result: dict[str, Any] = json.loads(reply.body)["result"]
    return result


@pytest.mark.row("26-F2")
@pytest.mark.parametrize(
    ("name", "arguments", "value", "text"),
    [
        ("total", {"numbers": [1, 2]}, 3, "3"),
        ("numbers", {"last": 3}, [1, 2, 3], "[1,2,3]"),
        ("either", {}, {"a": 1}, '{"a":1}'),
        ("loose", {}, ["a", None], '["a",null]'),
    ],
)
async def test_structured_content_is_the_value_itself_and_stands_under_result_for_a_handshake(
    name: str, arguments: dict[str, Any], value: Any, text: str
) -> None:
    server = tools()
    bare = await asked(server, "tools/call", stateless=True, name=name, arguments=arguments)
    assert bare["structuredContent"] == value
    assert bare["content"] == [{"type": "text", "text": text}]
    wrapped = await asked(server, "tools/call", stateless=False, name=name, arguments=arguments)
    assert wrapped["structuredContent"] == {"result": value}


@pytest.mark.row("26-F2")
async def test_a_value_that_breaks_its_schema_is_an_error_in_both_eras() -> None:
    server = tools()
    for stateless in (True, False):
        result = await asked(server, "tools/call", stateless=stateless, name="numbers", arguments={"last": "three"})
        assert result["isError"] is True
        assert "does not match its output schema" in result["content"][0]["text"]
        assert "structuredContent" not in result


@pytest.mark.row("26-F2")
async def test_an_output_schema_of_any_type_is_listed_as_it_is_and_as_an_object_for_a_handshake() -> None:
    server = tools()
    listed = await asked(server, "tools/list", stateless=True)
    bare = {tool["name"]: tool.get("outputSchema") for tool in listed["tools"]}
    assert (bare["numbers"], bare["either"], bare["total"]) == (NUMBERS, EITHER, {"type": "integer"})
    assert bare["loose"] is None
    assert bare["slow"]["type"] == "object"  # a task says so by its resultType, so the schema holds for the result
    listed = await asked(server, "tools/list", stateless=False)
    wrapped = {tool["name"]: tool.get("outputSchema") for tool in listed["tools"]}
    for name in ("numbers", "either", "total"):
        assert wrapped[name] == {"type": "object", "properties": {"result": bare[name]}, "required": ["result"]}
    assert wrapped["slow"] is None
