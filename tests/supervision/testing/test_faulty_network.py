"""`FaultyNetwork`: which bytes arrive, and how connections end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from greenroom.testing import FaultyNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")


@asynccontextmanager
async def echo() -> AsyncGenerator[int]:
    """An echo server; yields its port."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_forwarded_bytes_arrive_and_so_does_end_of_file() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.write(b"x" * 300_000)
        writer.write_eof()
        assert await reader.read(-1) == b"x" * 300_000
        assert (net.out.passed, net.back.passed, net.accepted) == (300_000, 300_000, 1)
        writer.close()
        await writer.wait_closed()


async def test_a_connection_is_cut_in_the_middle_of_what_it_says() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        net.back.cut_after(7)
        writer.write(b"twelve bytes")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(12)
        assert net.back.passed == 7
        writer.close()


async def test_all_connections_are_reset_at_once() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        net.cut()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_stalled_bytes_arrive_later() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        net.stall()
        writer.write(b"two")
        aside, straight = await asyncio.open_connection("127.0.0.1", port)
        straight.write(b"not by way of it")
        await aside.readexactly(16)
        straight.close()
        await straight.wait_closed()
        assert net.out.passed == 3, "while others are served, this one is not"
        net.resume()
        assert await asyncio.wait_for(reader.readexactly(3), 5) == b"two"
        writer.close()
        await writer.wait_closed()


async def test_garbled_bytes_keep_their_length() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        net.out.garble(2)
        writer.write(b"abcd")
        got = await reader.readexactly(4)
        assert got[2:] == b"cd"
        assert got[:2] != b"ab"
        writer.close()
        await writer.wait_closed()


async def test_a_refusing_network_does_not_listen_and_keeps_its_port() -> None:
    async with echo() as port, FaultyNetwork(f"http://127.0.0.1:{port}/mcp?x=1") as net:
        before = net.url
        assert before == f"http://127.0.0.1:{net.port}/mcp?x=1"
        await net.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", net.port)
        await net.admit()
        assert net.url == before
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.write(b"back")
        assert await reader.readexactly(4) == b"back"
        writer.close()
        await writer.wait_closed()


async def test_a_server_that_is_not_there_resets() -> None:
    async with echo() as port:
        pass
    async with FaultyNetwork(port) as net:
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


def test_a_url_without_a_port_is_refused() -> None:
    with pytest.raises(ValueError, match="names no port"):
        FaultyNetwork("http://127.0.0.1/mcp")


async def test_a_cleared_fault_does_not_happen() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        assert net.url == f"http://127.0.0.1:{net.port}"
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        net.out.garble(3)
        net.back.cut_after(3)
        net.out.clear()
        net.back.clear()
        writer.write(b"whole")
        assert await reader.readexactly(5) == b"whole"
        writer.close()
        await writer.wait_closed()


async def test_a_connection_made_during_a_stall_is_accepted_and_gets_nothing_until_it_ends() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        net.stall()
        reader, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.write(b"patience")
        aside, straight = await asyncio.open_connection("127.0.0.1", port)
        straight.write(b"not by way of it")
        await aside.readexactly(16)
        straight.close()
        await straight.wait_closed()
        assert net.out.passed == 0
        net.resume()
        assert await asyncio.wait_for(reader.readexactly(8), 60) == b"patience"
        writer.close()
        await writer.wait_closed()


async def test_a_reader_that_pauses_holds_up_the_writer_and_nothing_is_lost() -> None:
    whole = 32 << 20  # more than the system's own buffers have room for
    begins, read = asyncio.Event(), asyncio.Event()
    got = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await begins.wait()
        while data := await reader.read(1 << 20):
            got += len(data)
        writer.close()
        read.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with FaultyNetwork(server.sockets[0].getsockname()[1]) as net:
        _, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.write(bytes(whole))
        writer.write_eof()
        before = -1
        while net.out.passed != before:  # until nothing moves any more
            before = net.out.passed
            await asyncio.sleep(0.1)
        assert net.out.passed < whole
        begins.set()
        await asyncio.wait_for(read.wait(), 60)
        assert got == whole
        writer.close()
        await writer.wait_closed()
    server.close()


async def test_to_refuse_or_admit_twice_is_as_once() -> None:
    async with echo() as port, FaultyNetwork(port) as net:
        await net.admit()
        for _ in range(2):
            await net.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", net.port)
        await net.admit()
        _, writer = await asyncio.open_connection("127.0.0.1", net.port)
        writer.close()
        await writer.wait_closed()
