"""Connections are limited by address, and by the limit of open files: one address cannot take all of them, and a flood does not fill the log."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.errors import ConfigError
from greenroom.supervision.acceptor import PAUSE, connection_limit, reserved_descriptors, serve
from greenroom.supervision.testing import advance
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.http_listener import HttpListener
from greenroom.transports.interfaces import Peer
from greenroom.transports.open_connections import TrustedProxies, source_of

from .fake_sessions import FakeSessionRouter
from .raw_http import RawClient, RunningListener, running_listener

if TYPE_CHECKING:
    from collections.abc import Generator

log = logging.getLogger("greenroom.http")


@pytest.fixture(params=[False, True], ids=["ours", "hypercorn"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"hypercorn": request.param}


async def client_from(opened: RunningListener, address: str) -> RawClient:
    """A client that connects from one of the loopback addresses, which stand for different machines here."""
    client = RawClient(*await asyncio.open_connection("127.0.0.1", opened.port, local_addr=(address, 0)))
    opened.clients.append(client)
    return client


async def is_refused(client: RawClient) -> bool:
    return (await client.rest()).startswith(b"HTTP/1.1 503 ")


async def served(client: RawClient) -> bool:
    return (await client.ask("OPTIONS")).status == 204


async def test_one_address_has_a_quarter_of_the_connections(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with running_listener(**settings, max_connections=40, trusted_proxies=()) as opened:
        greedy = [await client_from(opened, "127.0.0.2") for _ in range(10)]
        assert await served(greedy[-1])
        for _ in range(3):
            assert await is_refused(await client_from(opened, "127.0.0.2"))
        assert await served(await client_from(opened, "127.0.0.3"))
        assert [
            each.levelname for each in caplog.records if each.name == "greenroom.http" and "127.0.0.2" in each.message
        ] == ["WARNING"]
        greedy[0].abort()
        ref = await opened.listener()
        for _ in range(10_000):  # the server notices the end of the connection in one of the next turns of the loop
            if await ref.call(HttpListener.connections) == 10:
                break
        assert await served(await client_from(opened, "127.0.0.2"))
        assert await is_refused(await client_from(opened, "127.0.0.2"))


async def test_the_share_of_an_address_can_be_set() -> None:
    async with running_listener(max_connections=40, max_connections_per_address=2, trusted_proxies=[]) as opened:
        for address in ("127.0.0.2", "127.0.0.3"):
            for _ in range(2):
                assert await served(await client_from(opened, address))
            assert await is_refused(await client_from(opened, address))


async def test_a_proxy_on_this_machine_is_not_counted_by_default() -> None:
    async with running_listener(max_connections=12, max_connections_per_address=1) as opened:
        for _ in range(12):
            assert await served(await client_from(opened, "127.0.0.1"))


async def test_only_the_named_proxies_are_trusted() -> None:
    async with running_listener(max_connections_per_address=1, trusted_proxies=["127.0.0.8/30"]) as opened:
        for _ in range(3):
            assert await served(await client_from(opened, "127.0.0.9"))
        for address in ("127.0.0.1", "127.0.0.12"):
            assert await served(await client_from(opened, address))
            assert await is_refused(await client_from(opened, address))


@pytest.mark.parametrize("given", [False, True])
async def test_sessions_learn_which_addresses_are_proxies(given: bool) -> None:  # noqa: FBT001 - a table's column
    """Counts by address exclude proxies, also if an application in front has authenticated the principal."""
    for listed, proxied in ((None, True), ((), False), (["127.0.0.1"], True), (["10.0.0.0/8"], False)):
        router = FakeSessionRouter()
        engine = HttpEngine(router, HttpConfig(trusted_proxies=listed))
        peer = Peer("http", "127.0.0.1:7", "ann") if given else None
        headers = [("host", "127.0.0.1"), ("mcp-session-id", "s1")]
        await engine.handle("DELETE", "/mcp", headers, b"", Ignored(), address="127.0.0.1:7", peer=peer)
        (_, found) = router.looked_for[-1]
        assert (found.address, found.principal, found.proxied) == ("127.0.0.1:7", "ann" if given else None, proxied)


class Ignored:
    """A responder whose response does not matter."""

    http_version = "1.1"
    around = None

    async def reply(self, status: int, headers: object, body: bytes = b"") -> None: ...

    async def stream_start(self, status: int, headers: object, *, until_eof: bool = False) -> None: ...

    async def stream_chunk(self, data: bytes) -> bool:
        return bool(data)

    async def stream_end(self) -> None: ...


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1:2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("example.com", "example.org", False),
    ],
)
def test_addresses_are_counted_by_network(one: str, other: str, same: bool) -> None:  # noqa: FBT001 - a table's column
    assert (source_of(one) == source_of(other)) is same


def test_trusted_proxies_are_parsed_as_addresses_and_networks() -> None:
    default = TrustedProxies()
    assert all(each in default for each in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"))
    assert all(each not in default for each in ("10.0.0.1", "::2", "localhost", ""))
    named = TrustedProxies(["10.0.0.0/8", "2001:db8::/32", "::ffff:192.0.2.0/120"])
    assert all(each in named for each in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7", "192.0.2.9"))
    assert all(each not in named for each in ("127.0.0.1", "::1", "11.0.0.1", "192.0.3.1"))
    for wrong in ("10.0.0.1/8", "proxy.example", "10.0.0.0/33", ""):
        with pytest.raises(ConfigError, match="trusted_proxies"):
            HttpConfig(trusted_proxies=[wrong])
    with pytest.raises(ConfigError, match="trusted_proxies"):
        HttpConfig(trusted_proxies="10.0.0.1")
    for share in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="max_connections_per_address"):
            HttpConfig(max_connections_per_address=share)  # type: ignore[arg-type]


# --- the limit of open files


@contextmanager
def limited_to(files: int) -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def lowest_free() -> int:
    found = os.dup(0)
    os.close(found)
    return found


@pytest.mark.parametrize(
    ("files", "connections", "free"), [(1024, 768, 64), (64, 48, 16), (20, 4, 10), (1, 1, 0), (1 << 20, 786432, 65536)]
)
def test_a_quarter_of_the_descriptors_is_reserved(files: int, connections: int, free: int) -> None:
    assert (connection_limit(files), reserved_descriptors(files)) == (connections, free)


def five(files: int) -> int:
    return min(files, 5)


async def test_connections_stay_within_the_limit_of_open_files(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_listener(**settings) as opened:
        base = lowest_free()
        monkeypatch.setattr("greenroom.transports.open_connections.connection_limit", five)
        kept = [await client_from(opened, "127.0.0.1") for _ in range(5)]
        assert await served(kept[-1])
        assert await is_refused(await client_from(opened, "127.0.0.1"))
        assert await served(kept[0])
        assert "ulimit -n" in caplog.text
        assert base < lowest_free()


async def test_the_last_descriptors_are_reserved_whatever_uses_the_others(settings: dict[str, Any]) -> None:
    async with running_listener(**settings) as opened:
        first = await client_from(opened, "127.0.0.1")
        assert await served(first)
        with limited_to(lowest_free() + 40):
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            others: list[int] = []
            try:
                while len(others) < 200 and lowest_free() < files - reserved_descriptors(files):
                    others.append(os.dup(0))
                refused = await client_from(opened, "127.0.0.1")
                assert await is_refused(refused)
                assert await served(first)
            finally:
                for each in others:
                    os.close(each)
        assert await served(await client_from(opened, "127.0.0.1"))


async def test_a_listener_without_descriptors_pauses_and_logs_one_line_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Open connections are served meanwhile, and waiting ones as soon as there are descriptors again."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0)
    begun: list[asyncio.Transport] = []
    came, all_begun = asyncio.Event(), asyncio.Event()

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            begun.append(transport)
            came.set()
            if len(begun) == 21:
                all_begun.set()

        def data_received(self, data: bytes) -> None:
            begun[0].write(data)

    acceptor = serve(Echo, [listening], log)
    first = RawClient(*await asyncio.open_connection(*listening.getsockname()))
    await came.wait()
    came.clear()
    waiting = [socket.socket() for _ in range(20)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    with limited_to(lowest_free()):
        for each in waiting:
            each.connect(listening.getsockname())
        while loop.time() - began < 10 * PAUSE:
            await first.send(b"x")
            assert await first.reader.readexactly(1) == b"x"
            await advance(PAUSE / 4)
        lines = [record for record in caplog.records if os.strerror(errno.EMFILE) in record.message]
        assert 9 <= len(lines) <= 11
        assert all(record.exc_info is None and "ulimit -n" in record.message for record in lines)
        assert len(begun) == 1
    await came.wait()
    await all_begun.wait()
    acceptor.close()
    acceptor.close()
    for transport in begun:
        transport.close()
    for each in waiting:
        each.close()
    await first.close()


async def test_a_network_error_of_a_waiting_connection_does_not_pause_the_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0)
    errors = [OSError(errno.EPROTO, "protocol error"), ConnectionAbortedError(), BlockingIOError()]
    begun = asyncio.Event()

    class Odd:
        fileno, close, getsockname = listening.fileno, listening.close, listening.getsockname

        def accept(self) -> Any:
            if errors:
                raise errors.pop()
            return listening.accept()

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            begun.set()
            transport.abort()  # type: ignore[attr-defined]

    odd: Any = Odd()
    acceptor = serve(Greeter, [odd], log)
    with socket.create_connection(listening.getsockname()):
        await begun.wait()
    assert not caplog.records
    acceptor.close()
