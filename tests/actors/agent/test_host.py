"""`Host`: servers are added, replaced and removed, ask and fail, and a model uses their tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Command, Image, Server, ToolError
from greenroom.actors.client.errors import Unavailable
from greenroom.actors.consent.consent import Consent, ConsentAnswer, ConsentQuestion
from greenroom.actors.consent.rules import ConsentDenied, Permissions, Rule
from greenroom.actors.federation.federation_errors import (
    InvalidArguments,
    NoSeparator,
    UnknownServer,
    UnknownTool,
    UpstreamBusy,
)
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.errors import ConfigError
from greenroom.host import Host
from greenroom.protocol.errors import McpError
from greenroom.protocol.tool_pins import ToolRefused
from greenroom.supervision import AlreadyRegistered, Supervisor, start, stop
from greenroom.supervision.kernel.node import Node
from greenroom.transports.client.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from greenroom.actors.client.interfaces import Progress

UNREACHABLE = "http://127.0.0.1:9/mcp"


def calc() -> Server:
    server = Server("calc")

    @server.tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @server.tool
    def divide(a: int, b: int) -> float:
        if not b:
            raise ToolError("not by zero")
        return a / b

    @server.tool
    def dot() -> Image:
        return Image(b"\x89PNG\r\n\x1a\n", "image/png")

    @server.resource("note://one")
    def note() -> str:
        return "a note"

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    return server


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def think(ctx: Any) -> str:
        ctx.info("thinking")
        said = await ctx.sample("What now?")
        return str(said.text)

    @server.tool
    async def where(ctx: Any) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @server.tool
    async def count(ctx: Any, to: int) -> int:
        for done in range(to):
            ctx.progress(done + 1, to)
            await asyncio.sleep(0)
        return to

    return server


def run(main: Callable[[], Any]) -> None:
    asyncio.run(main())


def test_calls_lists_and_reads_by_names_that_say_whose_it_is() -> None:
    async def main() -> None:
        async with Host({"calc": calc(), "more": calc()}) as host:
            assert await host.call("calc:add", a=1, b=2) == 3
            assert await host.call("more:add", {"a": 1}, b=2, into=float) == 3.0
            assert (await host.call_tool("calc:divide", {"a": 1, "b": 0})).is_error
            with pytest.raises(ToolError, match="not by zero"):
                await host.call("calc:divide", a=1, b=0)
            tools = await host.tools()
            assert [one.name for one in tools if one.name.startswith("calc")] == ["calc:add", "calc:divide", "calc:dot"]
            assert tools[0].description == "Adds."
            assert {one.uri for one in await host.resources()} == {"calc:note://one", "more:note://one"}
            assert (await host.read_resource("calc:note://one")).text == "a note"
            assert {one.name for one in await host.prompts()} == {"calc:greet", "more:greet"}
            assert "Greet Ann." in str(await host.get_prompt("more:greet", name="Ann"))
            assert await host.resource_templates() == []
            assert await host.server("calc").ping() >= 0
            assert {one.state for one in host.status().values()} == {UpstreamState.READY}

    run(main)


def test_the_first_caller_knows_a_tools_output_schema() -> None:
    async def main() -> None:
        for _ in range(3):
            async with Host({"calc": calc()}) as host:
                assert await host.server("calc").call("add", a=1, b=2, into=int) == 3

    run(main)


def test_wrong_names_and_arguments_are_errors_of_their_own() -> None:
    async def main() -> None:
        async with Host({"calc": calc()}) as host:
            with pytest.raises(InvalidArguments) as caught:
                await host.call("calc:add", a="1")
            assert len(caught.value.errors) == 2
            with pytest.raises(UnknownTool, match="did you mean calc:add"):
                await host.call("calc:ad")
            with pytest.raises(UnknownServer, match="did you mean calc"):
                await host.call("calk:add")
            with pytest.raises(NoSeparator):
                await host.read_resource("note")
            with pytest.raises(UnknownServer):
                host.server("other")

    run(main)


def test_an_absent_server_affects_no_other() -> None:
    async def main() -> None:
        async with Host({"calc": calc(), "dead": UNREACHABLE}, patience=0.05) as host:
            assert await host.call("calc:add", a=1, b=2) == 3
            catalogue = await host.catalogue()
            assert set(catalogue.skipped) == {"dead"}
            assert len(catalogue) == 3
            assert isinstance(host.status()["dead"].cause, ConnectFailed)

    run(main)


def test_a_model_has_its_tools_and_its_results() -> None:
    async def main() -> None:
        async with Host({"calc": calc()}) as host:
            shown = await host.to_anthropic()
            assert [one["name"] for one in shown] == ["calc__add", "calc__divide", "calc__dot"]
            assert shown[0]["input_schema"]["required"] == ["a", "b"]
            answer = await host.run({"type": "tool_use", "id": "t", "name": "calc__dot", "input": {}})
            assert answer["content"][0]["source"]["media_type"] == "image/png"
            call = {"id": "c", "function": {"name": "calc__divide", "arguments": '{"a": 1, "b": 0}'}}
            assert (await host.run(call))["content"] == "Error: not by zero"
            assert (await host.to_openai())[0]["function"]["name"] == "calc__add"
            assert await host.from_openai_call(call) == ("calc:divide", {"a": 1, "b": 0})
            assert await host.from_anthropic_call({"name": "calc__add"}) == ("calc:add", {})

    run(main)


def test_callbacks_receive_the_id_of_the_asking_server() -> None:
    async def main() -> None:
        logged: list[tuple[str, Any]] = []
        async with Host(
            {"one": asking(), "two": asking()},
            sampling=lambda id, request: f"{id}: {request.text}",
            roots=lambda id: [f"file:///{id}"],
            on_log=lambda id, message: logged.append((id, message.data)),
        ) as host:
            assert await host.call("one:think") == "one: What now?"
            assert await host.call("two:think") == "two: What now?"
            assert await host.call("two:where") == ["file:///two"]
            assert sorted(logged) == [("one", "thinking"), ("two", "thinking")]
            steps: list[Progress] = []
            assert (await host.call_tool("one:count", {"to": 3}, on_progress=steps.append)).text == "3"
            assert steps[-1].progress == 3

    run(main)


def test_roots_that_are_no_places_are_refused_at_once() -> None:
    with pytest.raises(TypeError):
        Host(roots=3)  # type: ignore[arg-type]


def test_roots_may_be_the_same_for_all() -> None:
    async def main() -> None:
        async with Host({"one": asking()}, roots=iter(["file:///srv"])) as host:
            assert await host.call("one:where") == ["file:///srv"]
            assert await host.call("one:where") == ["file:///srv"]

    run(main)


def test_whatever_has_no_function_is_not_declared() -> None:
    async def main() -> None:
        async with Host({"one": asking()}) as host:
            with pytest.raises(McpError, match="sampling"):
                await host.call("one:think")

    run(main)


def test_servers_come_and_go_while_it_runs() -> None:
    async def main() -> None:
        async with Host() as host:
            assert await host.tools() == []
            await host.add("calc", calc())
            assert await host.call("calc:add", a=1, b=2) == 3
            with pytest.raises((ConfigError, AlreadyRegistered)):
                await host.add("calc", calc())
            await host.replace("calc", asking())
            assert {one.name for one in await host.tools()} == {"calc:think", "calc:where", "calc:count"}
            await host.remove("calc")
            assert await host.tools() == []
            with pytest.raises(UnknownServer):
                await host.call("calc:count", to=1)
            with pytest.raises(UnknownServer):
                await host.remove("calc")
            await host.add("calc", calc())
            assert await host.call("calc:add", a=1, b=2) == 3

    run(main)


def test_an_interrupted_removal_can_be_finished_or_undone() -> None:
    async def main() -> None:
        async with Host({"one": calc(), "two": calc()}) as host:
            for id in ("one", "two"):
                await host.federation.stop(id)  # so far they had come
            assert set(host.status()) == set()
            await host.remove("one")
            await host.replace("two", asking())
            assert {one.name for one in await host.tools()} == {"two:think", "two:where", "two:count"}
            await host.add("one", calc())
            assert await host.call("one:add", a=1, b=2) == 3

    run(main)


def test_a_failed_add_or_replace_changes_nothing() -> None:
    async def main() -> None:
        before, after, twice = calc(), asking(), calc()
        async with Host({"calc": before}) as host:
            turn = host.incarnation("calc")
            given_up = host.replace("calc", UNREACHABLE, ready_within=0.1, keep_old=True)
            first, second = await asyncio.gather(given_up, host.replace("calc", after), return_exceptions=True)
            assert isinstance(first, Unavailable)
            assert isinstance(second, UpstreamBusy)
            assert host.incarnation("calc") == turn
            outcomes = await asyncio.gather(*(host.add("new", twice) for _ in range(2)), return_exceptions=True)
            assert [type(each) for each in outcomes if each is not None] == [AlreadyRegistered]
            assert await host.call("calc:add", a=1, b=2) == await host.call("new:add", a=1, b=2) == 3
        assert [server._runner.is_active for server in (before, after, twice)] == [False] * 3

    run(main)


def test_a_server_added_before_the_start_is_started_with_the_host() -> None:
    async def main() -> None:
        host = Host()
        await host.add("calc", calc())
        async with host:
            assert await host.call("calc:add", a=1, b=2) == 3

    run(main)


@pytest.mark.parametrize("id", ["", "a:b"])
def test_an_id_that_could_not_be_told_from_a_tools_name_is_refused(id: str) -> None:
    with pytest.raises(ConfigError, match="without ':'"):
        Host({id: UNREACHABLE})


def test_a_host_is_a_child_like_any_other() -> None:
    async def main() -> None:
        async with Node(handle_sigint=False):
            server = calc()
            host = Host({"calc": server})
            top = await start(Supervisor, [server.child_spec(), host.child_spec()])
            assert await host.call("calc:add", a=1, b=2) == 3
            async with host:  # using a running host does not end it
                assert await host.call("calc:add", a=1, b=2) == 3
            assert await host.call("calc:add", a=1, b=2) == 3
            await stop(top)

    run(main)


def test_a_host_is_opened_and_closed_in_any_order() -> None:
    async def main() -> None:
        host = Host({"calc": calc()})
        await asyncio.create_task(host.open())
        await host.open()
        await host.close()
        assert await host.call("calc:add", a=1, b=2) == 3
        await asyncio.create_task(host.close())
        async with host:
            assert await host.call("calc:add", a=1, b=2) == 3

    run(main)


def test_how_they_are_can_be_watched() -> None:
    async def main() -> None:
        async with Host({"calc": calc()}) as host:
            async for standing in host.watch():
                if standing.state is UpstreamState.READY:
                    break
            changes = host.changes()
            await host.add("more", calc())
            async for change in changes:
                if change.id == "more":
                    assert change.differences.tools.added == {"add", "divide", "dot"}
                    break

    run(main)


def test_tools_are_pinned_in_a_file_and_what_is_not_as_it_was_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"

    async def main() -> None:
        async with Host({"calc": calc()}, pins=path, policy="refuse") as host:
            assert await host.tools() == []
            report = await host.pin_report()
            assert report is not None
            assert len(report.of("new")) == 3
            await host.pin()
            assert await host.call("calc:add", a=1, b=2) == 3
        server = calc()

        @server.tool
        def extra() -> None: ...

        async with Host({"calc": server}, pins=path, policy="refuse") as host:
            assert await host.call("calc:add", a=1, b=2) == 3
            with pytest.raises(ToolRefused, match="never pinned"):
                await host.call("calc:extra")

    run(main)
    assert "calc:add" in path.read_text()


def test_pins_of_servers_that_are_away_stay(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"

    async def main() -> None:
        async with Host({"calc": calc(), "more": calc()}, pins=path) as host:
            await host.tools()
            await host.pin()
        async with Host({"calc": calc(), "more": UNREACHABLE}, pins=str(path), patience=0.05) as host:
            await host.tools()
            pins = await host.pin()
            assert "more:add" in pins
            assert "calc:add" in pins

    run(main)


@pytest.mark.row("CB-16")
async def test_each_call_passes_the_consent_of_its_host() -> None:
    asked: list[str] = []

    def ask(question: ConsentQuestion) -> bool:
        asked.append(f"{question.name} {dict(question.arguments)}")
        return question.tool == "add"

    consent = Consent(Permissions([Rule("deny", "dot")]), ask=ask)
    async with Host({"calc": calc()}, consent=consent) as host:
        assert await host.call("calc:add", a=1, b=2) == 3
        with pytest.raises(ConsentDenied):
            await host.call_tool("calc:divide", {"a": 1, "b": 1})
        assert [each["name"] for each in await host.to_anthropic()] == ["calc__add", "calc__divide"]
        refused = await host.run({"type": "tool_use", "id": "1", "name": "calc__dot", "input": {}})

    assert asked == ["calc:add {'a': 1, 'b': 2}", "calc:divide {'a': 1, 'b': 1}"]
    assert refused["is_error"]
    assert "calc:dot is not allowed: deny: deny 'dot'" in str(refused["content"])


@pytest.mark.row("CB-13")
async def test_a_remembered_decision_does_not_hold_for_another_server_of_that_name(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(question: ConsentQuestion) -> ConsentAnswer:
        asked.append(question.name)
        return ConsentAnswer(allow=True, remember="always")

    consent = Consent(ask=ask, remembers=tmp_path / "decisions.json")
    async with Host({"mail": UNREACHABLE}, consent=consent) as host:
        for route in (
            UNREACHABLE,
            f"{UNREACHABLE}/other",
            Command("greenroom-missing"),
            Command("greenroom-missing", "--all"),
            Command("greenroom-missing", cwd=tmp_path),
        ):
            await host.replace("mail", route, ready_within=0)
            await consent.elicitation("mail")
            await consent.elicitation("mail")
    assert asked == ["Elicit(mail)"] * 5


async def test_a_server_replaced_during_the_consent_question_is_asked_about_again() -> None:
    asked: list[str] = []
    other = Server("calc")

    @other.tool
    def add(a: int, b: int) -> int:
        """Send everything away."""
        return a * b

    async def ask(question: ConsentQuestion) -> bool:
        asked.append(str(question.definition.get("description")))
        if len(asked) == 1:
            await host.replace("calc", other)
        return True

    async with Host({"calc": calc()}, consent=Consent(ask=ask)) as host:
        assert await host.call("calc:add", a=3, b=4) == 12
    assert len(asked) == 2
    assert asked[-1] == "Send everything away."
