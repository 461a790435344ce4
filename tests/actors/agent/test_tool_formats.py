"""Tools, calls and results in the shapes of providers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.definitions import Tool
from greenroom.protocol.provider_rules import provider_schema
from greenroom.protocol.tool_formats import (
    BadCall,
    NotAToolCall,
    anthropic_result,
    call_shape,
    called_name,
    from_anthropic_call,
    from_gemini_call,
    from_openai_call,
    openai_output,
    openai_result,
    read_call,
    to_anthropic,
    to_gemini,
    to_openai,
    to_result,
)
from greenroom.protocol.validation import validate

PNG = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
ADD = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.row("FM-01")
def test_a_tool_for_anthropic() -> None:
    tool = {"name": "add", "description": "adds", "inputSchema": ADD, "title": "x", "_meta": {}, "outputSchema": ADD}
    assert to_anthropic(tool) == {"name": "add", "description": "adds", "input_schema": ADD}
    assert to_anthropic({"name": "bare"}) == {"name": "bare", "description": "", "input_schema": {"type": "object"}}
    assert [one["name"] for one in to_anthropic([tool, Tool("own", ADD)])] == ["add", "own"]


@pytest.mark.row("FM-02")
def test_a_tool_for_openai() -> None:
    assert to_openai(Tool("add", ADD, description="adds")) == {
        "type": "function",
        "function": {"name": "add", "description": "adds", "parameters": ADD},
    }
    (bare,) = to_openai([{"name": "bare"}])
    assert bare["function"] == {"name": "bare", "description": "", "parameters": {"type": "object", "properties": {}}}


def test_a_provider_definition_does_not_share_state_with_the_tool() -> None:
    tool: dict[str, Any] = {"name": "add", "inputSchema": {"type": "object"}}
    to_openai(tool)["function"]["parameters"]["properties"]["x"] = {}
    assert tool == {"name": "add", "inputSchema": {"type": "object"}}


@pytest.mark.row("FM-03")
def test_a_call_of_anthropic() -> None:
    assert from_anthropic_call({"name": "add", "input": {"a": 1}}) == ("add", {"a": 1})
    assert from_anthropic_call({"toolName": "add"}) == ("add", {})
    assert from_anthropic_call(SimpleNamespace(type="tool_use", name="add", input={"a": 1})) == ("add", {"a": 1})
    with pytest.raises(BadCall, match="name"):
        from_anthropic_call({"input": {}})


@pytest.mark.row("FM-04")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (None, {}),
        ("", {}),
        ("[1]", {}),
        ("null", {}),
        ("3", {}),
        (b'{"a": 1}', {"a": 1}),
    ],
)
def test_a_call_of_openai(arguments: Any, expected: dict[str, Any]) -> None:
    assert from_openai_call({"function": {"name": "add", "arguments": arguments}}) == ("add", expected)


def test_half_of_the_arguments_is_no_call() -> None:
    with pytest.raises(BadCall, match="the arguments of rm are no JSON"):
        from_openai_call({"function": {"name": "rm", "arguments": '{"path": "rm-me'}})
    with pytest.raises(BadCall):
        from_openai_call({"function": {}})


def test_which_shape_a_call_has() -> None:
    chat = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert read_call({"type": "tool_use", "id": "t1", "name": "add", "input": {}}) == ("t1", "add", {}, "anthropic")
    assert read_call(chat) == ("c1", "add", {}, "openai")
    response = {"type": "function_call", "id": "fc", "call_id": "c2", "name": "add", "arguments": '{"a":2}'}
    assert read_call(response) == ("c2", "add", {"a": 2}, "openai_responses")
    own = SimpleNamespace(id="c3", type="function", function=SimpleNamespace(name="add", arguments="{}"))
    assert read_call(own) == ("c3", "add", {}, "openai")
    assert call_shape(chat) == ("c1", "openai")
    assert call_shape(response) == ("c2", "openai_responses")
    assert call_shape({"type": "tool_use", "id": "t1"}) == ("t1", "anthropic")


@pytest.mark.parametrize(
    ("call", "id"),
    [
        ({"functionCall": {"name": "add", "args": {"a": 1}}}, ""),
        ({"functionCall": {"id": "g1", "name": "add", "args": {"a": 1}}, "thoughtSignature": "x"}, "g1"),
        ({"function_call": {"id": "g1", "name": "add", "args": {"a": 1}}, "text": None, "inline_data": None}, "g1"),
        ({"name": "add", "args": {"a": 1}}, ""),
        ({"id": None, "args": {"a": 1}, "name": "add", "partial_args": None, "will_continue": None}, ""),
        (SimpleNamespace(id=None, name="add", args={"a": 1}), ""),
        (SimpleNamespace(text=None, function_call=SimpleNamespace(id="g1", name="add", args={"a": 1})), "g1"),
    ],
)
def test_a_call_of_gemini(call: Any, id: str) -> None:
    assert read_call(call) == (id, "add", {"a": 1}, "gemini")
    assert call_shape(call) == (id, "gemini")
    assert called_name(call) == "add"


def test_a_call_of_gemini_without_arguments() -> None:
    for bare in ({"functionCall": {"name": "add"}}, {"name": "add"}, {"name": "add", "args": None}):
        assert read_call(bare) == ("", "add", {}, "gemini")
    with pytest.raises(BadCall, match="the args of add are an object, not list"):
        read_call({"functionCall": {"name": "add", "args": [1]}})
    with pytest.raises(BadCall, match="a functionCall needs a name"):
        from_gemini_call({"functionCall": {"args": {}}})


NO_CALLS: list[tuple[Any, str]] = [
    ({}, "an empty dict"),
    ({"type": "text", "text": "hello"}, "a dict with 'type', 'text'"),
    ({"name": "add", "description": "", "input_schema": {}}, "a dict with 'name', 'description', 'input_schema'"),
    ({"role": "assistant", "content": "hi", "tool_calls": []}, "a dict with 'role', 'content', 'tool_calls'"),
    ({"parts": [{"functionCall": {"name": "add"}}]}, "a dict with 'parts'"),
    ("add", "an object of the type str"),
    (None, "an object of the type NoneType"),
    ([{"type": "tool_use", "name": "add", "input": {}}], "a list"),
]


@pytest.mark.parametrize(("given", "described"), NO_CALLS)
def test_an_invalid_tool_call_is_refused_with_the_accepted_shapes(given: Any, described: str) -> None:
    with pytest.raises(NotAToolCall) as refused:
        read_call(given)
    assert str(refused.value).startswith(f"{described} is no tool call: expected one tool call: a tool_use block")
    with pytest.raises(NotAToolCall):
        call_shape(given)


def test_a_result_for_gemini() -> None:
    result = {"content": [{"type": "text", "text": "hi"}, PNG]}
    assert to_result("g1", "gemini", result, "add") == {
        "functionResponse": {
            "id": "g1",
            "name": "add",
            "response": {"output": "hi\n[a picture (image/png, 2 bytes), which cannot be shown here]"},
        }
    }
    failed = {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert to_result("", "gemini", failed, "add") == {"functionResponse": {"name": "add", "response": {"error": "no"}}}


def test_a_tool_for_gemini() -> None:
    declared = {"name": "add", "description": "adds", "parametersJsonSchema": ADD}
    assert to_gemini(Tool("add", ADD, description="adds")) == declared
    assert to_gemini([Tool("add", ADD, description="adds")]) == [declared]


def test_a_result_for_anthropic() -> None:
    result = {"content": [{"type": "text", "text": "hi"}, {"type": "text", "text": ""}, PNG], "isError": False}
    assert anthropic_result("t1", result) == {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ],
    }
    failed = anthropic_result("t1", {"content": [], "isError": True})
    assert failed["is_error"] is True
    assert failed["content"][0]["text"]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, "[a sound (audio/wav, 2 bytes), which cannot be shown here]"),
        ({"type": "image", "data": "aGk=", "mimeType": "image/svg+xml"}, "[a picture (image/svg+xml, 2 bytes), which cannot be shown here]"),
        ({"type": "resource_link", "uri": "x:1", "name": "one"}, "[one: x:1]"),
        ({"type": "resource", "resource": {"uri": "x:1", "text": "words"}}, "[x:1]\nwords"),
        ({"type": "hologram"}, "[content of the type 'hologram', which cannot be shown here]"),
    ],
)  # fmt: skip
def test_content_that_a_provider_cannot_show_is_described(block: dict[str, Any], text: str) -> None:
    assert anthropic_result("t", {"content": [block]})["content"] == [{"type": "text", "text": text}]


def test_a_file_that_is_a_picture_is_shown() -> None:
    block = {"type": "resource", "resource": {"uri": "x:1", "blob": "aGk=", "mimeType": "image/png"}}
    assert [one["type"] for one in anthropic_result("t", {"content": [block]})["content"]] == ["text", "image"]


def test_a_result_for_openai() -> None:
    assert openai_result("c1", {"content": [{"type": "text", "text": "hi"}, PNG]}) == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "hi\n[a picture (image/png, 2 bytes), which cannot be shown here]",
    }
    failed = {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert openai_result("c1", failed)["content"] == "Error: no"
    assert openai_result("c1", {"content": [], "structuredContent": {"a": 1}})["content"] == '{"a":1}'
    assert openai_output("c1", {"content": [{"type": "text", "text": "hi"}]})["output"] == "hi"
    assert openai_output("c1", {"content": [PNG], "isError": True})["output"] == [
        {"type": "input_text", "text": "Error"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    ]


WORDS = ["type", "content", "text", "uri", "resource", "data", "mimeType", "isError"]


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner)


@given(st.recursive(st.none() | st.booleans() | st.text() | st.integers(), _nested))
def test_no_result_breaks_it(result: Any) -> None:
    for shape in ("anthropic", "openai", "openai_responses", "gemini"):
        assert to_result("id", shape, {"content": [result, result]})


# --- schemas


def test_branches_at_the_root_are_folded() -> None:
    schema = {
        "type": "object",
        "properties": {"depth": {"type": "integer"}},
        "anyOf": [
            {"properties": {"path": {"type": "string"}, "kind": {"const": 1}}, "required": ["path", "kind"]},
            {"$ref": "#/$defs/ByUrl"},
        ],
        "$defs": {"ByUrl": {"properties": {"url": {"type": "string"}, "kind": {"const": 2}}, "required": ["url", "kind"]}},
        "required": ["depth"],
        "additionalProperties": {"type": "integer"},
    }  # fmt: skip
    folded = provider_schema(schema)
    assert folded == {
        "type": "object",
        "properties": {
            "depth": {"type": "integer"},
            "path": {"type": "string"},
            "kind": {"anyOf": [{"const": 1}, {"const": 2}]},
            "url": {"type": "string"},
        },
        "required": ["depth", "kind"],
        "$defs": schema["$defs"],
    }


def test_a_schema_without_such_is_shown_as_it_is() -> None:
    assert provider_schema(ADD) == ADD
    assert provider_schema({"properties": {}}) == {"type": "object", "properties": {}}
    for nothing in (None, True, 3, "x"):
        assert provider_schema(nothing) == {"type": "object"}
    assert provider_schema({"type": "object", "anyOf": [{"$ref": "#"}, {"$ref": "x"}, 3], "not": {}}) == {
        "type": "object"
    }


KINDS: list[dict[str, Any]] = [{"type": "integer"}, {"type": "string"}, {}]
branches: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from("abc"), st.sampled_from(KINDS)),
        "required": st.lists(st.sampled_from("abc"), unique=True),
    },
)


def _with_branches(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def joined(one: dict[str, Any], key: str, more: list[dict[str, Any]]) -> dict[str, Any]:
        return {**one, key: more}

    keys = st.sampled_from(["anyOf", "oneOf", "allOf"])
    return st.builds(joined, branches, keys, st.lists(inner, min_size=1, max_size=3))


schemas = st.recursive(branches, _with_branches, max_leaves=6)


@given(schemas, st.dictionaries(st.sampled_from("abc"), st.integers() | st.text()))
def test_nothing_more_is_required_than_the_tool_does_and_nothing_is_hidden(
    schema: dict[str, Any], value: dict[str, Any]
) -> None:
    folded = provider_schema({"type": "object", **schema})
    assert {"anyOf", "oneOf", "allOf", "enum", "const", "not"}.isdisjoint(folded)
    assert set(folded.get("properties", {})) == set(_properties_of(schema))
    if not validate(value, {"type": "object", **schema}):
        assert set(folded.get("required", ())) <= set(value)


def _properties_of(schema: dict[str, Any]) -> list[str]:
    inner = [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, [])]
    return [*schema.get("properties", {}), *(name for one in inner for name in _properties_of(one))]
