"""A scripted server for our client. `scripted_peer.py REVISION FILE` speaks on its standard streams, and writes each received line to FILE.

It uses the standard library alone, so that it starts in hundredths of a second.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Message = dict[str, Any]

TASK = {
    "taskId": "t1",
    "status": "completed",
    "createdAt": "2025-01-01T00:00:00Z",
    "lastUpdatedAt": "2025-01-01T00:00:00Z",
    "ttl": 1000,
    "pollInterval": 10,
}
SAID = {"content": [{"type": "text", "text": "hi"}], "isError": False}
CAPABILITIES: Message = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "prompts": {},
    "logging": {},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}
RESULTS: dict[str, Message] = {
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    "resources/list": {"resources": [{"uri": "a://b", "name": "b"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a://{b}", "name": "b"}]},
    "resources/read": {"contents": [{"uri": "a://b", "text": "c"}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
    "completion/complete": {"completion": {"values": ["calm"]}},
    "tasks/list": {"tasks": [TASK]},
    "tasks/get": TASK,
    "tasks/cancel": TASK,
    "tasks/result": SAID,
}
ASKED: dict[str, tuple[str, Message]] = {
    "sample": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "well?"}}], "maxTokens": 9},
    ),
    "sample-badly": ("sampling/createMessage", {"messages": 5}),
    "form": (
        "elicitation/create",
        {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    ),
    "page": (
        "elicitation/create",
        {"mode": "url", "message": "Go", "url": "https://a.example/", "elicitationId": "e1"},
    ),
    "roots": ("roots/list", {}),
    "ping": ("ping", {}),
    "strange": ("curtain/raise", {"fast": True}),
}
"""The request that a tool of that name sends to its client before it replies."""


class ScriptedRole:
    """The server's messages in one session."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._open: dict[Any, Any] = {}

    def hear(self, message: Message) -> list[Message]:
        """The replies to a message. A tool that asks something is answered for when the answer has come."""
        method, id = message.get("method"), message.get("id")
        if method is None:
            return [_result(self._open.pop(id), SAID)]
        if id is None:
            return []
        params = message.get("params", {})
        if method == "initialize":
            info = {"name": "peer", "version": "1"}
            said: Message = {"protocolVersion": self.revision, "capabilities": CAPABILITIES, "serverInfo": info}
            return [_result(id, said)]
        if method == "tools/list" and "cursor" not in params:
            return [_result(id, {**RESULTS[method], "nextCursor": "more"})]
        if method == "tools/call":
            return self._call(id, params)
        return [_result(id, RESULTS.get(method, {}))]

    def _call(self, id: Any, params: Message) -> list[Message]:
        name = params["name"]
        if name in ASKED:
            method, asked = ASKED[name]
            self._open["q1"] = id
            return [{"jsonrpc": "2.0", "id": "q1", "method": method, "params": asked}]
        if name == "progress":
            told = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
            return [{"jsonrpc": "2.0", "method": "notifications/progress", "params": told}, _result(id, SAID)]
        if name == "never":
            told = {"level": "info", "data": "begun"}
            return [{"jsonrpc": "2.0", "method": "notifications/message", "params": told}]
        return [_result(id, {"task": {**TASK, "status": "working"}} if "task" in params else SAID)]


def _result(id: Any, result: Message) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def main(revision: str, file: str) -> None:
    """Speak to a client on the standard streams."""
    part = ScriptedRole(revision)
    with Path(file).open("wb", buffering=0) as came:
        for line in sys.stdin.buffer:
            came.write(line)
            for said in part.hear(json.loads(line)):
                sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
