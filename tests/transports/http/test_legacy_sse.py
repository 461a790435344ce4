"""HTTP for older clients: HTTP+SSE of revision 2024-11-05, and plain requests without sessions."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError, Context, HttpConfig, Server
from greenroom.actors.settings import Settings
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.supervision import SHUTDOWN, ProcessExited, kill
from greenroom.transports.interfaces import Peer, RequestNotDelivered

from .engine_driver import EngineDriver, RecordedResponse, notification, parse_events
from .fake_sessions import FakeSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2024-11-05",
        "capabilities": {"sampling": {}},
        "clientInfo": {"name": "old", "version": "1"},
    },
}


def call(tool: str, id: int = 1, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


class OldPeer:
    """A client of 2024-11-05: one stream, and posts to the URL of its first event."""

    def __init__(self, server: Server, driver: EngineDriver) -> None:
        self.server = server
        self.driver = driver
        self.response = RecordedResponse()
        self.stream = asyncio.create_task(driver.begin(self.response, "GET", "/sse"))
        self.where = ""

    async def find(self) -> None:
        first = parse_events(await self.response.until(1))[0]
        assert first["event"] == "endpoint"
        assert first["data"].startswith("messages?session_id=mcp_")  # relative to /sse, wherever that is
        self.where = f"/{first['data']}"

    async def tell(self, message: Any) -> RecordedResponse:
        return await self.driver.post(message, path=self.where)

    async def hears(self, count: int) -> list[Any]:
        """The messages among the first events, once there are so many."""
        while len(told := self.messages) < count:
            self.response.news.clear()
            await self.response.news.wait()
        return told

    @property
    def messages(self) -> list[Any]:
        events = [event for event in parse_events(b"".join(self.response.chunks)) if event.get("event") == "message"]
        return [json.loads(event["data"]) for event in events]

    async def greet(self) -> None:
        await self.find()
        assert (await self.tell(HELLO)).status == 202
        (welcome,) = await self.hears(1)
        assert welcome["result"]["protocolVersion"] == "2024-11-05"
        assert (await self.tell(notification())).status == 202


@asynccontextmanager
async def old(settings: Settings | None = None, **config: Any) -> AsyncGenerator[OldPeer]:
    server = Server("old", settings=settings)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def think(ctx: Context) -> str:
        return str((await ctx.sample("what?", max_tokens=10)).text)

    @server.tool
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    async with server.started() as company:
        peer = OldPeer(server, EngineDriver.before(company, old_sse=True, **config))
        try:
            yield peer
        finally:
            peer.stream.cancel()
            await asyncio.gather(peer.stream, return_exceptions=True)


@pytest.mark.row("ST-01", "WC-01")
async def test_all_messages_come_on_the_stream_and_posts_get_202() -> None:
    async with old() as peer:
        await peer.greet()
        taken = await peer.tell(call("echo", text="hello"))
        assert (taken.status, taken.body) == (202, b"Accepted")
        _, answer = await peer.hears(2)
        assert answer["result"]["content"] == [{"type": "text", "text": "hello"}]
        assert peer.response.headers["content-type"] == "text/event-stream"


@pytest.mark.row("SC-05", "SC-09")
async def test_a_server_request_comes_on_the_stream_and_its_answer_is_posted() -> None:
    async with old() as peer:
        await peer.greet()
        await peer.tell(call("think"))
        _, question = await peer.hears(2)
        assert question["method"] == "sampling/createMessage"
        result = {"role": "assistant", "content": {"type": "text", "text": "that"}, "model": "m"}
        assert (await peer.tell({"jsonrpc": "2.0", "id": question["id"], "result": result})).status == 202
        answer = (await peer.hears(3))[2]
        assert answer["result"]["content"][0]["text"] == "that"


async def test_the_session_ends_with_its_stream() -> None:
    async with old() as peer:
        await peer.greet()
        peer.response.torn = True
        await peer.tell(call("echo", text="unread"))
        await peer.stream
        assert (await peer.tell(call("echo", 2, text="x"))).status == 404
        assert await peer.server.company.peers.all() == []


async def test_the_stream_ends_with_its_session_after_pending_requests_are_answered() -> None:
    async with old() as peer:
        await peer.greet()
        await peer.tell(call("never"))
        (card,) = await peer.server.company.peers.all()
        kill(peer.server.company.peers.whereis(card.id))
        await peer.stream
        assert peer.response.said[-1] == "end"
        assert peer.messages[-1]["id"] == 1
        assert peer.messages[-1]["error"]["code"] == -32603


async def test_stopping_answers_pending_requests_and_ends_the_stream() -> None:
    async with old() as peer:
        await peer.greet()
        await peer.tell(call("never"))
        peer.driver.engine.stop_listening()
        await peer.stream
        assert peer.messages[-1]["error"]["code"] == -32603
        again = await peer.driver.ask("GET", "/sse")
        assert again.status == 503
        peer.driver.engine.start_listening()


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("?session_id=", 400), ("?session_id=mcp_00", 404), ("?session_id=a&session_id=b", 400)],
)
async def test_a_post_to_an_unknown_session_is_refused(query: str, status: int) -> None:
    async with old() as peer:
        await peer.find()
        answer = await peer.driver.post(call("echo", text="x"), path=f"/messages{query}")
        assert answer.status == status
        assert "stream" in answer.error[2]


@pytest.mark.row("WC-12", "WC-13")
@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"1.0"}', -32600)])
async def test_an_invalid_message_is_refused_in_the_response_to_its_post(body: bytes, code: int) -> None:
    async with old() as peer:
        await peer.greet()
        refused = await peer.tell(body)
        assert refused.error[:2] == (400, code)
        await peer.tell(call("echo", text="still there"))
        assert (await peer.hears(2))[1]["result"]["content"][0]["text"] == "still there"


@pytest.mark.row("SX-01")
@pytest.mark.parametrize(("method", "path"), [("GET", "/sse"), ("POST", "/messages?session_id=x")])
async def test_host_origin_and_authentication_are_checked(method: str, path: str) -> None:
    async with old() as peer:
        await peer.find()
        assert (await peer.driver.ask(method, path, {"origin": "https://evil.example"})).status == 403
        assert (await peer.driver.ask(method, path, {"host": "evil.example"})).status == 403
        wrong = "POST" if method == "GET" else "GET"
        refused = await peer.driver.ask(wrong, path)
        assert refused.status == 405
        assert refused.headers["allow"] == f"{method}, OPTIONS"


@pytest.mark.row("SE-09")
async def test_a_legacy_session_is_unknown_at_the_endpoint_and_vice_versa() -> None:
    async with old() as peer:
        await peer.greet()
        id = peer.where.partition("=")[2]
        assert (await peer.driver.post(call("echo", text="x"), {"mcp-session-id": id})).status == 404
        hello = await peer.driver.post(HELLO)
        assert (
            await peer.driver.post(notification(), path=f"/messages?session_id={hello.headers['mcp-session-id']}")
        ).status == 404


async def test_a_stream_must_be_accepted_and_a_post_must_be_json() -> None:
    async with old() as peer:
        await peer.greet()
        assert (await peer.driver.ask("GET", "/sse", {"accept": "application/json"})).status == 406
        assert (await peer.driver.post(notification(), {"content-type": "text/plain"}, peer.where)).status == 415


async def test_a_full_server_answers_503() -> None:
    async with old(Settings(max_sessions=1)) as peer:
        await peer.greet()
        refused = await peer.driver.ask("GET", "/sse")
        assert refused.status == 503
        assert "Maximum number of sessions" in refused.error[2]


async def test_a_broken_answer_is_refused_and_fails_the_servers_request() -> None:
    async with old() as peer:
        await peer.greet()
        await peer.tell(call("think"))
        _, question = await peer.hears(2)
        refused = await peer.tell({"jsonrpc": "2.0", "id": question["id"], "result": 7})
        assert refused.status == 400
        answer = (await peer.hears(3))[2]
        assert answer["id"] == 1
        assert answer["error"]["message"] == 'Invalid answer: "result" must be an object'


async def test_a_post_while_the_session_dies_is_told_to_open_another_stream() -> None:
    async with old() as peer:
        await peer.greet()
        (card,) = await peer.server.company.peers.all()
        posting = asyncio.create_task(peer.tell(call("echo", text="too late")))
        kill(peer.server.company.peers.whereis(card.id))
        refused = await posting
        assert refused.status == 404
        assert "open the stream again" in refused.error[2]


async def test_the_legacy_transport_is_off_by_default() -> None:
    async with Server("new").started() as company:
        assert (await EngineDriver.before(company).ask("GET", "/sse")).status == 404


# --- plain requests


@pytest.mark.row("ST-17")
async def test_plain_requests_need_no_session_and_notifications_get_204() -> None:
    server = Server("plain")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with server.started() as company:
        driver = EngineDriver.before(company, plain=True)
        answer = await driver.post(call("echo", text="hello"), {"accept": None})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json["result"]["content"][0]["text"] == "hello"
        hello = await driver.post(HELLO)
        assert hello.json["result"]["protocolVersion"] == "2024-11-05"
        assert "mcp-session-id" not in hello.headers
        assert (await driver.post(notification())).status == 204
        assert (await driver.post(b"{")).error[:2] == (400, -32700)
        assert (await driver.post(call("echo", text="x"), {"origin": "https://evil.example"})).status == 403
        for verb in ("GET", "DELETE"):
            refused = await driver.ask(verb)
            assert (refused.status, refused.headers["allow"]) == (405, "POST, OPTIONS")
        assert await company.peers.all() == []


@pytest.mark.row("ST-17")
async def test_a_plain_reply_follows_the_oldest_revision() -> None:
    server = Server("plain")

    @server.tool
    async def count() -> int:
        return 3

    async with server.started() as company:
        driver = EngineDriver.before(company, plain=True)
        result = (await driver.post(call("count"))).json["result"]
        assert "structuredContent" not in result
        said = (await driver.post(call("count"), {"mcp-protocol-version": "2025-06-18"})).json["result"]
        assert said["structuredContent"] == {"result": 3}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"old_sse": True, "old_sse_path": "/mcp"}, "must differ"),
        ({"old_sse": True, "old_messages_path": "messages"}, "old_messages_path must begin with a slash"),
        ({"old_sse": True, "plain": True}, "exclude each other"),
    ],
)
def test_invalid_combinations_of_settings_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        HttpConfig(**settings)


@pytest.mark.parametrize(("error", "told"), [(ProcessExited, False), (RequestNotDelivered, True)])
async def test_a_session_that_ends_during_a_post_may_have_executed_it(
    error: type[ProcessExited], monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    driver = EngineDriver(old_sse=True)
    session = (await driver.router.start_session(Peer("http"), JsonRpcRequest(1, "initialize", {}))).session
    assert isinstance(session, FakeSession)

    async def ends(request: JsonRpcRequest) -> Any:
        raise error(SHUTDOWN)

    monkeypatch.setattr(session, "request", ends)
    monkeypatch.setattr(session, "channel", object())
    response = await driver.post(call("any"), path="/messages?session_id=s1")
    assert response.status == 404
    assert ("greenroom-instance" in response.headers) is told
