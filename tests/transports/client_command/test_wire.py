"""The wire to a child process, as its owner sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from greenroom.supervision import KILLED, Node, Shutdown, current_node, exit, inbox, kill, wait_down
from greenroom.transports.client import command_wire
from greenroom.transports.client.errors import ConnectionLost, NotMcp, ProcessDied, WireFull
from greenroom.transports.client.interfaces import Inbound, InvalidMessage, UnansweredRequest
from greenroom.transports.client.server_command import Command, CommandLimits

from .process_tree import marked_processes, wait_until_gone
from .wire_owner import HELLO, CommandWireOwner, misbehaving_server, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.greenroom(clock="real")
_LINE = '{"jsonrpc":"2.0","method":"notifications/x","params":{"n":%d}}\n'
BRIEF = CommandLimits(grace=0.2)


@pytest.mark.row("CT-01", "CT-10")
async def test_our_own_server_can_be_called() -> None:
    server = Path(__file__).parents[1] / "stdio" / "programs" / "everything.py"
    async with open_wire(Command(sys.executable, server, "run", "1")) as owner:
        assert (await owner.call("initialize", **HELLO))["serverInfo"]["name"] == "everything"
        owner.note("notifications/initialized")
        owner.wire.on_negotiated("2025-11-25")
        called = await owner.call("tools/call", name="echo", arguments={"text": "hallo"})
        assert called["content"][0]["text"] == "hallo"
        await owner.close()
        assert "after it ran" in owner.wire.stderr


@pytest.mark.row("CT-01")
async def test_messages_sent_before_the_start_are_kept_in_order() -> None:
    async with open_wire(misbehaving_server()) as owner:
        asked = [owner.ask("echo", number=number) for number in range(100)]
        heard = [await owner.hear() for _ in asked]
        assert heard == [JsonRpcResponse(id, {"number": number}) for number, id in enumerate(asked)]


@pytest.mark.row("CT-01")
async def test_messages_are_delivered_one_by_one_whatever_the_pieces() -> None:
    line = '{"jsonrpc":"2.0","method":"notifications/x","params":{"n":%d}}'
    async with open_wire(misbehaving_server()) as owner:
        owner.ask("raw", text=line % 1 + "\r\n\n  \n" + line % 2 + "\n" + (line % 3)[:20])
        assert [await owner.hear(), await owner.hear()] == [
            JsonRpcNotification("notifications/x", {"n": n}) for n in (1, 2)
        ]
        owner.ask("raw", text=(line % 3)[20:] + "\n")
        assert await owner.hear() == JsonRpcNotification("notifications/x", {"n": 3})


@pytest.mark.row("CT-11")
@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV"), (signal.SIGTERM, "SIGTERM")],
)
async def test_the_signal_that_ended_a_child_is_reported(number: int, name: str) -> None:
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("complain", text="about to fall\n")
        owner.ask("signal", number=number)
        why = await owner.end()
        assert isinstance(why, ProcessDied)
        assert (why.status, why.signal, why.stderr) == (-number, name, "about to fall")
        assert why.reason == "exit_status"


@pytest.mark.row("CT-01", "CT-11")
async def test_the_exit_status_comes_once_after_all_messages() -> None:
    last = '{"jsonrpc":"2.0","method":"notifications/a","params":{}}\n{"jsonrpc":"2.0","method":"notifications/b"}'
    async with open_wire(misbehaving_server()) as owner:
        owner.ask("exit", status=7, last=last)
        heard = await owner.rest_of_it()
        assert [each.method for each in heard] == ["notifications/a", "notifications/b"]
        assert isinstance(owner.ended, Shutdown)
        assert isinstance(owner.ended.detail, ProcessDied)
        assert owner.ended.detail.status == 7
        assert not owner.me.pending()


@pytest.mark.row("CT-11")
async def test_half_a_line_at_the_end_is_no_message() -> None:
    async with open_wire(misbehaving_server()) as owner:
        owner.ask("exit", status=0, last='{"jsonrpc":"2.0","method":"notif')
        (broken,) = await owner.rest_of_it()
        assert isinstance(broken, InvalidMessage)
        assert broken.sample.startswith('{"jsonrpc"')


@pytest.mark.row("CT-11")
async def test_a_kill_is_reported_within_fifty_milliseconds() -> None:
    took: list[float] = []
    for _ in range(7):
        async with open_wire(misbehaving_server()) as owner:
            await owner.call("child")  # a grandchild that holds all three pipes open
            began = time.perf_counter()
            os.kill(owner.process, signal.SIGKILL)
            assert isinstance(await owner.end(), ProcessDied)
            took.append(time.perf_counter() - began)
        await only_process_left(owner)
    assert min(took) < 0.05, took  # a busy machine is slow by itself


async def only_process_left(owner: CommandWireOwner) -> None:
    """Wait until the processes that end what the wire has left are over."""
    node = current_node()
    for process in list(node.processes.values()):
        if "finish" in process.label:
            await wait_down(process.pid, 20.0)


@pytest.mark.row("CT-10")
async def test_the_whole_process_group_is_ended() -> None:
    async with open_wire(misbehaving_server(limits=BRIEF)) as owner:
        await owner.call("child", stubborn=True)
        await owner.close()


@pytest.mark.row("CT-10")
@pytest.mark.parametrize("ignored", [[], [signal.SIGTERM]])
async def test_a_child_that_ignores_its_end_is_killed(ignored: list[int]) -> None:
    async with open_wire(misbehaving_server(limits=BRIEF)) as owner:
        await owner.call("stubborn", ignored=ignored, deaf=True)
        await owner.close()


@pytest.mark.row("CT-10")
async def test_a_child_that_exits_at_the_end_of_its_input_gets_no_signal() -> None:
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("echo")
        child = owner.wire._child
        await owner.close()
        assert child is not None
        assert child.status == 0


@pytest.mark.row("CT-10")
async def test_a_stopped_child_is_ended() -> None:
    async with open_wire(misbehaving_server(limits=BRIEF)) as owner:
        await owner.call("echo")
        os.kill(owner.process, signal.SIGSTOP)
        owner.ask("echo")
        await owner.close()


async def test_output_before_the_end_is_read() -> None:
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("echo")
        owner.note("notifications/late")
        owner.ask("echo", text="x" * 500_000)
        exit(owner.wire.pid, Shutdown("closed"))
        (answer,) = await owner.rest_of_it()
        assert len(answer.result["text"]) == 500_000


@pytest.mark.row("CT-10")
async def test_a_killed_wire_kills_its_child(mark: str) -> None:
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("stubborn", ignored=[signal.SIGTERM], deaf=True)
        kill(owner.wire.pid)
        await owner.rest_of_it()
        assert owner.ended == KILLED
        assert not marked_processes(mark)


@pytest.mark.row("CT-10")
async def test_a_child_ends_with_its_owner(mark: str) -> None:
    wires: list[Any] = []

    async def own() -> None:
        async with inbox("owner") as me:
            owner = CommandWireOwner(me, misbehaving_server(limits=BRIEF).open(me.pid))
            wires.append(owner.wire)
            await owner.call("child")
            raise RuntimeError("the owner falls")

    with pytest.raises(RuntimeError):
        await own()
    await wait_down(wires[0].pid, 20.0)
    assert not marked_processes(mark)


@pytest.mark.row("CT-01")
@pytest.mark.parametrize(("descriptor", "what"), [(0, "input"), (1, "output")])
async def test_a_child_that_closes_its_output_and_runs_on_is_ended(descriptor: int, what: str) -> None:
    async with open_wire(misbehaving_server(limits=BRIEF)) as owner:
        await owner.call("echo")
        owner.ask("close", descriptor=descriptor)
        if descriptor == 0:
            until = time.monotonic() + 20
            while not owner.me.pending() and time.monotonic() < until:
                owner.note("notifications/x")
                await asyncio.sleep(0.01)
        why = await owner.end()
        assert isinstance(why, ConnectionLost)
        assert what in str(why)
        await only_process_left(owner)


async def test_invalid_lines_are_quarantined() -> None:
    async with open_wire(misbehaving_server()) as owner:
        owner.ask("raw", text="Listening on …\nüñí\n[1,2]\n")
        broken = [await owner.hear() for _ in range(3)]
        assert [type(each) for each in broken] == [InvalidMessage] * 3
        assert broken[0].sample == "Listening on …"
        assert await owner.call("echo", n=1) == {"n": 1}


async def test_a_child_with_only_invalid_lines_is_no_server() -> None:
    async with open_wire(misbehaving_server(limits=CommandLimits(grace=0.2, quarantine=50))) as owner:
        await owner.call("echo")
        owner.ask("flood", text="y\n")
        heard = await owner.rest_of_it()
        assert [type(each) for each in heard] == [
            InvalidMessage
        ] * 50  # and none of the thousands that came with the last one
        assert isinstance(owner.ended, Shutdown)
        assert isinstance(owner.ended.detail, NotMcp)
        assert "50 lines in a row" in str(owner.ended.detail)
        await only_process_left(owner)


async def test_an_oversized_line_fails_its_own_call() -> None:
    async with open_wire(misbehaving_server(limits=CommandLimits(line=100_000))) as owner:
        id = owner.ask("big", size=1_000_000)
        broken: Any = await owner.hear()
        assert isinstance(broken, InvalidMessage)
        assert broken.error.response_to == id
        assert len(broken.sample) <= 256
        assert (await owner.call("big", size=50_000))["text"] == "x" * 50_000


async def test_a_flood_on_stderr_delays_no_message() -> None:
    async with open_wire(misbehaving_server(limits=BRIEF)) as owner:
        await owner.call("complain", text="0123456789\n", times=100_000)
        assert await owner.call("echo", n=1) == {"n": 1}
        await asyncio.sleep(0)
        owner.ask("flood", text="abc\n", to=2)
        while len(owner.wire.stderr) < 8000:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        await owner.close()
        assert len(owner.wire.stderr) <= 8 * 1024
        assert set(owner.wire.stderr.split()) <= {"abc", "0123456789"}


async def test_stderr_goes_to_its_callback(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    async with open_wire(misbehaving_server(stderr=lines.append)) as owner:
        await owner.call("complain", text="one\ntwo\nhalf")
        await owner.close()
        assert lines == ["one", "two", "half"]

    def broken(line: str) -> None:
        raise ValueError(line)

    async with open_wire(misbehaving_server(stderr=broken)) as owner:
        await owner.call("complain", text="one\ntwo\n")
        assert await owner.call("echo", n=1) == {"n": 1}
        await owner.close()
        assert owner.wire.stderr == "one\ntwo"
    assert "is not called again" in caplog.text
    assert len([each for each in caplog.records if each.name == "greenroom.command"]) == 1


async def test_a_child_that_does_not_read_fills_a_bounded_queue() -> None:
    async with open_wire(misbehaving_server(limits=CommandLimits(grace=0.2, queue=1_000_000))) as owner:
        await owner.call("deaf")
        asked: list[int] = []
        with pytest.raises(WireFull):  # noqa: PT012 - one of them
            while True:
                asked.append(owner.ask("echo", text="x" * 10_000))
        assert 100 <= len(asked) <= 120
        os.kill(owner.process, signal.SIGKILL)
        heard = await owner.rest_of_it()
        lost = [each for each in heard if isinstance(each, UnansweredRequest)]
        assert all(each.resend for each in lost)
        assert [each.id for each in lost] == asked[-len(lost) :]
        assert len(lost) < len(asked)
        owner.ask("echo")  # the server is gone, and no error is raised


async def test_an_owner_that_does_not_read_is_not_flooded() -> None:
    line = '{"jsonrpc":"2.0","method":"notifications/x","params":{}}\n'
    async with open_wire(misbehaving_server(limits=BRIEF)) as owner:
        await owner.call("echo")
        owner.ask("flood", text=line)
        seen = -1
        while len(owner.me.pending()) != seen or seen < 10:
            seen = len(owner.me.pending())
            await asyncio.sleep(0.1)
        assert seen <= 20
        for _ in range(1000):
            assert isinstance(await owner.hear(), JsonRpcNotification)


async def test_without_pidfds_a_thread_waits_for_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int) -> int:
        raise OSError(pid)

    monkeypatch.setattr(os, "pidfd_open", missing)
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("echo")
        owner.ask("exit", status=3)
        why = await owner.end()
        assert isinstance(why, ProcessDied)
        assert why.status == 3
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("echo")
        kill(owner.wire.pid)
        await owner.rest_of_it()
        assert owner.ended == KILLED


async def test_an_exit_status_reaped_by_other_code_is_reported_as_255() -> None:
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("echo")
        os.kill(owner.process, signal.SIGKILL)
        os.waitpid(owner.process, 0)  # noqa: ASYNC222 - it is as good as dead
        why = await owner.end()
        assert isinstance(why, ProcessDied)
        assert why.status == 255


async def test_fifty_calls_at_once_are_answered_in_any_order() -> None:
    async def one(number: int) -> None:
        async with open_wire(misbehaving_server()) as owner:
            assert await owner.call("echo", n=number) == {"n": number}
            if number % 3 == 0:
                kill(owner.wire.pid)
            elif number % 3 == 1:
                os.kill(owner.process, signal.SIGKILL)
                await owner.end()

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(one(number))


def abruptly(how: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    """Run a wire in a loop, and end the loop abruptly."""
    loop = asyncio.new_event_loop()

    async def main() -> None:
        node = Node(log=False, watchdog=None)  # its thread would keep everything alive
        await node.open()
        async with inbox() as me:
            owner = CommandWireOwner(me, misbehaving_server().open(me.pid))
            await owner.call("stubborn", ignored=[signal.SIGTERM])
            loop.stop()
            await asyncio.Event().wait()

    task = loop.create_task(main())
    with pytest.raises(RuntimeError, match="stopped before"):
        loop.run_until_complete(task)
    how(loop)
    del task


@pytest.mark.filterwarnings("ignore")
def test_a_loop_that_ends_abruptly_leaves_no_child(mark: str) -> None:
    def cancelled(loop: asyncio.AbstractEventLoop) -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    abruptly(cancelled)
    assert not wait_until_gone(mark, 3.0)
    abruptly(lambda loop: loop.close())

    async def another() -> None:
        async with Node(), open_wire(misbehaving_server()) as owner:
            await owner.call("echo")

    asyncio.run(another())  # the next start ends children whose loop is closed
    assert not wait_until_gone(mark, 3.0)


async def test_a_message_to_a_child_that_has_ended_goes_to_no_other_descriptor() -> None:
    async with open_wire(misbehaving_server()) as owner:
        await owner.call("echo")
        child = owner.wire._child
        assert child is not None
        descriptor = child.input
        os.kill(child.pid, signal.SIGKILL)
        await child.reaped.wait()
        pipes = [os.pipe()]
        try:
            while max(pipes[-1]) < descriptor:
                pipes.append(os.pipe())
            owner.ask("secret")
            for reading, _ in pipes:
                os.set_blocking(reading, False)
                with pytest.raises(BlockingIOError):
                    os.read(reading, 1024)
        finally:
            for each in (end for pipe in pipes for end in pipe):
                os.close(each)
        assert isinstance(await owner.end(), ProcessDied)


async def test_many_small_messages_are_delivered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_wire, "READ_TURN", -1.0)  # each line takes longer than a turn
    many = 500
    text = "".join(_LINE % n for n in range(many))
    mails: list[int] = []
    async with open_wire(misbehaving_server()) as owner:
        receive = owner.me.receive

        async def counted(**options: Any) -> Any:
            mail = await receive(**options)
            if isinstance(mail, Inbound):
                mails.append(len(mail.items))
            return mail

        monkeypatch.setattr(owner.me, "receive", counted)
        owner.ask("raw", text=text)
        heard = [await owner.hear() for _ in range(many)]
        assert heard == [JsonRpcNotification("notifications/x", {"n": n}) for n in range(many)]
        assert set(mails) == {1}
        assert (await owner.call("echo", number=1)) == {"number": 1}
        await owner.close()


async def test_queued_lines_are_delivered_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_wire, "READ_TURN", -1.0)
    text = "".join(_LINE % n for n in range(500))
    async with open_wire(misbehaving_server()) as owner:
        owner.ask("raw", text=text)
        owner.ask("signal", number=signal.SIGKILL)
        heard = [each for each in await owner.rest_of_it() if isinstance(each, JsonRpcNotification)]
        assert [each.params["n"] for each in heard] == list(range(500))
