"""Mounted in somebody else's application: nothing to wire, whatever the host and however its loops come and go."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import quart
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from greenroom import HttpConfig, Server
from greenroom.supervision import kill, wait_down, whereis
from greenroom.supervision.kernel.current import node_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.supervision import Node

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # which HTTP client it is made of is its own affair
    from starlette.testclient import TestClient

pytestmark = pytest.mark.greenroom(clock="real")

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


def make_server() -> Server:
    server = Server("mounted")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def use(client: httpx.AsyncClient, path: str) -> Any:
    """A session from its beginning to its end; the result of one call in it."""
    hello = await client.post(path, json=HELLO, headers=ACCEPT)
    assert hello.status_code == 200, hello.text
    headers = {**ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
    ready = await client.post(path, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    assert ready.status_code == 202
    params = {"name": "add", "arguments": {"a": 2, "b": 3}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    answer = await client.post(path, json=call, headers=headers)
    assert (await client.delete(path, headers=headers)).status_code == 204
    return answer.json()["result"]["structuredContent"]


def starlette_app(inner: Any) -> Any:
    async def front(request: Any) -> PlainTextResponse:
        return PlainTextResponse("the host")

    return Starlette(routes=[Route("/", front), Mount("/tools", app=inner)])


def fastapi_app(inner: Any) -> Any:
    app = FastAPI()
    app.mount("/tools", inner)
    return app


def quart_app(inner: Any) -> Any:
    app = quart.Quart("host")
    rest = app.asgi_app

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/tools"):
            await inner({**scope, "root_path": "/tools"}, receive, send)
        else:
            await rest(scope, receive, send)

    app.asgi_app = dispatch  # type: ignore[method-assign]
    return app


def with_middleware(inner: Any) -> Any:
    app = starlette_app(inner)
    app.add_middleware(GZipMiddleware)
    return app


@contextlib.asynccontextmanager
async def client_of(app: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


@pytest.mark.row("ST-24")
@pytest.mark.parametrize("host", [starlette_app, fastapi_app, quart_app, with_middleware])
async def test_it_is_served_from_the_first_request_on(host: Callable[[Any], Any]) -> None:
    server = make_server()
    app = server.asgi()
    async with client_of(host(app)) as client:
        assert await use(client, "/tools/mcp") == {"result": 5}
        assert await use(client, "/tools/") == {"result": 5}
    await app.close()


@pytest.mark.row("ST-24")
async def test_alone_it_is_an_application_too() -> None:
    app = make_server().asgi(HttpConfig(path="/here"))
    async with client_of(app) as client:
        assert await use(client, "/here") == {"result": 5}
        assert (await client.get("/elsewhere")).status_code == 404
    await app.close()


async def test_many_first_requests_start_one_company() -> None:
    server = make_server()
    app = server.asgi()
    async with client_of(app) as client:
        answers = await asyncio.gather(*(use(client, "/mcp") for _ in range(20)))
    assert answers == [{"result": 5}] * 20
    await app.close()


async def test_a_first_request_that_goes_away_does_not_take_the_others_with_it() -> None:
    server = make_server()
    app = server.asgi()
    async with client_of(app) as client:
        first = asyncio.ensure_future(use(client, "/mcp"))
        second = asyncio.ensure_future(use(client, "/mcp"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == {"result": 5}
    await app.close()


def test_each_loop_has_a_company_of_its_own() -> None:
    app = make_server().asgi()

    async def once() -> Any:
        assert node_of(asyncio.get_running_loop()) is None
        async with client_of(app) as client:
            return await use(client, "/mcp")

    assert [asyncio.run(once()) for _ in range(3)] == [{"result": 5}] * 3  # and nobody has closed anything


def test_loops_that_were_left_are_not_kept_in_memory() -> None:
    app = make_server().asgi()
    nodes: list[weakref.ref[Node]] = []

    async def once() -> None:
        async with client_of(app) as client:
            await use(client, "/mcp")
        node = node_of(asyncio.get_running_loop())
        assert node is not None
        nodes.append(weakref.ref(node))

    for _ in range(3):
        asyncio.run(once())
    gc.collect()
    assert [node() is None for node in nodes] == [True, True, False]


def test_a_client_that_runs_each_request_in_a_loop_of_its_own_is_told_that_its_session_is_gone() -> None:
    client: Any = TestClient(starlette_app(make_server().asgi()), base_url="http://localhost")
    hello = client.post("/tools/mcp", json=HELLO, headers=ACCEPT)
    assert hello.status_code == 200
    headers = {**ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
    ping = client.post("/tools/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=headers)
    assert ping.status_code == 404


def test_a_host_that_passes_its_lifespan_on_has_it_ready_before_and_stopped_after() -> None:
    server = make_server()
    hosted: Any = TestClient(server.asgi(), base_url="http://localhost")
    with hosted as client:
        hello = client.post("/mcp", json=HELLO, headers=ACCEPT)
        headers = {**ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
        ping = client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=headers)
        assert ping.json()["result"] == {}


async def test_a_host_is_told_that_it_cannot_start() -> None:
    server = make_server()

    def broken() -> Any:
        raise RuntimeError("no company today")

    server._hosting._spec = broken
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(RuntimeError, match="no company today"):
        await server.asgi()({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "lifespan.startup.failed", "message": "no company today"}]


async def test_two_servers_in_one_host_share_the_loop_and_nothing_else() -> None:
    first, second = make_server().asgi(), make_server().asgi()
    app = Starlette(routes=[Mount("/one", app=first), Mount("/two", app=second)])
    async with client_of(app) as client:
        assert await use(client, "/one/mcp") == {"result": 5}
        hello = await client.post("/two/mcp", json=HELLO, headers=ACCEPT)
        headers = {**ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await client.post("/one/mcp", json=ping, headers=headers)).status_code == 404
        await first.close()
        assert (await client.post("/two/mcp", json=ping, headers=headers)).status_code == 200
    await second.close()


async def test_a_company_that_has_given_up_is_started_anew_by_the_next_request() -> None:
    server = make_server()
    app = server.asgi()
    async with client_of(app) as client:
        await use(client, "/mcp")
        top = server._hosting._lodgings[asyncio.get_running_loop()].top
        company = whereis(server.company.name("company"))
        kill(top)
        await wait_down(company)
        assert await use(client, "/mcp") == {"result": 5}
    await app.close()
