"""Rows of revision 2026-07-28 about `subscriptions/listen`, each shown over HTTP by servers whose lists and resources change."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.http.engine_driver import EngineDriver, RecordedResponse

from greenroom import Context, McpError, McpServer, Server
from greenroom.supervision import current_node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from greenroom.actors.company import Company

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META: dict[str, Any] = {f"{PREFIX}protocolVersion": VERSION, f"{PREFIX}clientCapabilities": {}}
ID_KEY = f"{PREFIX}subscriptionId"
EVERY_LIST = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


class ListenStream:
    """One listen, read message by message."""

    def __init__(self, driver: EngineDriver, id: Any, wish: Mapping[str, Any]) -> None:
        self.id = id
        self.response = RecordedResponse()
        params = {"notifications": wish, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params}).encode()
        headers = {
            "content-type": "application/json", "mcp-protocol-version": VERSION, "mcp-method": "subscriptions/listen",
        }  # fmt: skip
        self.task = asyncio.create_task(driver.begin(self.response, "POST", "/mcp", headers, body))

    async def messages(self, count: int) -> list[Any]:
        """The first so many messages."""
        while len(found := self.arrived) < count:
            self.response.news.clear()
            await self.response.news.wait()
        return found[:count]

    @property
    def arrived(self) -> list[Any]:
        """The messages that have arrived."""
        lines = b"".join(self.response.chunks).splitlines()
        return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]

    async def leave(self) -> None:
        """Close the stream, as a client does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Announcer:
    """A server whose lists and resources change, and listens to it."""

    def __init__(self, server: Server, company: Company) -> None:
        self.server = server
        self.company = company
        self.driver = EngineDriver.before(company)
        self.streams: list[ListenStream] = []

    async def listen(self, id: Any = 1, **wish: Any) -> tuple[ListenStream, dict[str, Any]]:
        """Listen, and wait for the acknowledgement: the stream, and the filter that is honoured."""
        stream = ListenStream(self.driver, id, wish)
        self.streams.append(stream)
        [acknowledged] = await stream.messages(1)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["_meta"] == {ID_KEY: id}
        return stream, acknowledged["params"]["notifications"]

    @staticmethod
    def now() -> float:
        """The node's time."""
        return current_node().now()

    def change(self, kind: str) -> None:
        """Change a list."""
        registry = self.server.registry
        name = f"new-{kind}-{len(self.streams)}"
        match kind:
            case "tools":
                registry.register_tool(name, lambda: "")
            case "prompts":
                registry.register_prompt(name, lambda: "")
            case _:
                self.server.resource(f"test://{name}", name)(lambda: "")


@asynccontextmanager
async def announcing(server: Server | None = None) -> AsyncGenerator[Announcer]:
    """A server with a tool, a prompt and a resource, and listens to it, which end with it."""
    server = server or Server("announces", version="1")

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.error("loud")
        return "reported"

    server.resource("test://a", "a")(lambda: "A")
    server.prompt("greet")(lambda: "Hello")
    async with server.started() as company:
        found = Announcer(server, company)
        yield found
    async with asyncio.timeout(5):  # the server has ended the streams that were left open
        await asyncio.gather(*(stream.task for stream in found.streams), return_exceptions=True)


@pytest.mark.row("26-L1")
@pytest.mark.row("26-L4")
@pytest.mark.parametrize("id", [7, "7", 0, "listen of a long name"])
async def test_each_message_of_a_listen_has_the_id_of_its_request_with_its_type(id: Any) -> None:
    async with announcing() as announcer:
        stream, honoured = await announcer.listen(id, **EVERY_LIST, resourceSubscriptions=["test://a"])
        assert honoured == {**EVERY_LIST, "resourceSubscriptions": ["test://a"]}
        for count, kind in enumerate(("tools", "prompts", "resources"), 2):
            announcer.change(kind)
            message = (await stream.messages(count))[-1]
            assert message == {
                "jsonrpc": "2.0",
                "method": f"notifications/{kind}/list_changed",
                "params": {"_meta": {ID_KEY: id}},
            }
            assert type(message["params"]["_meta"][ID_KEY]) is type(id)
        announcer.server.notify_resource_updated("test://a")
        last = (await stream.messages(5))[-1]
    assert last["method"] == "notifications/resources/updated"
    assert last["params"] == {"uri": "test://a", "_meta": {ID_KEY: id}}


@pytest.mark.row("26-L2")
@pytest.mark.row("26-V2")
async def test_the_acknowledgement_names_what_can_happen_and_nothing_else() -> None:
    bare = Server("bare")
    bare.tool("one")(lambda: "")
    async with bare.started() as company:
        announcer = Announcer(bare, company)
        stream, honoured = await announcer.listen(**EVERY_LIST, resourceSubscriptions=[])
        discovered = await discover(announcer.driver)
        await stream.leave()
    assert discovered == {"tools": {"listChanged": True}, "logging": {}}
    assert honoured == {"toolsListChanged": True}


async def discover(driver: EngineDriver) -> dict[str, Any]:
    """The server's capabilities."""
    message = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "server/discover"}
    found: dict[str, Any] = (await driver.post(message, headers)).json["result"]["capabilities"]
    return found


class Diary(McpServer):
    """A server that decides on each subscription."""

    async def read_resource(self, uri: str, ctx: Context) -> str:
        del ctx
        return uri

    async def subscribe_resource(self, uri: str, ctx: Context) -> None:
        """Refuse all."""
        raise McpError(-32602, f"{uri} is not yours")


@pytest.mark.row("26-L2")
async def test_subscriptions_that_a_server_has_to_begin_or_refuse_itself_are_not_honoured() -> None:
    server = Diary.server()
    async with server.started() as company:
        announcer = Announcer(server, company)
        stream, honoured = await announcer.listen(
            resourcesListChanged=True, resourceSubscriptions=["test://a", "upstream://upstream/test://a"]
        )
        server.notify_resource_updated("test://a")
        server.notify_list_changed("resource")
        last = (await stream.messages(2))[-1]
        await stream.leave()
    assert honoured == {"resourcesListChanged": True}
    assert last["method"] == "notifications/resources/list_changed"


@pytest.mark.row("26-L3")
@pytest.mark.row("26-L5")
async def test_listens_have_a_filter_each_and_get_nothing_else() -> None:
    async with announcing() as announcer:
        tools, _ = await announcer.listen(1, toolsListChanged=True)
        prompts, _ = await announcer.listen(2, promptsListChanged=True, toolsListChanged=False)
        other, _ = await announcer.listen(3, resourceSubscriptions=["test://b"])
        both, _ = await announcer.listen(4, toolsListChanged=True, promptsListChanged=True)
        await report(announcer.driver)
        announcer.server.notify_resource_updated("test://a")
        announcer.change("tools")
        await tools.messages(2)
        await both.messages(2)
        announcer.change("prompts")
        await prompts.messages(2)
        await both.messages(3)
        announcer.server.notify_resource_updated("test://b")
        await other.messages(2)
        told = [
            [one["method"].removeprefix("notifications/") for one in stream.arrived] for stream in announcer.streams
        ]
    acknowledged = "subscriptions/acknowledged"
    assert told == [
        [acknowledged, "tools/list_changed"],
        [acknowledged, "prompts/list_changed"],
        [acknowledged, "resources/updated"],
        [acknowledged, "tools/list_changed", "prompts/list_changed"],
    ]


async def report(driver: EngineDriver) -> None:
    """Call a tool that reports progress and logs."""
    meta = {**META, "progressToken": "p", f"{PREFIX}logLevel": "debug"}
    message = {"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": "report", "_meta": meta}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "report"}
    assert b"loud" in b"".join((await driver.post(message, headers)).chunks)


@pytest.mark.row("26-L6")
async def test_a_client_that_closes_its_listen_is_told_nothing_more() -> None:
    async with announcing() as announcer:
        gone, _ = await announcer.listen(1, toolsListChanged=True)
        stays, _ = await announcer.listen(2, toolsListChanged=True)
        await gone.leave()
        announcer.change("tools")
        await stays.messages(2)
        assert len(gone.arrived) == 1
        assert gone.response.said[-1] == "chunk"


@pytest.mark.row("26-L6")
@pytest.mark.row("26-M8")
@pytest.mark.row("26-S4")
async def test_a_server_that_stops_ends_a_listen_with_its_result() -> None:
    async with announcing() as announcer:
        stream, _ = await announcer.listen("last", toolsListChanged=True)
    assert stream.response.said[-1] == "end"
    [_, result] = stream.arrived
    assert result == {
        "jsonrpc": "2.0",
        "id": "last",
        "result": {
            "resultType": "complete",
            "_meta": {ID_KEY: "last", f"{PREFIX}serverInfo": {"name": "announces", "version": "1"}},
        },
    }


@pytest.mark.row("26-H13")
async def test_a_silent_listen_has_comments_and_no_proxy_holds_it_back() -> None:
    async with announcing() as announcer:
        stream, _ = await announcer.listen(toolsListChanged=True)
        before = announcer.now()
        await stream.response.until(2)
        assert 0 < announcer.now() - before <= 30.0
        assert stream.response.chunks[1].startswith(b":")
        assert stream.response.headers["x-accel-buffering"] == "no"
        assert len(stream.arrived) == 1
