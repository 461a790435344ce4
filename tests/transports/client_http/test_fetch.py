"""Documents fetched from URLs that others have named: complete, in time and only from there, or not at all with a reason."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, NotMcp, ResponseTooLarge, SilentTooLong
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard

from .scripted_server import ReceivedRequest, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .scripted_server import Handler, ScriptedServer

pytestmark = pytest.mark.greenroom(clock="real")
HERE = Guard(loopback=True)


def raw(*pieces: bytes, stays: bool = False) -> Handler:
    """Responds so, byte for byte, and then closes or waits."""

    async def handler(received: ReceivedRequest) -> None:
        for piece in pieces:
            await received.send(piece)
        if stays:
            await received.gone()
        received.close()

    return handler


@asynccontextmanager
async def document(handler: Handler) -> AsyncGenerator[ScriptedServer]:
    async with scripted_server(GET=handler) as server:
        yield server


async def test_a_redirect_keeps_headers_within_the_origin_only() -> None:
    async def found(received: ReceivedRequest) -> None:
        await received.reply(200, b"{}")

    async def moved(received: ReceivedRequest) -> None:
        if received.path == "/mcp":
            await received.reply(302, location="/b")
        else:
            await received.reply(307, location=other.url)

    async with document(found) as other, document(moved) as server:
        fetch = Fetcher(HERE, redirects=2)
        answer = await fetch(server.url, headers={"authorization": "Bearer hush"})
        assert (answer.status, answer.body, answer.url) == (200, b"{}", other.url)
        assert [each.headers.get("authorization") for each in server.requests] == ["Bearer hush"] * 2
        assert "authorization" not in other.requests[0].headers


async def test_redirects_in_a_circle_and_to_invalid_urls_are_refused() -> None:
    async def circle(received: ReceivedRequest) -> None:
        await received.reply(302, location="/mcp")

    places = iter(("gopher://old.invalid/", "//["))

    async def nowhere(received: ReceivedRequest) -> None:
        await received.reply(302, location=next(places))

    async with document(circle) as server:
        with pytest.raises(NotMcp, match="more than 2 redirects"):
            await Fetcher(HERE, redirects=2)(server.url)
        assert len(server.requests) == 3
    async with document(nowhere) as server:
        for _ in range(2):
            with pytest.raises(NotMcp, match="this URL cannot be fetched"):
                await Fetcher(HERE, redirects=2)(server.url, headers={"authorization": "Bearer hush"})


async def test_a_missing_server_and_an_invalid_url_are_reported() -> None:
    async with scripted_server() as closed:
        pass
    with pytest.raises(ConnectFailed, match="no server listens there"):
        await Fetcher(HERE)(closed.url)
    for url in ("", "mcp", "ftp://x/", "http://"):
        with pytest.raises(NotMcp, match="this URL cannot be fetched"):
            await Fetcher(HERE)(url)


async def test_a_response_without_length_ends_with_its_connection_and_a_cut_one_is_refused() -> None:
    async with document(raw(b"HTTP/1.1 200 OK\r\nx-a: b\r\n\r\n", b'{"a": ', b"1}")) as server:
        answer = await Fetcher(HERE)(server.url)
        assert json.loads(answer.body) == {"a": 1}
        assert answer.headers["x-a"] == "b"
    for cut in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}"):
        async with document(raw(cut)) as server:
            with pytest.raises(ConnectionLost, match="closed the connection before the response was complete"):
                await Fetcher(HERE)(server.url)


async def test_invalid_http_and_oversized_responses_are_refused() -> None:
    async with document(raw(b"SSH-2.0-OpenSSH\r\n\r\n", stays=True)) as server:
        with pytest.raises(NotMcp, match="does not speak HTTP"):
            await Fetcher(HERE)(server.url)
    async with document(raw(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 2000, stays=True)) as server:
        with pytest.raises(ResponseTooLarge):
            await Fetcher(HERE, size=1000)(server.url)


async def test_the_timeout_is_for_all_redirects_and_no_secret_of_the_url_is_shown() -> None:
    async with document(raw(b"HTTP/1.1 200 OK\r\n", stays=True)) as server:
        with pytest.raises(SilentTooLong, match=r"had not answered after 0\.1 s") as caught:
            await Fetcher(HERE, seconds=0.1)(f"{server.url}?key=hidden")
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "headers", [{"a": "b\r\nc: d"}, {"a\r\nb": "c"}, {"a": "ü"}, {"ü": "a"}], ids=["value", "name", "value ü", "name ü"]
)
async def test_an_invalid_header_is_not_sent(headers: dict[str, str]) -> None:
    async with scripted_server() as server:
        with pytest.raises(NotMcp, match="cannot be sent"):
            await Fetcher(HERE)(server.url, headers=headers)
        assert not server.connections


async def test_a_connection_reset_is_reported() -> None:
    async def half(received: ReceivedRequest) -> None:
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}")
        received.reset()

    async with document(half) as server:
        with pytest.raises(ConnectionLost, match="before the response was complete"):
            await Fetcher(HERE)(server.url)


async def test_an_unknown_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def nothing(*_: object, **__: object) -> list[object]:
        return []

    for names in (unknown, nothing):
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
        with pytest.raises(ConnectFailed, match=r"https://unknown\.invalid"):
            await Fetcher(HERE)("https://unknown.invalid/keys")
    monkeypatch.undo()
    with pytest.raises(ConnectFailed):
        await Fetcher(HERE)(f"https://{'x' * 70}.invalid/keys")  # longer than a name may be


async def test_a_server_without_tls_is_reported_for_an_https_url() -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
        with pytest.raises(ConnectFailed):
            await Fetcher(HERE)(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/keys")
