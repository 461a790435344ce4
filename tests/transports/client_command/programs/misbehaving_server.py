"""A misbehaving server: a bare loop that does what the method's name says, everything that a child process can do to its client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def say(message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def answer(id: Any, result: Any) -> None:
    say({"jsonrpc": "2.0", "id": id, "result": result})


def do(id: Any, method: str, params: dict[str, Any]) -> None:  # noqa: C901, PLR0912 - a list of misdeeds
    match method:
        case "initialize":
            info = {"name": "misbehaving", "version": "1"}
            answer(id, {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info})
        case "echo":
            answer(id, params)
        case "environment":
            answer(id, dict(os.environ))
        case "where":
            answer(id, {"cwd": str(Path.cwd()), "pid": os.getpid(), "group": os.getpgrp(), "session": os.getsid(0)})
        case "signal":
            os.kill(os.getpid(), params["number"])
        case "exit":
            if "last" in params:
                os.write(1, params["last"].encode())
            os._exit(params["status"])
        case "raw":
            os.write(1, params["text"].encode())
        case "big":
            answer(id, {"text": "x" * params["size"]})
        case "complain":
            os.write(2, params["text"].encode() * params.get("times", 1))
            answer(id, {})
        case "flood":
            data = params["text"].encode() * 512
            while True:
                os.write(params.get("to", 1), data)
        case "close":
            os.close(params["descriptor"])
            while True:
                time.sleep(60)
        case "stubborn":
            for number in params["ignored"]:
                signal.signal(number, signal.SIG_IGN)
            answer(id, {})
            if params.get("deaf"):
                while True:
                    time.sleep(60)
        case "child":  # a process that keeps our pipes open
            code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x' * 9, flush=True); time.sleep(600)"
            child = subprocess.Popen(
                [sys.executable, "-c", code if params.get("stubborn") else "import time; time.sleep(600)"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if params.get("stubborn") else None,
            )
            if child.stdout:
                child.stdout.readline()
            answer(id, {"pid": child.pid})
        case "silent":
            while True:
                time.sleep(60)
        case _:  # "deaf", or an unknown method
            answer(id, {})
            while True:
                time.sleep(60)


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            do(message["id"], message["method"], message.get("params") or {})
        elif message["method"] == "notifications/late":
            time.sleep(0.2)


if __name__ == "__main__":
    main()
    if "--stay" in sys.argv:
        while True:
            time.sleep(60)
