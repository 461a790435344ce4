"""A minimal HTTP client: one session, with requests from any thread, whose replies may arrive as events."""

from __future__ import annotations

import http.client
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

SECONDS = 30.0
HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "http client", "version": "1"},
}


@dataclass
class HttpClient:
    """One session with the server on that port of this machine."""

    port: int
    session: str | None = None
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def enter(cls, port: int) -> HttpClient:
        client = cls(port)
        client.ask("initialize", **HELLO)
        client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return client

    def post(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Send a message; the answer, if it has one. Raises `OSError` or `HTTPException` when the server dies over it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("POST", "/mcp", json.dumps(message).encode(), self._headers())
            response = connection.getresponse()
            self.session = response.headers.get("mcp-session-id", self.session)
            if response.headers.get_content_type() != "text/event-stream":
                body = response.read()
                return json.loads(body) if body else None
            for line in response:
                if line.startswith(b"data:") and line[5:].strip():
                    found: dict[str, Any] = json.loads(line[5:])
                    if found.get("id") == message["id"] and "method" not in found:
                        return found
            raise http.client.IncompleteRead(b"")
        finally:
            connection.close()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole message that answers."""
        answer = self.post({"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params})
        assert answer is not None
        return answer

    def begin(self, tool: str, **arguments: Any) -> str:
        """The id of a new task."""
        answer = self.ask("tools/call", name=tool, arguments=arguments, task={"ttl": 600_000})
        id: str = answer["result"]["task"]["taskId"]
        return id

    def status(self, id: str) -> str:
        """The task's status, or "unknown"."""
        answer = self.ask("tasks/get", taskId=id)
        return "unknown" if "error" in answer else str(answer["result"]["status"])

    def end(self) -> None:
        """End the session."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request("DELETE", "/mcp", headers=self._headers())
        assert connection.getresponse().status < 300
        connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self.session is not None:
            headers |= {"mcp-session-id": self.session, "mcp-protocol-version": "2025-11-25"}
        return headers
