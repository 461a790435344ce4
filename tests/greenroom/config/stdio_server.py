"""A stdio server that uses only the standard library: `which` returns WHICH, `pid` its process id, `slow` both after a delay.

It is up in no time, and writes what it was asked into the file ASKED, if there is one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

TOOLS: dict[str, Any] = {
    "which": {"type": "object"},
    "pid": {"type": "object"},
    "slow": {"type": "object", "properties": {"seconds": {"type": "number"}}},
}
NOTE = {"uri": "note://one", "name": "one"}
SAYS = {"which": f"Says {os.environ.get('WHICH', '')}."}
LISTS: dict[str, Any] = {
    "tools/list": {
        "tools": [
            {"name": name, "inputSchema": schema, "description": SAYS.get(name, name)} for name, schema in TOOLS.items()
        ]
    },
    "resources/list": {"resources": [NOTE]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "note"}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
}
LOCK = threading.Lock()


def say(id: object, result: object) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
        sys.stdout.flush()


def slow(id: object, seconds: float) -> None:
    time.sleep(seconds)
    say(id, text(f"{os.environ.get('WHICH', '')} {os.getpid()}"))


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def answer(id: object, method: str, params: Any) -> None:
    if method == "initialize":
        info = {"name": "played", "version": "1"}
        capabilities: Any = {"tools": {}, "resources": {}, "prompts": {}}
        say(id, {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info})
    elif method in LISTS:
        say(id, LISTS[method])
    elif method == "tools/call" and params["name"] == "which":
        say(id, text(os.environ.get("WHICH", "")))
    elif method == "tools/call" and params["name"] == "pid":
        say(id, text(str(os.getpid())))
    elif method == "tools/call":
        threading.Thread(target=slow, args=(id, params["arguments"]["seconds"]), daemon=True).start()
    else:
        say(id, {})


def note(method: str) -> None:
    path = os.environ.get("ASKED")
    if path is not None:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - nothing is imported that is not needed
            file.write(method + "\n")


for line in sys.stdin:
    said = json.loads(line)
    note(said["method"])
    if "id" in said:
        answer(said["id"], said["method"], said.get("params"))
