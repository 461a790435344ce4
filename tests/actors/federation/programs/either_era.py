"""A server on standard streams that speaks one era: `either_era.py ERA BOOK`, where the file ERA says which when it starts, and BOOK gets a line for each call.

It uses nothing of greenroom, and knows of the other era as little as servers of one era do.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

STATELESS = Path(sys.argv[1]).read_text().strip() == "stateless"
BOOK = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
VERSION = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
TOOLS = [
    {"name": "book", "inputSchema": {"type": "object"}},
    {"name": "stateless" if STATELESS else "session", "inputSchema": {"type": "object"}},
]
listens: dict[Any, dict[str, Any]] = {}
subscribed: set[str] = set()


class Refused(Exception):
    """A JSON-RPC error."""


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell(method: str, params: dict[str, Any]) -> None:
    say({"method": method, "params": params})


def tell_updated(uri: str) -> None:
    if uri in subscribed:
        tell("notifications/resources/updated", {"uri": uri})
    for id, wanted in listens.items():
        if uri in wanted.get("resourceSubscriptions", ()):
            tell("notifications/resources/updated", {"uri": uri, "_meta": {SUBSCRIPTION: id}})


def answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    enveloped = VERSION in params.get("_meta", {})
    if STATELESS and not enveloped:
        raise Refused(-32022, "Unsupported protocol version", {"supported": ["2026-07-28"], "requested": "2025-11-25"})
    match method:
        case "server/discover" if STATELESS:
            return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        case "initialize" if not STATELESS:
            about = {"name": "either", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": about}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            arguments = params.get("arguments", {})
            os.write(BOOK, f"{arguments['what']}\n".encode())
            if arguments["what"] == "die":
                os.abort()
            tell_updated("note://book")
            return {"content": [{"type": "text", "text": str(os.getpid())}]}
        case "resources/subscribe" if not STATELESS:
            subscribed.add(params["uri"])
            return {}
        case "resources/unsubscribe" if not STATELESS:
            return {}
        case _:
            raise Refused(-32601, "Method not found", None)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    id, params = message["id"], message.get("params", {})
    if STATELESS and message["method"] == "subscriptions/listen":
        listens = {id: params["notifications"]}
        meta = {"_meta": {SUBSCRIPTION: id}}
        tell("notifications/subscriptions/acknowledged", {"notifications": params["notifications"], **meta})
        continue
    try:
        result = answered(message["method"], params)
    except Refused as refused:
        code, text, data = refused.args
        say({"id": id, "error": {"code": code, "message": text} | ({} if data is None else {"data": data})})
    else:
        say({"id": id, "result": {"resultType": "complete", **result} if STATELESS else result})
