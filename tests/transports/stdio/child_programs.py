"""Programs that tests start, speak to over whatever they are given as standard streams, and end by their id."""

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
"""How much later than promised something may be on a machine that has other things to do."""

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}


class Program:
    """A process with a line to it."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int, errors: Path) -> None:
        self.process, self.write_end, self.read_end, self.errors = process, write, read, errors
        self.heard: list[dict[str, Any]] = []
        self._rest = b""

    # --- saying

    def say(self, data: bytes) -> None:
        """These bytes, all of them."""
        while data:
            data = data[os.write(self.write_end, data) :]

    def tell(self, method: str, params: Mapping[str, Any] | None = None, id: str | int | None = None) -> None:
        """A request or a notification."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        self.say(json.dumps(message if id is None else {**message, "id": id}).encode() + b"\n")

    def call(self, tool: str, id: str | int, meta: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        """Begin to call a tool."""
        params = {"name": tool, "arguments": arguments}
        self.tell("tools/call", {**params, "_meta": meta} if meta else params, id)

    def greet(self) -> dict[str, Any]:
        """Introduce ourselves; what the server says of itself."""
        self.tell("initialize", HELLO, 0)
        answer = self.answer(0)
        self.tell("notifications/initialized")
        return answer

    def hang_up(self) -> None:
        """Nothing more will be said."""
        os.close(self.write_end)
        self.write_end = -1

    # --- hearing

    def answer(self, id: str | int | None) -> dict[str, Any]:
        """The result of a request, or the error."""
        message = self.until(lambda each: "method" not in each and each.get("id") == id)
        result: dict[str, Any] = message["result"] if "result" in message else message["error"]
        return result

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message that is wanted, of those that have come or will."""
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
        """What is there, as soon as anything is."""
        ready, _, _ = select.select([self.read_end], [], [], PATIENCE)
        assert ready, f"nothing came for {PATIENCE:g} seconds: {self.error_text()}"
        try:
            return os.read(self.read_end, size)
        except OSError:  # a terminal whose other end was closed
            return b""

    def rest(self) -> bytes:
        """All that it says until it ends."""
        said = [self._rest]
        while chunk := self.read():
            said.append(chunk)
        return b"".join(said)

    # --- ending

    def signal(self, number: int) -> float:
        """Send it a signal; how long it took to be gone."""
        began = time.monotonic()
        os.kill(self.process.pid, number)
        self.process.wait(PATIENCE)
        return time.monotonic() - began

    def code(self) -> int:
        """Wait for its end: the exit code."""
        return self.process.wait(PATIENCE)

    def error_text(self) -> str:
        """What it has written for people."""
        return self.errors.read_text()

    def until_told(self, text: str) -> None:
        """Wait until it has written that for people."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.error_text():
            assert time.monotonic() < deadline, self.error_text()
            assert self.process.poll() is None, self.error_text()
            time.sleep(0.01)  # there is no event for a file that grows

    def memory(self) -> int:
        """How many bytes of it are in memory."""
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
) -> Generator[Program]:
    """Run one; `streams` are its input and output, and our ends of them. What prints is buffered as it is by default."""
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
    running = Program(process, our_output, our_input, errors)
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
