"""Tools that a provider would refuse, and with them the whole request: each is named, and left out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from greenroom import Host, Server
from greenroom.actors.consent.consent import Consent
from greenroom.actors.consent.rules import Permissions, Rule
from greenroom.cli.inspect_command import oddities
from greenroom.protocol.provider_rules import PROVIDERS, Provider, refusals
from greenroom.protocol.tool_formats import refusal_reasons

OBJECT = {"type": "object"}


def properties(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("log", ""),
        ("git__log-1", ""),
        ("x" * 64, ""),
        ("x" * 65, "openai gemini"),
        ("x" * 129, "anthropic openai gemini"),
        ("", "anthropic openai gemini"),
        ("git.log", "anthropic openai"),
        ("1st", "gemini"),
        ("gît", "anthropic openai gemini"),
        ("log\n", "anthropic openai gemini"),
    ],
)
def test_names_that_a_provider_refuses(name: str, refused: str) -> None:
    assert [each for each in PROVIDERS if refusals(each, name, "", OBJECT)] == refused.split()


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("path", ""),
        ("x" * 64, ""),
        ("x" * 65, "anthropic gemini"),
        ("projects.any", "gemini"),
        ("dry-run", "gemini"),
        ("$filter", "anthropic gemini"),
        ("filter[name]", "anthropic gemini"),
        ("", "anthropic gemini"),
        ("größe", "anthropic gemini"),
        ("2nd", "gemini"),
    ],
)
def test_names_of_arguments_that_a_provider_refuses(key: str, refused: str) -> None:
    assert [each for each in PROVIDERS if refusals(each, "x", "", properties("a", key))] == refused.split()


def test_refused_tools_are_named_up_to_a_limit() -> None:
    (why,) = refusals("anthropic", "x", "", properties("$a", "$b", "$c", "$" + "d" * 200, "$e"))
    assert why == "names of its arguments must be 1 to 64 letters, digits, _, . and -: not '$a', '$b', '$c' and 2 more"
    (why,) = refusals("anthropic", "x", "", properties("$" + "d" * 200))
    assert len(why) < 200


def test_a_description_that_is_too_long_for_one_provider() -> None:
    assert refusals("openai", "x", "d" * 1024, OBJECT) == []
    assert refusals("openai", "x", "d" * 1025, OBJECT) == ["its description has 1025 characters, and may have 1024"]
    assert refusals("anthropic", "x", "d" * 5000, OBJECT) == refusals("gemini", "x", "d" * 5000, OBJECT) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"rows": {"type": "array"}}},
        {"type": "object", "properties": {"deep": {"type": "object", "properties": {"rows": {"type": "array"}}}}},
        {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "array"}}}},
        {"type": "object", "properties": {"rows": {"anyOf": [{"type": "null"}, {"type": "array"}]}}},
        {"type": "object", "properties": {"rows": {"$ref": "#/$defs/R"}}, "$defs": {"R": {"type": "array"}}},
    ],
)
def test_a_list_that_does_not_say_what_is_in_it(schema: dict[str, Any]) -> None:
    assert "must declare their items" in refusals("openai", "x", "", schema)[0]
    assert refusals("anthropic", "x", "", schema) == []
    for items in ({"type": "string"}, {}):
        rows = {"type": "object", "properties": {"rows": {"type": "array", "items": items}}}
        assert refusals("openai", "x", "", rows) == []


def test_a_schema_too_large_to_be_looked_at_is_left_out_and_costs_little() -> None:
    wide = {"type": "object", "properties": {f"a{n}": {"type": "object"} for n in range(20_000)}}
    assert refusals("openai", "x", "", wide) == ["its schema is too large to check"]
    deep: dict[str, Any] = {"type": "array"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    assert refusals("openai", "x", "", {"type": "object", "properties": {"a": deep}}) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_combinators_at_a_schemas_root_are_folded(provider: Provider) -> None:
    schema = {"type": "object", "oneOf": [properties("a"), properties("b")]}
    assert refusal_reasons(provider, {"name": "x", "inputSchema": schema}) == []


def odd() -> Server:
    server = Server("s")

    @server.tool(input_schema=properties("$filter"))
    def odata(**given: str) -> str:
        """Query."""
        return "rows"

    @server.tool(description="d" * 3000)
    def wordy() -> str:
        return "x"

    @server.tool
    def plain(a: int) -> str:
        """Plain."""
        return str(a)

    return server


async def test_a_host_leaves_out_what_a_provider_would_refuse_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Host({"s": odd()}) as host:
        with caplog.at_level(logging.WARNING, "greenroom.agent"):
            for _ in range(2):
                assert [each["name"] for each in await host.to_anthropic()] == ["s__plain", "s__wordy"]
                assert [each["function"]["name"] for each in await host.to_openai()] == ["s__odata", "s__plain"]
                assert [each["name"] for each in await host.to_gemini()] == ["s__plain", "s__wordy"]
        assert len(await host.tools()) == 3
        assert await host.call("s:odata", {"$filter": "x"}) == "rows"
    assert [
        each.getMessage().partition(":")[0] + each.getMessage().partition(" for ")[2].partition(":")[0]
        for each in caplog.records
    ] == [
        "sAnthropic",
        "sOpenAI",
        "sGemini",
    ]
    assert "s:odata is left out for Anthropic: names of its arguments must be" in caplog.text


async def test_a_model_of_gemini_has_its_tools_and_its_results() -> None:
    async with Host({"s": odd()}) as host:
        part = {"functionCall": {"id": "g1", "name": "s__plain", "args": {"a": 1}}}
        assert await host.run(part) == {
            "functionResponse": {"id": "g1", "name": "s__plain", "response": {"output": "1"}}
        }
        wrong = {"functionCall": {"name": "s__plain", "args": {"a": "x"}}}
        assert "error" in (await host.run(wrong))["functionResponse"]["response"]
        broken = {"functionCall": {"name": "s__plain", "args": [1]}}
        assert "are an object" in (await host.run(broken))["functionResponse"]["response"]["error"]
        assert await host.from_gemini_call(part) == ("s:plain", {"a": 1})
        with pytest.raises(ValueError, match="is no tool call: expected"):
            await host.run({"role": "model", "parts": [part]})


async def test_denied_tools_are_shown_to_no_model() -> None:
    consent = Consent(Permissions([Rule("deny", "s:wordy"), Rule("allow", "s:*")]))
    async with Host({"s": odd()}, consent=consent) as host:
        assert [each["name"] for each in await host.to_anthropic()] == ["s__plain"]
        assert [each["function"]["name"] for each in await host.to_openai()] == ["s__odata", "s__plain"]
        assert [each["name"] for each in await host.to_gemini()] == ["s__plain"]
        assert [each.name for each in await host.tools()] == ["s:odata", "s:plain"]


def test_inspect_names_what_a_provider_refuses() -> None:
    tools = [
        {"name": "odata", "description": "Query.", "inputSchema": properties("$filter")},
        {"name": "wordy", "description": "d" * 3000, "inputSchema": OBJECT},
        {"name": "fine", "description": "Fine.", "inputSchema": OBJECT},
    ]
    found = [str(each) for each in oddities({"tools": tools})]
    every = "refuses it, and every request that contains it"
    assert [each.partition(": names")[0].partition(": its")[0] for each in found] == [
        f"wrong: tool odata: Anthropic {every}",
        f"wrong: tool odata: Gemini {every}",
        f"wrong: tool wordy: OpenAI {every}",
    ]
    assert found[0].endswith("1 to 64 letters, digits, _, . and -: not '$filter'")
    assert found[2].endswith("its description has 3000 characters, and may have 1024")
