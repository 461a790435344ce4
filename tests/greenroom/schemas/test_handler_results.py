"""Return values of handlers, in every form, and the results that are sent."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections import deque
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from greenroom.protocol.content import embedded, image, text, text_resource
from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.handler_results import (
    CallToolResult,
    Completion,
    PromptResult,
    Structured,
    UnserializableResult,
    WithMeta,
    assistant_message,
    completion_result,
    message,
    prompt_result,
    resource_contents,
    tool_result,
    user_message,
)

PNG = b"\x89PNG\r\n\x1a\n"


@dataclasses.dataclass
class Day:
    day: date
    high: float


class Color(enum.Enum):
    RED = "red"


def said(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


# --- tools


@pytest.mark.row("TF-03")
@pytest.mark.row("TF-11")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("hi", said("hi")),
        ("", said("")),
        (None, []),
        (3, said("3")),
        (True, said("true")),
        (2.5, said("2.5")),
        ({"a": 1}, said('{"a":1}')),
        ({"type": "cat", "name": "Tom"}, said('{"type":"cat","name":"Tom"}')),
        ({"type": "text", "text": "t", "own": 1}, [{"type": "text", "text": "t", "own": 1}]),
        ({"type": "image", "data": b"\x00", "mimeType": "image/png"}, [{"type": "image", "data": "AA==", "mimeType": "image/png"}]),
        (text("t"), said("t")),
        ([], []),
        ([text("a"), "b", {"type": "text", "text": "c"}], said("a", "b", "c")),
        ((text("a"), text("b")), said("a", "b")),
        ([1, 2], said("[1,2]")),
        ([{"a": 1}], said('[{"a":1}]')),
        (Day(date(2026, 1, 2), 3), said('{"day":"2026-01-02","high":3}')),
        (date(2026, 1, 2), said("2026-01-02")),
        (Color.RED, said("red")),
        ({1: {"b"}}, said('{"1":["b"]}')),
        (PNG, [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]),
        (text_resource("u:a", "t"), [{"type": "resource", "resource": {"uri": "u:a", "text": "t"}}]),
    ],
)  # fmt: skip
def test_plain_returns(value: Any, content: Any) -> None:
    assert tool_result(value) == {"content": content, "isError": False}


def test_bytes_of_no_known_kind_are_a_resource_named_after_what_is_in_it() -> None:
    (block,) = tool_result(b"\x00")["content"]
    assert block["type"] == "resource"
    assert block["resource"]["blob"] == "AA=="
    assert block["resource"]["uri"].startswith("urn:sha256:6e340b9cffb3")


@pytest.mark.row("TF-04")
@pytest.mark.row("TF-11")
@pytest.mark.parametrize(
    ("content", "wire"),
    [
        ("no", said("no")),
        (text("no"), said("no")),
        (["no", text("never")], said("no", "never")),
        ({"a": 1}, said('{"a":1}')),
    ],
)
def test_a_tool_error_that_is_returned(content: Any, wire: Any) -> None:
    assert tool_result(ToolError(content)) == {"content": wire, "isError": True}


@pytest.mark.row("TF-11")
def test_an_mcp_error_that_is_returned_is_raised() -> None:
    with pytest.raises(McpError, match="nope"):
        tool_result(McpError(-32602, "nope"))


@pytest.mark.row("TF-05")
@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (Structured({"a": 1}), {"content": said('{"a":1}'), "structuredContent": {"a": 1}, "isError": False}),
        (Structured({"a": 1}, "one"), {"content": said("one"), "structuredContent": {"a": 1}, "isError": False}),
        (Structured({"a": 1}, []), {"content": [], "structuredContent": {"a": 1}, "isError": False}),
        (Structured([1]), {"content": said("[1]"), "structuredContent": {"result": [1]}, "isError": False}),
        (Structured("a"), {"content": said('"a"'), "structuredContent": {"result": "a"}, "isError": False}),
        (Structured(None), {"content": said("null"), "structuredContent": {"result": None}, "isError": False}),
        (
            Structured(Day(date(2026, 1, 2), 3)),
            {
                "content": said('{"day":"2026-01-02","high":3}'),
                "structuredContent": {"day": "2026-01-02", "high": 3},
                "isError": False,
            },
        ),
    ],
)
def test_structured_returns(value: Any, wire: Any) -> None:
    assert tool_result(value) == wire


@pytest.mark.row("TF-06")
@pytest.mark.row("WC-19")
@pytest.mark.parametrize(
    "value",
    [
        WithMeta("x", {"m": 1}),
        Structured({"a": 1}, "x", {"m": 1}),
        ToolError("x", {"m": 1}),
        CallToolResult.ok("x", meta={"m": 1}),
        CallToolResult.error("x", meta={"m": 1}),
        WithMeta(ToolError("x", {"n": 2}), {"m": 1}),
    ],
)
def test_meta_is_on_the_result(value: Any) -> None:
    wire = tool_result(value)
    assert wire["_meta"]["m"] == 1
    assert wire["content"] == said("x")


@pytest.mark.row("TF-06")
@pytest.mark.row("WC-19")
@pytest.mark.parametrize(
    "value", [WithMeta("x", {}), Structured({}, "x", {}), ToolError("x", {}), CallToolResult.ok("x", meta={})]
)
def test_empty_meta_is_left_out(value: Any) -> None:
    assert "_meta" not in tool_result(value)


@pytest.mark.row("RG-29")
@pytest.mark.row("TF-11")
def test_a_result_made_by_hand() -> None:
    assert tool_result(CallToolResult.ok("x", structured_content={"a": 1})) == {
        "content": said("x"),
        "structuredContent": {"a": 1},
        "isError": False,
    }
    assert CallToolResult.ok(structured_content={"a": 1}).to_wire()["content"] == said('{"a":1}')
    assert CallToolResult.error(["x", text("y")]).to_wire() == {"content": said("x", "y"), "isError": True}
    assert CallToolResult([text("x")], is_error=True).to_wire() == {"content": said("x"), "isError": True}
    assert CallToolResult().to_wire() == {"content": [], "isError": False}


@pytest.mark.row("TF-11")
@pytest.mark.parametrize(
    "value", [object(), [object()], {"a": print}, Structured(object()), WithMeta("x", {"m": object()})]
)
def test_a_result_that_json_cannot_express_is_the_handlers_bug(value: Any) -> None:
    with pytest.raises(UnserializableResult, match="cannot be expressed in JSON"):
        tool_result(value)


def test_an_iterator_is_no_data() -> None:
    with pytest.raises(UnserializableResult, match="count cannot be expressed in JSON"):
        tool_result({"a": itertools.count()})


def test_collections_mappings_and_paths_of_any_class_are_data() -> None:
    value = {"a": deque([1]), "b": MappingProxyType({"c": 2}), "d": Path("/e"), "f": {"g": 1}.keys(), "h": text("i")}
    assert tool_result(Structured(value))["structuredContent"] == {
        "a": [1],
        "b": {"c": 2},
        "d": "/e",
        "f": ["g"],
        "h": {"type": "text", "text": "i"},
    }


def test_a_lone_surrogate_is_the_handlers_bug() -> None:
    with pytest.raises(UnserializableResult, match="cannot be written"):
        tool_result({"a": "\ud800"})


def test_a_cyclic_result_is_the_handlers_bug() -> None:
    endless: list[Any] = []
    endless.append({"a": endless})
    with pytest.raises(UnserializableResult):
        tool_result(endless)


# --- resources


@pytest.mark.row("RG-16")
@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("a", [{"uri": "u:a", "mimeType": "text/plain", "text": "a"}]),
        (b"\x00", [{"uri": "u:a", "mimeType": "application/octet-stream", "blob": "AA=="}]),
        (PNG, [{"uri": "u:a", "mimeType": "image/png", "blob": "iVBORw0KGgo="}]),
        ({"text": "a"}, [{"uri": "u:a", "mimeType": "text/plain", "text": "a"}]),
        (
            {"text": "a", "mimeType": "t/x", "annotations": {"priority": 1}},
            [{"uri": "u:a", "mimeType": "t/x", "text": "a", "annotations": {"priority": 1}}],
        ),
        ({"blob": b"\x00", "mimeType": "t/x"}, [{"uri": "u:a", "mimeType": "t/x", "blob": "AA=="}]),
        ({"b": 1}, [{"uri": "u:a", "mimeType": "application/json", "text": '{"b":1}'}]),
        ([1, 2], [{"uri": "u:a", "mimeType": "application/json", "text": "[1,2]"}]),
        (Day(date(2026, 1, 2), 3), [{"uri": "u:a", "mimeType": "application/json", "text": '{"day":"2026-01-02","high":3}'}]),
        (
            [{"text": "a"}, {"uri": "u:b", "blob": "AA==", "mimeType": "t/x"}, text_resource("u:c", "c"), "d"],
            [
                {"uri": "u:a", "mimeType": "text/plain", "text": "a"},
                {"uri": "u:b", "mimeType": "t/x", "blob": "AA=="},
                {"uri": "u:c", "text": "c"},
                {"uri": "u:a", "mimeType": "text/plain", "text": "d"},
            ],
        ),
        (embedded(text_resource("u:c", "c")), [{"uri": "u:c", "text": "c"}]),
        ([], []),
    ],
)  # fmt: skip
def test_results_of_resources(value: Any, contents: Any) -> None:
    assert resource_contents(value, "u:a") == {"contents": contents}


@pytest.mark.row("RG-16")
def test_the_registered_type_is_the_default_type() -> None:
    assert resource_contents("a", "u:a", "text/html")["contents"][0]["mimeType"] == "text/html"
    assert resource_contents({"b": 1}, "u:a", "text/x")["contents"][0] == {
        "uri": "u:a",
        "mimeType": "text/x",
        "text": '{"b":1}',
    }
    assert resource_contents({"text": "a", "mimeType": "t/own"}, "u:a", "t/x")["contents"][0]["mimeType"] == "t/own"


@pytest.mark.parametrize("mime", ["application/json", "application/geo+json"])
def test_a_list_without_anything_in_it_is_data_where_the_resource_is_json(mime: str) -> None:
    assert resource_contents([], "u:a", mime) == {"contents": [{"uri": "u:a", "mimeType": mime, "text": "[]"}]}
    assert resource_contents([], "u:a", "text/plain") == {"contents": []}
    assert resource_contents(["a"], "u:a", mime)["contents"][0]["text"] == "a"  # text is sent as it is


def test_no_resource_is_not_found_rather_than_empty() -> None:
    with pytest.raises(McpError) as caught:
        resource_contents(None, "u:a")
    assert caught.value.code == ErrorCode.RESOURCE_NOT_FOUND
    assert caught.value.data == {"uri": "u:a"}


@pytest.mark.row("WC-19")
def test_meta_on_resources_and_prompts() -> None:
    assert resource_contents(WithMeta("a", {"m": 1}), "u:a")["_meta"] == {"m": 1}
    assert prompt_result(WithMeta("a", {"m": 1}))["_meta"] == {"m": 1}
    assert completion_result(WithMeta(["a"], {"m": 1}))["_meta"] == {"m": 1}
    assert "_meta" not in prompt_result(WithMeta("a", {}))


def contents_of(value: Any) -> dict[str, Any]:
    return resource_contents(value, "u:a")


@pytest.mark.parametrize("normalise", [contents_of, prompt_result, completion_result])
def test_only_tools_have_tool_errors(normalise: Any) -> None:
    with pytest.raises(McpError, match="gone") as caught:
        normalise(ToolError("gone"))
    assert caught.value.code == ErrorCode.INTERNAL_ERROR
    with pytest.raises(McpError, match="own") as caught:
        normalise(McpError(-5, "own"))
    assert caught.value.code == -5


# --- prompts


@pytest.mark.row("RG-20")
@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("a", [("user", "a")]),
        ([], []),
        (["a", assistant_message("b")], [("user", "a"), ("assistant", "b")]),
        ([user_message("a"), message("assistant", "b")], [("user", "a"), ("assistant", "b")]),
        ({"role": "assistant", "content": "a"}, [("assistant", "a")]),
        ({"role": "system", "content": "a"}, [("user", "a")]),
        ([{"role": "user", "content": {"type": "text", "text": "a"}}], [("user", "a")]),
        (user_message(["a", "b"]), [("user", "a"), ("user", "b")]),
        (text("a"), [("user", "a")]),
        (PromptResult(["a"]), [("user", "a")]),
        ({"messages": [user_message("a")]}, [("user", "a")]),
    ],
)
def test_results_of_prompts(value: Any, messages: Any) -> None:
    expected = [{"role": role, "content": {"type": "text", "text": one}} for role, one in messages]
    assert prompt_result(value) == {"messages": expected}
    assert prompt_result(value, "d") == {"description": "d", "messages": expected}


@pytest.mark.row("RG-20")
def test_a_prompt_that_describes_itself() -> None:
    for value in (PromptResult(["a"], "own"), {"messages": ["a"], "description": "own"}, (["a"], "own")):
        assert prompt_result(value, "registered")["description"] == "own"


@pytest.mark.row("RG-20")
def test_a_message_may_be_any_block() -> None:
    wire = prompt_result(user_message(image(b"\x00", "image/png")))
    assert wire["messages"] == [{"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}}]


@pytest.mark.parametrize("value", [3, [3], {"role": "king", "content": "a"}, {"a": 1}])
def test_a_value_that_is_no_message_is_refused(value: Any) -> None:
    with pytest.raises(UnserializableResult):
        prompt_result(value)


# --- completions


@pytest.mark.row("WC-27")
@pytest.mark.parametrize(
    ("value", "completion"),
    [
        (["a", "b"], {"values": ["a", "b"], "total": 2, "hasMore": False}),
        (("a",), {"values": ["a"], "total": 1, "hasMore": False}),
        ([], {"values": [], "total": 0, "hasMore": False}),
        (None, {"values": [], "total": 0, "hasMore": False}),
        (Completion(["a"], 7), {"values": ["a"], "total": 7, "hasMore": True}),
        (Completion(["a"], has_more=True), {"values": ["a"], "hasMore": True}),
        ({"values": ["a"], "hasMore": True}, {"values": ["a"], "hasMore": True}),
        ((["a"], {"has_more": True}), {"values": ["a"], "hasMore": True}),
    ],
)
def test_results_of_completions(value: Any, completion: Any) -> None:
    assert completion_result(value) == {"completion": completion}


@pytest.mark.row("WC-27")
def test_a_hundred_values_travel_and_the_rest_is_told_of() -> None:
    many = [str(number) for number in range(250)]
    assert completion_result(many)["completion"] == {"values": many[:100], "total": 250, "hasMore": True}
    assert completion_result(many[:100])["completion"] == {"values": many[:100], "total": 100, "hasMore": False}


@pytest.mark.row("WC-27")
def test_only_a_hundred_of_endless_suggestions_are_read() -> None:
    wire = completion_result(str(number) for number in itertools.count())["completion"]
    assert len(wire["values"]) == 100
    assert wire["hasMore"] is True


@pytest.mark.row("WC-27")
@pytest.mark.parametrize("value", ["abc", [1], [None], 3, {"values": "abc"}, {"values": [], "total": "many"}, b"ab"])
def test_a_value_that_is_no_completion_is_the_handlers_bug(value: Any) -> None:
    with pytest.raises(UnserializableResult):
        completion_result(value)
