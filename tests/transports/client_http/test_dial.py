"""A name may stand for several addresses: they are tried one after another, and nothing is left of those that were in vain."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.transports.client import http_address as http_dial

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture
def listening() -> Generator[socket.socket]:
    """A listener at 127.0.0.1, and none at other addresses of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def named(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, tuple[Any, ...]]) -> None:
    """What a name leads to."""

    async def getaddrinfo(*_: Any, **__: Any) -> Sequence[tuple[Any, ...]]:
        return [(family, socket.SOCK_STREAM, 6, "", where) for family, where in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_where_one_refuses_the_next_is_tried(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    port = listening.getsockname()[1]
    named(monkeypatch, *((socket.AF_INET, (host, port)) for host in ("127.0.0.2", "127.0.0.3", "127.0.0.1")))
    with await http_dial.dial("several.example", port) as found:
        assert found.getpeername() == ("127.0.0.1", port)


async def test_where_nobody_answers_the_last_refusal_is_told(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listening.getsockname()[1]
    named(monkeypatch, (socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.3", port)))
    with pytest.raises(ConnectionRefusedError):
        await http_dial.dial("several.example", port)


async def test_one_that_says_nothing_has_a_head_start_and_no_more(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listening.getsockname()[1]
    attempt, silent = http_dial._attempt, asyncio.Event()

    async def sometimes(loop: Any, target: Any, made: list[socket.socket]) -> socket.socket:
        if target[1][0] == "127.0.0.2":
            made.append(socket.socket())
            await silent.wait()
        return await attempt(loop, target, made)

    monkeypatch.setattr(http_dial, "_attempt", sometimes)
    monkeypatch.setattr(http_dial, "HEAD_START", 0.01)
    named(monkeypatch, (socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.1", port)))
    with await http_dial.dial("several.example", port) as found:
        assert found.getpeername() == ("127.0.0.1", port)


async def test_whoever_gives_up_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[socket.socket] = []

    async def never(_: Any, __: Any, made: list[socket.socket]) -> socket.socket:
        made.append(socket.socket())
        begun.append(made[-1])
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(http_dial, "_attempt", never)
    monkeypatch.setattr(http_dial, "HEAD_START", 0.0)
    named(monkeypatch, *((socket.AF_INET, (f"127.0.0.{last}", 9)) for last in (2, 3)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await http_dial.dial("several.example", 9)
    assert len(begun) == 2
    assert [each.fileno() for each in begun] == [-1, -1]


async def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = [("::1", 1, 0, 0), ("::2", 1, 0, 0), ("::3", 1, 0, 0)], [("127.0.0.2", 1)]
    named(monkeypatch, *((socket.AF_INET6, each) for each in six), *((socket.AF_INET, each) for each in four))
    found = await http_dial.resolve("several.example", 1)
    assert [where[0] for _, where in found] == ["::1", "127.0.0.2", "::2", "::3"]


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
async def test_an_address_is_asked_of_nobody(host: str, family: int) -> None:
    assert await http_dial.resolve(host, 1) == [(family, (host, 1))]
