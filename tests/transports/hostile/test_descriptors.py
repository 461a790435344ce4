"""A flood of silent connections on a program with few descriptors: open connections are served, tools open files, the log stays small."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from tests.free_ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

FILES = 160
PROGRAM = """
import resource
import sys
from greenroom import HttpConfig, Server

server = Server("flooded")

@server.tool
def first_line(path: str) -> str:
    with open(path) as file:
        return file.readline()

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]), int(sys.argv[3])))  # workers inherit it
    config = HttpConfig(port=int(sys.argv[1]), session_enabled=False)
    workers = int(sys.argv[2])
    server.run("http", config=config, **({"workers": workers} if workers else {}))
"""


def call(connection: HTTPConnection, path: Path) -> str:
    params = {"name": "first_line", "arguments": {"path": str(path)}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    connection.request("POST", "/mcp", body, headers)
    answer = connection.getresponse()
    said = answer.read()
    assert answer.status == 200, said
    return str(json.loads(said)["result"]["content"][0]["text"])


@pytest.mark.deep
@pytest.mark.parametrize("workers", [0, 2])
def test_silent_connections_take_no_reserved_descriptor(workers: int, tmp_path: Path) -> None:
    program, log, port = tmp_path / "program.py", tmp_path / "log", free_port()
    program.write_text(PROGRAM)
    with log.open("wb") as said:
        server = subprocess.Popen(
            [sys.executable, str(program), str(port), str(workers), str(FILES)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        honest = HTTPConnection("127.0.0.1", port, timeout=30)
        while server.poll() is None:
            with contextlib.suppress(OSError):
                honest.connect()
                break
            time.sleep(0.02)  # another program: there is no event to wait for
        assert call(honest, program) == "\n"
        with contextlib.ExitStack() as flood:
            for _ in range(3 * FILES * max(1, workers)):
                each = flood.enter_context(socket.socket())
                each.settimeout(0)
                each.connect_ex(("127.0.0.1", port))
            for _ in range(20):
                assert call(honest, program) == "\n"
        honest.close()
    finally:
        server.terminate()
        assert server.wait(30) == 0
    text = log.read_text()
    assert "Traceback" not in text
    assert text.count("ulimit -n") <= 2 * max(1, workers), text
