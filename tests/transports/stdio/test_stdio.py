"""The stdio transport over two pipes, with fake sessions: framing, limits and ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import socket
import tty
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import encode_notification, encode_result
from greenroom.supervision import (
    PERMANENT,
    SHUTDOWN,
    Ref,
    Supervisor,
    is_alive,
    kill,
    start,
    stop,
    wait_down,
    whereis,
    which_child,
)
from greenroom.transports.descriptor_io import (
    PolledSink,
    PolledSource,
    ThreadSink,
    ThreadSource,
    open_sink,
    open_source,
)
from greenroom.transports.stdio import StdioProcess, StdioWire, stdio_child

from .fake_sessions import FakeSessionRouter, enveloped, line, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path


pytestmark = pytest.mark.greenroom(clock="real")


class Ends:
    """A stdio wire with a process, and the peer's ends of its descriptors."""

    def __init__(
        self, router: FakeSessionRouter, served: Ref[StdioProcess], wire: StdioWire, write: int, read: int
    ) -> None:
        self.router, self.served, self.wire, self.write_end, self.read_end = router, served, wire, write, read
        self._pending: list[dict[str, Any]] = []
        self._rest = b""

    def say(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.write_end, data) :]

    async def say_much(self, data: bytes) -> None:
        await asyncio.to_thread(self.say, data)

    async def hear(self) -> dict[str, Any]:
        """The next message."""
        while not self._pending:
            chunk = await asyncio.to_thread(os.read, self.read_end, 65536)
            assert chunk, "the channel has ended"
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._pending += [json.loads(each) for each in lines]
        return self._pending.pop(0)

    def hang_up(self) -> None:
        os.close(self.write_end)
        self.write_end = -1


@contextlib.contextmanager
def pipes() -> Generator[tuple[int, int, int, int]]:
    """The server's descriptors and the peer's ends: `input, output, write, read`."""
    input_end, write_end = os.pipe()
    read_end, output_end = os.pipe()
    try:
        yield input_end, output_end, write_end, read_end
    finally:
        for descriptor in (input_end, output_end, write_end, read_end):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@contextlib.contextmanager
def socket_pairs() -> Generator[tuple[int, int, int, int]]:
    """The same with sockets, one for each direction."""
    (input_side, write_side), (read_side, output_side) = socket.socketpair(), socket.socketpair()
    ends = [each.detach() for each in (input_side, output_side, write_side, read_side)]
    try:
        yield ends[0], ends[1], ends[2], ends[3]
    finally:
        for descriptor in ends:
            with contextlib.suppress(OSError):
                os.close(descriptor)


@contextlib.asynccontextmanager
async def served(
    *, grace: float = 5.0, line_limit: int = 65536, name: str | None = None, sockets: bool = False
) -> AsyncGenerator[Ends]:
    with socket_pairs() if sockets else pipes() as (input_end, output_end, write_end, read_end):
        router = FakeSessionRouter()
        wire = StdioWire(router, input_end, output_end, line_limit=line_limit)
        top = await start(Supervisor, [stdio_child(wire, grace=grace, name=name)])
        ref: Ref[StdioProcess] = Ref((await which_child(top, "stdio")).pid)
        try:
            yield Ends(router, ref, wire, write_end, read_end)
        finally:
            await stop(top)
            wire.close()


@pytest.mark.row("ST-18")
async def test_a_line_is_a_message_and_so_is_each_reply() -> None:
    async with served() as ends:
        ends.say(line("echo", 1, a=1) + b"\n  \n\r\n" + line("told") + line("echo", "two", b="ü\n"))
        assert await ends.hear() == {"jsonrpc": "2.0", "id": 1, "result": {"echo": {"a": 1}}}
        assert await ends.hear() == {"jsonrpc": "2.0", "id": "two", "result": {"echo": {"b": "ü\n"}}}
        assert [getattr(each, "method", None) for each in ends.router.sessions[0].heard] == ["told"]
        assert len(ends.router.sessions) == 1


@pytest.mark.row("ST-18")
@pytest.mark.row("WC-13")
@pytest.mark.parametrize("wrong", [b"{", b"\xff\xfe{}", b"null garbage", b'{"a": 1, "a": 2}', b"[" * 1000])
async def test_invalid_json_is_a_parse_error_without_an_id_and_the_next_line_is_served(wrong: bytes) -> None:
    async with served() as ends:
        ends.say(wrong + b"\n" + line("echo", 1))
        error = await ends.hear()
        assert (error["id"], error["error"]["code"]) == (None, -32700)
        assert (await ends.hear())["id"] == 1


@pytest.mark.row("WC-12")
async def test_a_batch_is_refused() -> None:
    async with served() as ends:
        ends.say(b"[" + line("echo", 1).strip() + b"]\n")
        error = await ends.hear()
        assert (error["id"], error["error"]["code"]) == (None, -32600)


async def test_a_line_may_arrive_in_pieces_of_any_size() -> None:
    async with served() as ends:
        for byte in line("echo", 1, text="x" * 50):
            ends.say(bytes([byte]))
            await asyncio.sleep(0)
        assert (await ends.hear())["result"] == {"echo": {"text": "x" * 50}}


async def test_an_oversized_line_is_refused_and_its_neighbours_are_served() -> None:
    async with served(line_limit=1000) as ends:
        await ends.say_much(line("echo", 1) + b"x" * 300_000 + b"\n" + line("echo", 2))
        assert (await ends.hear())["id"] == 1
        error = await ends.hear()
        assert error["id"] is None
        assert error["error"]["code"] == -32600
        assert error["error"]["message"].startswith("Message too large: ")
        assert "1000" in error["error"]["message"]
        assert (await ends.hear())["id"] == 2


async def test_a_raised_line_limit_holds_for_whole_messages() -> None:
    async with served(line_limit=6 * 1024 * 1024) as ends:
        await ends.say_much(line("echo", 1, text="x" * 5_000_000))
        answer = await ends.hear()
        assert (answer["id"], "error" in answer) == (1, False)


async def test_an_oversized_message_is_refused_under_its_own_id_where_that_can_be_read() -> None:
    async with served(line_limit=1000, grace=0.01) as ends:
        ends.say(line("hold", 1) + line("echo", 7, text="x" * 2000))
        error = await ends.hear()
        assert (error["id"], error["error"]["code"]) == (7, -32600)
        ends.say(b'{"jsonrpc":"2.0","id":"s-1","result":{"text":"' + b"x" * 2000 + b'"}}\n')
        assert (await ends.hear())["id"] is None
        assert [getattr(each, "id", None) for each in ends.router.sessions[0].heard] == ["s-1"]


async def test_pending_requests_are_answered_at_the_end_of_the_input() -> None:
    async with served() as ends:
        ends.say(line("hold", 1))
        await until(lambda: bool(ends.router.sessions))
        session = ends.router.sessions[0]
        ends.hang_up()
        finished = asyncio.ensure_future(ends.wire.finished.wait())
        await until(lambda: bool(ends.wire.input_ended))
        assert not session.ended
        session.answer(session.held[0])
        assert (await ends.hear())["id"] == 1
        await finished
        assert session.ended


async def test_an_endless_call_has_only_the_grace() -> None:
    async with served(grace=0.01) as ends:
        ends.say(line("hold", 1))
        ends.hang_up()
        await asyncio.wait_for(ends.wire.finished.wait(), 5)
        assert ends.router.sessions[0].ended
        assert (await ends.hear())["error"]["code"] == -32603  # every request gets an answer


async def test_a_cancelled_request_does_not_delay_the_end() -> None:
    async with served(grace=1000) as ends:
        ends.say(line("hold", 1) + line("notifications/cancelled", requestId=1))
        ends.hang_up()
        await asyncio.wait_for(ends.wire.finished.wait(), 5)
        assert ends.router.sessions[0].ended


@pytest.mark.row("26-S3")
async def test_exchanges_are_answered_at_the_end_of_the_input_and_listens_end_with_it() -> None:
    async with served(grace=1000) as ends:
        ends.say(enveloped("hold", 1) + enveloped("subscriptions/listen", 2) + line("hold", 3))
        await until(lambda: bool(ends.router.held) and bool(ends.router.feeds) and bool(ends.router.sessions))
        ends.hang_up()
        ended, told = await ends.hear(), await ends.hear()
        assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", 2)
        assert (ended["id"], ended["result"]) == (2, {"finished": True})
        assert not ends.wire.finished.is_set()
        ends.router.held[1].set_result(encode_result(1, {}))
        assert (await ends.hear())["id"] == 1
        assert not ends.wire.finished.is_set()
        session = ends.router.sessions[0]
        session.answer(session.held[0])
        assert (await ends.hear())["id"] == 3
        await asyncio.wait_for(ends.wire.finished.wait(), 5)


async def test_an_endless_exchange_has_only_the_grace() -> None:
    async with served(grace=0.01) as ends:
        ends.say(enveloped("hold", 1))
        await until(lambda: bool(ends.router.held))
        ends.hang_up()
        error = await ends.hear()
        assert (error["id"], error["error"]["code"]) == (1, -32603)
        await asyncio.wait_for(ends.wire.finished.wait(), 5)
        assert ends.router.cancelled == [1]
        assert ends.router.sessions == []


async def test_a_last_line_without_line_end_is_a_message() -> None:
    async with served() as ends:
        ends.say(line("echo", 1).rstrip())
        ends.hang_up()
        assert (await ends.hear())["id"] == 1


async def test_a_session_that_dies_leaves_no_request_unanswered_and_another_one_can_begin() -> None:
    async with served() as ends:
        ends.say(line("hold", 1) + line("hold", "b") + line("die", 3))
        answers = [await ends.hear() for _ in range(3)]
        assert [each["id"] for each in answers] == [1, "b", 3]
        assert {each["error"]["code"] for each in answers} == {-32603}
        ends.say(line("initialize", 4))
        assert (await ends.hear())["id"] == 4
        assert len(ends.router.sessions) == 2


async def test_a_full_server_answers_with_an_error() -> None:
    async with served() as ends:
        ends.router.full = True
        ends.say(line("told") + line("echo", 1))
        assert (await ends.hear())["error"] == {"code": -32603, "message": "no room"}


async def test_a_missing_server_costs_an_error_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as ends:
        ends.router.broken = True
        ends.say(line("told") + line("echo", 1) + line("echo", 2))
        answers = [await ends.hear() for _ in range(2)]
        assert [(each["id"], each["error"]["code"]) for each in answers] == [(1, -32603), (2, -32603)]
        assert len(caplog.records) == 3
        ends.router.broken = False
        ends.say(line("echo", 3))
        assert (await ends.hear())["result"] == {"echo": {}}


async def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    async with served() as ends:
        ends.say(line("talk", 0, times=64, pad="x" * 4096))  # more than the pipe holds
        flood = asyncio.ensure_future(ends.say_much(b"".join(line("echo", 1 + n, pad="x" * 1000) for n in range(400))))
        await until(lambda: bool(getattr(ends.wire.sink, "_queue", None)))
        for _ in range(200):
            await asyncio.sleep(0)
        assert not flood.done()
        assert len(ends.router.sessions[0].requests) < 70  # no more than was in the first chunk
        heard = [await ends.hear() for _ in range(64 + 401)]
        await flood
        assert [each["id"] for each in heard if "id" in each] == list(range(401))


@pytest.mark.parametrize("kind", ["pipes", "sockets"])
async def test_a_peer_that_closed_and_does_not_read_is_not_waited_for(kind: str) -> None:
    async with served(grace=0.2, sockets=kind == "sockets") as ends:
        ends.say(line("talk", 0, times=300, pad="x" * 4096))  # more than there is room for
        await until(lambda: ends.wire.sink.has_unwritten if ends.router.sessions else False)
        ends.say(line("echo", 1))  # never read: the reader waits for the output
        ends.hang_up()
        async with asyncio.timeout(5 * 1.0):
            await ends.wire.finished.wait()
        assert ends.router.sessions[0].ended


async def test_long_messages_are_lines_like_any_other() -> None:
    async with served(line_limit=1_000_000) as ends:
        await ends.say_much(line("talk", 0, times=3, pad="x" * 400_000))
        ends.say(line("echo", 1))
        heard = [await ends.hear() for _ in range(5)]
        assert [len(each["params"]["pad"]) for each in heard[:3]] == [400_000] * 3
        assert [each["id"] for each in heard[3:]] == [0, 1]


async def test_a_peer_that_is_gone_ends_the_channel_and_nothing_else() -> None:
    async with served() as ends:
        ends.say(line("echo", 1))
        await ends.hear()
        os.close(ends.read_end)
        ends.read_end, spare = os.pipe()
        ends.say(line("talk", 2, times=10, pad="x"))
        await asyncio.wait_for(ends.wire.finished.wait(), 5)
        assert ends.router.sessions[0].ended
        ends.say(line("echo", 3))  # the reply would have no reader
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(ends.router.sessions) == 1
        assert is_alive(ends.served)
        os.close(spare)


async def test_a_peer_of_exchanges_alone_that_is_gone_ends_the_channel() -> None:
    async with served(grace=0.2) as ends:
        ends.say(enveloped("hold", 1) + enveloped("hold", 2))
        await until(lambda: len(ends.router.held) == 2)
        os.close(ends.read_end)
        ends.read_end, spare = os.pipe()
        ends.router.held[1].set_result(encode_result(1, {}))
        await asyncio.wait_for(ends.wire.finished.wait(), 5)
        assert ends.router.cancelled == [2]
        assert is_alive(ends.served)
        os.close(spare)


@pytest.mark.row("ST-19")
async def test_exchanges_go_on_when_the_process_is_replaced() -> None:
    async with served(name="stdio") as ends:
        ends.say(enveloped("hold", 1) + enveloped("subscriptions/listen", 2))
        await until(lambda: bool(ends.router.held) and bool(ends.router.feeds))
        before = whereis("stdio")
        assert before is not None
        kill(before)
        await wait_down(before)
        await until(lambda: whereis("stdio") is not None)
        ends.router.feeds[0].push(encode_notification("changed", {}))
        assert (await ends.hear())["method"] == "changed"
        ends.router.held[1].set_result(encode_result(1, {}))
        assert (await ends.hear())["id"] == 1
        ends.say(enveloped("notifications/cancelled", requestId=2) + enveloped("echo", 2))
        assert (await ends.hear())["id"] == 2


@pytest.mark.row("ST-19")
async def test_a_killed_process_is_replaced_and_continues_the_same_session() -> None:
    async with served(name="stdio") as ends:
        ends.say(line("hold", 1) + line("echo", 2)[:10])
        await until(lambda: bool(ends.router.sessions))
        before = whereis("stdio")
        assert before is not None
        kill(before)
        await wait_down(before)
        await until(lambda: whereis("stdio") is not None)
        ends.say(line("echo", 2)[10:] + line("release", 3))
        assert [(await ends.hear())["id"] for _ in range(3)] == [2, 1, 3]
        assert len(ends.router.sessions) == 1


@pytest.mark.row("ST-19")
async def test_a_permanent_child_idles_at_the_end_of_the_input_and_uses_no_restart() -> None:
    with pipes() as (input_end, output_end, write_end, _read_end):
        wire = StdioWire(FakeSessionRouter(), input_end, output_end)
        spec = stdio_child(wire)
        assert spec.restart == PERMANENT
        top = await start(Supervisor, [spec], intensity=0)
        os.close(write_end)
        await asyncio.wait_for(wire.finished.wait(), 5)
        assert (await which_child(top, "stdio")).pid is not None
        await stop(top)
        wire.close()


async def test_a_program_that_stops_answers_pending_requests() -> None:
    async with served() as ends:
        ends.say(line("hold", 1))
        await until(lambda: bool(ends.router.sessions))
        stopping = asyncio.ensure_future(stop(ends.served, SHUTDOWN, timeout=5))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stopping.done()
        ends.router.sessions[0].answer(ends.router.sessions[0].held[0])
        assert (await ends.hear())["id"] == 1
        await stopping
        assert ends.router.sessions[0].ended


# --- the descriptors


async def test_pipes_and_sockets_are_polled_and_files_have_threads(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"some")
    with (tmp_path / "file").open("r+b") as file, pipes() as (input_end, output_end, _, _):
        here, there = socket.socketpair()
        with here, there:
            assert isinstance(open_source(input_end), PolledSource)
            assert isinstance(open_sink(output_end), PolledSink)
            assert isinstance(open_source(here.fileno()), PolledSource)
            sink = open_sink(here.fileno())
            assert isinstance(sink, PolledSink)
            sink.close()
        source = open_source(file.fileno())
        assert isinstance(source, ThreadSource)
        assert [await source.read(), await source.read(), await source.read()] == [b"some", b"", b""]
        sink = open_sink(file.fileno())
        assert isinstance(sink, ThreadSink)
        sink.write(b" more")
        await sink.wait_drained()
        sink.close()
        assert (tmp_path / "file").read_bytes() == b"some more"


async def test_shared_descriptors_are_not_made_non_blocking() -> None:
    with pipes() as (input_end, output_end, write_end, read_end):
        source, sink = open_source(input_end), open_sink(output_end)
        os.write(write_end, b"x")
        assert await source.read() == b"x"
        sink.write(b"y")
        await sink.wait_drained()
        assert os.read(read_end, 1) == b"y"
        assert os.get_blocking(input_end)
        assert os.get_blocking(output_end)


async def test_a_terminal_can_be_read_and_written() -> None:
    control, terminal = pty.openpty()
    tty.setraw(terminal)
    try:
        source, sink = open_source(terminal), open_sink(terminal)
        os.write(control, b"in\n")
        assert await source.read() == b"in\n"
        sink.write(b"out\n")
        await sink.wait_drained()
        assert await asyncio.to_thread(os.read, control, 10) == b"out\n"
        sink.close()
    finally:
        os.close(control)
        os.close(terminal)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
async def test_large_writes_are_complete_for_a_slow_reader(kind: str) -> None:
    data = os.urandom(3_000_000)
    with contextlib.ExitStack() as stack:
        if kind == "pipe":
            _, output_end, _, read_end = stack.enter_context(pipes())
        else:
            here, there = socket.socketpair()
            stack.enter_context(here)
            stack.enter_context(there)
            output_end, read_end = here.fileno(), there.fileno()
        sink = open_sink(output_end)
        sink.write(data)
        got = bytearray()
        while len(got) < len(data):
            got += await asyncio.to_thread(os.read, read_end, 100_000)
        await sink.wait_drained()
        assert got == data
        sink.close()


@pytest.mark.parametrize("kind", ["pipe", "socket", "thread"])
async def test_a_reader_that_is_gone_is_no_error(kind: str) -> None:
    with contextlib.ExitStack() as stack:
        if kind == "socket":
            here, there = socket.socketpair()
            stack.enter_context(here)
            output_end = here.fileno()
            there.close()
        else:
            _, output_end, _, read_end = stack.enter_context(pipes())
            os.close(read_end)
        sink = open_sink(output_end) if kind != "thread" else ThreadSink(output_end)
        sink.write(b"x" * 10)
        await asyncio.sleep(0)
        sink.write(b"x" * 10_000_000)
        await until(lambda: bool(sink.reader_gone))
        await sink.wait_drained()
        sink.write(b"x")
        await sink.wait_drained()
        sink.close()


async def test_a_cancelled_reader_leaves_its_input_to_the_next() -> None:
    with pipes() as (input_end, _, write_end, _):
        for source in (PolledSource(input_end), ThreadSource(input_end)):
            reading = asyncio.ensure_future(source.read())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            os.write(write_end, b"kept")
            assert await source.read() == b"kept"
        source.close()
        os.write(write_end, b"x")  # so that its thread notices the close


async def test_unread_input_does_not_spin_the_loop() -> None:
    loop = asyncio.get_running_loop()
    with pipes() as (input_end, _, write_end, _):
        source = PolledSource(input_end)
        os.write(write_end, b"first")
        assert await source.read() == b"first"
        os.write(write_end, b"second")
        await until(lambda: not source.is_watching)
        assert await source.read() == b"second"
        source.close()
        assert not loop.remove_reader(input_end)
