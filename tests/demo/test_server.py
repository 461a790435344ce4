"""The server demonstration as a program: tools die without effect on other calls, it serves, and it stops in order."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

COMMAND = [sys.executable, "-W", "error", "-m", "examples.demo", "--port", "0"]
SECONDS = 60
TREE = re.compile(r"^(?!.*(?:Wire|WorkerProxy|NodeOwner )).*[├└]─ .*$", re.MULTILINE)
"""All but the wires, one of which leads to a server that keeps dying, and the proxy of the worker whose tool segfaults."""


def shape(seen: str) -> list[str]:
    """The lines of the tree with equal branch marks, because filtered lines change which line is the last of a branch."""
    return [line.replace("├", "└") for line in TREE.findall(seen)]


@contextmanager
def demonstration(*arguments: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"{words!r} did not come in {seen!r}")


def test_the_demo_client_sees_tools_die_and_the_tree_is_unchanged() -> None:
    with demonstration() as process:
        seen = until(process, "Now it is your turn")
        tree = until(process, "ReadyMark")
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0, rest
    assert rest.endswith("stopped in order\n")
    before, _, tour = seen.partition("A client in the same process calls every tool once")
    assert shape(before) == shape(tree)
    for death in ("'crash'", "'leave'", "'raise_interrupt'"):
        assert re.search(
            rf"† tools/call {death} \(request \d+\) <node\.\d+>: crash: .*\. Its caller got an error", tour
        )
    assert tour.count("← isError: Tool execution failed\n") == 3
    assert re.search(r"→ segfault\(\)\n(.*\n)*?.*← isError: .* its process was ended by signal 11 \(SIGSEGV\)", tour)
    assert "← isError: the stage door is locked" in tour
    assert re.search(r"→ raise_interrupt\(\)\n(.*\n)*?.*← isError.*\n.*→ add\(a=2, b=2\)\n.*← 4\n", tour)
    assert "  … step 3 of 3" in tour
    assert "! tools/call 'block'" in tour
    assert re.search(r"→ clock__now\(\)\n.*← \d\d:\d\d:\d\d\n", tour)
    assert re.search(r"→ library__find\(title=erlang\)\n.*← Programming Erlang", tour)
    assert re.search(r"→ shaky__count\(to=30\)\n(.*\n)*?.*← error -32603: .*'shaky'", tour)
    assert "Traceback" not in seen


def test_a_server_behind_it_is_killed_and_comes_back() -> None:
    with demonstration("--quiet") as process:
        until(process, "the server shaky is degraded: its process was ended by SIGKILL")
        until(process, "the server shaky is ready")
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0, rest


def test_a_client_is_served_over_http() -> None:
    with demonstration("--quiet") as process:
        url = re.findall(r"http://\S+/mcp", until(process, "HttpListener"))[0]
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(url, json.dumps(hello).encode(), headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            assert json.load(response)["result"]["serverInfo"]["name"] == "greenroom-demo"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS)[0].endswith("stopped in order\n")
    assert process.returncode == 0


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--port", str(port)], capture_output=True, check=False, text=True, timeout=SECONDS
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "choose another port" in done.stderr


def test_make_run_listens_where_it_is_told() -> None:
    """The command that `make` would run."""
    for words, port, admin in (((), "8000", "9091"), (("PORT=8123", "ADMIN_PORT=9123"), "8123", "9123")):
        left_out = ("PORT", "ADMIN_PORT", "MAKEFLAGS")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        done = subprocess.run(
            ["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "run", *words],
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1].endswith(f"-m examples.demo --port {port} --admin-port {admin}")


def test_within_ten_seconds_the_observer_shows_tools_that_die_and_a_tree_that_heals() -> None:
    with demonstration() as process:
        seen = until(process, "observe: ")
        link = re.search(r"observe: (http://127\.0\.0\.1:\d+/observe/)\?(token=\S+)", seen)
        assert link is not None
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

        def page(path: str) -> str:
            with opener.open(f"{link[1]}{path}", timeout=SECONDS) as response:
                return str(response.read().decode())

        began = time.monotonic()
        page(f"?{link[2]}")
        while not ("ZeroDivisionError" in page("crashes") and "SIGKILL" in page("upstreams")):
            assert time.monotonic() < began + 10
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0, rest
