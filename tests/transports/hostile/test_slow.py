"""Peers that are slow, stop, or vanish: each costs its own connection, and not for long."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

import pytest

from .raw_clients import ConnectionCut, RawCaller, target_server, until_cut

if TYPE_CHECKING:
    from .raw_clients import TargetServer

TIGHT = 4096
"""A kernel buffer so small that a peer that does not read is noticed soon."""
PATIENCE = 1.0
SLACK = 1.0
"""Seconds by which a busy machine may be late."""


def settled(opened: TargetServer, descriptors: int, within: float) -> None:
    """Wait until the server has closed what it had open beyond that."""
    deadline = time.perf_counter() + within
    while opened.cost()["descriptors"] > descriptors:
        assert time.perf_counter() < deadline, "a connection is still open"
        time.sleep(0.02)  # another process: there is no event to wait for


@pytest.mark.row("ST-11")
@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_a_peer_that_does_not_read_learns_that_its_connection_is_closed(verb: str, no_leaks: None) -> None:
    with target_server({"write_timeout": PATIENCE}) as opened:
        stalled = opened.entered(buffer=TIGHT)
        if verb == "GET":
            stalled.send("GET")
            opened.entered().call("shout", words=100, size=2000)
        else:
            stalled.begin("chatter", words=100, size=2000)
        (took,) = until_cut([stalled], 30.0)
        assert took < PATIENCE + SLACK
        with pytest.raises((ConnectionResetError, ConnectionCut)):
            stalled.hear()


@pytest.mark.row("ST-11")
def test_a_peer_that_does_not_read_a_large_response_learns_so_as_well(no_leaks: None) -> None:
    with target_server({"write_timeout": PATIENCE}) as opened:
        stalled = opened.entered(buffer=TIGHT)
        stalled.begin("echo", text="x" * 2_000_000)
        (took,) = until_cut([stalled], 30.0)
        assert took < PATIENCE + SLACK


@pytest.mark.deep
@pytest.mark.row("ST-11")
def test_a_response_that_fits_into_the_kernel_is_not_kept_for_ever(no_leaks: None) -> None:
    with target_server({"write_timeout": PATIENCE}) as opened:
        before = opened.cost()["descriptors"]
        stalled = opened.entered(buffer=TIGHT)
        stalled.begin("chatter", words=20, size=400)  # more than the kernel takes, less than a write waits for
        settled(opened, before, 10.0)
        assert opened.cost()["descriptors"] == before


@pytest.mark.deep
@pytest.mark.row("ST-11", "ST-28")
def test_a_peer_without_power_is_noticed(no_leaks: None) -> None:
    with target_server({"write_timeout": PATIENCE, "heartbeat": PATIENCE}) as opened:
        before = opened.cost()["descriptors"]
        lost = opened.entered()
        lost.send("GET")
        assert lost.head()[0] == 200
        lost.deafen()
        settled(opened, before, 10.0)


@pytest.mark.deep
@pytest.mark.row("ST-28")
def test_an_idle_connection_of_a_peer_without_power_is_closed(no_leaks: None) -> None:
    with target_server({"keep_alive": PATIENCE}) as opened:
        before = opened.cost()["descriptors"]
        lost = opened.entered()
        lost.deafen()
        settled(opened, before, 10.0)


@pytest.mark.row("ST-28")
def test_a_request_sent_byte_by_byte_times_out(no_leaks: None) -> None:
    with target_server({"header_timeout": PATIENCE, "body_timeout": PATIENCE}) as opened:
        session = opened.entered().session
        heads, bodies = opened.caller(), opened.caller(session=session)
        bodies.send("POST", b"", content_length="100")
        trickle = b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x-more: 1\r\n" * 1000
        began = time.perf_counter()
        open_ones = [heads, bodies]
        for byte in trickle:
            for each in tuple(open_ones):
                if each.cut:
                    open_ones.remove(each)
                    continue
                try:
                    each.socket.sendall(bytes([byte]))
                except OSError:
                    open_ones.remove(each)
            if not open_ones:
                break
            select.select(
                [each.socket for each in open_ones], [], [], 0.05
            )  # the next byte, or the server has given up
        assert not open_ones
        assert time.perf_counter() - began < PATIENCE + 2 * SLACK


@pytest.mark.deep
@pytest.mark.row("ST-11")
def test_slow_reading_suffices_for_a_short_response_and_not_for_a_long_one(no_leaks: None) -> None:
    with target_server({"write_timeout": PATIENCE}) as opened:
        short, long = opened.entered(buffer=TIGHT), opened.entered(buffer=TIGHT)
        short.begin("echo", text="short")
        long.begin("echo", text="x" * 2_000_000)
        said = b""
        while not said.endswith(b"}"):
            said += short.socket.recv(1)
            if not long.cut:
                long.socket.recv(1)
            time.sleep(0.01)
        assert b'"short"' in said
        assert len(until_cut([long], 10.0)) == 1


def test_a_muted_socket_receives_nothing() -> None:
    """The test's own tool: a peer without power receives nothing, and so never acknowledges."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        caller = RawCaller(listening.getsockname()[1])
        here, _ = listening.accept()
        caller.deafen()
        here.sendall(b"hello")
        caller.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            caller.socket.recv(1)
        here.close()
        caller.close()
