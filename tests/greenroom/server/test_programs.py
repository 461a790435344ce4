"""Servers as HTTP programs: how they stop, and their errors when they cannot go on."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.transports.stdio.child_programs import EVERYTHING, LOAD, PATIENCE, program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.transports.stdio.child_programs import ChildProgram

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}'
)
READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def port_of(served: ChildProgram) -> int:
    """The address that the program reports."""
    served.until_told("/mcp\n")
    found = re.search(r"serves on http://127\.0\.0\.1:(\d+)/mcp", served.error_text())
    assert found is not None
    return int(found[1])


class Client:
    """A session over HTTP."""

    def __init__(self, port: int) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, timeout=PATIENCE)
        self.session = self.http.post("/mcp", content=HELLO).headers["mcp-session-id"]
        self.http.headers["mcp-session-id"] = self.session
        self.http.post("/mcp", content=READY)

    def call(self, tool: str, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        return self.http.post("/mcp", json=body).json()["result"]


@pytest.mark.row("ST-01")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_serves_on_http_until_a_signal_arrives(tmp_path: Path, number: int) -> None:
    with program(tmp_path, "http", "1") as served:
        client = Client(port_of(served))
        assert client.call("echo", text="hello")["content"] == [{"type": "text", "text": "hello"}]
        client.http.close()
        assert served.signal(number) < LOAD
        assert served.code() == 0
        assert "after it ran" in served.rest().decode()  # stdout is the program's own here


@pytest.mark.row("ST-01")
def test_a_port_that_is_taken_is_an_error_with_a_reason(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code = f"from greenroom import Server; Server('x').run('http', port={taken.getsockname()[1]})"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=False, timeout=PATIENCE, text=True
        )
    assert done.returncode == 1
    assert "the port is in use" in done.stderr.splitlines()[-1]


def test_a_tree_that_gives_up_is_an_error_with_a_reason(tmp_path: Path) -> None:
    code = """
import sys
from greenroom import Server
from greenroom.supervision import child, GenServer, Supervisor, self_pid, send_after

class Fails(GenServer):
    def init(self):
        send_after(0.01, self_pid(), "now")
    def handle_info(self, message):
        raise RuntimeError("it never works")

server = Server("x")
server._spec = lambda listeners, spec=server._spec: child(Supervisor, [child(Fails)], intensity=2)
server.run("http", port=0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=PATIENCE, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("greenroom: the server has ended: ")


@pytest.mark.row("ST-01")
def test_a_transport_that_there_is_not_is_refused() -> None:
    code = "from greenroom import Server; Server('x').run('pigeons')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=PATIENCE, text=True)
    assert 'transport is "stdio" or "http", not \'pigeons\'' in done.stderr


SUPERVISED = f"""
import sys
sys.path.insert(0, {str(EVERYTHING.parent)!r})
from everything import server
from greenroom.supervision import GenServer, Supervisor, child, run, start, wait_down

class Neighbour(GenServer):
    pass

async def main():
    print("a program of the user's own")
    top = await start(Supervisor, [child(Neighbour), server.child_spec("stdio")])
    print("it runs")
    await wait_down(top, None)

run(main)
"""


@pytest.mark.row("ST-19")
def test_a_supervised_channel_is_a_child_of_anybodys_tree(tmp_path: Path) -> None:
    file = tmp_path / "supervised.py"
    file.write_text(SUPERVISED)
    with program(tmp_path, file=file) as served:
        served.greet()
        served.call("echo", 1, text="hello")
        assert served.answer(1)["content"][0]["text"] == "hello"
        assert "it runs" in served.error_text()
        served.hang_up()
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(0.3)  # the program is the user's own, and goes on


def test_a_longer_line_may_be_allowed(tmp_path: Path) -> None:
    file = tmp_path / "longer.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(EVERYTHING.parent)!r})\n"
        "from everything import server\nserver.run(line_limit=6_000_000)\n"
    )
    with program(tmp_path, file=file) as served:
        served.greet()
        served.call("echo", 1, text="x" * 5_000_000)
        assert len(served.answer(1)["content"][0]["text"]) == 5_000_000
        served.call("echo", 2, text="x" * 6_000_000)
        assert "the limit is 6000000" in served.answer(2)["message"]
