"""A client of a server under test: one connection with a session, and its calls."""

from __future__ import annotations

import json
from typing import Any

from .wire import ConnectionClosed, HttpResponse, Line

VERSION = "2025-11-25"
SESSIONLESS_VERSION = "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": SESSIONLESS_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
"""The `_meta` of each request without a session."""
FIRST = 100_000_000
"""The first id: all ids have nine digits, so that all calls have the same length."""


class Unexpected(Exception):
    """The server's answer is not the expected one."""


class Caller:
    """A client with a session. `call` waits; `begin` and `line.read_response` are its two halves, for many clients at once."""

    def __init__(self, port: int, *, timeout: float | None = 60.0) -> None:
        """Connect and initialize."""
        self.take(Line(port, timeout=timeout))

    def take(self, line: Line) -> None:
        """Initialize on a connection, which may have had other sessions before."""
        self.line = line
        line.fixed.clear()
        self.session: str | None = None
        self.next_id = FIRST
        self._before = self._after = b""
        self._shake_hands()

    def _shake_hands(self) -> None:
        info = {"name": "load", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        answer = self.line.exchange(
            "POST", encoded({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        )
        if answer.status != 200:  # noqa: PLR2004 - HTTP's own
            raise Unexpected(answer)
        self.session = answer.headers.get("mcp-session-id")
        self.line.fixed["MCP-Protocol-Version"] = VERSION
        if self.session:
            self.line.fixed["Mcp-Session-Id"] = self.session
        self.line.exchange("POST", encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def prepare(self, tool: str, arguments: dict[str, Any]) -> None:
        """Prepare the bytes of a call, except for its id."""
        params = {"name": tool, "arguments": arguments}
        body = encoded({"jsonrpc": "2.0", "id": FIRST, "method": "tools/call", "params": params})
        before, after = body.split(str(FIRST).encode(), 1)
        self._before = self.line.head("POST", len(body)) + before
        self._after = after

    def begin(self) -> bytes:
        """Send the prepared call with the next id. Returns the id as it must occur in the answer."""
        self.next_id += 1
        mark = b"%d" % self.next_id
        self.line.socket.send(b"%b%b%b" % (self._before, mark, self._after))
        return mark

    def call(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make a call. Returns its JSON-RPC response."""
        self.next_id += 1
        params = {"name": tool, "arguments": arguments or {}}
        return self.ask("tools/call", params)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request. Returns its response."""
        self.next_id += 1
        request = {"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}
        answer = self.line.exchange("POST", encoded(request))
        return answer_in(answer, self.next_id)

    def end(self) -> None:
        """End the session, if there is one, and close the connection."""
        try:
            if self.session:
                self.line.exchange("DELETE")
        except (ConnectionClosed, OSError):
            pass  # already closed
        finally:
            self.line.close()


class SessionlessCaller(Caller):
    """A client of the revision without sessions: each request has its envelope, and the headers that mirror it."""

    def _shake_hands(self) -> None:
        self.line.fixed["MCP-Protocol-Version"] = SESSIONLESS_VERSION

    def prepare(self, tool: str, arguments: dict[str, Any]) -> None:
        """Prepare the bytes of a call, except for its id."""
        body = enveloped(FIRST, "tools/call", {"name": tool, "arguments": arguments})
        before, after = body.split(str(FIRST).encode(), 1)
        self.line.fixed |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        self._before = self.line.head("POST", len(body)) + before
        self._after = after

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request. Returns its response."""
        self.next_id += 1
        self.line.fixed |= {"Mcp-Method": method, "Mcp-Name": params.get("name", "")}
        return answer_in(self.line.exchange("POST", enveloped(self.next_id, method, params)), self.next_id)


def enveloped(id: int, method: str, params: dict[str, Any]) -> bytes:
    """A request of the revision without sessions."""
    return encoded({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": ENVELOPE}})


def encoded(message: dict[str, Any]) -> bytes:
    """A message as compact JSON."""
    return json.dumps(message, separators=(",", ":")).encode()


def answer_in(response: HttpResponse, wanted: int) -> dict[str, Any]:
    """The response with that id in a plain body or a stream of events."""
    streamed = response.headers.get("content-type", "").startswith("text/event-stream")
    lines = (
        [line[5:] for line in response.body.splitlines() if line.startswith(b"data:")] if streamed else [response.body]
    )
    for line in lines:
        if line.strip():
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == wanted:
                return message
    raise Unexpected(response)
