"""The load generator recognizes complete, correct answers, and the contest runs its rounds. Speed does not matter here."""

from __future__ import annotations

import json
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.contest_rounds import Effort
from benchmarks.serving import blast_radius, contest, faults, noisy_neighbours, processes, profiling
from benchmarks.serving.contenders import FLOOR, Contender
from benchmarks.serving.load import Load, callers, drive
from benchmarks.serving.sessions import Unexpected, answer_in
from benchmarks.serving.wire import ConnectionClosed, HttpResponse, Line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.deep

SHORT = Effort(rounds=1, seconds=0.05)


@pytest.fixture
def ends() -> Iterator[tuple[Line, socket.socket]]:
    """A connection and its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        line = Line(listening.getsockname()[1], timeout=30.0)
        other, _ = listening.accept()
        with other:
            yield line, other
        line.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx: y\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 204 \r\nserver: any\r\n\r\n",
        b"HTTP/1.1 202 \r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_an_answer_is_whole_when_its_last_byte_has_come(ends: tuple[Line, socket.socket], answer: bytes) -> None:
    line, other = ends
    for cut in range(1, len(answer)):
        other.sendall(answer[:cut])
        response = line.read_response()
        while response is None and len(line._heard) < cut:  # pyright: ignore[reportUnknownMemberType]
            response = line.read_response()
        assert response is None
        other.sendall(answer[cut:])
        while response is None:
            response = line.read_response()
        assert response == answer


def test_a_connection_that_is_closed_in_the_middle_is_no_answer(ends: tuple[Line, socket.socket]) -> None:
    line, other = ends
    other.sendall(b"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhel")
    assert line.read_response() is None
    other.close()
    with pytest.raises(ConnectionClosed):
        line.read_response()


def test_an_answer_is_found_in_a_body_and_among_events() -> None:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {}}
    plain = HttpResponse(200, {"content-type": "application/json"}, json.dumps(message).encode())
    stream = (
        b'event: message\ndata: {"method": "notifications/progress"}\n\ndata: %b\n\n' % json.dumps(message).encode()
    )
    events = HttpResponse(200, {"content-type": "text/event-stream"}, stream)
    assert answer_in(plain, 7) == answer_in(events, 7) == message
    with pytest.raises(Unexpected):
        answer_in(plain, 8)


class Stub:
    """A server that answers each request of one connection with the result of `answer`."""

    def __init__(self, status: bytes = b"200", extra: bytes = b"") -> None:
        """Listen."""
        self.status = status
        self.extra = extra
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Serve until the peer closes. The handshake's three requests succeed."""
        other, _ = self.listening.accept()
        self.listening.close()
        with other, other.makefile("rb") as stream:
            number = 0
            while stream.readline():
                length = 0
                while (header := stream.readline().lower()) != b"\r\n":
                    if header.startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                body = stream.read(length)
                number += 1
                status, extra = (self.status, self.extra) if number > 2 else (b"200", b"")
                answer = body + extra
                other.sendall(b"HTTP/1.1 %b \r\ncontent-length: %d\r\n\r\n%b" % (status, len(answer), answer))


@pytest.mark.parametrize(("status", "extra"), [(b"500", b""), (b"200", b'"error"'), (b"200", b'"isError":true')])
def test_the_generator_refuses_to_count_what_is_no_result(status: bytes, extra: bytes) -> None:
    stub = Stub(status, extra)
    with pytest.raises(Unexpected), callers(stub.port, 1) as made:
        drive(made, "echo", {}, 0.01)
    stub.thread.join()


def test_a_load_says_how_fast_and_how_long() -> None:
    load = Load(1, seconds=2.0, latencies=[0.1, 0.2, 0.3, 0.4])
    assert load.rate == 2.0
    assert load.median == 0.25
    assert load.quantile(0.5) == 0.3
    assert load.quantile(1.0) == 0.4


def test_a_contest_is_held_over_real_connections_and_says_who_could_not_take_part() -> None:
    absent = Contender("absent", "", ("/nowhere/python",))
    broken = Contender("broken", "", (sys.executable, "-c", "raise SystemExit('no such show')", "PORT"))
    held = contest.hold(SHORT, (FLOOR, absent, broken))
    (entry,) = held.entries
    assert len(entry.rate) == 1
    assert entry.rate[0] > 0
    assert held.missing["broken"] == "it did not start: no such show"
    shown = contest.table(held)
    assert "raw ASGI" in shown
    assert "absent: its environment is not there: /nowhere/python" in shown
    told = contest.as_data(held)
    assert json.loads(json.dumps(told))["entries"][0]["rate"] == entry.rate


def test_ratios_are_medians_of_the_rounds_own_ratios() -> None:
    assert contest.ratio([1.0, 10.0, 6.0], [1.0, 5.0, 2.0]) == 2.0


def test_a_server_that_does_not_end_when_asked_is_ended_all_the_same(tmp_path: Path) -> None:
    deaf = (
        "import signal, socket, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "listening = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
        "[listening.accept() for _ in iter(int, 1)]"
    )
    with processes.serving((sys.executable, "-c", deaf, "PORT"), tmp_path / "log") as served:
        assert served.resident() > 0
        assert served.processor_time() >= 0
        assert served.end(0.1) == -9


LOOP = "main (program.py:1);run_forever (asyncio/base_events.py:600)"


def test_a_sample_belongs_to_the_innermost_layer_that_it_stands_in() -> None:
    stacks = [
        f"{LOOP};handle (hypercorn/protocol/h11.py:1);next_event (h11/_connection.py:2);validate (re.py:3) 30",
        f"{LOOP};find (greenroom/actors/sessions.py:1);of (greenroom/supervision/kernel/names.py:9) 20",
        f"{LOOP};select (selectors.py:468) 40",
        f"{LOOP} 10",
        "idle (threading.py:1);wait (threading.py:300) 1000",
    ]
    parts = profiling.shares(stacks)
    assert sum(parts.values()) == pytest.approx(1.0)
    assert parts["HTTP parser"] == 0.3
    assert parts["kernel: processes, messages, links"] == 0.2
    assert parts["event loop and its system calls"] == 0.5


def test_an_outcome_has_the_lost_calls_the_error_and_the_servers_state() -> None:
    assert str(faults.Outcome(0, "`isError`", serves=True, code=None)) == "0 of 100 lost; caller: `isError`; serves on"
    assert str(faults.Outcome(100, "nothing", serves=False, code=-2)).endswith("gone, exit code -2")
    assert str(faults.Outcome(100, "nothing", serves=False, code=None)).endswith("running, but serves no client")


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        (b'{"id":7,"result":{"isError":true}}', "`isError`"),
        (b'{"id":7,"result":{}}', "a result"),
        (b'{"id":7,"error":{"code":-32603}}', "error -32603"),
        (b'{"id":8,"result":{}}', "an empty answer (HTTP 200)"),
        (b"", "an empty answer (HTTP 200)"),
    ],
)
def test_the_result_of_the_faulty_call_is_described(answer: bytes, response: str) -> None:
    assert faults.verdict(b"HTTP/1.1 200 \r\ncontent-type: application/json\r\n\r\n" + answer, 7) == response


def test_the_trials_of_ours_that_do_not_wait_for_long(tmp_path: Path) -> None:
    fault = faults.Fault("exits", "leave")
    with processes.serving(blast_radius.OURS.command, tmp_path / "log") as served:
        assert str(faults.try_out(served, fault)) == "0 of 100 lost; caller: `isError`; serves on"
    flooded = noisy_neighbours.flood(["0" if word == "PORT" else word for word in blast_radius.OURS.command])
    assert flooded.endswith("an error; goes on")


def test_the_table_goes_between_the_pages_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{blast_radius.BEGIN}\nold\n{blast_radius.END}\nafter\n", encoding="utf-8")
    blast_radius.put("| new |", page)
    assert page.read_text(encoding="utf-8") == f"before\n{blast_radius.BEGIN}\n\n| new |\n\n{blast_radius.END}\nafter\n"


def test_a_failed_trial_is_one_cell_of_the_table(tmp_path: Path) -> None:
    def fail(_: object) -> object:
        raise ValueError

    broken = blast_radius.Trial("broken", of_command=fail)
    alone = blast_radius.Trial("alone", of_command=fail, ours_alone=True)
    peer = Contender("peer", "", (sys.executable, "-c", "raise SystemExit('no such show')", "PORT"))
    table = blast_radius.table([broken, alone], [peer], lambda _line: None)
    assert "| broken | the trial failed: ValueError |" in table
    assert "| alone | not supported |" in table
    assert (
        blast_radius.try_out(blast_radius.Trial("it", lambda served: served), peer, tmp_path / "log")
        == "did not start: no such show"
    )
