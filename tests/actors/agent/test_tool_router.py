"""The tool router: names, collisions, routing, checks before a call, and pins."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from greenroom.actors.client.errors import RequestTimeout, Unavailable
from greenroom.actors.consent.consent import Consent, ConsentQuestion
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.federation.federation_errors import (
    InvalidArguments,
    NoSeparator,
    ToolCollision,
    UnknownServer,
    UnknownTool,
)
from greenroom.actors.federation.tool_router import ToolRouter
from greenroom.errors import ConfigError
from greenroom.protocol.tool_pins import PinComparison, Pins, ToolRefused

from .stand_in_upstreams import ADD, StandIn, tool


def run(main: Any) -> Any:
    return asyncio.run(main)


async def names(agent: ToolRouter) -> list[str]:
    return [one["name"] for one in await agent.list_tools()]


@pytest.mark.row("AG-01")
def test_a_catalogue_of_all_servers_says_whose_a_tool_is() -> None:
    servers = StandIn(git=[tool("log", description="Shows."), tool("diff")], web=[tool("log")])
    listed = run(ToolRouter(servers).list_tools())
    assert [one["name"] for one in listed] == ["git:log", "git:diff", "web:log"]
    assert listed[0]["description"] == "Shows."
    assert run(names(ToolRouter(servers, separator="/"))) == ["git/log", "git/diff", "web/log"]


@pytest.mark.row("CB-05")
def test_claude_codes_names_are_understood_where_they_mean_one_tool() -> None:
    async def main() -> None:
        servers = StandIn(git=[tool("log.all"), tool("a.b"), tool("a/b")], web=[tool("get")])
        agent = ToolRouter(servers)
        assert (await agent.find("mcp__git__log_all")).tool == "log.all"
        assert (await agent.find("mcp__web__get")).server == "web"
        assert (await agent.catalogue()).named("mcp__web__get") == "web:get"
        with pytest.raises(NoSeparator):
            await agent.find("mcp__git__a_b")
        with pytest.raises(NoSeparator):
            await agent.find("mcp__web__put")

    run(main())


@pytest.mark.row("AG-01")
def test_a_server_that_does_not_answer_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    servers = StandIn(git=[tool("log")], web=[tool("get")])
    servers.silent.add("web")
    with caplog.at_level(logging.WARNING):
        catalogue = run(ToolRouter(servers, patience=0.25).catalogue())
    assert set(catalogue.tools) == {"git:log"}
    assert isinstance(catalogue.skipped["web"], Unavailable)
    assert catalogue.skipped["web"].retry_in == 0.25
    assert "the tools of web are left out" in caplog.text


def test_the_snapshot_is_made_anew_when_something_is_different_and_not_before() -> None:
    async def main() -> None:
        servers = StandIn(git=[tool("log")])
        agent = ToolRouter(servers)
        first = await agent.catalogue()
        assert await agent.catalogue() is first
        servers.offer("git", tool("log"))
        assert await agent.catalogue() is first
        servers.offer("git", tool("log"), tool("diff"))
        assert set((await agent.catalogue()).tools) == {"git:log", "git:diff"}
        del servers.lines["git"], servers.offerings["git"]
        assert not len(await agent.catalogue())

    run(main())


# --- collisions


def test_two_with_the_same_name_are_named_both() -> None:
    servers = StandIn(**{"a": [tool("b:c")], "a:b": [tool("c")]})
    with pytest.raises(ToolCollision, match="'b:c' of 'a' and 'c' of 'a:b' would both be called 'a:b:c'") as caught:
        run(ToolRouter(servers).list_tools())
    assert caught.value.tools == (("a", "b:c"), ("a:b", "c"))
    with pytest.raises(ToolCollision):
        run(ToolRouter(servers).call_tool("a:b:c"))


def test_an_alias_solves_it() -> None:
    async def main() -> None:
        servers = StandIn(**{"a": [tool("b:c")], "a:b": [tool("c")]})
        agent = ToolRouter(servers, aliases={("a:b", "c"): "other"})
        assert await names(agent) == ["a:b:c", "other"]
        await agent.call_tool("other")
        await agent.call_tool("a:b:c")
        assert servers.lines["a:b"].asked == [("tools/call", {"name": "c", "arguments": {}})]
        assert servers.lines["a"].asked == [("tools/call", {"name": "b:c", "arguments": {}})]

    run(main())


def test_an_alias_is_the_name_and_not_a_second_one() -> None:
    servers = StandIn(git=[tool("log")])
    agent = ToolRouter(servers, aliases={"git:log": "history"})
    assert run(names(agent)) == ["history"]
    with pytest.raises(UnknownServer):
        run(agent.call_tool("git:log"))


@pytest.mark.parametrize("aliases", [{"git": "x"}, {"git:log": ""}])
def test_aliases_that_say_nothing_are_refused(aliases: dict[Any, str]) -> None:
    with pytest.raises(ConfigError):
        ToolRouter(StandIn(), aliases=aliases)


def test_an_alias_for_two_is_a_collision_of_its_own() -> None:
    with pytest.raises(ToolCollision):
        ToolRouter(StandIn(), aliases={"git:log": "log", "web:log": "log"})
    with pytest.raises(ToolCollision):
        run(ToolRouter(StandIn(git=[tool("log")], web=[tool("log")]), aliases={"git:log": "web:log"}).list_tools())


# --- routing


@pytest.mark.row("AG-03")
def test_a_name_is_split_at_the_first_separator() -> None:
    async def main() -> None:
        servers = StandIn(git=[tool("log:all"), ADD])
        agent = ToolRouter(servers)
        assert await agent.call_tool("git:log:all", {"x": 1}) == servers.answer
        await agent.call_tool("git:add", {"a": 1, "b": 2}, more={"_meta": {"k": 1}})
        assert servers.lines["git"].asked == [
            ("tools/call", {"name": "log:all", "arguments": {"x": 1}}),
            ("tools/call", {"_meta": {"k": 1}, "name": "add", "arguments": {"a": 1, "b": 2}}),
        ]

    run(main())


@pytest.mark.row("AG-03")
@pytest.mark.parametrize(
    ("name", "kind", "reason", "said"),
    [
        ("log", NoSeparator, "no_separator", "'log' does not say which server's it is"),
        ("gti:log", UnknownServer, "unknown_server", "did you mean git?"),
        ("git:lgo", UnknownTool, "unknown_tool", "did you mean git:log?"),
        ("git:", UnknownTool, "unknown_tool", "there is no tool called 'git:'"),
        (":log", UnknownServer, "unknown_server", "there is no server called ''"),
        ("git:" + "x" * 100_000, UnknownTool, "unknown_tool", "xxx…'"),
    ],
)
def test_a_name_that_leads_nowhere(name: str, kind: type[Exception], reason: str, said: str) -> None:
    with pytest.raises(kind) as caught:
        run(ToolRouter(StandIn(git=[tool("log")])).call_tool(name))
    assert getattr(caught.value, "reason", None) == reason
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.row("AG-03")
def test_the_clients_own_error_comes_through() -> None:
    servers = StandIn(git=[tool("log")])
    servers.answer = RequestTimeout("tools/call", 30)
    with pytest.raises(RequestTimeout):
        run(ToolRouter(servers).call_tool("git:log"))
    servers.silent.add("git")
    with pytest.raises(Unavailable):
        run(ToolRouter(servers).call_tool("git:log"))


def test_a_call_is_sent_to_its_own_server_only() -> None:
    async def main() -> None:
        servers = StandIn(git=[tool("log")], web=[tool("get")])
        servers.silent.add("web")
        await ToolRouter(servers).call_tool("git:log")
        assert servers.listed == 1

    run(main())


# --- arguments


def test_wrong_arguments_are_told_all_at_once_and_not_sent() -> None:
    servers = StandIn(calc=[ADD])
    with pytest.raises(InvalidArguments) as caught:
        run(ToolRouter(servers).call_tool("calc:add", {"a": "1"}))
    assert [str(one) for one in caught.value.errors] == ['a: expected an integer, got "1"', "b: is missing"]
    assert "calc:add" in str(caught.value)
    assert servers.lines["calc"].asked == []


def test_or_they_are_a_result_for_the_model() -> None:
    servers = StandIn(calc=[ADD])
    result = run(ToolRouter(servers, invalid="result").call_tool("calc:add", {"a": 1}))
    assert result["isError"] is True
    assert "b: is missing" in result["content"][0]["text"]
    assert servers.lines["calc"].asked == []


def test_or_the_server_sees_them() -> None:
    servers = StandIn(calc=[ADD])
    run(ToolRouter(servers, invalid="send").call_tool("calc:add", {"a": 1}))
    assert len(servers.lines["calc"].asked) == 1


@pytest.mark.parametrize("schema", [{"type": "object", "$ref": "https://x/y"}, {"$schema": "draft-99"}, 3, None])
def test_an_unusable_schema_prevents_no_call(schema: Any) -> None:
    servers = StandIn(odd=[{"name": "x", "inputSchema": schema}])
    assert run(ToolRouter(servers).call_tool("odd:x", {"a": 1})) == servers.answer


def test_a_tool_that_changes_is_held_against_its_new_schema() -> None:
    async def main() -> None:
        servers = StandIn(calc=[ADD])
        agent = ToolRouter(servers)
        await agent.call_tool("calc:add", {"a": 1, "b": 1})
        servers.offer("calc", {**ADD, "inputSchema": {"type": "object", "required": ["c"]}})
        with pytest.raises(InvalidArguments, match="c: is missing"):
            await agent.call_tool("calc:add", {"a": 1, "b": 1})

    run(main())


# --- models


@pytest.mark.row("AG-02")
def test_the_catalogue_for_models_has_legal_names_that_come_back() -> None:
    async def main() -> None:
        servers = StandIn(**{"git": [tool("log")], "web site": [tool("fetch.page"), ADD]})
        agent = ToolRouter(servers)
        shown = await agent.to_anthropic()
        assert shown[0] == {"name": "git__log", "description": "", "input_schema": {"type": "object"}}
        assert [one["function"]["name"] for one in await agent.to_openai()] == [one["name"] for one in shown]
        for one, real in zip(shown, await names(agent), strict=True):
            assert await agent.from_anthropic_call({"name": one["name"], "input": {"a": 1}}) == (real, {"a": 1})
            assert await agent.from_openai_call({"function": {"name": one["name"]}}) == (real, {})

    run(main())


def test_a_model_gets_its_result_in_its_own_shape() -> None:
    async def main() -> None:
        servers = StandIn(calc=[ADD])
        agent = ToolRouter(servers)
        use = {"type": "tool_use", "id": "t1", "name": "calc__add", "input": {"a": 1, "b": 2}}
        assert await agent.run(use) == {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "done"}],
        }
        call = {"id": "c1", "type": "function", "function": {"name": "calc__add", "arguments": '{"a":1,"b":2}'}}
        assert await agent.run(call) == {"role": "tool", "tool_call_id": "c1", "content": "done"}

    run(main())


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("calc__ad", "{}", "did you mean"),
        ("calc__add", '{"a": 1', "no JSON"),
        ("calc__add", "{}", "a: is missing; b: is missing"),
        ("", "{}", "a name"),
    ],
)
def test_whatever_a_model_gets_wrong_it_is_told(name: str, arguments: str, said: str) -> None:
    servers = StandIn(calc=[ADD])
    answer = run(ToolRouter(servers).run({"id": "c1", "function": {"name": name, "arguments": arguments}}))
    assert answer["content"].startswith("Error: ")
    assert said in answer["content"]
    assert servers.lines["calc"].asked == []


def test_a_server_that_is_away_is_a_result_for_a_model_too() -> None:
    servers = StandIn(calc=[ADD])
    servers.answer = RequestTimeout("tools/call", 30)
    use = {"type": "tool_use", "id": "t1", "name": "calc__add", "input": {"a": 1, "b": 2}}
    assert run(ToolRouter(servers).run(use))["is_error"] is True


# --- pins


def test_a_changed_pin_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        servers = StandIn(calc=[{**ADD, "description": "Adds. And sends them on."}])
        agent = ToolRouter(servers, pins=Pins.of({"calc:add": ADD}))
        catalogue = await agent.catalogue()
        assert catalogue.pins is not None
        assert catalogue.pins.of("changed")[0].parts == ("description",)
        assert set(catalogue.tools) == {"calc:add"}
        await agent.call_tool("calc:add", {"a": 1, "b": 2})
        servers.offer("calc", *servers.offerings["calc"].tools.values(), tool("new"))
        await agent.catalogue()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert [one.getMessage() for one in caplog.records] == [
        "calc:add is not what was pinned (changed: description)",
        "calc:new was never pinned",
    ]


def test_by_policy_it_is_refused_and_not_shown() -> None:
    async def main() -> None:
        servers = StandIn(calc=[{**ADD, "title": "x"}, tool("same")], web=[tool("renamed")])
        pins = Pins.of({"calc:add": ADD, "calc:same": tool("same"), "web:named": tool("named")})
        agent = ToolRouter(servers, pins=pins, policy="refuse", aliases={"calc:add": "plus"})
        assert await names(agent) == ["calc:same"]
        await agent.call_tool("calc:same")
        with pytest.raises(ToolRefused, match="changed: title"):
            await agent.call_tool("plus", {"a": 1, "b": 2})
        with pytest.raises(ToolRefused, match="web:renamed is what was pinned as web:named"):
            await agent.call_tool("web:renamed")
        assert servers.lines["web"].asked == []

    run(main())


def test_a_tool_that_changes_after_it_was_shown_is_refused_when_it_is_called() -> None:
    async def main() -> None:
        servers = StandIn(calc=[ADD])
        agent = ToolRouter(servers, pins=Pins.of({"calc:add": ADD}), policy="refuse")
        await agent.call_tool("calc:add", {"a": 1, "b": 2})
        servers.offer("calc", {**ADD, "annotations": {"destructiveHint": True}})
        with pytest.raises(ToolRefused):
            await agent.call_tool("calc:add", {"a": 1, "b": 2})
        servers.offer("calc", ADD)
        await agent.call_tool("calc:add", {"a": 1, "b": 2})

    run(main())


def test_a_function_may_decide() -> None:
    def new_is_fine(finding: PinComparison) -> bool:
        return finding.kind == "new"

    servers = StandIn(calc=[{**ADD, "title": "x"}, tool("new")])
    agent = ToolRouter(servers, pins=Pins.of({"calc:add": ADD}), policy=new_is_fine)
    assert run(names(agent)) == ["calc:new"]


def test_a_server_that_is_away_has_not_lost_its_tools() -> None:
    servers = StandIn(calc=[ADD], web=[tool("get")])
    servers.silent.add("web")
    catalogue = run(ToolRouter(servers, pins=Pins.of({"calc:add": ADD, "web:get": tool("get")})).catalogue())
    assert catalogue.pins is not None
    assert catalogue.pins.clean


# --- while the user thinks


@pytest.mark.row("CB-16")
@pytest.mark.parametrize("what", ["tool", "server", "nothing"])
async def test_a_tool_that_changed_during_the_consent_question_is_asked_about_again(what: str) -> None:
    stand_in = StandIn(calc=[ADD])
    asked: list[str] = []

    def ask(question: ConsentQuestion) -> bool:
        asked.append(str(question.definition["description"]))
        if len(asked) == 1 and what == "tool":
            stand_in.offer("calc", {**ADD, "description": "Sends all of it away."})
        elif len(asked) == 1 and what == "server":
            stand_in.serials["calc"] = 2
        elif what == "nothing":
            stand_in.offer("calc", dict(ADD))
        return len(asked) == 1

    agent = ToolRouter(stand_in, consent=Consent(ask=ask))
    if what == "nothing":
        await agent.call_tool("calc:add", {"a": 1, "b": 2})
        assert asked == ["Adds."]
        return
    with pytest.raises(ConsentDenied, match="the answer was no"):
        await agent.call_tool("calc:add", {"a": 1, "b": 2})
    assert asked == ["Adds.", "Sends all of it away." if what == "tool" else "Adds."]
    assert stand_in.lines["calc"].asked == []


async def test_arguments_have_to_fit_what_a_tool_has_become_meanwhile() -> None:
    stand_in = StandIn(calc=[ADD])

    def ask(_: ConsentQuestion) -> bool:
        stand_in.offer("calc", tool("add", inputSchema={"type": "object", "required": ["c"]}))
        return True

    with pytest.raises(InvalidArguments):
        await ToolRouter(stand_in, consent=Consent(ask=ask)).call_tool("calc:add", {"a": 1, "b": 2})


async def test_consent_questions_about_a_changing_tool_are_bounded() -> None:
    stand_in = StandIn(calc=[ADD])
    asked: list[ConsentQuestion] = []

    def ask(question: ConsentQuestion) -> bool:
        asked.append(question)
        stand_in.offer("calc", {**ADD, "description": f"Adds, version {len(asked)}."})
        return True

    agent = ToolRouter(stand_in, consent=Consent(ask=ask))
    for called in (
        agent.checked("calc:add", {"a": 1, "b": 2}),
        agent.permitted("calc", "add", {"a": 1, "b": 2}, timeout=5),
    ):
        with pytest.raises(ConsentDenied, match="calc:add is not allowed: it has become another"):
            await called
    assert len(asked) == 6


@pytest.mark.row("26-X1")
@pytest.mark.parametrize(
    ("meta", "is_offered"),
    [
        ({"ui": {"visibility": ["app"]}}, False),
        ({"ui": {"visibility": []}}, False),
        ({"ui": {"visibility": ["app", "model"]}}, True),
        ({"ui": {"resourceUri": "ui://x"}}, True),
        ({"ui": {"visibility": "app"}}, True),
        ({"ui": 3}, True),
        (None, True),
    ],
)
def test_a_tool_that_is_for_an_app_alone_is_unknown_to_models_and_known_to_the_program(
    meta: Any, *, is_offered: bool
) -> None:
    async def main() -> None:
        hidden = ADD if meta is None else {**ADD, "_meta": meta}
        agent = ToolRouter(StandIn(calc=[hidden]))
        assert [one["name"] for one in await agent.to_anthropic()] == ["calc__add"] * is_offered
        assert [one["name"] for one in await agent.list_tools()] == ["calc:add"]
        assert (await agent.find("calc:add")).tool == "add"
        call = {"type": "tool_use", "id": "1", "name": "calc__add", "input": {"a": 1, "b": 2}}
        said = await agent.run(call)
        assert said.get("is_error", False) is not is_offered
        assert ("no tool called" in str(said["content"])) is not is_offered

    run(main())
