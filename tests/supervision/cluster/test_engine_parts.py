"""The parts that the engine is made of, each by itself: orders, notes, seals, pids, lines, main modules."""

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

from greenroom.supervision.cluster import (
    bootstrap as inherited,
)
from greenroom.supervision.cluster import (
    crash_output as last_words,
)
from greenroom.supervision.cluster import (
    crash_output as utterances,
)
from greenroom.supervision.cluster import (
    daemon_protocol as orders,
)
from greenroom.supervision.cluster import (
    node_main as mains,
)
from greenroom.supervision.cluster import (
    pids,
)
from greenroom.supervision.cluster import (
    thespian_taming as hardening,
)
from greenroom.supervision.cluster.bootstrap import Lifeline, is_cut
from greenroom.supervision.cluster.node_records import Ending, NodeLost, signal_name
from greenroom.supervision.cluster.thespian_taming import streams

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

KEY = bytes(range(32))


# --- orders


@given(st.lists(st.binary(max_size=50)), st.integers(1, 7))
def test_orders_arrive_whole_however_they_are_cut(boots: list[bytes], step: int) -> None:
    sent = [orders.StartHost(f"node-{number}", boot, {"at": number}) for number, boot in enumerate(boots)]
    data = b"".join(orders.pack(order) for order in sent)
    unpacker = orders.Unpacker()
    came = [order for start in range(0, len(data), step) for order in unpacker.feed(data[start : start + step])]
    assert came == sent


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\1\x01", b"\0\0\0\2\x81\xa0"])
def test_what_is_no_order_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="order"):
        list(orders.Unpacker().feed(data))


def test_an_order_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="16777216 at most"):
        orders.pack(orders.StartHost("node", bytes(orders.LARGEST), {}))


@pytest.fixture
def ends() -> Generator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_one_end_tells_the_other(ends: tuple[socket.socket, socket.socket]) -> None:
    mine, theirs = (orders.Orders(end) for end in ends)
    assert theirs.take() == []
    mine.send(orders.Ping(1))
    mine.send(orders.Ping(2))
    assert theirs.next() == orders.Ping(1)
    assert theirs.take() == [orders.Ping(2)]
    ends[0].close()
    with pytest.raises(EOFError):
        theirs.next()
    theirs.send(orders.Pong(1))
    assert theirs.over


def test_a_key_is_not_shown() -> None:
    begin: dict[str, Any] = dict.fromkeys(orders.Begin.__struct_fields__) | {"key": KEY}
    assert repr(orders.Begin(**begin)) == "Begin(…)"
    assert "secret" not in repr(orders.StartHost("node", b"secret", {}))


# --- notes


def test_a_note_keeps_its_end_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reading, writing:
        monkeypatch.setattr(inherited.Inherited, "notes", writing)
        inherited.take_note(logging.ERROR, "x" * 10_000 + "the end")
        note = orders.decoded(reading.recv(10_000))
    assert isinstance(note, orders.Note)
    assert (note.level, note.node) == (logging.ERROR, "")
    assert len(note.text) == inherited.NOTE_BYTES
    assert note.text.endswith("the end")


@given(st.binary(max_size=200))
def test_what_is_no_note_is_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        order = orders.decoded(data)
        assert orders.decoded(orders.encoded(order)) == order


def test_a_note_for_which_there_is_no_room_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reading, writing:
        writing.setblocking(False)  # noqa: FBT003 - socket's own word
        monkeypatch.setattr(inherited.Inherited, "notes", writing)
        for _ in range(10_000):
            inherited.take_note(logging.INFO, "x" * 1000)
        assert orders.decoded(reading.recv(10_000)) == orders.Note(logging.INFO, "x" * 1000, "")


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited.Inherited, "environment", {})
    monkeypatch.setenv("WAS", "there")
    monkeypatch.delenv("WAS_NOT", raising=False)
    inherited.change_environment("WAS", "changed")
    inherited.change_environment("WAS", "again")
    inherited.change_environment("WAS_NOT", "set")
    inherited.restore_environment()
    assert os.environ["WAS"] == "there"
    assert "WAS_NOT" not in os.environ


# --- seals


def test_what_was_sealed_is_taken_and_nothing_else() -> None:
    refused: list[str] = []
    sealed = hardening.Sealed(KEY, refused.append)
    assert sealed.loads(sealed.dumps({"a": 1})) == {"a": 1}
    for data in (pickle.dumps("ACK"), b"", bytes(32), hardening.Sealed(bytes(32), refused.append).dumps(1)):
        with pytest.raises(hardening.Forged):
            sealed.loads(data)
    assert len(refused) == 4


@given(st.integers(0, 200), st.integers(0, 7))
def test_a_sealed_value_with_any_bit_changed_is_refused(place: int, bit: int) -> None:
    sealed = hardening.Sealed(KEY, lambda _: None)
    data = bytearray(sealed.dumps("value"))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(hardening.Forged):
        sealed.loads(bytes(data))


def frame(text: bytes) -> Any:
    buffer = hardening._bounded(streams.ReceiveBuffer)(bytes)
    buffer.addMore(text)
    return buffer


@pytest.mark.parametrize(
    "text", [b"-5>x", b"0>", b"32>x", b"99999999>x", b"1" * 13, b"x>", b"1 0>", b">", b"\xb2\xb23>"]
)
def test_a_length_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(hardening.Forged):
        frame(text)


def test_a_frame_that_is_one_is_taken() -> None:
    assert frame(b"40>" + b"x" * 40).completed() == (b"x" * 40, b"")
    buffer = frame(b"4")
    buffer.addMore(b"0>" + b"x" * 45)
    assert buffer.completed() == (b"x" * 40, b"x" * 5)


# --- pids


def test_who_is_below_and_how_it_ended() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"]) as shell:
        try:
            while len(pids.descendants(shell.pid)) < 2:
                pass
            below = pids.descendants(shell.pid)
            assert {pids.name_of(pid) for pid in below} == {"sleep"}
            assert pids.descendants(shell.pid, frozenset(below)) == []
            assert pids.descendants(shell.pid, named="no") == []
            assert set(below) < set(pids.descendants(os.getpid()))
            assert shell.pid in pids.children()
        finally:
            for pid in pids.descendants(shell.pid):
                pids.send_signal(signal.SIGKILL, pid)
            descriptor = pids.descriptor(shell.pid)
            pids.send_signal(signal.SIGTERM, shell.pid, descriptor)
            while not pids.has_ended(shell.pid, descriptor):
                pass
            assert not pids.is_alive(shell.pid)
            assert pids.status_of_dead(shell.pid) in (-signal.SIGTERM, 128 + signal.SIGKILL, -signal.SIGKILL)
            if descriptor is not None:
                os.close(descriptor)
    assert pids.status_of_dead(shell.pid) is None
    assert not pids.send_signal(0, shell.pid)
    assert pids.descriptor(shell.pid) is None
    assert pids.name_of(shell.pid) == ""
    assert not pids.was_started_with(shell.pid, "ANY", "thing")


def test_whose_it_is_stands_in_its_environment() -> None:
    environment = {"OF": "node-1", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sh", "-c", "echo; sleep 1000 & wait"], env=environment, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert pids.was_started_with(child.pid, "OF", "node-1")
            assert not pids.was_started_with(child.pid, "OF", "node")
        finally:
            for pid in (*pids.descendants(child.pid), child.pid):
                pids.send_signal(signal.SIGKILL, pid)


def test_a_signal_without_a_name() -> None:
    assert signal_name(signal.SIGRTMIN + 7).startswith("SIG")


# --- the lifeline


def test_it_is_cut_once() -> None:
    line = Lifeline()
    below = os.dup(line.reading)
    line.handed_over()
    assert not is_cut(below)
    line.cut()
    line.cut()
    assert is_cut(below)
    os.close(below)


# --- what is printed


def test_lines_are_told_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    said = utterances.Utterances("node", logging.INFO)
    out = utterances._Lines(said, logging.INFO)
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
    said = utterances.Utterances("node", logging.INFO)
    for number in range(utterances.UTTERANCES_ROOM + 5):
        said.add("logger", logging.INFO, f"{number}" + "x" * 10_000)
    assert len(said._lines) == utterances.UTTERANCES_ROOM
    assert said._dropped == 5
    assert all(len(line) == utterances.LINE for _, _, line, _ in said._lines)
    said.flush()  # there is no process to tell


# --- last words


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
def test_last_words_are_about_what_ran_there(text: str, brief: str) -> None:
    assert last_words.brief(text) == brief


@given(st.lists(st.sampled_from([*CRASHED.splitlines(), "", "  File ", "Thread 0x", '  File "' + "/asyncio" * 2000])))
def test_last_words_may_be_anything(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert last_words.brief(last_words.brief(text)) == last_words.brief(text)


def test_last_words_are_read_by_whoever_holds_them() -> None:
    memory = os.memfd_create("words")
    os.write(memory, b"Fatal Python error: at the end\n\0\0")
    assert last_words.read(memory) == "Fatal Python error: at the end"
    last_words.close([memory, -1])
    assert last_words.read(memory) == ""
    lost = NodeLost("node-1", Ending(signal=11, words="where it was"))
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
    mains.load(None, str(script))
    made: Any = sys.modules["__main__"]
    assert made is sys.modules[mains.NAME]
    assert not made.ran
    assert made.Tool.__module__ == mains.NAME
    assert not mains.Importing.now


@pytest.mark.usefixtures("main")
def test_so_is_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_server_of_a_test.py").write_text("value = 7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    # pytest's own finder does not know how a module is run.
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if "pytest" not in type(each).__module__])
    mains.load("a_server_of_a_test", None)
    made: Any = sys.modules["__main__"]
    assert made.value == 7
