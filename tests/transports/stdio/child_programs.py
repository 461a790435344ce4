"""Programs that tests start and talk to over any kind of standard streams, and end by their process id."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

EVERYTHING = Path(__file__).parent / "programs" / "everything.py"
PATIENCE = 20.0
LOAD = 3.0
"""How many seconds later than promised something may happen on a busy machine."""

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}


class ChildProgram:
    """A process, and the test's ends of its standard streams."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int, errors: Path) -> None:
        self.process, self.write_end, self.read_end, self.errors = process, write, read, errors
        self.heard: list[dict[str, Any]] = []
        self._rest = b""

    # --- sending

    def say(self, data: bytes) -> None:
        """Write all of these bytes."""
        while data:
            data = data[os.write(self.write_end, data) :]

    def tell(self, method: str, params: Mapping[str, Any] | None = None, id: str | int | None = None) -> None:
        """Send a request or a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        self.say(json.dumps(message if id is None else {**message, "id": id}).encode() + b"\n")

    def call(self, tool: str, id: str | int, meta: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        """Start a call of a tool."""
        params = {"name": tool, "arguments": arguments}
        self.tell("tools/call", {**params, "_meta": meta} if meta else params, id)

    def greet(self) -> dict[str, Any]:
        """Send `initialize` and `initialized`; returns the reply."""
        self.tell("initialize", HELLO, 0)
        answer = self.answer(0)
        self.tell("notifications/initialized")
        return answer

    def hang_up(self) -> None:
        """Close the program's input."""
        os.close(self.write_end)
        self.write_end = -1

    # --- receiving

    def answer(self, id: str | int | None) -> dict[str, Any]:
        """The result or the error of a request."""
        message = self.until(lambda each: "method" not in each and each.get("id") == id)
        result: dict[str, Any] = message["result"] if "result" in message else message["error"]
        return result

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message that matches, received already or later."""
        looked_at = 0
        while True:
            for message in self.heard[looked_at:]:
                looked_at += 1
                if wanted(message):
                    return message
            chunk = self.read()
            assert chunk, f"the program has ended: {self.error_text()}"
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for each in lines:
                assert each.startswith(b'{"jsonrpc":"2.0"'), each
                self.heard.append(json.loads(each))

    def read(self, size: int = 65536) -> bytes:
        """The next input, as soon as there is any."""
        ready, _, _ = select.select([self.read_end], [], [], PATIENCE)
        assert ready, f"nothing came for {PATIENCE:g} seconds: {self.error_text()}"
        try:
            return os.read(self.read_end, size)
        except OSError:  # a terminal whose other end is closed
            return b""

    def rest(self) -> bytes:
        """All output until the end."""
        said = [self._rest]
        while chunk := self.read():
            said.append(chunk)
        return b"".join(said)

    # --- ending

    def signal(self, number: int) -> float:
        """Send a signal; returns how long the program took to end."""
        began = time.monotonic()
        os.kill(self.process.pid, number)
        self.process.wait(PATIENCE)
        return time.monotonic() - began

    def code(self) -> int:
        """Wait for the end; returns the exit code."""
        return self.process.wait(PATIENCE)

    def error_text(self) -> str:
        """Its stderr output."""
        return self.errors.read_text()

    def until_told(self, text: str) -> None:
        """Wait until its stderr output contains that text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.error_text():
            assert time.monotonic() < deadline, self.error_text()
            assert self.process.poll() is None, self.error_text()
            time.sleep(0.01)  # there is no event for a file that grows

    def memory(self) -> int:
        """How many bytes of memory it uses."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no such process")


@contextlib.contextmanager
def program(
    folder: Path,
    *args: str,
    file: Path = EVERYTHING,
    streams: tuple[int, int, int, int] | None = None,
    clean: bool = True,
) -> Generator[ChildProgram]:
    """Run a program; `streams` are its input and output, and our ends of them. Its prints are buffered as by default."""
    errors = folder / "errors.txt"
    inside: tuple[int, int]
    if streams is None:
        (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
    else:
        their_input, their_output, our_output, our_input = streams
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    inside = their_input, their_output
    with errors.open("wb") as error_file:
        process = subprocess.Popen(
            [sys.executable, str(file), *args], stdin=inside[0], stdout=inside[1], stderr=error_file, env=environment
        )
    for descriptor in {*inside}:
        os.close(descriptor)
    running = ChildProgram(process, our_output, our_input, errors)
    try:
        yield running
        if clean:
            assert "Traceback" not in running.error_text(), running.error_text()
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for descriptor in {running.write_end, running.read_end} - {-1}:
            os.close(descriptor)
