"""A server as a class: decorated methods, methods that answer themselves, and a state for each session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import (
    Client,
    Context,
    Hooks,
    McpError,
    McpServer,
    RegistrationError,
    Settings,
    ToolError,
    completion,
    prompt,
    resource,
    tool,
)
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.errors import PeerError
from greenroom.supervision import CrashReport
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from greenroom.supervision.testing import CollectedReports


@dataclass
class Desk:
    drawer: str
    calls: int = 0


class Office(McpServer):
    """Decorated methods only."""

    name = "office"
    version = "3"
    instructions = "Knock first."

    async def init(self, arg: str) -> Desk:
        return Desk(arg)

    @tool
    async def count(self, ctx: Context) -> int:
        """How often it was called."""
        ctx.state.calls += 1
        return ctx.state.calls  # type: ignore[no-any-return]

    @tool("drawer", title="The drawer")
    def what_is_in_the_drawer(self, ctx: Context) -> str:
        return f"{ctx.state.drawer}, {type(self).__name__}"

    @resource("office://plan")
    def plan(self) -> str:
        return "rooms"

    @resource("office://rooms/{number}")
    async def room(self, ctx: Context, number: str) -> str:
        return f"room {number} at {ctx.uri}"

    @prompt
    def letter(self, to: str) -> str:
        return f"Write to {to}."

    @completion("to", prompt="letter")
    def principal(self, value: str) -> list[str]:
        return [each for each in ("Ada", "Alan") if each.startswith(value)]


@pytest.mark.row("RG-22")
async def test_decorated_methods_are_what_it_offers() -> None:
    async with Office.server("keys").started() as company, WireProbe(company) as probe:
        assert probe.welcome["serverInfo"] == {"name": "office", "version": "3"}
        assert probe.welcome["instructions"] == "Knock first."
        tools = {each["name"]: each for each in (await probe.request("tools/list"))["tools"]}
        assert tools.keys() == {"count", "drawer"}
        assert tools["count"]["description"] == "How often it was called."
        assert tools["count"]["inputSchema"].get("properties", {}) == {}
        assert tools["drawer"]["title"] == "The drawer"
        assert (await probe.call("drawer"))["content"][0]["text"] == "keys, Office"
        [listed] = (await probe.request("resources/list"))["resources"]
        assert (listed["uri"], listed["name"]) == ("office://plan", "plan")
        read = await probe.request("resources/read", {"uri": "office://rooms/12"})
        assert read["contents"][0]["text"] == "room 12 at office://rooms/12"
        said = await probe.request("prompts/get", {"name": "letter", "arguments": {"to": "Ada"}})
        assert said["messages"][0]["content"]["text"] == "Write to Ada."
        ref = {"type": "ref/prompt", "name": "letter"}
        done = await probe.request("completion/complete", {"ref": ref, "argument": {"name": "to", "value": "A"}})
        assert done["completion"]["values"] == ["Ada", "Alan"]


@pytest.mark.row("RG-26")
async def test_each_session_has_a_state_of_its_own() -> None:
    async with Office.server("keys").started() as company, WireProbe(company) as one, WireProbe(company) as other:
        counts = [(await probe.call("count"))["structuredContent"]["result"] for probe in (one, one, other, one)]
        assert counts == [1, 2, 1, 3]


@pytest.mark.row("RG-26")
async def test_an_init_that_fails_is_no_session(reports: CollectedReports) -> None:
    class Locked(McpServer):
        async def init(self, arg: Any) -> None:
            raise RuntimeError("the door is locked")

    async with Locked.server().started() as company, WireProbe(company, greet=False) as probe:
        with pytest.raises(PeerError) as refused:
            await probe.initialize()
        assert refused.value.code == -32603
        assert "locked" not in refused.value.message
        await reports.expect(CrashReport)


@pytest.mark.row("RG-26")
async def test_an_init_may_refuse_with_a_reason() -> None:
    class Closed(McpServer):
        async def init(self, arg: Any) -> None:
            raise McpError(-32001, f"closed until {arg}")

    async with Closed.server("nine").started() as company, WireProbe(company, greet=False) as probe:
        with pytest.raises(PeerError, match="closed until nine"):
            await probe.initialize()


class Archive(McpServer):
    """One decorated method of each kind, and callbacks for everything else."""

    def __init__(self) -> None:
        self.levels: list[str] = []
        self.watched: list[tuple[str, str]] = []

    @tool
    async def known(self) -> str:
        return "decorated"

    async def list_tools(self, cursor: str | None, ctx: Context) -> Any:
        if cursor is None:
            return [Tool("first", {"type": "object"})], "more"
        return [{"name": f"after-{cursor}", "inputSchema": {"type": "object"}}]

    async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        if name == "fails":
            raise ToolError("it failed")
        if not name.startswith(("first", "after")):
            raise McpError(-32602, f"Unknown tool: {name}")
        await ctx.progress(1)
        return {"called": name, "with": arguments, "by": ctx.name}

    @resource("archive://index")
    def index(self) -> str:
        return "decorated"

    async def list_resources(self, cursor: str | None, ctx: Context) -> Any:
        return [Resource("archive://1", "one")]

    async def list_resource_templates(self, cursor: str | None, ctx: Context) -> Any:
        return [ResourceTemplate("archive://{id}", "any")]

    async def read_resource(self, uri: str, ctx: Context) -> Any:
        return f"{uri} in full"

    async def subscribe_resource(self, uri: str, ctx: Context) -> None:
        if uri == "archive://secret":
            raise McpError(-32602, "not that one")
        self.watched.append(("on", uri))

    async def unsubscribe_resource(self, uri: str, ctx: Context) -> None:
        self.watched.append(("off", uri))

    @prompt
    def ask(self) -> str:
        return "decorated"

    async def list_prompts(self, cursor: str | None, ctx: Context) -> Any:
        return [Prompt("other")]

    async def get_prompt(self, name: str, arguments: dict[str, str], ctx: Context) -> Any:
        return f"{name} of {arguments}"

    async def complete(self, ref: dict[str, Any], argument: dict[str, str], ctx: Context) -> Any:
        return [argument["value"] + "!"]

    async def set_log_level(self, level: str) -> None:
        if level == "emergency":
            raise McpError(-32602, "stay calm")
        self.levels.append(level)


@pytest.mark.row("RG-25")
async def test_undecorated_methods_are_answered_by_the_callbacks() -> None:
    async with Archive.server().started() as company, WireProbe(company) as probe:
        page = await probe.request("tools/list")
        assert [each["name"] for each in page["tools"]] == ["known", "first"]
        assert page["nextCursor"] == "more"
        page = await probe.request("tools/list", {"cursor": "more"})
        assert [each["name"] for each in page["tools"]] == ["after-more"]
        assert "nextCursor" not in page
        assert (await probe.call("known"))["content"][0]["text"] == "decorated"
        called = await probe.call("first", a=1)
        assert '"by":"first"' in called["content"][0]["text"].replace(" ", "")
        assert (await probe.call("fails"))["isError"] is True
        with pytest.raises(PeerError, match="Unknown tool: nonsense"):
            await probe.call("nonsense")

        resources = (await probe.request("resources/list"))["resources"]
        assert [each["uri"] for each in resources] == ["archive://index", "archive://1"]
        templates = (await probe.request("resources/templates/list"))["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["archive://{id}"]
        for uri, text in {"archive://index": "decorated", "archive://7": "archive://7 in full"}.items():
            assert (await probe.request("resources/read", {"uri": uri}))["contents"][0]["text"] == text

        prompts = (await probe.request("prompts/list"))["prompts"]
        assert [each["name"] for each in prompts] == ["ask", "other"]
        for name, text in {"ask": "decorated", "other": "other of {'a': 'b'}"}.items():
            said = await probe.request(
                "prompts/get", {"name": name, "arguments": {"a": "b"} if name == "other" else {}}
            )
            assert said["messages"][0]["content"]["text"] == text
        done = await probe.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "a", "value": "b"}},
        )
        assert done["completion"]["values"] == ["b!"]


@pytest.mark.row("RG-25")
@pytest.mark.row("WC-28")
async def test_callbacks_for_subscriptions_and_levels_may_refuse() -> None:
    server = Archive.server()
    async with server.started() as company, WireProbe(company) as probe:
        await probe.request("resources/subscribe", {"uri": "archive://1"})
        with pytest.raises(PeerError, match="not that one"):
            await probe.request("resources/subscribe", {"uri": "archive://secret"})
        server.notify_resource_updated("archive://secret")
        server.notify_resource_updated("archive://1", {"title": "news"})
        assert await probe.wait_for_notifications("notifications/resources/updated") == [
            {"uri": "archive://1", "title": "news"}
        ]
        await probe.request("resources/unsubscribe", {"uri": "archive://1"})
        await probe.request("logging/setLevel", {"level": "error"})
        with pytest.raises(PeerError, match="stay calm"):
            await probe.request("logging/setLevel", {"level": "emergency"})


@pytest.mark.row("RG-25")
@pytest.mark.row("WC-05")
async def test_methods_without_a_handler_do_not_exist() -> None:
    class Small(McpServer):
        @tool
        async def only(self) -> None: ...

    async with Small.server().started() as company, WireProbe(company) as probe:
        assert probe.welcome["capabilities"].keys() == {"tools", "logging"}
        for method in ("resources/list", "prompts/list", "resources/templates/list"):
            with pytest.raises(PeerError) as missing:
                await probe.request(method)
            assert missing.value.code == -32601


async def test_settings_are_stronger_than_what_is_derived() -> None:
    settings = Settings(capabilities={"logging": None, "prompts": {"listChanged": False}})
    async with Office.server("", settings=settings).started() as company, WireProbe(company) as probe:
        assert probe.welcome["capabilities"]["prompts"] == {"listChanged": False}
        assert "logging" not in probe.welcome["capabilities"]


@pytest.mark.row("RG-23")
def test_two_of_one_name_are_refused_when_the_class_is_written() -> None:
    with pytest.raises(RegistrationError, match=r"Twice: duplicate tool name\(s\): same"):

        class Twice(McpServer):  # pyright: ignore[reportUnusedClass]
            @tool("same")
            def one(self) -> None: ...

            @tool("same")
            def other(self) -> None: ...


def test_a_callback_that_blocks_is_refused_when_the_class_is_written() -> None:
    with pytest.raises(RegistrationError, match=r"Blocks.read_resource answers requests, so it must be `async def`"):

        class Blocks(McpServer):  # pyright: ignore[reportUnusedClass]
            def read_resource(self, uri: str, ctx: Context) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
                return ""


async def test_a_class_inherits_and_overrides_what_another_offers() -> None:
    class Branch(Office):
        name = "branch"

        @tool
        async def count(self, ctx: Context) -> int:
            return -1

    async with Branch.server("").started() as company, WireProbe(company) as probe:
        assert (await probe.call("count"))["structuredContent"] == {"result": -1}
        assert (await probe.call("drawer"))["isError"] is False


async def test_hooks_work_beside_the_methods_of_the_class() -> None:
    class Shop(McpServer):
        async def init(self, arg: Any) -> Any:
            return [arg]

        @tool
        async def sell(self, ctx: Context) -> str:
            return str(ctx.state)

        async def list_tools(self, cursor: str | None, ctx: Context) -> list[Tool]:
            return [Tool("buy", {"type": "object"})]

        async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
            return f"{name} is done"

    seen: list[str] = []

    async def around(method: str, ctx: Context, proceed: Any) -> Any:
        seen.append(f"{method} {ctx.params['name']}")
        return await proceed()

    server = Shop.server("tea", hooks=Hooks(around=around, level=lambda level, facts: seen.append(level)))
    async with Client(server, mode="legacy") as client:
        assert (await client.call("sell"), await client.call("buy")) == ("['tea']", "buy is done")
        await client.set_log_level("error")
    assert seen == ["tools/call sell", "tools/call buy", "error"]


async def unreachable(job: Any, ctx: Context) -> dict[str, Any]:
    raise AssertionError((job, ctx))


@pytest.mark.parametrize(
    ("hooks", "what"),
    [
        (Hooks(init=lambda facts: facts), "init"),
        (Hooks(level=lambda level, facts: (level, facts)), "level"),
        (Hooks(answers={"tools/call": unreachable}), "tools/call"),
    ],
)
def test_a_hook_for_what_the_class_does_itself_is_refused(hooks: Hooks, what: str) -> None:
    class Own(McpServer):
        async def init(self, arg: Any) -> Any: ...
        async def set_log_level(self, level: str) -> None: ...
        async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any: ...

    with pytest.raises(RegistrationError, match=f"Own overrides {what}: leave that out of the hooks"):
        Own.server(hooks=hooks)


@pytest.mark.row("26-F2")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_decorated_tools_of_a_class_promise_what_their_calls_return(mode: str) -> None:
    class Tables(McpServer):
        name = "tables"

        @tool
        async def rows(self, table: str) -> int:
            return len(table)

        async def list_tools(self, cursor: str | None, ctx: Context) -> list[Tool]:
            return [Tool("drop", {"type": "object"})]

        async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
            return f"{name} is done"

    async with Client(Tables.server(), mode=mode) as client:
        assert [each.name for each in await client.list_tools()] == ["rows", "drop"]
        assert await client.call("rows", table="plays", into=int) == 5
        assert await client.call("drop") == "drop is done"
