"""A client, a transport or a proxy of httpx, brought by the user, carries the same requests."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import httpx
import pytest

from greenroom import ConfigError
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from greenroom.supervision import Crash, current_node, inbox
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, HttpError, NotMcp, ResponseTooLarge
from greenroom.transports.client.http_connection_pool import HttpConnectionPool
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.httpx_door import HttpxCarrier
from greenroom.transports.client.interfaces import UnansweredRequest

from .scripted_server import SESSION, ReceivedRequest, event, scripted_server
from .test_own_server import company
from .wire_and_server import lost, responding
from .wire_owner import HELLO, WireEndedError, open_wire, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.mark.parametrize("what", ["client", "transport"])
async def test_httpx_carries_every_kind_of_request(what: str) -> None:
    server = company()
    async with server.started(), httpx.AsyncClient(headers={"x-brought": "yes"}) as client:
        url = await server.listen(port=0)
        transport = httpx.AsyncHTTPTransport()
        async with open_wire(HttpRoute(url, transport=client if what == "client" else transport)) as owner:
            assert isinstance(owner.wire.carrier, HttpxCarrier)
            await owner.greet()
            assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
            id = owner.call("steps", count=3)
            heard = [await owner.hear() for _ in range(4)]
            assert [type(each) for each in heard] == [JsonRpcNotification] * 3 + [JsonRpcResponse]
            assert isinstance(heard[-1], JsonRpcResponse)
            assert heard[-1].id == id
        assert not client.is_closed
        await transport.aclose()


async def test_failures_are_reported_in_the_same_words() -> None:
    async def endless(received: ReceivedRequest) -> None:
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\ncontent-type: application/json\r\n\r\n")
        await received.gone()

    wrong = [
        (responding(b""), ConnectionLost),
        (responding(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"), ConnectionLost),
        (responding(b"SSH-2.0\r\n\r\n"), NotMcp),
        (endless, ResponseTooLarge),
    ]
    async with httpx.AsyncClient() as client:
        for handler, error in wrong:
            async with (
                scripted_server(call=handler) as server,
                open_wire(HttpRoute(server.url, transport=client)) as owner,
            ):
                await owner.greet()
                heard = await lost(owner)
                assert isinstance(heard.error, error), heard
                assert not heard.resend
        async with scripted_server() as closed:
            pass
        async with open_wire(HttpRoute(closed.url, transport=client)) as owner:
            owner.ask("initialize", HELLO)
            heard = await owner.hear()  # type: ignore[assignment]
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, ConnectFailed)
            assert heard.resend


async def test_forgetting_and_closing_disconnect() -> None:
    async with httpx.AsyncClient() as client, scripted_server(call=responding(b"", end="wait")) as server:
        async with open_wire(HttpRoute(server.url, transport=client)) as owner:
            await owner.greet()
            first, _ = owner.call("any"), owner.call("any")
            requests = await server.until("tools/call", 2)
            owner.wire.forget(first)
            await requests[0].gone()
        await requests[1].gone()
        assert server.seen("DELETE")[0].headers["mcp-session-id"] == SESSION
        assert all(each.headers["accept-encoding"] == "identity" for each in server.requests)


async def test_a_transport_without_a_network_works() -> None:
    class Streamed(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield event({"jsonrpc": "2.0", "id": 1, "result": {}})
            await asyncio.sleep(0)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Streamed())

    route = HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(answer))
    async with open_wire(route) as owner:
        assert await owner.answer(owner.ask("initialize", HELLO)) == {}


async def test_a_proxy_is_used() -> None:
    asked: list[str] = []

    async def forward(received: ReceivedRequest) -> None:
        asked.append(received.path)
        await server.behave(received)

    async with scripted_server(initialize=forward) as server:
        proxy = f"http://127.0.0.1:{server.port}"
        async with open_wire(HttpRoute("http://far.invalid/mcp", proxy=proxy)) as owner:
            await owner.greet()
    assert asked == ["http://far.invalid/mcp"]


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://user:secret@proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "near.invalid")
    kinds = {}
    for host in ("far.invalid", "near.invalid", "localhost", "127.0.0.1"):
        async with open_wire(HttpRoute(f"http://{host}/mcp")) as owner:
            kinds[host] = type(owner.wire.carrier)
    assert kinds == {
        "far.invalid": HttpxCarrier,
        "near.invalid": HttpConnectionPool,
        "localhost": HttpConnectionPool,
        "127.0.0.1": HttpConnectionPool,
    }
    assert "secret" not in repr(HttpRoute("http://far.invalid/mcp"))


async def test_contradictory_or_missing_ways_are_refused() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(ConfigError):
            HttpRoute("http://x/", transport=client, proxy="http://y/")


@pytest.mark.parametrize(
    "proxy", ["ftp://user:hush@proxy.invalid:21", "http://user:hush@proxy.invalid:port", "nonsense"]
)
async def test_an_invalid_proxy_is_reported_without_its_password(proxy: str) -> None:
    async with inbox() as me:
        before = set(current_node().processes)
        with pytest.raises(ConfigError, match="this proxy cannot be used") as caught:
            HttpRoute("http://far.invalid/mcp", proxy=proxy).open(me.pid)
        assert "hush" not in str(caught.value)
        assert set(current_node().processes) == before


async def test_a_slow_connection_is_read_to_more_slowly() -> None:
    sent = 0
    padded = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 100_000}})

    class Flood(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while sent < 300:
                sent += 1
                yield padded
                await asyncio.sleep(0.001)
            await asyncio.Event().wait()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Flood())
        if b"initialize" in request.content and b"id" in request.content:
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {}})
        return httpx.Response(202)

    async with open_wire(HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(answer))) as owner:
        await owner.greet()
        await asyncio.sleep(10)
        before = sent, len(owner.me)
        assert before[0] < 200
        await asyncio.sleep(10)
        assert (sent, len(owner.me)) == before
        for _ in range(300):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        assert sent == 300


@pytest.mark.parametrize("error", [httpx.ReadError("reset"), httpx.ReadTimeout("slow"), OSError("broken")])
async def test_a_response_that_a_transport_fails_to_deliver_is_lost_alone(error: Exception) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if b"tools/call" in request.content:
            raise error
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "result": {}})

    async with open_wire(HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(answer))) as owner:
        assert await owner.answer(owner.ask("initialize", HELLO)) == {}
        heard = await lost(owner)
        assert isinstance(heard.error, ConnectionLost)
        assert type(error).__name__ in str(heard.error)
        assert not heard.resend  # the request may have arrived


async def test_a_bug_in_a_transport_ends_the_wire_with_that_reason() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise KeyError("a bug in user code")

    async with open_wire(HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(answer))) as owner:
        owner.ask("initialize", HELLO)
        with pytest.raises(WireEndedError) as caught:
            await owner.hear()
        assert isinstance(caught.value.reason, Crash)
        assert isinstance(caught.value.reason.error, KeyError)


async def test_an_oversized_response_is_read_no_further() -> None:
    given = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal given
            while True:
                given += 1
                yield b" " * 100_000

    async def answer(request: httpx.Request) -> httpx.Response:
        if b"tools/call" in request.content:
            return httpx.Response(200, headers={"content-type": "application/json"}, stream=Endless())
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "result": {}})

    route = HttpRoute(
        "https://nowhere.invalid/mcp",
        transport=httpx.MockTransport(answer),
        settings=HttpSettings(max_response=1_000_000),
    )
    async with open_wire(route) as owner:
        assert await owner.answer(owner.ask("initialize", HELLO)) == {}
        assert isinstance((await lost(owner)).error, ResponseTooLarge)
        assert given < 15


@pytest.mark.parametrize("body", [b"", b"no such thing"])
async def test_complete_responses_are_read_like_others(body: bytes) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if b"tools/call" in request.content:
            return httpx.Response(500, content=body)
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "result": {"a": 1}})

    async with open_wire(HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(answer))) as owner:
        assert await owner.answer(owner.ask("initialize", HELLO)) == {"a": 1}
        error = (await lost(owner)).error
        assert isinstance(error, HttpError)
        assert (error.status, error.body) == (500, body.decode())
