"""Which entries can be registered, which cannot, and what the errors tell the author to write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from pydantic import Field, SecretStr

from greenroom.actors.catalogue import Catalogue, CatalogueRef, NotFound, RegistrationError
from greenroom.actors.catalogue_entries import (
    completion_entry,
    prompt_entry,
    resource_entry,
    template_entry,
    tool_entry,
)
from greenroom.actors.handler_options import (
    CompletionOptions,
    PromptOptions,
    ResourceOptions,
    TemplateOptions,
    ToolOptions,
)
from greenroom.protocol.definitions import Icon, PromptArgument, ToolAnnotations

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator

    from greenroom.actors.context import Context


async def hello(name: str) -> str:
    """Say hello.

    Args:
        name: The name to greet.
    """
    return f"hello {name}"


def yields() -> Iterator[int]:
    yield 1


async def yields_async() -> AsyncIterator[int]:
    yield 1


def suggest(value: str) -> list[str]:
    return [value]


class Thing:
    """No function."""


def positional(a: int, /) -> None: ...
def starred(*names: str) -> None: ...
def positional_context(ctx: Context, /) -> None: ...
def two_contexts(one: Context, other: Context) -> None: ...
def unspeakable(thing: asyncio.Event) -> None: ...


@pytest.mark.row("RG-05", "RG-23", "RG-24")
@pytest.mark.parametrize(
    ("name", "function", "options", "say"),
    [
        ("t", "no function", {}, "cannot be called"),
        ("t", Thing, {}, "is a class"),
        ("t", Thing(), {}, "cannot be called"),
        ("t", yields, {}, "it is a generator"),
        ("t", yields_async, {}, "it is a generator"),
        ("t", partial(yields), {}, "it is a generator"),
        ("t", positional, {}, "positional-only"),
        ("t", starred, {}, "take a list"),
        ("t", positional_context, {}, "positional-only"),
        ("t", two_contexts, {}, "both annotated with Context"),
        ("t", unspeakable, {}, "thing"),
        ("", hello, {}, "give it one, as in"),
        ("with space", hello, {}, "give it one, as in"),
        ("<lambda>", hello, {}, "give it one, as in"),
        ("x" * 129, hello, {}, "give it one, as in"),
        (7, hello, {}, "give it one, as in"),
        ("t", lambda: 1, {"isolation": "process"}, "a lambda has no name"),
        ("t", hello, {"isolation": "moon"}, "isolation is"),
        ("t", hello, {"timeout": 0}, "more than 0 seconds"),
        ("t", hello, {"timeout": float("inf")}, "more than 0 seconds"),
        ("t", hello, {"timeout": True}, "more than 0 seconds"),
        ("t", hello, {"threads": 0}, "1 or more"),
        ("t", hello, {"input_schema": {"type": "array"}}, "input_schema"),
        ("t", hello, {"input_schema": 7}, "input_schema"),
        ("t", hello, {"input_schema": {"type": "object", "$ref": "https://x.example/s"}}, "input_schema"),
        ("t", hello, {"output_schema": {"type": "strin"}}, "output_schema"),
        ("t", positional, {"input_schema": {"type": "object"}}, "by its name"),
        ("t", hello, {"meta": {"x": object()}}, "cannot be expressed in JSON"),
    ],
)
def test_an_invalid_tool_is_refused_with_what_to_write_instead(
    name: Any, function: Any, options: dict[str, Any], say: str
) -> None:
    with pytest.raises(RegistrationError) as refused:
        tool_entry(name, function, ToolOptions(**options))
    assert say in str(refused.value)
    assert str(refused.value).startswith(f"tool {name!r}: ")


@pytest.mark.row("RG-08", "RG-14", "RG-15", "WC-19")
def test_a_tool_is_listed_with_all_its_options() -> None:
    entry = tool_entry(
        "hello",
        hello,
        ToolOptions(
            title="Hello",
            icons=[Icon("https://x.example/i.png", "image/png", ["48x48"])],
            annotations={"readOnlyHint": True, "custom": 1},
            meta={"team": "a"},
        ),
    )
    assert entry.wire == {
        "name": "hello",
        "title": "Hello",
        "description": "Say hello.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string", "description": "The name to greet."}},
            "required": ["name"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "custom": 1},
        "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
        "_meta": {"team": "a"},
    }
    hints = tool_entry(
        "h", hello, ToolOptions(annotations=ToolAnnotations(destructive_hint=False), description="  Mine ")
    )
    assert hints.wire["annotations"] == {"destructiveHint": False}
    assert hints.wire["description"] == "Mine"


@pytest.mark.row("RG-08", "RG-14")
def test_fields_that_are_not_set_are_not_listed() -> None:
    async def bare(n: int = 0): ...  # type: ignore[no-untyped-def]  # noqa: ANN202 - nothing is said of it

    assert set(tool_entry("bare", bare).wire) == {"name", "inputSchema"}


def test_a_schema_by_hand_is_listed_as_it_was_written() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"$anchor": "x", "type": "string"}},
        "allOf": [{"required": ["a"]}],
    }

    def takes(a: Any) -> Any:
        return a

    assert tool_entry("t", takes, ToolOptions(input_schema=schema)).wire["inputSchema"] == schema


def test_a_parameter_that_is_called_context_of_another_kind_is_an_argument() -> None:
    @dataclass
    class Context:
        where: str

    async def mine(context: Any) -> str:
        return str(context)

    mine.__annotations__["context"] = Context
    assert tool_entry("mine", mine).handler.context is None


def test_a_parameter_that_is_called_ctx_and_has_another_hint_is_an_argument() -> None:
    def double(ctx: int) -> int:
        return 2 * ctx

    entry = tool_entry("double", double)
    assert entry.handler.context is None
    assert entry.wire["inputSchema"]["properties"] == {"ctx": {"type": "integer"}}
    assert entry.binder.bind({"ctx": 3}) == {"ctx": 3}


def test_a_function_may_use_a_variable_that_is_assigned_after_its_registration() -> None:
    def say(word: str) -> str:
        return word + later

    entry = tool_entry("say", say)
    later = "!"
    assert entry.wire["inputSchema"]["properties"] == {"word": {"type": "string"}}
    assert say("a") == "a!"


def test_the_docstring_of_a_class_with_call_is_its_description() -> None:
    class Greeter:
        async def __call__(self, name: str) -> str:
            """Greets."""
            return name

    entry = tool_entry("greet", Greeter())
    assert entry.wire["description"] == "Greets."
    assert entry.handler.is_async


# --- resources and templates


@pytest.mark.row("RG-09", "RG-14", "RG-15")
def test_a_resource_is_listed_with_all_its_options() -> None:
    options = ResourceOptions(
        uri="config://app",
        title="T",
        mime_type="text/x",
        size=3,
        annotations={"priority": 0.5},
        icons=[{"src": "data:,"}],
    )
    assert resource_entry("app", hello_resource, options).wire == {
        "uri": "config://app",
        "name": "app",
        "title": "T",
        "description": "The configuration.",
        "mimeType": "text/x",
        "size": 3,
        "annotations": {"priority": 0.5},
        "icons": [{"src": "data:,"}],
    }


def hello_resource() -> str:
    """The configuration."""
    return "x"


@pytest.mark.parametrize(
    ("name", "function", "uri", "say"),
    [
        ("r", hello_resource, "no uri", "is not a URI"),
        ("r", hello_resource, "a://{x}", "is a template"),
        ("r", hello, "a://b", "needs name"),
        ("", hello_resource, "a://b", "a name has to be"),
        ("two\nlines", hello_resource, "a://b", "a name has to be"),
        ("r", 7, "a://b", "cannot be called"),
    ],
)
def test_an_invalid_resource_is_refused_with_what_to_write_instead(
    name: str, function: Any, uri: str, say: str
) -> None:
    with pytest.raises(RegistrationError, match=say):
        resource_entry(name, function, ResourceOptions(uri=uri))


@pytest.mark.row("RG-10")
def test_a_template_is_listed_with_its_text() -> None:
    entry = template_entry("t", hello, TemplateOptions(uri_template="hi://{name}", mime_type="text/x"))
    assert entry.wire == {
        "uriTemplate": "hi://{name}",
        "name": "t",
        "description": "Say hello.",
        "mimeType": "text/x",
    }


@pytest.mark.parametrize(
    ("function", "text", "say"),
    [
        (hello, "hi://{name", "name"),
        (hello, "hi://{other}", "needs name"),
        (hello, "hi://{name}/{day}", "does not take day"),
        (starred, "hi://{names}", "take a list"),
    ],
)
def test_an_invalid_template_is_refused_with_what_to_write_instead(function: Any, text: str, say: str) -> None:
    with pytest.raises(RegistrationError, match=say):
        template_entry("t", function, TemplateOptions(uri_template=text))


@pytest.mark.row("RG-18", "RG-19")
def test_a_template_may_keep_to_segments() -> None:
    open_one = template_entry("t", hello, TemplateOptions(uri_template="hi://{name}"))
    closed_one = template_entry("t", hello, TemplateOptions(uri_template="hi://{name}", segments=True))
    assert open_one.template.match("hi://a/b") == {"name": "a/b"}
    assert closed_one.template.match("hi://a/b") is None


# --- prompts and completions


@pytest.mark.row("RG-11", "RG-14")
def test_a_prompts_arguments_are_its_parameters_or_its_options() -> None:
    async def plan(city: str, days: int = 2) -> str:  # noqa: D417 - the other one is not described
        """Plan.

        Args:
            city: Where to.
        """
        return f"{city}{days}"

    assert prompt_entry("plan", plan).wire == {
        "name": "plan",
        "description": "Plan.",
        "arguments": [{"name": "city", "description": "Where to.", "required": True}, {"name": "days"}],
    }
    said = [PromptArgument("city", "City", None, required=True), {"name": "days", "description": "How long"}]
    assert prompt_entry("plan", plan, PromptOptions(arguments=said)).wire["arguments"] == [
        {"name": "city", "title": "City", "required": True},
        {"name": "days", "description": "How long"},
    ]


@pytest.mark.parametrize(
    ("arguments", "say"),
    [(["town"], "differ in town, city"), ([7], "is not an argument"), ([{"names": "x"}], "is not an argument")],
)
def test_an_invalid_prompt_is_refused_with_what_to_write_instead(arguments: Any, say: str) -> None:
    async def plan(city: str) -> str:
        return city

    with pytest.raises(RegistrationError, match=say):
        prompt_entry("plan", plan, PromptOptions(arguments=arguments))


@pytest.mark.row("RG-12")
@pytest.mark.parametrize(
    "name", ["prompt", ("prompt", "p"), ("tool", "t", "a"), ["prompt", "p", "a"], ("prompt", 1, "a")]
)
def test_an_invalid_completion_is_refused_with_what_to_write_instead(name: Any) -> None:
    with pytest.raises(RegistrationError, match="a completion is for"):
        completion_entry(name, suggest)


def test_a_completion_gets_one_value() -> None:
    def two(value: str, other: str) -> list[str]:
        return [value, other]

    with pytest.raises(RegistrationError, match=r"ctx\.variables"):
        completion_entry(("prompt", "p", "a"), two)
    with pytest.raises(RegistrationError, match="positional-only"):
        completion_entry(("prompt", "p", "a"), positional)
    assert completion_entry(("prompt", "p", "a"), lambda: ["x"], CompletionOptions(timeout=1)).value is None


# --- the catalogue


def put(
    catalogue: Catalogue, *names: str, make: Callable[[str], Any] = lambda name: tool_entry(name, hello)
) -> Catalogue:
    for name in names:
        catalogue = catalogue.put(make(name))
    return catalogue


@pytest.mark.row("RG-04", "RG-05")
def test_a_catalogue_never_changes() -> None:
    empty = Catalogue()
    one = put(empty, "a")
    two = put(one, "b")
    assert [empty.count("tool"), one.count("tool"), two.count("tool")] == [0, 1, 2]
    assert [empty.version, one.version, two.version] == [0, 1, 2]
    assert two.drop("tool", "unknown") is two
    assert two.drop("tool", "a").tool("a") is None
    assert two.tool("a") is not None
    with pytest.raises(TypeError):
        two.all("tool")["c"] = two.tool("a")  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


@pytest.mark.row("RG-05", "RG-23")
def test_a_name_is_replaced_or_refused() -> None:
    first, second = tool_entry("t", hello), tool_entry("t", hello)
    one = Catalogue().put(first)
    assert one.put(second).tool("t") is second
    with pytest.raises(RegistrationError, match=r"replace that one with server\.registry\.register_tool\('t', …\)"):
        one.put(second, replace=False)


def resource(name: str, uri: str) -> Any:
    return resource_entry(name, hello_resource, ResourceOptions(uri=uri))


@pytest.mark.row("RG-09", "RG-17")
def test_a_resource_is_found_by_its_uri_wherever_it_moves() -> None:
    catalogue = Catalogue().put(resource("r", "a://1"))
    moved = catalogue.put(resource("r", "a://2"))
    assert moved.resource("a://1") is None
    assert moved.resource("a://2") is not None
    assert moved.drop("resource", "r").resource("a://2") is None
    with pytest.raises(RegistrationError, match="'r' is at a://2 already"):
        moved.put(resource("s", "a://2"))


def test_a_failed_change_leaves_the_catalogue_as_it_was() -> None:
    catalogue_ref = CatalogueRef()
    assert catalogue_ref.write(lambda catalogue: catalogue.put(tool_entry("t", hello)))
    before = catalogue_ref.current
    with pytest.raises(RegistrationError):
        catalogue_ref.write(
            lambda catalogue: catalogue.put(tool_entry("u", hello)).put(tool_entry("t", hello), replace=False)
        )
    assert catalogue_ref.current is before
    assert not catalogue_ref.write(lambda catalogue: catalogue.drop("tool", "unknown"))


def test_errors_name_the_missing_entry() -> None:
    assert str(NotFound("resource_template", "x")) == "there is no resource template 'x'"


# --- x-mcp-header

REGION: dict[str, Any] = {"x-mcp-header": "Region"}


async def query(sql: str, region: Annotated[str, msgspec.Meta(extra_json_schema=REGION)] = "eu") -> None: ...
async def count(
    number: Annotated[int, Field(description="how many", json_schema_extra={"x-mcp-header": "N"})],
) -> None: ...
async def literal(
    region: Annotated[Literal["eu", "us"], msgspec.Meta(extra_json_schema={**REGION, "type": "string"})],
) -> None: ...
async def optional(region: Annotated[str | None, msgspec.Meta(extra_json_schema=REGION)] = None) -> None: ...
async def untyped(region: Annotated[Literal["eu", "us"], msgspec.Meta(extra_json_schema=REGION)]) -> None: ...
async def amount(price: Annotated[float, msgspec.Meta(extra_json_schema=REGION)]) -> None: ...
async def secret(key: Annotated[SecretStr, Field(json_schema_extra=REGION)]) -> None: ...


@dataclass
class Place:
    region: Annotated[str, msgspec.Meta(extra_json_schema=REGION)]


async def nested(place: Place) -> None: ...


@pytest.mark.row("26-P5")
@pytest.mark.parametrize(
    ("function", "header", "path"),
    [
        (query, "Mcp-Param-Region", ("region",)),
        (count, "Mcp-Param-N", ("number",)),
        (literal, "Mcp-Param-Region", ("region",)),
    ],
)
def test_a_parameter_is_mirrored_by_its_type_hint(function: Any, header: str, path: tuple[str, ...]) -> None:
    entry = tool_entry("t", function)
    assert entry.header_plan is not None
    (mirrored,) = entry.header_plan.parameters
    assert (mirrored.spelled, mirrored.path) == (header, path)
    assert f"mcp-param-{entry.wire['inputSchema']['properties'][path[0]]['x-mcp-header'].lower()}" == mirrored.header


@pytest.mark.row("26-P5")
def test_a_parameter_is_mirrored_by_a_written_schema() -> None:
    inner = {"type": "object", "properties": {"region": {"type": "string", **REGION}}}
    written = {"type": "object", "properties": {"where": inner}}
    entry = tool_entry("t", hello, ToolOptions(input_schema=written))
    assert entry.header_plan is not None
    assert [each.path for each in entry.header_plan.parameters] == [("where", "region")]
    assert entry.wire["inputSchema"] == written
    assert tool_entry("t", hello).header_plan is None


@pytest.mark.row("26-P5")
@pytest.mark.parametrize(
    ("function", "schema", "say"),
    [
        (optional, None, "not through items, anyOf (which `| None` becomes)"),
        (untyped, None, 'write one of these as "type" beside the annotation'),
        (amount, None, "its type is 'number'"),
        (nested, None, "through `properties` alone"),
        (secret, None, "key: it is a secret"),
        (hello, {"name": {"type": "string", "x-mcp-header": "My Region"}}, "name: x-mcp-header is the end of"),
        (hello, {"name": {"type": "number", "x-mcp-header": "A"}}, "its type is 'number'"),
        (hello, {"name": {"items": {"type": "string", "x-mcp-header": "A"}}}, "name.items: x-mcp-header has no effect"),
        (
            hello,
            {"name": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
            "b: the x-mcp-header of name is the same",
        ),
    ],
)
def test_a_wrong_annotation_is_refused_with_what_to_write_instead(
    function: Any, schema: dict[str, Any] | None, say: str
) -> None:
    written = None if schema is None else {"type": "object", "properties": schema}
    with pytest.raises(RegistrationError) as refused:
        tool_entry("t", function, ToolOptions(input_schema=written))
    assert say in str(refused.value)
    assert str(refused.value).startswith("tool 't': ")
