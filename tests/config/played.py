"""A server on stdio of the standard library alone: `which` says WHICH, `pid` its number, `slow` both after a while. Up in no time."""

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
        say(id, {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        say(id, {"tools": [{"name": name, "inputSchema": schema} for name, schema in TOOLS.items()]})
    elif method == "tools/call" and params["name"] == "which":
        say(id, text(os.environ.get("WHICH", "")))
    elif method == "tools/call" and params["name"] == "pid":
        say(id, text(str(os.getpid())))
    elif method == "tools/call":
        threading.Thread(target=slow, args=(id, params["arguments"]["seconds"]), daemon=True).start()
    else:
        say(id, {})


for line in sys.stdin:
    said = json.loads(line)
    if "id" in said:
        answer(said["id"], said["method"], said.get("params"))
