"""Pages of the author's own beside the endpoint (`server.http`), and who may use them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from quart import request

from greenroom import Client, HttpConfig, Server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def server_with_pages() -> Server:
    server = Server("weather")
    written: list[str] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.http.get("/status")
    async def status() -> dict[str, Any]:
        return {"up": True, "written": written}

    @server.http.post("/notes")
    async def note() -> str:
        written.append("note")
        return "written"

    return server


@asynccontextmanager
async def listening(server: Server, **settings: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0, **settings))
        async with httpx.AsyncClient(base_url=url.removesuffix("/mcp"), trust_env=False) as client:
            yield client


async def test_own_pages_stand_beside_the_endpoint_and_the_front_page() -> None:
    async with listening(server_with_pages()) as client:
        assert (await client.get("/status")).json() == {"up": True, "written": []}
        assert (await client.get("/", headers={"accept": "text/html"})).json()["server"] == "weather"
        assert (await client.get("/nothing")).status_code == 404
        async with Client(f"{client.base_url}/mcp") as caller:
            assert await caller.call("add", a=1, b=2) == 3


async def test_an_own_front_page_takes_the_place_of_the_other() -> None:
    server = server_with_pages()

    @server.http.get("/")
    async def front() -> str:
        return "welcome"

    async with listening(server) as client:
        assert (await client.get("/", headers={"accept": "text/html"})).text == "welcome"
        assert (await client.get("/", headers={"accept": "text/event-stream"})).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"host": "evil.example"}, 404),
    ],
)
async def test_what_changes_a_state_is_for_allowed_origins_and_hosts(headers: dict[str, str], status: int) -> None:
    async with listening(server_with_pages()) as client:
        assert (await client.post("/notes", headers=headers)).status_code == status
        assert (await client.get("/status")).json()["written"] == (["note"] if status == 200 else [])


async def test_own_pages_have_the_bounds_of_the_listener() -> None:
    server = server_with_pages()

    @server.http.put("/large")
    async def large() -> str:
        return str(len(await request.get_data()))

    async with listening(server, max_body=1000) as client:
        assert (await client.put("/large", content=b"x" * 1000)).text == "1000"
        assert (await client.put("/large", content=b"x" * 1001)).status_code == 413


async def test_a_mounted_server_has_its_own_pages_below_its_mount_point() -> None:
    server = server_with_pages()
    app = server.asgi()
    async with (
        app.lifespan(),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app, root_path="/tools"), base_url="http://127.0.0.1"
        ) as client,
    ):
        assert (await client.get("/tools/status")).json()["up"] is True
        assert (await client.get("/tools/", headers={"accept": "application/json"})).status_code >= 400
        assert (await client.get("/tools/nothing")).status_code == 404


async def test_a_mounted_server_without_pages_has_its_endpoint_alone() -> None:
    app = Server("weather").asgi()
    async with (
        app.lifespan(),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        assert (await client.get("/", headers={"accept": "text/html"})).status_code == 406
        assert (await client.get("/status")).status_code == 404
