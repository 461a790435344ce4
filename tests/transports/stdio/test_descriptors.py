"""Descriptors that are shared, non-blocking or hung up, and loops that end while a thread is inside a read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import socket
import struct
import threading
import tty
from typing import TYPE_CHECKING

import pytest

from greenroom.transports.descriptor_io import PolledSource, ThreadSink, ThreadSource, open_sink, open_source

from .fake_sessions import until
from .test_stdio import pipes

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.transports.descriptor_io import Source

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.mark.parametrize("made", [PolledSource, ThreadSource])
async def test_input_read_by_another_holder_does_not_block_the_reader(made: Callable[[int], Source]) -> None:
    with pipes() as (input_end, _, write_end, _):
        os.set_blocking(input_end, False)  # as left by another program on the terminal
        source = made(input_end)
        reading = asyncio.ensure_future(source.read())
        for _ in range(3):
            await asyncio.sleep(0)
        os.write(write_end, b"x")
        with contextlib.suppress(BlockingIOError):
            assert os.read(input_end, 10) == b"x"  # read at once, before the loop has a turn; a thread may be faster
            assert not reading.done()
            os.write(write_end, b"x")
        assert await reading == b"x"
        source.close()
        os.write(write_end, b"x")


async def test_two_readers_of_one_descriptor_each_get_input() -> None:
    with pipes() as (input_end, _, write_end, _):
        os.set_blocking(input_end, False)
        again = os.dup(input_end)
        sources = PolledSource(input_end), PolledSource(again)
        readings = {asyncio.ensure_future(each.read()) for each in sources}
        await asyncio.sleep(0)
        os.write(write_end, b"one")
        done, readings = await asyncio.wait(readings, return_when="FIRST_COMPLETED")
        assert [each.result() for each in done] == [b"one"]
        os.write(write_end, b"two")
        assert await readings.pop() == b"two"
        for source in sources:
            source.close()
        os.close(again)


@pytest.mark.parametrize("made", [PolledSource, ThreadSource])
async def test_a_terminal_that_hangs_up_is_the_end_of_input(made: Callable[[int], Source]) -> None:
    control, terminal = pty.openpty()
    tty.setraw(terminal)
    try:
        source = made(terminal)
        reading = asyncio.ensure_future(source.read())
        await asyncio.sleep(0)
        os.close(control)
        assert await reading == b""
        assert await source.read() == b""
        source.close()
    finally:
        os.close(terminal)


async def test_a_connection_reset_is_the_end_of_input() -> None:
    with socket.create_server(("127.0.0.1", 0)) as router, socket.create_connection(router.getsockname()) as here:
        there, _ = router.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        source = open_source(here.fileno())
        assert isinstance(source, PolledSource)
        assert [await source.read(), await source.read()] == [b"", b""]


async def test_unpollable_descriptors_use_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    with pipes() as (input_end, output_end, write_end, read_end):
        monkeypatch.delattr(select, "poll")
        source, sink = open_source(input_end), open_sink(output_end)
        assert isinstance(source, ThreadSource)
        assert isinstance(sink, ThreadSink)
        os.write(write_end, b"in")
        assert await source.read() == b"in"
        for piece in (b"o", b"u", b"t"):
            sink.write(piece)
        await sink.wait_drained()
        assert os.read(read_end, 10) == b"out"
        source.close()
        sink.close()
        os.write(write_end, b"x")


async def test_a_thread_writes_all_of_it_also_where_the_pipe_does_not_block() -> None:
    data = os.urandom(500_000)
    with pipes() as (_, output_end, _, read_end):
        os.set_blocking(output_end, False)
        sink = ThreadSink(output_end)
        sink.write(data)
        got = bytearray()
        while len(got) < len(data):
            got += await asyncio.to_thread(os.read, read_end, 50_000)
        await sink.wait_drained()
        assert got == data
        sink.close()


async def test_a_cancelled_waiter_does_not_block_other_waiters() -> None:
    with pipes() as (_, output_end, _, read_end):
        sink = open_sink(output_end)
        sink.write(b"x" * 1_000_000)
        first, second = (asyncio.ensure_future(sink.wait_drained()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        got = 0
        while got < 1_000_000:
            got += len(await asyncio.to_thread(os.read, read_end, 100_000))
        await second
        assert first.cancelled()
        sink.close()


async def test_input_for_a_cancelled_reader_goes_to_the_next() -> None:
    with pipes() as (input_end, _, write_end, _):
        source = ThreadSource(input_end)
        reading = asyncio.ensure_future(source.read())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        os.write(write_end, b"kept")
        await until(lambda: source._chunk is not None)
        assert await source.read() == b"kept"
        source.close()


def test_threads_end_when_their_loop_is_closed() -> None:
    """The threads have no loop to report to, and the program does not wait for them when it ends."""

    def threads() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name in ("greenroom-reader", "greenroom-writer")}

    before = threads()
    with pipes() as (input_end, output_end, write_end, read_end):

        async def begin() -> None:
            reading = asyncio.ensure_future(ThreadSource(input_end).read())
            ThreadSink(output_end).write(b"x" * 1_000_000)
            await until(lambda: len(threads() - before) == 2)
            reading.cancel()

        asyncio.run(begin())
        begun = threads() - before
        assert len(begun) == 2
        os.write(write_end, b"too late")
        got = 0
        while got < 1_000_000:
            got += len(os.read(read_end, 100_000))
        for each in begun:
            each.join(60)
            assert not each.is_alive()
