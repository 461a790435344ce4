"""The `Server` facade: what its decorators and methods register, and what clients see of it."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest

import greenroom
from greenroom import (
    Accepted,
    Context,
    Hooks,
    McpError,
    PromptOptions,
    RegistrationError,
    ResourceOptions,
    Server,
    Settings,
    TemplateOptions,
    ToolOptions,
)
from greenroom import decorators as words
from greenroom.actors import handler_options as options
from greenroom.actors.company import UnknownSession
from greenroom.actors.server_registry import ServerRegistry
from greenroom.protocol.errors import PeerError
from greenroom.supervision import (
    CallTimeout,
    ChildNotFound,
    Supervisor,
    kill,
    receive,
    register,
    spawn,
    start,
    stop,
    whereis,
)
from greenroom.transports.listening_sockets import CannotListen
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import Callable


def nothing() -> str:
    return ""


def double(n: int) -> int:
    return 2 * n


def same_again(value: str) -> list[str]:
    return [value]


# --- decorators


async def test_a_function_with_a_decorator_is_a_tool() -> None:
    server = Server("x", version="2", title="An X", instructions="Try it.")

    @server.tool
    async def echo(text: str) -> str:
        """Say it again.

        Args:
            text: What to say.
        """
        return text

    async with server.started() as company, WireProbe(company) as probe:
        assert probe.welcome["serverInfo"] == {"name": "x", "version": "2", "title": "An X"}
        assert probe.welcome["instructions"] == "Try it."
        [tool] = (await probe.request("tools/list"))["tools"]
        assert tool["name"] == "echo"
        assert tool["description"] == "Say it again."
        assert tool["inputSchema"]["properties"]["text"] == {"type": "string", "description": "What to say."}
        assert (await probe.call("echo", text="hello"))["content"] == [{"type": "text", "text": "hello"}]


def test_a_decorator_gives_the_function_back_unchanged() -> None:
    server = Server("x")

    def function(city: str) -> str:
        return city

    assert server.tool(function) is function
    assert server.tool("other", title="Other")(function) is function
    assert server.prompt(function) is function
    assert server.prompt("other")(function) is function
    assert server.resource("weather://{city}")(function) is function
    assert server.completion("city", prompt="function")(same_again) is same_again
    assert vars(function) == {}


async def test_clients_see_the_options_of_a_decorator() -> None:
    server = Server("x")

    @server.tool(
        "add",
        title="Add",
        description="Adds.",
        icons=[greenroom.Icon("https://example.org/a.png")],
        annotations=greenroom.ToolAnnotations(read_only_hint=True),
        meta={"example.org/kind": "sum"},
    )
    async def add(a: int, b: int) -> int:
        return a + b

    @server.resource("config://app", "settings", mime_type="application/json", size=2)
    async def config() -> dict[str, int]:
        return {}

    @server.resource("files://{path}", segments=True)
    async def files(path: str) -> str:
        return path

    @server.prompt("pack", arguments=[greenroom.PromptArgument("city", description="Where to")])
    async def pack_for(city: str = "") -> str:
        return city

    async with server.started() as company, WireProbe(company) as probe:
        [tool] = (await probe.request("tools/list"))["tools"]
        assert (tool["name"], tool["title"], tool["description"]) == ("add", "Add", "Adds.")
        assert tool["icons"] == [{"src": "https://example.org/a.png"}]
        assert tool["annotations"] == {"readOnlyHint": True}
        assert tool["_meta"] == {"example.org/kind": "sum"}
        [resource] = (await probe.request("resources/list"))["resources"]
        assert resource == {"uri": "config://app", "name": "settings", "mimeType": "application/json", "size": 2}
        with pytest.raises(PeerError):
            await probe.request("resources/read", {"uri": "files://a/b"})
        [prompt] = (await probe.request("prompts/list"))["prompts"]
        assert prompt["arguments"] == [{"name": "city", "description": "Where to"}]


@pytest.mark.row("RG-23")
def test_a_name_that_is_taken_is_refused() -> None:  # G-26
    server = Server("x")

    @server.tool
    def same() -> str:
        return "first"

    with pytest.raises(RegistrationError, match="there is a tool 'same' already"):
        server.tool("same")(nothing)
    server.prompt("same")(nothing)  # a prompt is no tool
    with pytest.raises(RegistrationError, match="there is a prompt 'same' already"):
        server.prompt("same")(nothing)
    server.resource("a://b", "same")(nothing)
    with pytest.raises(RegistrationError, match="there is a resource 'same' already"):
        server.resource("a://c", "same")(nothing)
    with pytest.raises(RegistrationError, match="is at a://b already"):
        server.resource("a://b", "other")(nothing)
    server.completion("x", prompt="same")(same_again)
    with pytest.raises(RegistrationError, match="already"):
        server.completion("x", prompt="same")(same_again)


WRONG: list[tuple[Callable[[Server], object], str]] = [
    (lambda s: s.tool(lambda: None), "has no name: give it one"),
    (lambda s: s.resource(cast("str", nothing)), r'write @server.resource\("config://app"\)'),
    (lambda s: s.completion("a"), "give either prompt=… "),
    (lambda s: s.completion("a", prompt="b", template="c://{d}"), "give either prompt=… "),
    (lambda s: s.resource("a://{n}", "n", size=3)(double), "size is not an option here"),
    (lambda s: s.resource("a://b", "n", segments=True)(nothing), "segments is not an option here"),
    (lambda s: s.tool("n", isolation="process")(lambda: 1), "a lambda has no name"),
    (lambda s: s.tool("n", input_schema={"type": "array"})(nothing), "input_schema"),
    (lambda s: s.tool("not a name")(nothing), "letters .*digits"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_invalid_registrations_are_refused(wrong: Callable[[Server], object], why: str) -> None:
    with pytest.raises(RegistrationError, match=why):
        wrong(Server("x"))


def test_an_unknown_decorator_option_is_refused() -> None:
    with pytest.raises(RegistrationError, match="nonsense"):
        cast("Any", Server("x")).tool("n", nonsense=1)(nothing)


MEANT: list[tuple[type, list[Any]]] = [
    (words.ToolKeywords, [options.ToolOptions]),
    (words.ResourceKeywords, [options.ResourceOptions, options.TemplateOptions]),
    (words.PromptKeywords, [options.PromptOptions]),
    (words.CompletionKeywords, [options.CompletionOptions]),
]


@pytest.mark.parametrize(("typed", "meant"), MEANT)
def test_type_checkers_know_every_option(typed: type, meant: list[Any]) -> None:
    fields = {field.name for each in meant for field in dataclasses.fields(each)}
    assert set(typed.__annotations__) == fields - {"uri", "uri_template"}


# --- explicit


async def test_every_kind_can_be_registered_while_the_server_runs() -> None:
    server = Server("x")
    async with server.started() as company, WireProbe(company) as probe:
        registry = server.registry
        registry.register_tool("add", double, ToolOptions(description="Doubles."))
        registry.register_resource("r", nothing, ResourceOptions(uri="a://one"))
        registry.register_resource_template("t", double, TemplateOptions(uri_template="b://{n}"))
        registry.register_prompt("p", nothing, PromptOptions(title="P"))
        registry.register_completion(("prompt", "p", "x"), same_again)
        for kind in ("tools", "resources", "prompts"):
            await probe.wait_for_notifications(f"notifications/{kind}/list_changed")
        assert (await probe.call("add", n=2))["structuredContent"] == {"result": 4}
        read = await probe.request("resources/read", {"uri": "b://7"})
        assert read["contents"][0]["text"] == "14"

        registry.register_tool("add", lambda: "replaced")
        assert (await probe.call("add"))["content"][0]["text"] == "replaced"
        with pytest.raises(RegistrationError):
            registry.register_tool("add", lambda: "again", replace=False)

        assert registry.unregister_tool("add")
        assert not registry.unregister_tool("add")
        assert registry.unregister_resource("r")
        assert registry.unregister_resource_template("t")
        assert registry.unregister_completion(("prompt", "p", "x"))
        assert registry.unregister_prompt("p")
        assert (await probe.request("tools/list"))["tools"] == []
        with pytest.raises(PeerError):
            await probe.call("add")
        assert registry.catalogue.count("tool") == 0


@pytest.mark.greenroom(clock="real")
async def test_a_thread_may_register_too() -> None:
    server = Server("x")
    async with server.started() as company, WireProbe(company) as probe:
        thread = threading.Thread(target=lambda: server.tool("late")(lambda: "here"))
        thread.start()
        await probe.wait_for_notifications("notifications/tools/list_changed")
        thread.join()
        assert (await probe.call("late"))["content"][0]["text"] == "here"


@pytest.mark.row("RG-30")
async def test_the_registry_of_the_company_has_short_words() -> None:
    server = Server("x")
    async with server.started() as company:
        await company.registry.reg("double", double)
        assert await company.registry.run("double", {"n": 4}) == 8
        assert [name for name, _ in company.registry.all()] == ["double"]
        assert company.registry.find("double") is not None
        assert await company.registry.unreg("double")
        assert company.registry.find("double") is None
    assert isinstance(company.registry, ServerRegistry)


# --- settings


@pytest.mark.row("OP-01")
async def test_settings_are_a_value_that_is_passed() -> None:
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def changed(params: Any, facts: Any) -> None:
        heard.set_result(facts.session_id)

    settings = Settings(name="ignored", version="7", session_idle=60, instructions="from the settings")
    one = Server("one", settings=settings, hooks=Hooks(roots_changed=changed))
    other = Server("other")
    assert (one.settings.name, one.settings.version, one.settings.instructions) == ("one", "7", "from the settings")
    assert other.settings.session_idle == 1800
    assert Settings().name == "greenroom"
    async with one.started() as company, WireProbe(company, capabilities={"roots": {"listChanged": True}}) as probe:
        await probe.notify("notifications/roots/list_changed")
        assert await heard == (await one.peers.all())[0].id


@pytest.mark.row("OP-01")
@pytest.mark.row("RG-02")
async def test_the_servers_registry_waits_for_wait_for() -> None:
    async with Server("x", wait_for="the database").started() as company:
        with pytest.raises(CallTimeout):
            await company.registry.ready(1)
        database = spawn(_be_the_database)
        await company.registry.ready(1)
        kill(database)


async def _be_the_database() -> None:
    register("the database")
    await receive()


@pytest.mark.row("ST-25")
async def test_call_timeout_and_log_level_are_settings() -> None:
    server = Server("x", settings=Settings(call_timeout=3, log_level="error"))

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.cancelled.wait()
        return ""

    @server.tool
    async def chatty(ctx: Context) -> str:
        return f"{bool(ctx.info('no'))} {bool(ctx.error('yes'))}"

    async with server.started() as company, WireProbe(company) as probe:
        await probe.call("chatty")
        assert [each["data"] for each in probe.notifications("notifications/message")] == ["yes"]
        reply = await probe.call("slow")
        assert reply["isError"]
        assert "timed out" in reply["content"][0]["text"]


# --- where it lives


@pytest.mark.row("ST-23")
async def test_a_whole_company_is_a_child_and_two_share_no_names() -> None:
    one, two = Server("same"), Server("same")
    one.tool("who")(lambda: "one")
    two.tool("who")(lambda: "two")
    top = await start(Supervisor, [one.child_spec(), two.child_spec()])
    async with WireProbe(one.company) as first, WireProbe(two.company) as second:
        said = [(await probe.call("who"))["content"][0]["text"] for probe in (first, second)]
        assert said == ["one", "two"]
        assert whereis(one.company.name("company")) != whereis(two.company.name("company"))
        two.tool("new")(nothing)
        await second.wait_for_notifications("notifications/tools/list_changed")
        assert first.notifications("notifications/tools/list_changed") == []
    await stop(top)
    assert whereis(one.company.name("company")) is None


async def test_a_server_can_be_started_again_and_forgets_nothing_that_was_registered() -> None:
    server = Server("x")
    server.tool("who")(lambda: "me")
    for _ in range(2):
        async with server.started() as company, WireProbe(company) as probe:
            assert (await probe.call("who"))["content"][0]["text"] == "me"


async def test_a_program_with_a_loop_is_told_what_to_write_instead() -> None:
    with pytest.raises(RuntimeError, match=r"async with server.started\(\)"):
        Server("x").run()


async def test_a_server_that_is_forgotten_is_collected() -> None:
    server = Server("x")
    async with server.started() as company, WireProbe(company) as probe:
        await probe.request("ping")
    gone = weakref.ref(server)
    del server, company, probe
    gc.collect()
    assert gone() is None


# --- peers


@pytest.mark.row("SC-05")
@pytest.mark.row("SC-06")
@pytest.mark.row("SC-07")
async def test_a_peer_can_be_asked_out_of_any_call() -> None:
    server = Server("x")

    @dataclasses.dataclass
    class Form:
        name: str

    answers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "sampling/createMessage": lambda params: {
            "role": "assistant",
            "model": "m",
            "content": {"type": "text", "text": f"to {params['messages'][0]['content']['text']}"},
        },
        "elicitation/create": lambda _: {"action": "accept", "content": {"name": "Ada"}},
        "roots/list": lambda _: {"roots": [{"uri": "file:///home"}]},
    }
    able: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
    async with server.started() as company, WireProbe(company, capabilities=able, answers=answers):
        [card] = await server.peers.able_to("sampling")
        peer = server.session(card.id)
        assert peer.session_id == card.id
        assert peer.client_info["name"] == "probe"
        assert (await peer.sample("hello")).content["text"] == "to hello"
        assert await peer.elicit("Who?", Form) == Accepted(Form("Ada"))
        assert [root.uri for root in await peer.roots()] == ["file:///home"]


@pytest.mark.row("SC-08")
async def test_a_peer_is_not_asked_for_what_it_cannot_do() -> None:
    server = Server("x")
    async with server.started() as company, WireProbe(company) as probe:
        [card] = await server.peers.all()
        assert await server.peers.able_to("sampling") == []
        with pytest.raises(McpError, match="sampling"):
            await server.session(card.id).sample("hello")
        assert [each for each in probe.received if "method" in each] == []
    async with server.started():
        with pytest.raises(UnknownSession):
            server.session(card.id)


@pytest.mark.row("SE-21")
async def test_one_session_or_all_can_be_notified() -> None:
    server = Server("x")
    async with server.started() as company, WireProbe(company) as one, WireProbe(company) as other:
        assert await server.broadcast("notifications/example", {"n": 1}) == 2
        for probe in (one, other):
            assert await probe.wait_for_notifications("notifications/example") == [{"n": 1}]
        first, _ = await server.peers.all()
        assert server.session(first.id).log("error", "only you")
        assert server.session(first.id).notify("notifications/example", {"n": 2})
        assert not server.session(first.id).interrupt_stream()
        assert (await one.wait_for_notifications("notifications/message"))[0]["data"] == "only you"
        assert await one.wait_for_notifications("notifications/example", 2) == [{"n": 1}, {"n": 2}]
        assert len(other.notifications("notifications/example")) == 1
        server.notify_list_changed("prompt")
        await other.wait_for_notifications("notifications/prompts/list_changed")


# --- listening for a while


@pytest.mark.row("ST-01")
@pytest.mark.greenroom(clock="real")
async def test_http_and_a_channel_serve_the_same_and_each_can_be_stopped() -> None:
    server = Server("x")
    server.tool("double")(double)
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    accept = {"accept": "application/json, text/event-stream"}
    async with server.started() as company, WireProbe(company) as probe, httpx.AsyncClient() as client:
        assert server.urls == []
        url = await server.listen(port=0)
        assert server.urls == [url]
        with pytest.raises(CannotListen):
            await server.listen(port=int(url.split(":")[2].split("/")[0]))
        begun = await client.post(url, json=hello, headers=accept)
        accept["mcp-session-id"] = begun.headers["mcp-session-id"]
        await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=accept)
        listed = await client.post(url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=accept)
        assert listed.json()["result"] == await probe.request("tools/list")
        await server.stop_listening(url)
        assert server.urls == []
        with pytest.raises(httpx.ConnectError):
            await client.post(url, json=hello, headers=accept)
        with pytest.raises(ChildNotFound):
            await server.stop_listening(url)
        assert (await probe.call("double", n=2))["isError"] is False
