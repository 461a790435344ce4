"""A server as a program on real standard streams: what is protocol, what is not, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
import tty
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from .child_programs import EVERYTHING, LOAD, program

if TYPE_CHECKING:
    from pathlib import Path

GRACE = "1"


@pytest.mark.row("ST-01")
@pytest.mark.row("ST-19")
def test_the_server_runs_until_its_input_ends(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        assert served.greet()["serverInfo"] == {"name": "everything", "version": "1.2"}
        served.call("echo", 1, text="hello")
        assert served.answer(1)["content"] == [{"type": "text", "text": "hello"}]
        served.hang_up()
        assert served.rest() == b""
        assert served.code() == 0


@pytest.mark.row("ST-20")
def test_every_method_is_served_over_stdio(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        assert served.greet()["instructions"] == "Try all of it."
        asked: dict[str, dict[str, Any]] = {
            "ping": {},
            "tools/list": {},
            "resources/list": {},
            "resources/templates/list": {},
            "resources/read": {"uri": "weather://Oslo"},
            "resources/subscribe": {"uri": "config://app"},
            "resources/unsubscribe": {"uri": "config://app"},
            "prompts/list": {},
            "prompts/get": {"name": "pack_for", "arguments": {"city": "Oslo"}},
            "completion/complete": {
                "ref": {"type": "ref/prompt", "name": "pack_for"},
                "argument": {"name": "city", "value": "Os"},
            },
            "logging/setLevel": {"level": "debug"},
        }
        for method, params in asked.items():
            served.tell(method, params, method)
        answers = {method: served.answer(method) for method in asked}
        assert not [method for method, answer in answers.items() if "code" in answer]
        assert answers["ping"] == {}
        assert "echo" in [each["name"] for each in answers["tools/list"]["tools"]]
        assert answers["resources/list"]["resources"][0]["uri"] == "config://app"
        assert answers["resources/templates/list"]["resourceTemplates"][0]["uriTemplate"] == "weather://{city}"
        assert answers["resources/read"]["contents"][0]["text"] == "sunny in Oslo"
        assert answers["prompts/get"]["messages"][0]["content"]["text"] == "What do I pack for Oslo?"
        assert answers["completion/complete"]["completion"]["values"] == ["Oslo", "Osaka"]


@pytest.mark.row("ST-20")
def test_progress_cancellation_and_server_requests_run_in_parallel(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        served.call("wait_for_ever", "w")
        served.until(lambda each: each.get("method") == "notifications/message")
        served.call("count", "c", meta={"progressToken": "p"}, to=3)
        served.call("greet", "g")
        question = served.until(lambda each: each.get("method") == "elicitation/create")
        served.answer("c")
        steps = [each["params"] for each in served.heard if each.get("method") == "notifications/progress"]
        assert [each["progress"] for each in steps] == [1, 2, 3]
        assert {each["progressToken"] for each in steps} == {"p"}
        served.tell("notifications/cancelled", {"requestId": "w"})
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        served.say(json.dumps(answer).encode() + b"\n")
        assert served.answer("g")["content"][0]["text"] == "Hello, Ada!"
        served.call("echo", "e", text="still here")
        served.answer("e")
        assert not [each for each in served.heard if each.get("id") == "w"]


@pytest.mark.row("ST-21")
def test_prints_of_any_code_stay_out_of_the_protocol(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        served.call("noise", 1, text="said")
        assert served.answer(1)["content"][0]["text"] == "said, and a child read 0 bytes"
        served.hang_up()
        assert served.rest() == b""
        assert served.code() == 0
        told = served.error_text()
        for each in (
            "before it runs",
            "printed said",
            "written",
            "from the descriptor",
            "from C",
            "from a child",
            "after it ran",
        ):
            assert each in told


def test_a_tool_that_exits_ends_only_its_call(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE, clean=False) as served:
        served.greet()
        served.call("leave", 1)
        assert served.answer(1)["isError"] is True
        served.call("echo", 2, text="still here")
        assert served.answer(2)["content"][0]["text"] == "still here"


@pytest.mark.row("OP-01")
def test_requests_before_the_end_of_the_input_are_answered(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        for number in range(1, 51):
            served.call("echo", number, text=str(number))
        served.hang_up()
        assert [served.answer(number)["content"][0]["text"] for number in range(1, 51)] == [
            str(n) for n in range(1, 51)
        ]
        assert served.code() == 0


def test_a_call_without_end_is_waited_for_until_the_grace_is_over(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "0.3") as served:
        served.greet()
        served.call("never_return", 1)
        served.call("echo", 2, text="")
        served.answer(2)
        began = time.monotonic()
        served.hang_up()
        assert served.code() == 0
        assert 0.2 <= time.monotonic() - began < 0.3 + LOAD
        assert served.answer(1)["code"] == -32603


# --- limits


def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        served.call("echo", 1, text="before")
        served.answer(1)
        before = served.memory()
        most = before
        for _ in range(200):
            served.say(b"x" * 1024 * 1024)
            most = max(most, served.memory())
        served.say(b"\n")
        error = served.answer(None)
        assert error["code"] == -32600
        assert "Message too large" in error["message"]
        served.call("echo", 2, text="after")
        assert served.answer(2)["content"][0]["text"] == "after"
        assert most - before < 24 * 1024 * 1024
        assert len([each for each in served.heard if each.get("id", 0) is None]) == 1


def test_a_peer_that_does_not_read_pauses_the_server_and_costs_no_memory(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        before = served.memory()
        os.set_blocking(served.write_end, False)
        asked = 0
        stuck = 0
        while stuck < 50:
            message = (
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"big","arguments":{"size":100000}}}\n'
            )
            try:
                os.write(served.write_end, message % asked)
                asked += 1
                stuck = 0
            except BlockingIOError:
                stuck += 1
                time.sleep(0.005)  # no event tells that the reader has stopped
        assert served.memory() - before < 100 * 1024 * 1024
        os.set_blocking(served.write_end, True)
        for number in range(asked):
            served.answer(number)


# --- other kinds of streams


def test_sockets_serve_as_standard_streams(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    end, other = ours.detach(), theirs.detach()
    with program(tmp_path, "stdio", GRACE, streams=(other, other, end, end)) as served:
        served.greet()
        served.call("big", 1, size=3_000_000)
        assert len(served.answer(1)["content"][0]["text"]) == 3_000_000
        with socket.socket(fileno=os.dup(end)) as line:
            line.shutdown(socket.SHUT_WR)
        assert served.code() == 0


def test_files_serve_as_standard_streams(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
    asked = tmp_path / "asked"
    asked.write_bytes(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
        b'"clientInfo":{"name":"c","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        b'{"jsonrpc":"2.0","id":2,"method":"ping"}'
    )
    with asked.open("rb") as source, (tmp_path / "answered").open("wb") as target:
        done = subprocess.run(
            [sys.executable, EVERYTHING, "stdio", GRACE], stdin=source, stdout=target, check=False, timeout=20
        )
    assert done.returncode == 0
    assert (tmp_path / "answered").read_bytes().splitlines()[-1] == b'{"jsonrpc":"2.0","id":2,"result":{}}'


def test_a_terminal_serves_as_standard_streams(tmp_path: Path) -> None:
    control, terminal = pty.openpty()
    tty.setraw(terminal)
    with program(tmp_path, "stdio", GRACE, streams=(terminal, terminal, control, os.dup(control))) as served:
        assert served.read(100) == b"before it runs\n"  # a terminal shows what is printed at once
        served.greet()
        served.call("echo", 1, text="typed")
        assert served.answer(1)["content"][0]["text"] == "typed"


def test_an_empty_input_ends_the_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EVERYTHING, "stdio", GRACE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout if os.environ.get("PYTHONUNBUFFERED") is None else b"") == (0, b"")


@pytest.mark.parametrize("missing", one_in(2, ["0", "1", "2", "02", "012"]))
def test_missing_standard_streams_do_no_harm(missing: str) -> None:
    hello = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    closing = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in map(int, missing))
    command = f"exec {sys.executable} {EVERYTHING} stdio {GRACE} {closing}"
    done = subprocess.run(["/bin/sh", "-c", command], input=hello, capture_output=True, check=False, timeout=20)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert (b'"id":1,"result":{}' in done.stdout) == (missing == "2")
    assert b"jsonrpc" not in done.stderr


# --- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_server_in_order(tmp_path: Path, number: int) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        assert served.signal(number) < LOAD
        assert served.code() == 0
        assert "after it ran" in served.error_text()


def test_a_thread_that_never_returns_does_not_delay_the_end(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "0.5") as served:
        served.greet()
        served.call("never_return", 1)
        served.call("echo", 2, text="")
        served.answer(2)
        assert served.signal(signal.SIGTERM) < 0.5 + LOAD
        assert served.code() == 0


def test_a_users_thread_does_not_delay_the_end(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "0.5") as served:
        served.greet()
        served.call("hold_a_foreign_thread", 1)
        served.answer(1)
        assert served.signal(signal.SIGTERM) < 0.5 + LOAD
        assert served.code() == 0
        assert "not waiting for" in served.error_text()


@pytest.mark.deep
@pytest.mark.parametrize("how", ["signal", "end of input"])
@pytest.mark.parametrize(
    ("what", "named"), [("pool", "ThreadPoolExecutor"), ("child", "the-child"), ("function", "code at exit")]
)
def test_exit_handlers_do_not_delay_the_end(tmp_path: Path, what: str, named: str, how: str) -> None:
    with program(tmp_path, "stdio", "0.5") as served:
        served.greet()
        served.call("leave_at_exit", 1, what=what)
        assert served.answer(1)["isError"] is False
        began = time.monotonic()
        if how == "signal":
            served.signal(signal.SIGTERM)
        else:
            served.hang_up()
        assert served.code() == 0
        assert time.monotonic() - began < 0.5 + LOAD
        assert "after it ran" in served.error_text()
        told = served.error_text().splitlines()[-1]
        assert told.startswith("greenroom: stopped in order; not waiting for ")
        assert named in told
        assert served.rest() == b""  # it ends when no process has the other end any more, not even a child


def test_code_after_the_end_of_the_input_may_take_its_time(tmp_path: Path) -> None:
    file = tmp_path / "longer.py"
    file.write_text(
        "import time\nfrom greenroom import Server\nServer('x').run(grace=0)\ntime.sleep(1)\nprint('done', flush=True)\n"
    )
    with program(tmp_path, file=file) as served:
        served.greet()
        served.hang_up()
        assert served.code() == 0
        assert "done" in served.error_text()


@pytest.mark.parametrize("number", one_in(2, [signal.SIGTERM, signal.SIGHUP]))
@pytest.mark.parametrize("tool", ["never_return", "wait_for_ever", "swallow"])
def test_a_signal_leaves_no_call_unanswered(tmp_path: Path, tool: str, number: int) -> None:
    with program(tmp_path, "stdio", "0.5", clean=False) as served:  # Python warns of code that will not be closed
        served.greet()
        served.call(tool, 1)
        served.call("echo", 2, text="")
        served.answer(2)
        os.kill(served.process.pid, number)
        assert served.answer(1)["code"] == -32603
        assert served.code() == 0


def test_several_hangups_stop_the_server_once_and_do_not_end_it_at_once(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "0.5", clean=False) as served:
        served.greet()
        served.call("wait_for_ever", 1)
        served.until(lambda each: each.get("method") == "notifications/message")
        os.kill(served.process.pid, signal.SIGHUP)
        served.until_told("SIGHUP: stopping in order; SIGTERM twice ends it at once")
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            os.kill(served.process.pid, number)
        assert served.answer(1)["code"] == -32603
        assert served.code() == 0


def test_another_signal_after_a_hangup_ends_the_server_at_once(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "60", clean=False) as served:
        served.greet()
        served.call("wait_for_ever", 1)
        served.until(lambda each: each.get("method") == "notifications/message")
        for number, said in (
            (signal.SIGHUP, "SIGTERM twice ends it at once"),
            (signal.SIGTERM, "once more ends it at once"),
        ):
            os.kill(served.process.pid, number)
            served.until_told(f"{number.name}: stopping in order; {said}")
        os.kill(served.process.pid, signal.SIGTERM)
        assert served.code() == -signal.SIGTERM


def test_a_program_that_ignores_hangups_as_under_nohup_goes_on() -> None:
    ignoring = f"trap '' HUP; exec {sys.executable} -c 'from greenroom import Server; Server(\"quiet\").run()'"
    with subprocess.Popen(["/bin/sh", "-c", ignoring], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        for _ in range(2):
            served.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            served.stdin.flush()
            assert b'"result"' in served.stdout.readline()
            served.send_signal(signal.SIGHUP)
        served.stdin.close()
        assert served.wait(20) == 0


def test_a_signal_to_a_forked_child_ends_only_the_child(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", GRACE) as served:
        served.greet()
        served.call("terminate_a_child", 1)
        assert served.answer(1)["content"][0]["text"] == f"ended by {-signal.SIGTERM}"
        served.call("echo", 2, text="still here")
        assert served.answer(2)["content"][0]["text"] == "still here"
        assert "stopping" not in served.error_text()


def test_a_loop_that_does_not_turn_is_ended_with_an_error(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "0.5") as served:
        served.greet()
        served.call("block_the_loop", 1)
        served.until_told("blocking")
        assert served.signal(signal.SIGTERM) < 0.5 + LOAD
        assert served.code() == 1
        assert "the loop did not stop within 0.5 seconds" in served.error_text()


def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    with program(tmp_path, "stdio", "1000") as served:
        served.greet()
        served.call("never_return", 1)
        served.call("echo", 2, text="")
        served.answer(2)
        os.kill(served.process.pid, signal.SIGTERM)
        served.until_told("SIGTERM: stopping in order")
        assert served.signal(signal.SIGTERM) < LOAD
        assert served.code() == -signal.SIGTERM


def test_the_server_does_not_outlive_its_parent(tmp_path: Path) -> None:
    # The pipe stays open: this test holds it, as a sibling that inherited it would.
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, {str(EVERYTHING)!r}, 'stdio', '1'], stdin=0, stdout=1)\n"
        "child.wait()\n"
    )
    file = tmp_path / "parent.py"
    file.write_text(script)
    with program(tmp_path, file=file) as served:
        served.greet()
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.wait()
        assert served.rest() == b""  # it ends when no process has the other end any more: when the child is gone
