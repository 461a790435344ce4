"""A host of servers of both eras: each speaks its own revision, and a program and a model see no difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.client_http.scripted_server import scripted_server

from greenroom import Accepted, BadAnswer, ClientSettings, Context, ElicitationRequest, Host, Server
from greenroom.actors.client.errors import InputRefused
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.transports import HttpRoute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.transports.client_http.scripted_server import ReceivedRequest, ScriptedServer

STATELESS, LEGACY = "2026-07-28", "legacy"
FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def calc(name: str) -> Server:
    server = Server(name)

    @server.tool
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @server.tool
    def split(text: str) -> list[str]:
        return text.split()

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.info("asking")
        answer = await ctx.elicit("How many?", FORM)
        assert isinstance(answer, Accepted)
        return f"{answer.value} {len(await ctx.roots())}"

    @server.resource("note://{id}")
    def note(id: str) -> str:
        return f"note {id}"

    @server.prompt
    def greet(who: str) -> str:
        return f"Hello {who}"

    return server


async def test_a_mode_for_each_server_reaches_its_connection_and_the_status_says_what_is_spoken() -> None:
    modes = {"new": STATELESS, "old": LEGACY, "older": "2025-03-26", "own": "auto"}
    company = calc("calc")
    async with company.started():
        url = await company.listen(port=0)
        specs = {id: UpstreamSpec(HttpRoute(url), settings=ClientSettings(mode=mode)) for id, mode in modes.items()}
        host = Host(specs)
        assert {id: status.revision for id, status in host.status().items()} == {}
        async with host:
            await host.tools()
            assert {id: status.revision for id, status in host.status().items()} == {
                "new": STATELESS,
                "old": "2025-11-25",
                "older": "2025-03-26",
                "own": STATELESS,
            }
            values = [await host.call(f"{id}:add", a=2) for id in modes]
    assert values == [3, 3, "3", 3]  # that old revision has no structured results


async def test_a_server_of_either_era_looks_the_same_to_a_model_and_to_the_program() -> None:
    logged: list[tuple[str, str]] = []

    def at_host(mode: str) -> Host:
        return Host(
            {"calc": calc("calc")},
            settings=ClientSettings(mode=mode),
            elicitation=lambda server, request: {"n": len(request.call_text)},
            roots=lambda server: [f"file:///{server}", "file:///srv"],
            on_log=lambda server, message: logged.append((server, message.data)),
        )

    async def seen(host: Host) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "1", "name": "calc__add", "input": {"a": 2}}
        wrong = {"type": "tool_use", "id": "2", "name": "calc__add", "input": {"a": "x"}}
        return {
            "anthropic": await host.to_anthropic(),
            "openai": await host.to_openai(),
            "gemini": await host.to_gemini(),
            "tools": [(tool.name, tool.input_schema, tool.description) for tool in await host.tools()],
            "templates": [each.uri_template for each in await host.resource_templates()],
            "prompts": [each.name for each in await host.prompts()],
            "results": [await host.run(call), await host.run(wrong)],
            "values": [await host.call("calc:split", text="a b"), await host.call("calc:ask")],
            "note": (await host.read_resource("calc:note://7")).text,
            "prompt": (await host.get_prompt("calc:greet", who="Ada")).messages,
            "state": host.status()["calc"].state,
        }

    async with at_host(STATELESS) as new, at_host(LEGACY) as old:
        first, second = await seen(new), await seen(old)
    assert first == second
    assert first["values"] == [["a", "b"], "{'n': 5} 2"]
    assert first["state"] is UpstreamState.READY


# --- Servers that are scripted, byte for byte.

ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}}
BAD = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}


def stateless(tools: list[Any], info: Mapping[str, Any] | None = None) -> dict[str, Callable[[Any], Awaitable[None]]]:
    """Handlers of a server of the stateless era; `info` is what it says of itself."""
    meta: dict[str, Any] = {} if info is None else {"_meta": {"io.modelcontextprotocol/serverInfo": dict(info)}}
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **meta}

    async def discover(received: ReceivedRequest) -> None:
        await received.result({"supportedVersions": [STATELESS], "capabilities": {"tools": {}}, **hints})

    async def listed(received: ReceivedRequest) -> None:
        await received.result({"tools": tools, **hints})

    async def called(received: ReceivedRequest) -> None:
        await received.result({"content": [{"type": "text", "text": "done"}], "resultType": "complete", **meta})

    return {"server/discover": discover, "tools/list": listed, "tools/call": called}


def handshaking(tools: list[Any], info: Mapping[str, Any]) -> dict[str, Callable[[Any], Awaitable[None]]]:
    """Handlers of a server of the handshake era."""

    async def discover(received: ReceivedRequest) -> None:
        await received.json({"jsonrpc": "2.0", "id": received.id, "error": {"code": -32601, "message": "no"}}, 400)

    async def welcome(received: ReceivedRequest) -> None:
        await received.result(
            {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": dict(info)}
        )

    async def listed(received: ReceivedRequest) -> None:
        await received.result({"tools": tools})

    async def called(received: ReceivedRequest) -> None:
        await received.result({"content": [{"type": "text", "text": "done"}]})

    return {"server/discover": discover, "initialize": welcome, "tools/list": listed, "tools/call": called}


async def used(server: ScriptedServer, handlers: Mapping[str, Callable[[Any], Awaitable[None]]]) -> Any:
    """What a host sees of this server, and what it sends."""
    for method, handler in handlers.items():
        server.on(method, handler)
    async with Host({"calc": server.url}) as host:
        tools = [tool.to_wire() for tool in await host.tools()]
        status = host.status()["calc"]
        value = await host.call("calc:add", a="x")
        seen = (tools, value, status.state, status.revision, dict(status.left_out), repr(host.server("calc")))
    sent = [
        (each.method, each.message, {name: said for name, said in each.headers.items() if name != "host"})
        for each in server.requests
        if each.method == "POST"
    ]
    return seen, sent


@pytest.mark.row("26-P6")
async def test_a_tool_with_an_invalid_header_annotation_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_server() as server:
        (tools, value, *_, left_out, _), _ = await used(server, stateless([ADD, BAD]))
    assert [tool["name"] for tool in tools] == ["calc:add"]
    assert value == "done"
    assert list(left_out) == ["bad"]
    assert "x-mcp-header" in left_out["bad"]
    assert "bad" in caplog.text


NAMES: list[Mapping[str, Any]] = [
    {"name": "greenroom", "version": "1"},
    {"name": "mcp-typescript", "version": "2.4.0", "title": "TypeScript"},
    {"name": "other", "version": "0.0.1-old"},
]


@pytest.mark.row("26-M10")
@pytest.mark.parametrize("era", [stateless, handshaking])
async def test_nothing_that_a_server_says_of_itself_changes_what_a_host_does(era: Any) -> None:
    outcomes: list[Any] = []
    for info in NAMES:
        async with scripted_server() as server:
            outcomes.append(await used(server, era([ADD], info)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.row("26-M10")
async def test_a_server_that_does_not_say_its_name_is_served_as_any_other() -> None:
    async with scripted_server() as named, scripted_server() as nameless:
        assert await used(named, stateless([ADD], NAMES[0])) == await used(nameless, stateless([ADD]))


async def test_a_report_of_a_configured_server_has_its_revision_and_the_tools_that_are_left_out(tmp_path: Any) -> None:
    async with scripted_server() as server:
        for method, handler in stateless([ADD, BAD]).items():
            server.on(method, handler)
        file = tmp_path / "greenroom.toml"
        urls = {"calc": server.url, "gone": "http://127.0.0.1:9/mcp"}
        file.write_text("".join(f'[server.{id}]\ntransport = "http"\nurl = "{url}"\n' for id, url in urls.items()))
        async with Host.from_config(file) as host:
            await host.started()
            await host.tools()
            reports = host.reports()
    assert (reports["calc"].state, reports["calc"].revision) == ("connected", STATELESS)
    assert list(reports["calc"].left_out) == ["bad"]
    assert (reports["gone"].state, reports["gone"].revision, reports["gone"].left_out) == ("failed", "", {})


FORM_ALONE: dict[str, Any] = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.row("26-F9")
@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        (
            "elicitation/create",
            {"mode": "url", "message": "Pay.", "url": "https://a.example/"},
            "needs elicitation.url",
        ),
        ("elicitation/create", {**FORM_ALONE, "mode": "wink"}, "of the mode wink"),
        ("elicitation/create", {"message": "Who?", "requestedSchema": []}, "requestedSchema"),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, "sampling"),
    ],
)
async def test_a_question_that_was_not_declared_ends_its_call_and_reaches_no_user(
    method: str, params: dict[str, Any], why: str
) -> None:
    shown: list[Any] = []
    asked = {
        "resultType": "input_required",
        "requestState": "s",
        "inputRequests": {"q": {"method": method, "params": params}},
    }

    async def called(received: ReceivedRequest) -> None:
        await received.result(asked)

    async with scripted_server() as server:
        for name, handler in {**stateless([ADD]), "tools/call": called}.items():
            server.on(name, handler)
        async with Host({"calc": server.url}, elicitation=lambda _, request: shown.append(request)) as host:
            with pytest.raises((InputRefused, BadAnswer), match=why):
                await host.call("calc:add", a="x")
        assert len(server.seen("tools/call")) == 1
    assert shown == []


@pytest.mark.row("26-F9")
async def test_a_question_without_a_mode_is_a_form_with_the_call_that_it_is_of() -> None:
    texts: list[str] = []
    asked = {
        "resultType": "input_required",
        "requestState": "s",
        "inputRequests": {"q": {"method": "elicitation/create", "params": FORM_ALONE}},
    }

    async def called(received: ReceivedRequest) -> None:
        answered = received.message["params"].get("inputResponses")
        done = {"resultType": "complete", "content": [{"type": "text", "text": str(answered)}]}
        await received.result(asked if answered is None else done)

    def decline(server: str, request: ElicitationRequest) -> bool:
        texts.append(f"{server}: {request.call_text}")
        return False

    async with scripted_server() as server:
        for name, handler in {**stateless([ADD]), "tools/call": called}.items():
            server.on(name, handler)
        async with Host({"calc": server.url}, elicitation=decline) as host:
            assert await host.call("calc:add", a="x") == "{'q': {'action': 'decline'}}"
    assert texts == ["calc: add(a='x')"]
