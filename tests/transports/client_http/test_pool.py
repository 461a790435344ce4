"""Failed connections in the pool: what is reported, that nothing is left of them, and that waiting requests continue."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError
from greenroom.supervision import Crash
from greenroom.transports.client import http_connection_pool
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost
from greenroom.transports.client.http_address import dial
from greenroom.transports.client.http_connection_pool import HttpConnectionPool
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import UnansweredRequest

from .wire_and_server import lost, responding, wire_and_server
from .wire_owner import HELLO, WireEndedError, open_wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .scripted_server import ReceivedRequest

pytestmark = pytest.mark.greenroom(clock="real")


@asynccontextmanager
async def answering_port(answer: Any) -> AsyncGenerator[int]:
    """A port that handles each connection like this."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def test_a_connection_closed_at_once_has_received_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def late(host: str, port: int) -> socket.socket:
        """So late that the request is over already."""
        raw = await dial(host, port)
        poll = select.poll()
        poll.register(raw, 0)
        while not poll.poll(0):  # noqa: ASYNC110 - the kernel has no event
            await asyncio.sleep(0.001)
        return raw

    monkeypatch.setattr(http_connection_pool, "dial", late)
    async with answering_port(close_at_once) as port, open_wire(HttpRoute(f"http://127.0.0.1:{port}/mcp")) as owner:
        id = owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert isinstance(heard.error, ConnectFailed)
        assert "it closed the connection at once" in str(heard.error)
        assert (heard.id, heard.resend) == (id, True)
        assert isinstance(owner.wire.carrier, HttpConnectionPool)
        assert len(owner.wire.carrier) == 0


async def test_a_silent_server_times_out_in_its_tls_handshake() -> None:
    silent: list[asyncio.StreamWriter] = []

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.append(writer)
        await reader.read(-1)
        writer.close()

    settings = HttpSettings(connect_timeout=0.1, max_connections=1)
    async with (
        answering_port(stay_silent) as port,
        open_wire(HttpRoute(f"https://127.0.0.1:{port}/mcp", settings=settings)) as owner,
    ):
        ids = [owner.ask("initialize", HELLO), owner.ask("ping")]  # the second request waits for the first
        for id in ids:
            heard = await owner.hear()
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, ConnectFailed)
            assert (heard.id, heard.resend) == (id, True)
        assert len(silent) == 2


async def test_a_server_without_tls_is_reported() -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with answering_port(plain) as port, open_wire(HttpRoute(f"https://127.0.0.1:{port}/mcp")) as owner:
        owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert isinstance(heard.error, ConnectFailed)
        assert heard.resend


async def test_a_request_forgotten_at_once_is_never_sent() -> None:
    async with wire_and_server(responding(b"", end="wait"), HttpSettings(max_connections=2)) as (owner, server):
        ids = [owner.call("any") for _ in range(5)]
        for id in ids:
            owner.wire.forget(id)
        assert await owner.answer(owner.ask("ping"))
        assert isinstance(owner.wire.carrier, HttpConnectionPool)
        assert not owner.wire.carrier._queued
        assert not owner.wire.carrier._connecting
        assert len(server.seen("tools/call")) <= 2
        assert owner.silent()


async def _ends_of_a_bug(owner: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(owner.wire, where, broken)
    owner.call("any")
    with pytest.raises(WireEndedError) as caught:
        await owner.hear()
    assert isinstance(caught.value.reason, Crash)


async def test_an_exception_while_a_reply_is_delivered_ends_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    async with wire_and_server() as (owner, _):
        await _ends_of_a_bug(owner, "deliver", monkeypatch)


async def test_an_exception_while_a_loss_is_delivered_ends_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut(received: ReceivedRequest) -> None:
        received.close()

    async with wire_and_server(cut) as (owner, _):
        await _ends_of_a_bug(owner, "on_unanswered", monkeypatch)


async def test_a_response_of_unknown_length_that_is_reset_is_lost() -> None:
    async def half(received: ReceivedRequest) -> None:
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{")
        received.reset()

    async with wire_and_server(half) as (owner, _):
        heard = await lost(owner)
        assert isinstance(heard.error, ConnectionLost)
        assert not heard.resend


@pytest.mark.parametrize(
    ("wrong", "value"),
    [
        *(("connect_timeout", 0), ("send_timeout", -1), ("max_connections", 0), ("max_waiting", 0)),
        *(("max_response", 0), ("max_event", -5), ("idle", -1), ("retry", -0.1), ("max_retry", -1), ("resumes", -1)),
        *(("close_grace", -1), ("redirects", -1), ("silence", 0), ("silence", -1), ("connect_timeout", float("nan"))),
    ],
)
def test_invalid_settings_are_refused_by_name(wrong: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{wrong} must be .*, not {value!r}"):
        HttpSettings(**{wrong: value})  # type: ignore[arg-type]
