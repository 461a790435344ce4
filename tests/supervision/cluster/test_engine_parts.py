"""The parts of the engine by themselves: messages, notes, seals, pids, lines, main modules."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision.cluster import bootstrap as inherited
from greenroom.supervision.cluster import crash_output, os_processes
from greenroom.supervision.cluster import crash_output as output
from greenroom.supervision.cluster import daemon_protocol as protocol
from greenroom.supervision.cluster import node_main as mains
from greenroom.supervision.cluster import thespian_patches as hardening
from greenroom.supervision.cluster.bootstrap import DeathPipe, is_application_gone
from greenroom.supervision.cluster.node_records import NodeLost, ProcessEnding, signal_name
from greenroom.supervision.cluster.thespian_patches import streams

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

KEY = bytes(range(32))


# --- messages


@given(st.lists(st.binary(max_size=50)), st.integers(1, 7))
def test_orders_arrive_whole_however_they_are_cut(boots: list[bytes], step: int) -> None:
    sent = [protocol.StartProcess(f"node-{number}", boot, {"at": number}) for number, boot in enumerate(boots)]
    data = b"".join(protocol.pack(order) for order in sent)
    unpacker = protocol.MessageUnpacker()
    received = [order for start in range(0, len(data), step) for order in unpacker.feed(data[start : start + step])]
    assert received == sent


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\1\x01", b"\0\0\0\2\x81\xa0"])
def test_invalid_daemon_messages_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        list(protocol.MessageUnpacker().feed(data))


def test_an_order_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="16777216 at most"):
        protocol.pack(protocol.StartProcess("node", bytes(protocol.LARGEST), {}))


@pytest.fixture
def ends() -> Generator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_both_ends_of_a_socket_exchange_messages(ends: tuple[socket.socket, socket.socket]) -> None:
    mine, theirs = (protocol.DaemonSocket(end) for end in ends)
    assert theirs.take() == []
    mine.send(protocol.DaemonPing(1))
    mine.send(protocol.DaemonPing(2))
    assert theirs.next() == protocol.DaemonPing(1)
    assert theirs.take() == [protocol.DaemonPing(2)]
    ends[0].close()
    with pytest.raises(EOFError):
        theirs.next()
    theirs.send(protocol.DaemonPong(1))
    assert theirs.over


def test_a_key_is_not_shown() -> None:
    begin: dict[str, Any] = dict.fromkeys(protocol.StartDaemon.__struct_fields__) | {"key": KEY}
    assert repr(protocol.StartDaemon(**begin)) == "Begin(…)"
    assert "secret" not in repr(protocol.StartProcess("node", b"secret", {}))


# --- notes


def test_a_note_keeps_its_end_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reading, writing:
        monkeypatch.setattr(inherited.InheritedState, "notes", writing)
        inherited.send_log_line(logging.ERROR, "x" * 10_000 + "the end")
        note = protocol.decode_message(reading.recv(10_000))
    assert isinstance(note, protocol.LogNote)
    assert (note.level, note.node) == (logging.ERROR, "")
    assert len(note.text) == inherited.NOTE_BYTES
    assert note.text.endswith("the end")


@given(st.binary(max_size=200))
def test_invalid_notes_are_ignored(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        order = protocol.decode_message(data)
        assert protocol.decode_message(protocol.encode_message(order)) == order


def test_a_note_for_which_there_is_no_room_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reading, writing:
        writing.setblocking(False)  # noqa: FBT003 - socket's own word
        monkeypatch.setattr(inherited.InheritedState, "notes", writing)
        for _ in range(10_000):
            inherited.send_log_line(logging.INFO, "x" * 1000)
        assert protocol.decode_message(reading.recv(10_000)) == protocol.LogNote(logging.INFO, "x" * 1000, "")


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited.InheritedState, "environment", {})
    monkeypatch.setenv("WAS", "there")
    monkeypatch.delenv("WAS_NOT", raising=False)
    inherited.change_environment("WAS", "changed")
    inherited.change_environment("WAS", "again")
    inherited.change_environment("WAS_NOT", "set")
    inherited.restore_environment()
    assert os.environ["WAS"] == "there"
    assert "WAS_NOT" not in os.environ


# --- seals


def test_only_sealed_frames_are_unpickled() -> None:
    refused: list[str] = []
    sealed = hardening.SealedPickle(KEY, refused.append)
    assert sealed.loads(sealed.dumps({"a": 1})) == {"a": 1}
    for data in (pickle.dumps("ACK"), b"", bytes(32), hardening.SealedPickle(bytes(32), refused.append).dumps(1)):
        with pytest.raises(hardening.ForgedFrame):
            sealed.loads(data)
    assert len(refused) == 4


@given(st.integers(0, 200), st.integers(0, 7))
def test_a_sealed_value_with_any_bit_changed_is_refused(place: int, bit: int) -> None:
    sealed = hardening.SealedPickle(KEY, lambda _: None)
    data = bytearray(sealed.dumps("value"))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(hardening.ForgedFrame):
        sealed.loads(bytes(data))


def frame(text: bytes) -> Any:
    buffer = hardening._bounded(streams.ReceiveBuffer)(bytes)
    buffer.addMore(text)
    return buffer


@pytest.mark.parametrize(
    "text", [b"-5>x", b"0>", b"32>x", b"99999999>x", b"1" * 13, b"x>", b"1 0>", b">", b"\xb2\xb23>"]
)
def test_a_length_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(hardening.ForgedFrame):
        frame(text)


def test_a_frame_that_is_one_is_taken() -> None:
    assert frame(b"40>" + b"x" * 40).completed() == (b"x" * 40, b"")
    buffer = frame(b"4")
    buffer.addMore(b"0>" + b"x" * 45)
    assert buffer.completed() == (b"x" * 40, b"x" * 5)


# --- pids


def test_descendants_and_exit_statuses_are_found() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"]) as shell:
        try:
            while len(os_processes.descendants(shell.pid)) < 2:
                pass
            below = os_processes.descendants(shell.pid)
            assert {os_processes.name_of(pid) for pid in below} == {"sleep"}
            assert os_processes.descendants(shell.pid, frozenset(below)) == []
            assert os_processes.descendants(shell.pid, named="no") == []
            assert set(below) < set(os_processes.descendants(os.getpid()))
            assert shell.pid in os_processes.children()
        finally:
            for pid in os_processes.descendants(shell.pid):
                os_processes.send_signal(signal.SIGKILL, pid)
            descriptor = os_processes.open_pidfd(shell.pid)
            os_processes.send_signal(signal.SIGTERM, shell.pid, descriptor)
            while not os_processes.has_ended(shell.pid, descriptor):
                pass
            assert not os_processes.is_alive(shell.pid)
            assert os_processes.status_of_dead(shell.pid) in (-signal.SIGTERM, 128 + signal.SIGKILL, -signal.SIGKILL)
            if descriptor is not None:
                os.close(descriptor)
    assert os_processes.status_of_dead(shell.pid) is None
    assert not os_processes.send_signal(0, shell.pid)
    assert os_processes.open_pidfd(shell.pid) is None
    assert os_processes.name_of(shell.pid) == ""
    assert not os_processes.was_started_with(shell.pid, "ANY", "thing")


def test_the_name_of_the_node_is_in_its_environment() -> None:
    environment = {"OF": "node-1", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sh", "-c", "echo; sleep 1000 & wait"], env=environment, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert os_processes.was_started_with(child.pid, "OF", "node-1")
            assert not os_processes.was_started_with(child.pid, "OF", "node")
        finally:
            for pid in (*os_processes.descendants(child.pid), child.pid):
                os_processes.send_signal(signal.SIGKILL, pid)


def test_a_signal_without_a_name() -> None:
    assert signal_name(signal.SIGRTMIN + 7).startswith("SIG")


# --- the death pipe


def test_the_death_pipe_can_be_cut_again() -> None:
    line = DeathPipe()
    below = os.dup(line.reading)
    line.handed_over()
    assert not is_application_gone(below)
    line.cut()
    line.cut()
    assert is_application_gone(below)
    os.close(below)


# --- printed lines


def test_lines_are_told_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    said = output.CapturedOutput("node", logging.INFO)
    out = output._CapturedStream(said, logging.INFO)
    assert out.write("one\ntw") == 6
    print("o", file=out)
    out.write("\n\nthree")
    out.flush()
    out.write("x" * 5_000)
    assert [line[:5] for _, _, line, _ in said._lines] == ["one", "two", "three"]
    assert out.writable()
    assert not out.isatty()
    assert out.fileno() == 1
    with pytest.raises(io.UnsupportedOperation):
        out.read()


def test_there_is_room_for_so_many_lines() -> None:
    said = output.CapturedOutput("node", logging.INFO)
    for number in range(output.MOST_LINES + 5):
        said.add("logger", logging.INFO, f"{number}" + "x" * 10_000)
    assert len(said._lines) == output.MOST_LINES
    assert said._dropped == 5
    assert all(len(line) == output.LINE for _, _, line, _ in said._lines)
    said.flush()  # there is no process to tell


# --- crash stacks


CRASHED = """Fatal Python error: Segmentation fault

Thread 0x00007f60ed1f (most recent call first):
  File "/venv/greenroom/supervision/behaviours/threads.py", line 128 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f60ed0f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/srv/asyncio.py", line 16 in segfault
  File "/venv/greenroom/supervision/kernel/workers.py", line 9 in run
  File "/venv/greenroom/actors/worker.py", line 49 in work
  File "/venv/greenroom/supervision/kernel/workers.py", line 185 in _begin
  File "/usr/lib/python3.11/asyncio/events.py", line 80 in _run
  File "/venv/greenroom/supervision/cluster/hosting.py", line 178 in _run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f60ef23 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select
  File "/venv/thespian/system/transport/TCPTransport.py", line 1158 in _runWithExpiry
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "<string>", line 7 in <module>

Extension modules: msgspec._core (total: 1)"""
BRIEF = """Fatal Python error: Segmentation fault

Current thread 0x00007f60ed0f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/srv/asyncio.py", line 16 in segfault
  File "/venv/greenroom/supervision/kernel/workers.py", line 9 in run
  File "/venv/greenroom/actors/worker.py", line 49 in work
  …

Thread 0x00007f60ef23 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select
  …

Extension modules: msgspec._core (total: 1)"""
OURS = """Current thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/asyncio/events.py", line 80 in _run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap"""


@pytest.mark.parametrize(
    ("text", "brief"),
    [(CRASHED, BRIEF), (OURS, OURS), ("", ""), ("Thread 0x1", ""), ("no\n\n\n\nthreads", "no\n\nthreads")],
)
def test_crash_stacks_are_shortened_to_the_code_that_ran(text: str, brief: str) -> None:
    assert crash_output.shorten_stacks(text) == brief


@given(st.lists(st.sampled_from([*CRASHED.splitlines(), "", "  File ", "Thread 0x", '  File "' + "/asyncio" * 2000])))
def test_crash_stacks_may_be_any_text(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert crash_output.shorten_stacks(crash_output.shorten_stacks(text)) == crash_output.shorten_stacks(text)


def test_crash_stacks_are_read_through_their_descriptor() -> None:
    memory = os.memfd_create("words")
    os.write(memory, b"Fatal Python error: at the end\n\0\0")
    assert crash_output.read_stacks(memory) == "Fatal Python error: at the end"
    crash_output.close_memories([memory, -1])
    assert crash_output.read_stacks(memory) == ""
    lost = NodeLost("node-1", ProcessEnding(signal=11, words="where it was"))
    assert lost.__notes__ == ["where it was"]
    assert "where it was" not in str(lost)


# --- main modules


@pytest.fixture
def main() -> Generator[None]:
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
    sys.modules.pop(mains.NAME, None)


@pytest.mark.usefixtures("main")
def test_a_script_is_the_main_module_without_being_run(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("class Tool: pass\nran = __name__ == '__main__'\n")
    mains.load_main_module(None, str(script))
    made: Any = sys.modules["__main__"]
    assert made is sys.modules[mains.NAME]
    assert not made.ran
    assert made.Tool.__module__ == mains.NAME
    assert not mains.MainImport.now


@pytest.mark.usefixtures("main")
def test_so_is_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_server_of_a_test.py").write_text("value = 7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    # pytest's own finder does not know how a module is run.
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if "pytest" not in type(each).__module__])
    mains.load_main_module("a_server_of_a_test", None)
    made: Any = sys.modules["__main__"]
    assert made.value == 7
