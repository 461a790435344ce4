"""The ASGI endpoint under an ASGI server played by hand: mount points, limits of reading, and disconnects at any moment."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision.testing import advance
from greenroom.transports.asgi import AsgiEndpoint, AsgiRouter, relative_path
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.quart_door import make_pages

from .engine_driver import BOTH, HELLO
from .fake_sessions import FakeSessionRouter
from .raw_http import message, running_listener

if TYPE_CHECKING:
    from greenroom.transports.asgi import App, Receive, Scope, Send

STREAM = message("stream", finish=False)


class Server:
    """Plays an ASGI server for one request."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.broken: Exception | None = None
        self.stalled: asyncio.Event | None = None

    async def send(self, event: Any) -> None:
        if self.stalled is not None:
            await self.stalled.wait()
        if self.broken is not None:
            raise self.broken
        self.sent.append(event)

    def body(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.incoming.put_nowait({"type": "http.request", "body": chunk, "more_body": True})

    def end(self) -> None:
        self.incoming.put_nowait({"type": "http.request"})

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    def begin(self, method: str = "POST", path: str = "/mcp", root: str = "", **headers: str) -> asyncio.Task[None]:
        said = {"host": "localhost", "accept": BOTH, "content-type": "application/json", **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": root,
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in said.items()],
            "client": ("127.0.0.1", 5),
        }
        return asyncio.create_task(_run(self.app(scope, self.incoming.get, self.send)))

    async def ask(
        self, method: str = "POST", path: str = "/mcp", root: str = "", body: bytes = b"", **headers: str
    ) -> int:
        self.body(body)
        self.end()
        await self.begin(method, path, root, **headers)
        return self.status

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def text(self) -> bytes:
        return b"".join(event["body"] for event in self.sent[1:])


async def _run(awaitable: Any) -> None:
    await awaitable


@pytest.fixture
def router() -> FakeSessionRouter:
    return FakeSessionRouter()


def endpoint(router: FakeSessionRouter, **settings: Any) -> AsgiEndpoint:
    return AsgiEndpoint(HttpEngine(router, HttpConfig(**settings)))


# --- mount points


@pytest.mark.row("ST-24")
@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/mcp", ""),
        ("/api/mcp", "/api"),  # servers and frameworks that keep the mount point in `path`
        ("/mcp", "/api"),  # those that remove it
        ("/mcp/mcp", "/mcp"),
        ("/mcp", "/mcp"),  # mounted at its own path: the root of the mounted application
        ("/mcp/", "/mcp"),
        ("/tools/", "/tools"),
        ("", "/tools"),
    ],
)
async def test_the_endpoint_is_found_at_every_mount_point(router: FakeSessionRouter, path: str, root: str) -> None:
    assert await Server(endpoint(router)).ask(path=path, root=root, body=json.dumps(HELLO).encode()) == 200


@pytest.mark.row("ST-24")
async def test_the_endpoint_is_at_no_other_path(router: FakeSessionRouter) -> None:
    for path, root in (("/apix/mcp", "/api"), ("/other", ""), ("/api/other", "/api")):
        assert await Server(endpoint(router)).ask(path=path, root=root) == 404
    assert relative_path({"path": "/apimcp", "root_path": "/api"}) == "/apimcp"


@pytest.mark.row("ST-24")
async def test_the_endpoint_can_be_mounted_in_a_quart_application() -> None:
    from quart import Quart  # noqa: PLC0415 - the host's, not ours

    router = FakeSessionRouter()
    host, inner = Quart("host"), endpoint(router)

    @host.get("/other")
    async def other() -> str:  # pyright: ignore[reportUnusedFunction]
        return "the host's"

    rest: Any = host.asgi_app

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await (inner if scope["path"].startswith("/mcp") else rest)(scope, receive, send)

    host.asgi_app = dispatch  # type: ignore[method-assign,assignment]
    async with running_listener(host) as opened:  # type: ignore[arg-type]
        client = await opened.client()
        assert (await client.ask("POST", body=json.dumps(HELLO).encode())).status == 200
        assert (await client.call("echo")).status == 200
        assert (await client.ask("GET", "/other")).body == b"the host's"
        assert (await client.ask("GET", "/nothing")).status == 404


async def test_a_lifespan_is_answered_but_not_needed(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router))
    for event in ("startup", "shutdown"):
        server.incoming.put_nowait({"type": f"lifespan.{event}"})
    await server.app({"type": "lifespan"}, server.incoming.get, server.send)
    assert [event["type"] for event in server.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_closed_before_it_opens(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router))
    server.incoming.put_nowait({"type": "websocket.connect"})
    await server.app({"type": "websocket", "path": "/mcp", "headers": []}, server.incoming.get, server.send)
    assert [event["type"] for event in server.sent] == ["websocket.close"]


# --- reading


async def test_a_body_may_arrive_in_any_pieces(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router))
    for byte in json.dumps(HELLO).encode():
        server.body(bytes([byte]))
    server.end()
    await server.begin()
    assert server.status == 200


@pytest.mark.row("ST-27")
async def test_a_body_over_the_limit_is_read_but_not_kept(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router, max_body=1000))
    server.body(*[b"x" * 600] * 4)
    server.end()
    await server.begin()
    assert server.status == 413
    assert server.incoming.empty()  # it was read, so that the response is not lost with the connection


async def test_a_body_without_end_times_out(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router, body_timeout=7.0))
    task = server.begin()
    for _ in range(6):
        server.body(b" ")
        await advance(1)
    assert not task.done()
    await advance(1.1)
    await task
    assert server.status == 408


async def test_a_slow_body_within_the_timeout_is_accepted(router: FakeSessionRouter) -> None:
    app = endpoint(router, body_timeout=7.0)
    await _entered(router, app)
    server = Server(app)
    task = server.begin(mcp_session_id="s1")
    body = message("wait")
    server.body(body[:10])
    await advance(6)
    server.body(body[10:])
    server.end()
    await advance(60)  # the body's timeout does not apply any more
    assert not task.done()
    server.leave()
    await task
    assert router.sessions["s1"].given_up == 1


async def test_the_rest_of_a_refused_body_is_read_for_a_moment_only(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router))
    task = server.begin(origin="https://evil.example")
    server.body(b"x")
    await advance(1.9)
    assert not server.sent
    await advance(0.2)
    await task
    assert server.status == 403


async def test_a_peer_that_disconnects_during_its_body_starts_no_call(router: FakeSessionRouter) -> None:
    server = Server(endpoint(router))
    server.body(b'{"jsonrpc"')
    server.leave()
    await server.begin()
    assert server.status == 499


# --- writing


async def _entered(router: FakeSessionRouter, app: App) -> None:
    assert await Server(app).ask(body=json.dumps(HELLO).encode()) == 200
    assert list(router.sessions) == ["s1"]


async def test_a_disconnect_ends_the_wait_for_the_reply(router: FakeSessionRouter) -> None:
    app = endpoint(router)
    await _entered(router, app)
    server = Server(app)
    server.body(message("wait"))
    server.end()
    task = server.begin(mcp_session_id="s1")
    await advance(60)
    session = router.sessions["s1"]
    assert session.waiting == 1
    server.leave()
    await task
    assert (session.given_up, session.ended) == (1, False)
    assert server.status == 499  # the client is gone, but frameworks expect a response


@pytest.mark.parametrize("quick", [True, False])
async def test_a_stream_watches_for_the_disconnect_from_its_first_moment(
    router: FakeSessionRouter,
    quick: bool,  # noqa: FBT001
) -> None:
    app = endpoint(router)
    await _entered(router, app)
    server = Server(app)
    server.body(STREAM)
    server.end()
    task = server.begin(mcp_session_id="s1")
    await advance(0 if quick else 100)
    server.leave()
    await task
    assert router.sessions["s1"].feeds[0].left == 1


async def test_a_send_over_the_write_timeout_ends_the_stream(router: FakeSessionRouter) -> None:
    app = endpoint(router, write_timeout=10.0)
    await _entered(router, app)
    server = Server(app)
    server.body(STREAM)
    server.end()
    task = server.begin(mcp_session_id="s1")
    await advance(0)
    server.stalled = asyncio.Event()
    router.sessions["s1"].feeds[0].put(b"{}")
    await advance(9.9)
    assert not task.done()
    await advance(0.2)
    await task
    assert router.sessions["s1"].feeds[0].left == 1
    assert not router.sessions["s1"].ended


@pytest.mark.parametrize("error", [OSError("broken"), ConnectionResetError(), RuntimeError("after disconnect")])
async def test_every_exception_for_a_disconnect_ends_the_stream(router: FakeSessionRouter, error: Exception) -> None:
    app = endpoint(router)
    await _entered(router, app)
    server = Server(app)
    server.body(STREAM)
    server.end()
    task = server.begin(mcp_session_id="s1")
    await advance(0)
    server.broken = error
    router.sessions["s1"].feeds[0].put(b"{}")
    await task
    assert router.sessions["s1"].feeds[0].left == 1


async def test_a_server_may_cancel_a_request(router: FakeSessionRouter) -> None:
    app = endpoint(router)
    await _entered(router, app)
    for body in (message("wait"), STREAM):
        server = Server(app)
        server.body(body)
        server.end()
        task = server.begin(mcp_session_id="s1")
        await advance(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not router.sessions["s1"].ended


# --- the ASGI router


async def test_the_front_page_is_served_by_quart_and_the_endpoint_is_not() -> None:
    router = FakeSessionRouter()
    engine = HttpEngine(router, HttpConfig(max_body=1234, body_timeout=9.0))
    config = make_pages("weather", engine.config).config
    assert (config["MAX_CONTENT_LENGTH"], config["BODY_TIMEOUT"]) == (1234, 9.0)
    assert config["RESPONSE_TIMEOUT"] is None

    async with running_listener(AsgiRouter(engine, name="weather")) as opened:
        client = await opened.client()
        front = await client.ask("GET", "/", accept="text/html, */*")
        assert front.json == {"server": "weather", "status": "ok", "mcp": "/mcp"}
        assert (await client.ask("HEAD", "/", accept="*/*")).status == 200
        assert (await client.ask("GET", "/nothing")).status == 404
        assert (await client.ask("POST", "/", body=json.dumps(HELLO).encode())).status == 200
        assert (await client.ask("POST", body=json.dumps(HELLO).encode())).status == 200
        assert (await client.ask("GET", "/", accept="text/event-stream")).status == 400
        assert (await client.ask("PUT")).json["error"]["message"] == "Method not allowed"
        for path in ("/", "/mcp"):
            answer = await client.ask("GET", path, host="evil.example", accept="*/*")
            assert answer.status in (403, 404)
            assert b"weather" not in answer.body
    assert list(router.sessions) == ["s1", "s2"]
