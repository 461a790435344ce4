"""An acceptor accepts a bounded batch a turn and leaves no timer behind; sockets listen on the address families of the system."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from typing import Any

import pytest

from greenroom.supervision.acceptor import PAUSE, Acceptor, ProtocolStarter, tcp_sockets
from greenroom.supervision.testing import advance

log = logging.getLogger("greenroom.http")


class Failing:
    """A listening socket whose `accept` fails with one error."""

    def __init__(self, number: int) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.number = number

    def accept(self) -> object:
        raise OSError(self.number, os.strerror(self.number))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


async def test_a_turn_of_the_loop_accepts_a_batch_and_no_more() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    listening.settimeout(0)
    clients = [socket.create_connection(listening.getsockname(), timeout=5) for _ in range(100)]
    accepted: list[socket.socket] = []
    acceptor = Acceptor([listening], accepted.append, log)
    acceptor._ready(listening)
    assert len(accepted) == 64
    acceptor._ready(listening)
    assert len(accepted) == 100
    acceptor.close()
    for each in (*clients, *accepted):
        each.close()


async def test_an_acceptor_that_is_closed_while_it_pauses_does_not_resume() -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    listening: Any = Failing(errno.EMFILE)
    acceptor = Acceptor([listening], lambda _: None, log)
    acceptor._ready(listening)
    assert acceptor._resumption is not None
    acceptor.close()
    await advance(2 * PAUSE)
    assert not errors


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_only_a_lack_of_descriptors_is_answered_with_advice_on_ulimit(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    listening: Any = Failing(number)
    acceptor = Acceptor([listening], lambda _: None, log)
    acceptor._ready(listening)
    acceptor.close()
    (record,) = caplog.records
    assert os.strerror(number) in record.message
    assert ("ulimit -n" in record.message) == (number in {errno.EMFILE, errno.ENFILE})


def without(monkeypatch: pytest.MonkeyPatch, *families: socket.AddressFamily, number: int) -> None:
    """Simulate a system without these address families that lists ::1 and 127.0.0.1 for each name."""
    made = socket.socket

    class Picky(made):  # type: ignore[misc, valid-type]
        def __init__(self, family: int = -1, *rest: Any, **more: Any) -> None:
            if family in families:
                raise OSError(number, os.strerror(number))
            super().__init__(family, *rest, **more)

    async def found(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr(socket, "socket", Picky)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found, raising=False)


async def test_a_family_that_the_system_has_not_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, socket.AF_INET6, number=errno.EAFNOSUPPORT)
    (sock,) = await tcp_sockets("localhost", 0)
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()


@pytest.mark.parametrize(
    ("families", "number"),
    [((socket.AF_INET, socket.AF_INET6), errno.EAFNOSUPPORT), ((socket.AF_INET6,), errno.EMFILE)],
)
async def test_no_family_at_all_and_no_descriptor_are_errors(
    families: tuple[socket.AddressFamily, ...], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, *families, number=number)
    with pytest.raises(OSError, match=os.strerror(number)):
        await tcp_sockets("localhost", 0)


async def test_a_socket_that_takes_no_option_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Stubborn(socket.socket):
        def setsockopt(self, *_: Any) -> None:
            made.append(self)
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))

    monkeypatch.setattr(socket, "socket", Stubborn)
    with pytest.raises(OSError, match=os.strerror(errno.ENOPROTOOPT)):
        await tcp_sockets("127.0.0.1", 0)
    assert [each.fileno() for each in made] == [-1]


async def test_a_connection_is_closed_that_was_accepted_when_the_loop_ended() -> None:
    ours, peers = socket.socketpair()
    with peers:
        starter = ProtocolStarter(asyncio.Protocol, logging.getLogger("greenroom.test"))
        starter(ours)
        (task,) = starter._starting
        task.cancel()  # as `asyncio.run` does with what is left
        await asyncio.wait({task})
        assert ours.fileno() == -1
        assert len(starter) == 0
