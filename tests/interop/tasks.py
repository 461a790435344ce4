"""Tasks, side by side: the same requests to a server that others wrote and to ours, and how the answers differ.

Both are spoken to by hand, over stdio, line by line. Of each answer stays its shape: what is named, and the values that the text of the revision
fixes. A difference that is not in the table is wrong, and so is one that is there and did not happen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from itertools import groupby
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from greenroom.protocol.jsonrpc import is_object

from .peers import HERE, MODULES, NODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SECONDS = 30
RELATED = "io.modelcontextprotocol/related-task"
EVERYTHING = (str(NODE), str(MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"), "stdio")
OURS = (sys.executable, str(HERE / "research.py"))
TOOL = "simulate-research-query"

KNOWN: Mapping[str, str] = {
    "not asked for as a task": "theirs is a result with isError, the text wants the error -32601",
    "result when cancelled": "an error either way, and the text leaves its code open: theirs is -32603, ours -32602",
}
"""The known differences, each with the words of the specification. Optional members are left out of all shapes: messages, a ttl of one's own, isError of False."""


class Dialogue:
    """One server, and everything that it says."""

    def __init__(self, command: Sequence[str], place: str) -> None:
        self._program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=place
        )
        self._said: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._count = 0
        self.aside: list[dict[str, Any]] = []
        """The messages that were not replies."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            self._said.put(json.loads(line))

    def tell(self, **message: Any) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._program.stdin.flush()

    def next(self) -> dict[str, Any]:
        return self._said.get(timeout=SECONDS)

    def begin(self, method: str, **params: Any) -> int:
        self._count += 1
        self.tell(id=self._count, method=method, params=params)
        return self._count

    def answer(self, id: int) -> dict[str, Any]:
        """To that request; on the way, what the server asks is answered."""
        while True:
            message = self.next()
            if "method" not in message and message.get("id") == id:
                return message
            self.aside.append(message)
            if message.get("method") == "elicitation/create":
                meta = message["params"].get("_meta", {})
                accepted = {"action": "accept", "content": {"interpretation": "technical"}, "_meta": meta}
                self.tell(id=message["id"], result=accepted)
            elif "id" in message and "method" in message:
                self.tell(id=message["id"], result={"roots": []})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(self.begin(method, **params))

    def end(self) -> None:
        self._program.kill()
        self._program.wait()


def play(command: Sequence[str]) -> dict[str, Any]:
    """The transcript: by the name of each step, the shape of its answer."""
    with tempfile.TemporaryDirectory() as place:
        dialogue = Dialogue(command, place)
        try:
            return dict(_steps(dialogue))
        finally:
            dialogue.end()


def _steps(server: Dialogue) -> Iterator[tuple[str, Any]]:
    capabilities: dict[str, Any] = {"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}}
    client = {"name": "beside", "version": "1"}
    hello = server.ask("initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=client)
    yield "capability", hello["result"]["capabilities"].get("tasks")
    server.tell(method="notifications/initialized")
    tools = server.ask("tools/list")["result"]["tools"]
    yield "execution", [tool.get("execution") for tool in tools if tool["name"] == TOOL]

    def call(topic: str, *, ambiguous: bool = False, **task: Any) -> dict[str, Any]:
        return server.ask("tools/call", name=TOOL, arguments={"topic": topic, "ambiguous": ambiguous}, **task)

    yield "not asked for as a task", shape(call("a"))
    begun = call("b", task={"ttl": 60_000})
    yield "begun", shape(begun)
    first, second, third = (
        each["result"]["task"]["taskId"]
        for each in (begun, call("c", task={}), call("d", ambiguous=True, task={"ttl": 60_000}))
    )
    yield "get", shape(server.ask("tasks/get", taskId=first))
    listed = server.ask("tasks/list")
    yield "list", [[shape(each) for each in listed["result"]["tasks"][:1]], len(listed["result"]["tasks"])]
    yield "list, after a cursor that is none", shape(server.ask("tasks/list", cursor="nonsense"))
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        yield f"{method} of none", shape(server.ask(method, taskId="missing"))
    yield "cancel", shape(server.ask("tasks/cancel", taskId=second))
    yield "cancel again", shape(server.ask("tasks/cancel", taskId=second))
    yield "get when cancelled", shape(server.ask("tasks/get", taskId=second))
    yield "result when cancelled", shape(server.ask("tasks/result", taskId=second))
    yield "result", shape(server.ask("tasks/result", taskId=first))
    yield "cancel when completed", shape(server.ask("tasks/cancel", taskId=first))
    yield "get when completed", shape(server.ask("tasks/get", taskId=first))
    yield "result with a question", shape(server.ask("tasks/result", taskId=third))
    asked = [each for each in server.aside if each.get("method") == "elicitation/create"]
    yield (
        "the question",
        [[each["params"].get("_meta") == {RELATED: {"taskId": third}}, shape(each["params"])] for each in asked],
    )
    told = [each["params"] for each in server.aside if each.get("method") == "notifications/tasks/status"]
    passed = [each["status"] for each in told if each["taskId"] == third]
    yield "notifications", [shape(told[0]), [key for key, _ in groupby(passed)]]


FIXED = {"status", "isError", "code", "type"}
"""Of these, the value counts."""
FREE = {"statusMessage", "requestedSchema"}
"""Of these, everything is a server's own affair."""


def shape(message: Any) -> Any:
    """The comparable part of an answer."""
    if is_object(message):
        found = message
        found = found.get("result", found.get("error", found)) if "jsonrpc" in found else found
        kept = {key: value for key, value in sorted(found.items()) if key not in FREE}
        return {
            key: value if key in FIXED else shape(value)
            for key, value in kept.items()
            if (key, value) not in (("_meta", {}), ("isError", False))
        }
    if isinstance(message, list):
        return [shape(each) for each in message[:1]]  # pyright: ignore[reportUnknownVariableType]
    return "int" if type(message) is float else type(message).__name__


def main() -> int:
    """A line for each step, and what was said where it is wrong."""
    theirs, ours = play(EVERYTHING), play(OURS)
    wrong = 0
    for name in theirs:
        differs = theirs[name] != ours[name]
        if differs == (name in KNOWN):
            print(f"ok {name}")
        else:
            wrong += 1
            print(f"WRONG {name}: theirs {theirs[name]}, ours {ours[name]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
