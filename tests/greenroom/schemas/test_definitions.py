"""Definitions and blocks on the wire: camelCase, `_meta`, no empty members, and user data unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from greenroom.protocol.content import (
    Audio,
    Contents,
    Embedded,
    Image,
    ResourceLink,
    Text,
    audio,
    blob_resource,
    embedded,
    image,
    is_block,
    mime_type_of,
    resource_link,
    text,
    text_resource,
)
from greenroom.protocol.definitions import (
    Annotations,
    Icon,
    Implementation,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Tool,
    ToolAnnotations,
)

ICON = Icon("https://example.com/a.png", "image/png", ["48x48"], "dark")


@pytest.mark.row("RG-27")
@pytest.mark.row("RG-08")
def test_a_tool_with_everything() -> None:
    tool = Tool(
        "add",
        {"type": "object"},
        title="Add",
        description="Adds.",
        output_schema={"type": "object"},
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        icons=[ICON],
        execution={"taskSupport": "optional"},
        meta={"a.b/c": 1},
    )
    assert tool.to_wire() == {
        "name": "add",
        "inputSchema": {"type": "object"},
        "title": "Add",
        "description": "Adds.",
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "icons": [
            {"src": "https://example.com/a.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"},
        ],
        "execution": {"taskSupport": "optional"},
        "_meta": {"a.b/c": 1},
    }


@pytest.mark.row("RG-27")
def test_a_resource_has_a_size_which_may_be_zero() -> None:
    resource = Resource("a:b", "b", mime_type="text/plain", size=0, annotations=Annotations(["user"], 0.0))
    assert resource.to_wire() == {
        "uri": "a:b",
        "name": "b",
        "mimeType": "text/plain",
        "size": 0,
        "annotations": {"audience": ["user"], "priority": 0.0},
    }


@pytest.mark.row("RG-27")
def test_a_template_and_a_prompt() -> None:
    template = ResourceTemplate("a:{b}", "b", description="any b", meta={"x": 1})
    assert template.to_wire() == {"uriTemplate": "a:{b}", "name": "b", "description": "any b", "_meta": {"x": 1}}
    prompt = Prompt("p", arguments=[PromptArgument("a", description="it", required=True), PromptArgument("b")])
    assert prompt.to_wire() == {
        "name": "p",
        "arguments": [{"name": "a", "description": "it", "required": True}, {"name": "b"}],
    }


@pytest.mark.row("RG-14")
@pytest.mark.parametrize(
    "definition",
    [
        Tool("n", {}, title="", description="", annotations={}, icons=[], execution={}, meta={}),
        Resource("u:n", "n", title="", description="", mime_type="", annotations={}, icons=[], meta={}),
        ResourceTemplate("u:{n}", "n", title="", description="", mime_type="", annotations={}, icons=[], meta={}),
        Prompt("n", title="", description="", arguments=[], annotations={}, icons=[], meta={}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_empty_members_are_left_out(definition: Any) -> None:
    assert definition.to_wire().keys() <= {"name", "inputSchema", "uri", "uriTemplate"}


@pytest.mark.row("RG-14")
@pytest.mark.parametrize(
    "definition",
    [
        Tool("n", {}, title="T", icons=[ICON]),
        Resource("u:n", "n", title="T", icons=[{"src": "data:,"}]),
        ResourceTemplate("u:{n}", "n", title="T", icons=[ICON]),
        Prompt("n", title="T", icons=[ICON]),
        Implementation("n", "1", title="T", icons=[ICON]),
        resource_link("u:n", "n", title="T", icons=[ICON]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_titles_and_icons_are_on_everything(definition: Any) -> None:
    wire = definition.to_wire()
    assert wire["title"] == "T"
    assert wire["icons"][0]["src"]


@pytest.mark.row("RG-15")
def test_annotations_travel_verbatim() -> None:
    free = {"readOnlyHint": True, "destructiveHint": False, "x-own": {"a": [1]}, "snake_case": None}
    assert Tool("n", {}, annotations=free).to_wire()["annotations"] == free
    assert Resource("u:n", "n", annotations={"audience": ["user"], "priority": 1, "more": 2}).to_wire()[
        "annotations"
    ] == {"audience": ["user"], "priority": 1, "more": 2}


def test_a_schema_travels_as_it_was_written() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"snake_case": {"default": None, "enum": []}},
        "$defs": {},
        "x": "",
    }
    assert Tool("n", schema).to_wire()["inputSchema"] == schema


@pytest.mark.row("RG-28")
@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (text("a"), {"type": "text", "text": "a"}),
        (text(""), {"type": "text", "text": ""}),
        (image(b"\x00\xff", "image/png"), {"type": "image", "data": "AP8=", "mimeType": "image/png"}),
        (audio(b"", "audio/wav"), {"type": "audio", "data": "", "mimeType": "audio/wav"}),
        (resource_link("u:a", "a"), {"type": "resource_link", "uri": "u:a", "name": "a"}),
        (
            resource_link("u:a", "a", title="A", description="d", mime_type="t/x", size=3),
            {
                "type": "resource_link",
                "uri": "u:a",
                "name": "a",
                "title": "A",
                "description": "d",
                "mimeType": "t/x",
                "size": 3,
            },
        ),
        (embedded(text_resource("u:a", "")), {"type": "resource", "resource": {"uri": "u:a", "text": ""}}),
        (
            embedded(blob_resource("u:a", b"", mime_type="t/x")),
            {"type": "resource", "resource": {"uri": "u:a", "mimeType": "t/x", "blob": ""}},
        ),
    ],
)
def test_builders_make_blocks_with_no_more_than_was_given(block: Any, wire: Any) -> None:
    assert block.to_wire() == wire
    assert is_block(block)
    assert is_block(wire)


@pytest.mark.row("RG-28")
@pytest.mark.parametrize(
    "block",
    [
        text("a", annotations={"priority": 1}, meta={"m": 1}),
        image(b"a", "image/png", annotations={"priority": 1}, meta={"m": 1}),
        audio(b"a", "audio/wav", annotations={"priority": 1}, meta={"m": 1}),
        resource_link("u:a", "a", annotations={"priority": 1}, meta={"m": 1}),
        embedded(text_resource("u:a", "a"), annotations={"priority": 1}, meta={"m": 1}),
        text_resource("u:a", "a", annotations={"priority": 1}, meta={"m": 1}),
        blob_resource("u:a", b"a", annotations={"priority": 1}, meta={"m": 1}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_builders_take_annotations_and_meta(block: Any) -> None:
    wire = block.to_wire()
    assert wire["annotations"] == {"priority": 1}
    assert wire["_meta"] == {"m": 1}


@pytest.mark.parametrize(
    "kind", [Text, Image, Audio, ResourceLink, Embedded, Contents, Tool, Prompt, Icon, Annotations]
)
def test_a_definition_is_read_back_from_the_wire(kind: Any) -> None:
    whole: dict[Any, Any] = {
        Text: text("a", annotations={"x": 1}, meta={"m": 1}),
        Image: image(b"\x00", "image/png"),
        Audio: audio(b"\x00", "audio/wav"),
        ResourceLink: resource_link("u:a", "a", icons=[Icon("data:,")]),
        Embedded: embedded(text_resource("u:a", "t")),
        Contents: blob_resource("u:a", b"b"),
        Tool: Tool("n", {"type": "object"}, icons=[Icon("data:,")]),
        Prompt: Prompt("n", arguments=[PromptArgument("a")]),
        Icon: Icon("data:,", sizes=["any"]),
        Annotations: Annotations(["assistant"], 0.5),
    }
    value = whole[kind]
    assert kind.from_wire(value.to_wire()) == value


def test_a_value_that_is_no_block_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="mimeType"):
        Image.from_wire({"type": "image", "data": "AA=="})
    with pytest.raises(msgspec.ValidationError, match="base64"):
        Image.from_wire({"type": "image", "data": "?", "mimeType": "image/png"})


@pytest.mark.parametrize(
    "value",
    [
        {"type": "cat", "name": "Tom"},
        {"type": "text"},
        {"type": "text", "text": 3},
        {"type": "image", "width": 3},
        {"type": ["text"], "text": "a"},
        {"text": "a"},
        "text",
        None,
    ],
)
def test_data_that_resembles_a_block_is_no_block(value: Any) -> None:
    assert not is_block(value)


def test_common_pictures_and_sounds_are_known_by_their_first_bytes() -> None:
    assert mime_type_of(b"\x89PNG\r\n\x1a\nrest") == "image/png"
    assert mime_type_of(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert mime_type_of(b"RIFF\x00\x00\x00\x00WEBPVP8 ") == "image/webp"
    assert mime_type_of(b"RIFF\x00\x00\x00\x00WAVEfmt ") == "audio/wav"
    assert mime_type_of(b"RIFF\x00\x00\x00\x00AVI ") is None
    assert mime_type_of(b"") is None
