"""Calls of the stateless era that ask, with each round at another node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.versions import STATELESS

from .several_nodes import answer_of, town

if TYPE_CHECKING:
    from .several_nodes import Town

META: dict[str, Any] = {PROTOCOL_VERSION_KEY: STATELESS, CLIENT_CAPABILITIES_KEY: {"roots": {}}}
ROOTS: dict[str, Any] = {"roots": [{"uri": "file:///a"}]}


def call(made: Town, place: int, tool: str, badge: str = "ada", **fields: Any) -> dict[str, Any]:
    """Call a tool at a node; the response."""
    params = {"name": tool, "arguments": {}, "_meta": META, **fields}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": tool, "x-badge": badge}
    found: dict[str, Any] = answer_of(made.at(place, made.houses[place].engine.post, body, headers))
    return found


def retry(response: dict[str, Any]) -> dict[str, Any]:
    """The fields that answer its question."""
    result = response["result"]
    assert result["resultType"] == "input_required", result
    (key,) = result["inputRequests"]
    return {"inputResponses": {key: ROOTS}, "requestState": result["requestState"]}


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


@pytest.mark.row("26-R12")
def test_a_parked_call_goes_on_at_its_own_node_wherever_the_answer_arrives() -> None:
    with town(3) as made:
        first = call(made, 0, "asks")
        assert text_of(call(made, 2, "asks", **retry(first))) == "[Root(uri='file:///a', name=None)]"
        again = call(made, 1, "asks", **retry(first))
        assert (again["error"]["code"], again["error"]["data"]["reason"]) == (-32602, "gone")


@pytest.mark.row("26-R12")
def test_a_handler_that_has_ended_with_its_question_runs_again_at_the_node_that_gets_the_answer() -> None:
    with town() as made:
        first = call(made, 0, "asks_and_ends")
        assert text_of(call(made, 1, "asks_and_ends", **retry(first))) == "[Root(uri='file:///a', name=None)] at 1"


@pytest.mark.row("26-R10")
@pytest.mark.parametrize("tool", ["asks", "asks_and_ends"])
def test_a_state_of_another_principal_is_refused_at_every_node(tool: str) -> None:
    with town() as made:
        first = call(made, 0, tool)
        for place in (0, 1):
            refused = call(made, place, tool, badge="eve", **retry(first))
            assert refused["error"]["data"] == {"reason": "tampered"}
        assert "file:///a" in text_of(call(made, 1, tool, **retry(first)))
