"""A server on stdio whose era stands in a file: `era_server.py FILE`, read at its start.

`stateless` answers `server/discover` and has no handshake. `handshake` refuses everything before `initialize`; `silent` ignores it; `fragile` ends at it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

VERSION = "2026-07-28"
ERA = Path(sys.argv[1]).read_text(encoding="utf-8").strip()
INFO = {"name": ERA, "version": "1"}
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}}
told: list[Any] = []


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def opened(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request that opens a connection, or to any other that an unopened server does not take."""
    if ERA == "stateless":
        meta = request["params"].get("_meta", {})
        if meta.get("io.modelcontextprotocol/protocolVersion") != VERSION:
            return {"error": {"code": -32022, "message": "no envelope", "data": {"supported": [VERSION]}}}
        if request["method"] != "server/discover":
            return served(request)
        found = {"supportedVersions": [VERSION], "capabilities": CAPABILITIES, "ttlMs": 0, "cacheScope": "private"}
        return {"result": {"resultType": "complete", **found, "_meta": {"io.modelcontextprotocol/serverInfo": INFO}}}
    if request["method"] == "initialize":
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO}}
    if request["method"] == "server/discover":
        return {"error": {"code": -32602, "message": "Received request before initialization was complete"}}
    return served(request)


def served(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: `where` is the id of this process, `told` what it was told, `crash` the end."""
    what = request["params"].get("name") or request["params"].get("uri")
    if what == "crash":
        os._exit(3)
    said = told if what == "told" else os.getpid()
    return {
        "result": {
            "content": [{"type": "text", "text": json.dumps(said)}],
            "contents": [{"uri": "x:y", "text": json.dumps(said)}],
        }
    }


for line in sys.stdin:
    message: dict[str, Any] = {"params": {}, **json.loads(line)}
    if "id" not in message:
        told.append(message)
    elif message["method"] == "server/discover" and ERA == "fragile":
        sys.exit(1)
    elif not (message["method"] == "server/discover" and ERA == "silent") and message["params"].get("name") != "wait":
        say({"id": message["id"], **opened(message)})
