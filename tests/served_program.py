"""Runs a program that serves HTTP on a local port, for as long as a referee needs it.

It is started on a free port, awaited, and ended by its pid. A program that does not stop on request, or exits with another code than 0, fails the test whatever
the referee found.

"""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.free_ports import free_port

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

STARTS_WITHIN = 30.0
STOPS_WITHIN = 15.0


class ServerFailedError(Exception):
    """The server did not start, or did not stop as it should."""


@contextmanager
def served(command: Sequence[str], log: Path) -> Generator[str]:
    """The URL of `/mcp` on the server that the command starts; the port is appended to the command."""
    port = free_port()
    with log.open("wb") as said:
        server = subprocess.Popen([*command, str(port)], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        _wait_for(server, port, log)
        yield f"http://127.0.0.1:{port}/mcp"
        if server.poll() is not None:
            raise ServerFailedError(_told(f"the server ended by itself with {server.returncode}", log))
        server.terminate()
        try:
            code = server.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            raise ServerFailedError(
                _told(f"the server was still there {STOPS_WITHIN:g} s after SIGTERM", log)
            ) from None
        if code != 0:
            raise ServerFailedError(_told(f"the server ended with {code} after SIGTERM", log))
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise ServerFailedError(_told(f"the server ended with {server.returncode} before it served", log))
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)  # another process: there is no event to await
        else:
            return
    raise ServerFailedError(_told(f"the server was not there after {STARTS_WITHIN:g} s", log))


def _told(what: str, log: Path) -> str:
    return f"{what}; the end of what it said:\n{log.read_text(errors='replace')[-4000:]}"
