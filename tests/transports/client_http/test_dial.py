"""Dialling a name with several addresses: they are tried one after another, and failed attempts leave nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.transports.client import http_address

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture
def listening() -> Generator[socket.socket]:
    """A listener at 127.0.0.1, and none at other addresses of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def named(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, tuple[Any, ...]]) -> None:
    """The addresses of a name."""

    async def getaddrinfo(*_: Any, **__: Any) -> Sequence[tuple[Any, ...]]:
        return [(family, socket.SOCK_STREAM, 6, "", where) for family, where in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_a_refused_address_is_followed_by_the_next(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listening.getsockname()[1]
    named(monkeypatch, *((socket.AF_INET, (host, port)) for host in ("127.0.0.2", "127.0.0.3", "127.0.0.1")))
    with await http_address.dial("several.example", port) as found:
        assert found.getpeername() == ("127.0.0.1", port)


async def test_if_every_address_refuses_the_last_refusal_is_reported(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listening.getsockname()[1]
    named(monkeypatch, (socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.3", port)))
    with pytest.raises(ConnectionRefusedError):
        await http_address.dial("several.example", port)


async def test_a_silent_address_has_only_its_head_start(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listening.getsockname()[1]
    attempt, silent = http_address._attempt, asyncio.Event()

    async def sometimes(loop: Any, target: Any, made: list[socket.socket]) -> socket.socket:
        if target[1][0] == "127.0.0.2":
            made.append(socket.socket())
            await silent.wait()
        return await attempt(loop, target, made)

    monkeypatch.setattr(http_address, "_attempt", sometimes)
    monkeypatch.setattr(http_address, "HEAD_START", 0.01)
    named(monkeypatch, (socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.1", port)))
    with await http_address.dial("several.example", port) as found:
        assert found.getpeername() == ("127.0.0.1", port)


async def test_a_cancelled_dial_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[socket.socket] = []

    async def never(_: Any, __: Any, made: list[socket.socket]) -> socket.socket:
        made.append(socket.socket())
        begun.append(made[-1])
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(http_address, "_attempt", never)
    monkeypatch.setattr(http_address, "HEAD_START", 0.0)
    named(monkeypatch, *((socket.AF_INET, (f"127.0.0.{last}", 9)) for last in (2, 3)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await http_address.dial("several.example", 9)
    assert len(begun) == 2
    assert [each.fileno() for each in begun] == [-1, -1]


async def test_address_families_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = [("::1", 1, 0, 0), ("::2", 1, 0, 0), ("::3", 1, 0, 0)], [("127.0.0.2", 1)]
    named(monkeypatch, *((socket.AF_INET6, each) for each in six), *((socket.AF_INET, each) for each in four))
    found = await http_address.resolve("several.example", 1)
    assert [where[0] for _, where in found] == ["::1", "127.0.0.2", "::2", "::3"]


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
async def test_an_ip_address_needs_no_resolver(host: str, family: int) -> None:
    assert await http_address.resolve(host, 1) == [(family, (host, 1))]
