"""A minimal HTTP/1.1 client with keep-alive on a bare socket, which recognizes complete, correct answers.

A general client would cost more than the servers it measures. This one knows the two ways in which a body ends (a length, or the last chunk), and
reads nothing else but what its caller searches for.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

ACCEPT = b"application/json, text/event-stream"
LAST_CHUNK = b"0\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)


class ConnectionClosed(Exception):
    """The server closed the connection before its answer was complete."""


class HttpResponse(NamedTuple):
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Line:
    """One connection. `read_response` reads when the socket is readable; `exchange` waits."""

    def __init__(self, port: int, path: str = "/mcp", *, timeout: float | None = 60.0) -> None:
        """Connect."""
        self.port = port
        self.path = path
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fixed: dict[str, str] = {}
        """The headers of every request."""
        self._heard = b""

    def fileno(self) -> int:
        """The file descriptor, for selectors."""
        return self.socket.fileno()

    def head(self, method: str, length: int) -> bytes:
        """A request without its body."""
        lines = [f"{method} {self.path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Accept: {ACCEPT.decode()}"]
        lines += [f"{name}: {value}" for name, value in self.fixed.items()]
        if length:
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        return "\r\n".join([*lines, "", ""]).encode()

    def read_response(self) -> bytes | None:
        """Read available bytes. Returns the answer with its head once it is complete, else None."""
        data = self.socket.recv(65_536)
        if not data:
            raise ConnectionClosed
        response = self._heard = self._heard + data if self._heard else data
        end = response.find(b"\r\n\r\n")
        if end < 0:
            return None
        stated = LENGTH.search(response, 0, end + 4)
        if len(response) < end + 4 + int(stated[1]) if stated else not whole_without_length(response, end):
            return None
        self._heard = b""
        return response

    def exchange(self, method: str, body: bytes = b"") -> HttpResponse:
        """Send a request and wait for its answer."""
        self.socket.sendall(self.head(method, len(body)) + body)
        while (answer := self.read_response()) is None:
            pass
        head, _, rest = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines)
        return HttpResponse(int(first.split()[1]), {name.lower(): value.strip() for name, value in pairs}, rest)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def whole_without_length(response: bytes, end: int) -> bool:
    """Whether an answer without a length is complete: the last chunk has come, or its status has no body."""
    if CHUNKED.search(response, 0, end + 4):
        return response.endswith(LAST_CHUNK)
    return response[9:12] in {b"204", b"304"}
