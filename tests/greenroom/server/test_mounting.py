"""A server mounted in another ASGI application, without wiring, whatever the application's event loops do."""

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
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser, UnauthenticatedUser
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from greenroom import Context, HttpConfig, Server
from greenroom.asgi_mount import starlette_user
from greenroom.auth import AuthInfo
from greenroom.supervision import kill, wait_down, whereis
from greenroom.supervision.kernel.process_lookup import node_of

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
async def test_a_mounted_server_serves_from_the_first_request_on(host: Callable[[Any], Any]) -> None:
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


async def test_a_cancelled_first_request_does_not_cancel_the_others() -> None:
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

    assert [asyncio.run(once()) for _ in range(3)] == [{"result": 5}] * 3  # and nothing was closed


@pytest.mark.deep
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


def test_a_client_with_a_loop_for_each_request_is_told_that_its_session_has_ended() -> None:
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

    server._runner._spec = broken
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
        top = server._runner._children[asyncio.get_running_loop()].top
        company = whereis(server.company.name("company"))
        kill(top)
        await wait_down(company)
        assert await use(client, "/mcp") == {"result": 5}
    await app.close()


# --- what a host has opened and found out


def opening(server: Server, said: list[str]) -> None:
    @server.lifespan
    async def pool() -> AsyncGenerator[None]:
        said.append("open")
        yield
        said.append("closed")  # not in a `finally`: most write it so


@pytest.mark.parametrize("make", [Starlette, FastAPI])
async def test_a_host_has_the_lifespan_of_what_it_mounts_in_one_line(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    server = make_server()
    opening(server, said)
    mcp = server.asgi()
    app = make(lifespan=mcp.lifespan)
    app.mount("/tools", mcp)
    async with app.router.lifespan_context(app):
        assert said == ["open"]
        async with client_of(app) as client:
            assert await use(client, "/tools/mcp") == {"result": 5}
    assert said == ["open", "closed"]
    assert "lifespan" not in caplog.text


def test_a_server_opened_without_a_lifespan_is_closed_when_the_loop_ends(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    server = make_server()
    opening(server, said)
    app = starlette_app(server.asgi())

    async def main() -> None:
        async with client_of(app) as client:
            assert await use(client, "/tools/mcp") == {"result": 5}
        assert said == ["open"]

    asyncio.run(main())
    assert said == ["open", "closed"]
    assert caplog.text.count("lifespan=app.lifespan") == 1


class _Session:
    """A session of one user of the host."""

    def __init__(self, client: httpx.AsyncClient, user: str) -> None:
        self.client = client
        self.headers = {**ACCEPT, "x-user": user}

    async def enter(self) -> None:
        hello = await self.client.post("/tools/mcp", json=HELLO, headers=self.headers)
        self.headers["mcp-session-id"] = hello.headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.client.post("/tools/mcp", json=ready, headers=self.headers)).status_code == 202

    async def ask(self, method: str, **params: Any) -> httpx.Response:
        message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        return await self.client.post("/tools/mcp", json=message, headers=self.headers)

    async def call(self, name: str, **more: Any) -> Any:
        return (await self.ask("tools/call", name=name, arguments={}, **more)).json()


def who_calls() -> Server:
    server = make_server()

    @server.tool(task_support="optional")
    async def who(ctx: Context) -> str:
        return "no caller" if ctx.auth is None else f"{ctx.auth.subject} {' '.join(sorted(ctx.auth.scopes or ()))}"

    @server.tool(scopes=["write"])
    async def change() -> str:
        return "changed"

    return server


class _Users(AuthenticationBackend):
    """By a header, as a host's own sign-in would."""

    async def authenticate(self, conn: Any) -> Any:
        user = conn.headers.get("x-user")
        scopes = ["read", "write"] if user == "ada" else ["read"]
        return None if not user else (AuthCredentials(scopes), SimpleUser(user))


def by_middleware(server: Server) -> Any:
    app = starlette_app(server.asgi())
    app.add_middleware(AuthenticationMiddleware, backend=_Users())
    return app


def by_function(server: Server) -> Any:
    async def caller(scope: Any) -> AuthInfo | None:
        user = dict(scope["headers"]).get(b"x-user", b"").decode()
        scopes = frozenset(("read", "write") if user == "ada" else ("read",))
        return AuthInfo(user, scopes=scopes) if user else None

    return quart_app(server.asgi(caller=caller))


@pytest.mark.parametrize("host", [by_middleware, by_function])
async def test_a_caller_signed_in_by_a_host_is_known_to_tools_scopes_tasks_and_sessions(
    host: Callable[[Server], Any],
) -> None:
    server = who_calls()
    async with server.started(), client_of(host(server)) as client:
        ada, eve, anonymous = _Session(client, "ada"), _Session(client, "eve"), _Session(client, "")
        for each in (ada, eve, anonymous):
            await each.enter()
        assert (await ada.call("who"))["result"]["content"][0]["text"] == "ada read write"
        assert (await eve.call("who"))["result"]["content"][0]["text"] == "eve read"
        assert (await anonymous.call("who"))["result"]["content"][0]["text"] == "no caller"
        assert (await ada.call("change"))["result"]["content"][0]["text"] == "changed"
        assert (await eve.ask("tools/call", name="change", arguments={})).status_code == 403
        task = (await ada.call("who", task={}))["result"]["task"]["taskId"]
        assert (await ada.ask("tasks/result", taskId=task)).json()["result"]["content"][0]["text"] == "ada read write"
        assert "error" in (await eve.ask("tasks/get", taskId=task)).json()
        eve.headers["mcp-session-id"] = ada.headers["mcp-session-id"]
        assert (await eve.ask("ping")).status_code == 404


async def test_a_user_without_an_identity_is_no_principal() -> None:
    class Named(BaseUser):
        @property
        def is_authenticated(self) -> bool:
            return True

    found = starlette_user({"type": "http", "user": Named(), "auth": AuthCredentials(["read"])})
    assert found is not None
    assert (found.principal, found.scopes) == (None, frozenset({"read"}))
    assert starlette_user({"type": "http"}) is None
    assert starlette_user({"type": "http", "user": UnauthenticatedUser()}) is None


async def test_of_two_processes_each_has_sessions_of_its_own_and_none_are_needed_without_sessions() -> None:
    one, other = make_server(), make_server()
    apps = [one.asgi(), other.asgi()]
    async with client_of(apps[0]) as here, client_of(apps[1]) as there:
        hello = await here.post("/mcp", json=HELLO, headers=ACCEPT)
        headers = {**ACCEPT, "mcp-session-id": hello.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await there.post("/mcp", json=ping, headers=headers)).status_code == 404
    bare = [each.asgi(HttpConfig(session_enabled=False)) for each in (one, other)]
    for app in bare:
        async with client_of(app) as client:
            params = {"name": "add", "arguments": {"a": 2, "b": 3}}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            answer = await client.post("/mcp", json=call, headers={**ACCEPT, "mcp-protocol-version": "2025-11-25"})
            assert answer.json()["result"]["structuredContent"] == {"result": 5}
    for app in apps:
        await app.close()
