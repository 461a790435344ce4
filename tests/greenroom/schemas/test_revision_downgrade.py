"""Results for older revisions: unknown members are left out or rewritten, and nothing is modified in place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from greenroom.protocol.content import audio, embedded, image, resource_link, text, text_resource
from greenroom.protocol.definitions import (
    Annotations,
    Icon,
    Implementation,
    Prompt,
    PromptArgument,
    Resource,
    Tool,
    ToolAnnotations,
)
from greenroom.protocol.handler_results import Structured, tool_result
from greenroom.protocol.revision_downgrade import BLOCKS_SINCE, SINCE, downgrade
from greenroom.protocol.versions import LATEST, SUPPORTED

ICONS = [Icon("data:,")]
BLOCKS = [
    text("t", annotations=Annotations(["user"], 1, "2026-01-01T00:00:00Z"), meta={"m": 1}),
    image(b"", "image/png"),
    audio(b"a", "audio/wav"),
    resource_link("u:a", "a", title="A", description="d", icons=ICONS),
    embedded(text_resource("u:a", "t", meta={"m": 1})),
]
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": LATEST,
        "serverInfo": Implementation("n", "1", "T", "d", "https://x", ICONS).to_wire(),
        "capabilities": {"tools": {}, "completions": {}, "tasks": {}},
    },
    "tools/list": {
        "tools": [
            Tool("n", {"type": "object"}, "T", "d", {"type": "object"}, ToolAnnotations(read_only_hint=True), ICONS,
                 {"taskSupport": "optional"}, {"m": 1}).to_wire()
        ],
        "nextCursor": "c",
    },
    "resources/list": {"resources": [Resource("u:a", "a", "T", "d", "t/x", 1, {"priority": 1}, ICONS, {"m": 1}).to_wire()]},
    "prompts/list": {"prompts": [Prompt("n", "T", "d", [PromptArgument("a", "T", "d", required=True)], None, ICONS, {"m": 1}).to_wire()]},
    "resources/read": {"contents": [text_resource("u:a", "t", meta={"m": 1}).to_wire()]},
    "tools/call": tool_result(Structured({"a": 1}, BLOCKS, {"m": 1})),
    "prompts/get": {"messages": [{"role": "user", "content": one.to_wire()} for one in BLOCKS]},
    "notifications/progress": {"progressToken": 1, "progress": 1, "message": "m"},
    "sampling/createMessage": {"messages": [{"role": "user", "content": audio(b"a", "audio/wav").to_wire()}], "tools": [], "maxTokens": 1},
}  # fmt: skip


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("method", RESULTS)
def test_nothing_is_changed_in_place(method: str, version: str) -> None:
    before = copy.deepcopy(RESULTS[method])
    downgrade(method, RESULTS[method], version)
    assert RESULTS[method] == before


@pytest.mark.parametrize("method", RESULTS)
def test_the_newest_revision_gets_the_very_same(method: str) -> None:
    assert downgrade(method, RESULTS[method], LATEST) is RESULTS[method]
    assert downgrade(method, RESULTS[method], None) is RESULTS[method]


def test_a_method_without_a_table_is_sent_unchanged() -> None:
    result: dict[str, Any] = {"anything": 1}
    assert downgrade("ping", result, "2024-11-05") is result


@pytest.mark.parametrize(
    ("version", "members"),
    [
        ("2025-06-18", {"name", "inputSchema", "title", "description", "outputSchema", "annotations", "_meta"}),
        ("2025-03-26", {"name", "inputSchema", "description", "annotations"}),
        ("2024-11-05", {"name", "inputSchema", "description"}),
    ],
)
def test_tools(version: str, members: set[str]) -> None:
    fitted = downgrade("tools/list", RESULTS["tools/list"], version)
    assert set(fitted["tools"][0]) == members
    assert fitted["nextCursor"] == "c"


def test_servers_resources_and_prompts() -> None:
    assert set(downgrade("initialize", RESULTS["initialize"], "2025-06-18")["serverInfo"]) == {
        "name",
        "version",
        "title",
    }
    old = downgrade("initialize", RESULTS["initialize"], "2024-11-05")
    assert set(old["serverInfo"]) == {"name", "version"}
    assert set(old["capabilities"]) == {"tools"}
    resource = downgrade("resources/list", RESULTS["resources/list"], "2025-03-26")["resources"][0]
    assert set(resource) == {"uri", "name", "description", "mimeType", "size", "annotations"}
    prompt = downgrade("prompts/list", RESULTS["prompts/list"], "2025-03-26")["prompts"][0]
    assert prompt == {
        "name": "n",
        "description": "d",
        "arguments": [{"name": "a", "description": "d", "required": True}],
    }
    assert downgrade("resources/read", RESULTS["resources/read"], "2025-03-26") == {
        "contents": [{"uri": "u:a", "text": "t"}]
    }


def test_results_of_tools() -> None:
    middle = downgrade("tools/call", RESULTS["tools/call"], "2025-06-18")
    assert "structuredContent" in middle
    assert [one["type"] for one in middle["content"]] == ["text", "image", "audio", "resource_link", "resource"]
    assert "icons" not in middle["content"][3]
    old = downgrade("tools/call", RESULTS["tools/call"], "2024-11-05")
    assert "structuredContent" not in old
    assert old["_meta"] == {"m": 1}
    assert old["content"][0] == {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 1}}
    assert old["content"][2]["resource"]["mimeType"] == "audio/wav"
    assert old["content"][2]["resource"]["blob"] == "YQ=="
    assert old["content"][3] == {"type": "text", "text": "A\nd\nu:a"}
    assert old["content"][4] == {"type": "resource", "resource": {"uri": "u:a", "text": "t"}}


def test_structured_content_that_a_revision_lacks_becomes_text() -> None:
    result = tool_result(Structured({"a": 1}, []))
    assert downgrade("tools/call", result, "2025-03-26")["content"] == [{"type": "text", "text": '{"a":1}'}]
    assert downgrade("tools/call", result, "2025-06-18")["content"] == []


def test_requests_and_notifications_of_servers() -> None:
    assert downgrade("notifications/progress", RESULTS["notifications/progress"], "2024-11-05") == {
        "progressToken": 1,
        "progress": 1,
    }
    sampling = downgrade("sampling/createMessage", RESULTS["sampling/createMessage"], "2024-11-05")
    assert "tools" not in sampling
    assert sampling["messages"][0]["content"]["type"] == "resource"
    assert [one["content"]["type"] for one in downgrade("prompts/get", RESULTS["prompts/get"], "2024-11-05")["messages"]] == [
        "text", "image", "resource", "text", "resource",
    ]  # fmt: skip


def test_choices_with_titles_as_they_were_first_written() -> None:
    params = {
        "mode": "form",
        "message": "m",
        "requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}, "b": {"type": "boolean"}}},
    }  # fmt: skip
    assert downgrade("elicitation/create", params, "2025-06-18") == {
        "message": "m",
        "requestedSchema": {
            "type": "object",
            "properties": {"a": {"type": "string", "enum": ["r"], "enumNames": ["Red"]}, "b": {"type": "boolean"}},
        },
    }


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/list", {"prompts": [{"name": "p", "arguments": 7}, {"name": "q", "arguments": None}, 3]}),
        ("prompts/list", {"prompts": [{"name": "p", "arguments": [3]}]}),
        ("tools/list", {"tools": [3, {"name": "t", "inputSchema": 3}]}),
        ("resources/read", {"contents": None}),
        ("prompts/get", {"messages": 3}),
        ("prompts/get", {"messages": ["hello"]}),
        ("tools/call", {"content": [3, {"type": 3}, {"type": "resource", "resource": 3}]}),
        ("tools/call", {"content": 3}),
        ("elicitation/create", {"requestedSchema": 3}),
        ("elicitation/create", {"requestedSchema": {"properties": {"a": 3, "b": {"oneOf": [{"type": "string"}, 3]}}}}),
        ("sampling/createMessage", {"messages": {}}),
    ],
)
def test_malformed_results_of_upstreams_are_passed_on_unchanged(
    method: str, params: dict[str, Any], version: str
) -> None:
    """A gateway passes the results of its upstreams on."""
    assert downgrade(method, params, version) == params


def test_new_block_types_become_text_for_older_revisions() -> None:
    use = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
    told = downgrade("sampling/createMessage", {"messages": [{"role": "assistant", "content": [use]}]}, "2025-06-18")
    (message,) = told["messages"]
    assert message["content"]["type"] == "text"
    assert json.loads(message["content"]["text"]) == use


def test_the_tables_name_revisions_that_there_are() -> None:
    named = {since for members in SINCE.values() for since in members.values()} | set(BLOCKS_SINCE.values())
    assert named <= set(SUPPORTED)
