"""What is brought of httpx carries the same requests: a client, a transport, a proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest

from greenroom import ConfigError
from greenroom.protocol.messages import Notification, Response
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, NotMcp, ResponseTooLarge
from greenroom.transports.client.http_pool import Pool
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.httpx_door import ThroughHttpx
from greenroom.transports.client.seam import Lost

from .facing import lost, says
from .owner import HELLO, opened, text
from .scripted import SESSION, Visit, event, scripted
from .test_ours import company

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.mark.parametrize("what", ["client", "transport"])
async def test_it_carries_everything(what: str) -> None:
    server = company()
    async with server.started(), httpx.AsyncClient(headers={"x-brought": "yes"}) as client:
        url = await server.listen(port=0)
        transport = httpx.AsyncHTTPTransport()
        async with opened(HttpRoute(url, transport=client if what == "client" else transport)) as owner:
            assert isinstance(owner.wire.carrier, ThroughHttpx)
            await owner.greet()
            assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
            id = owner.call("steps", count=3)
            heard = [await owner.hear() for _ in range(4)]
            assert [type(each) for each in heard] == [Notification] * 3 + [Response]
            assert isinstance(heard[-1], Response)
            assert heard[-1].id == id
        assert not client.is_closed
        await transport.aclose()


async def test_what_goes_wrong_is_told_in_the_same_words() -> None:
    async def endless(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\ncontent-type: application/json\r\n\r\n")
        await visit.gone()

    wrong = [
        (says(b""), ConnectionLost),
        (says(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"), ConnectionLost),
        (says(b"SSH-2.0\r\n\r\n"), NotMcp),
        (endless, ResponseTooLarge),
    ]
    async with httpx.AsyncClient() as client:
        for handler, error in wrong:
            async with scripted(call=handler) as server, opened(HttpRoute(server.url, transport=client)) as owner:
                await owner.greet()
                heard = await lost(owner)
                assert isinstance(heard.error, error), heard
                assert not heard.resend
        async with scripted() as nobody:
            pass
        async with opened(HttpRoute(nobody.url, transport=client)) as owner:
            owner.ask("initialize", HELLO)
            heard = await owner.hear()  # type: ignore[assignment]
            assert isinstance(heard, Lost)
            assert isinstance(heard.error, ConnectFailed)
            assert heard.resend


async def test_forgetting_and_closing_hang_up() -> None:
    async with httpx.AsyncClient() as client, scripted(call=says(b"", end="wait")) as server:
        async with opened(HttpRoute(server.url, transport=client)) as owner:
            await owner.greet()
            first, _ = owner.call("any"), owner.call("any")
            visits = await server.until("tools/call", 2)
            owner.wire.forget(first)
            await visits[0].gone()
        await visits[1].gone()
        assert server.seen("DELETE")[0].headers["mcp-session-id"] == SESSION
        assert all(each.headers["accept-encoding"] == "identity" for each in server.visits)


async def test_a_transport_without_a_network() -> None:
    class Streamed(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield event({"jsonrpc": "2.0", "id": 1, "result": {}})
            await asyncio.sleep(0)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Streamed())

    route = HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(answer))
    async with opened(route) as owner:
        assert await owner.answer(owner.ask("initialize", HELLO)) == {}


async def test_a_proxy() -> None:
    asked: list[str] = []

    async def forward(visit: Visit) -> None:
        asked.append(visit.path)
        await server.behave(visit)

    async with scripted(initialize=forward) as server:
        proxy = f"http://127.0.0.1:{server.port}"
        async with opened(HttpRoute("http://far.invalid/mcp", proxy=proxy)) as owner:
            await owner.greet()
    assert asked == ["http://far.invalid/mcp"]


async def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://user:secret@proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "near.invalid")
    kinds = {}
    for host in ("far.invalid", "near.invalid", "localhost", "127.0.0.1"):
        async with opened(HttpRoute(f"http://{host}/mcp")) as owner:
            kinds[host] = type(owner.wire.carrier)
    assert kinds == {"far.invalid": ThroughHttpx, "near.invalid": Pool, "localhost": Pool, "127.0.0.1": Pool}
    assert "secret" not in repr(HttpRoute("http://far.invalid/mcp"))


async def test_two_ways_at_once_and_no_way() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(ConfigError):
            HttpRoute("http://x/", transport=client, proxy="http://y/")
