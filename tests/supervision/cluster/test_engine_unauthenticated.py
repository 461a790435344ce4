"""Unauthenticated connections to the ports of the Thespian system: nothing is unpickled, no process dies, and the log has a line about it."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import is_alive
from greenroom.supervision.cluster import thespian_patches as hardening
from greenroom.supervision.cluster.cluster import NodeOwner
from greenroom.supervision.cluster.daemon_protocol import StartDaemon
from greenroom.supervision.cluster.home_links import key_of_home

from .engine_fixtures import Hand, Stage, eventually, staged
from .tcp_listeners import listeners

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.greenroom(clock="real")


class Evil:
    """An object that runs a program when it is unpickled."""

    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.touched),)


def framed(data: bytes) -> bytes:
    """A frame as Thespian sends it."""
    return b"%d>" % len(data) + data


def attacks(touched: Path) -> dict[str, bytes]:
    evil = pickle.dumps((None, Evil(touched)))
    return {
        "as Thespian comes": framed(evil),
        "with a seal that was made up": framed(bytes(32) + evil),
        "with the seal of another key": framed(
            hardening.SealedPickle(bytes(32), lambda _: None).dumps((None, Evil(touched)))
        ),
        "an acknowledgement": framed(pickle.dumps("ACK")),
        "a length below zero": b"-5>" + evil,
        "a length of nothing": b"0>",
        "a length beyond all bounds": b"99999999999>" + evil,
        "a length that is none": b"\xb2\xb2>" + evil,
        "no length": b"A" * 100_000,
        "nothing": b"",
        "half a frame": framed(evil)[:-10],
    }


def strike(port: int, data: bytes) -> bytes:
    """Send it, and what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as stranger:
        try:
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            return stranger.recv(4096)
        except OSError:
            return b""


async def works(stage: Stage, host: object) -> None:
    assert is_alive(host)
    assert await (await stage.hand(await stage.host())).call(Hand.process_id)


async def test_the_processes_listen_on_loopback_only() -> None:
    async with staged() as stage:
        await stage.host()
        running = await stage.running()
        for name, pid in running.items():
            ((address, _),) = listeners(pid)
            assert address == "127.0.0.1", name


async def test_nothing_of_a_stranger_is_unpickled_and_no_process_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged() as stage:
        host = await stage.host()
        running = await stage.running()
        ports = {port for _, port in listeners(*running.values())}
        assert len(ports) >= len(running)
        with caplog.at_level(logging.WARNING, "greenroom.cluster"):
            for port in ports:
                for number, (what, data) in enumerate(attacks(tmp_path / f"touched-{port}").items()):
                    answer = await asyncio.to_thread(strike, port, data)
                    assert b"ACK+DATAERR" in answer or not answer, (number, what, answer)
            await eventually(lambda: any("not from this system" in text for text in caplog.messages))
        assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - a test may wait for it
        assert await stage.running() == running
        await works(stage, host)


async def test_silent_strangers_do_not_keep_peers_out() -> None:
    async with staged() as stage:
        host = await stage.host()
        ((_, port),) = listeners(await stage.part("forkserver"))
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        try:
            await works(stage, host)
        finally:
            for stranger in strangers:
                stranger.close()


async def test_the_key_is_nowhere_where_others_look(caplog: pytest.LogCaptureFixture) -> None:
    async with staged() as stage:
        host = await stage.host()
        key = key_of_home()
        seen = [key, key.hex().encode(), repr(key).encode()]
        for pid in (await stage.running()).values():
            for what in ("cmdline", "environ"):
                text = Path(f"/proc/{pid}/{what}").read_bytes()  # noqa: ASYNC240 - as above
                assert not any(each in text for each in seen)
        begin = StartDaemon(key, "127.0.0.1", 0, [], {}, 1, 1.0)
        told = [
            repr(begin),
            str(begin),
            *caplog.messages,
            repr(stage.cluster.peers),
            repr(await host.call(NodeOwner.node_name)),
        ]
        assert not any(each.decode(errors="replace") in text for text in told for each in seen[1:])
        assert repr(hardening.SealedPickle(key, lambda _: None)) == "<SealedPickle>"
