"""Programs that end, many of them: each is a fork of this one, which has imported everything, and ends as a program of its own.

`exits.py KIND COUNT AT_ONCE` prints how often each exit code occurred. A fork saves the import, which is most of a start; the end is the
interpreter's whole end, since each fork runs to the end of this file.
"""

from __future__ import annotations

import atexit
import collections
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from greenroom import Server
from greenroom.supervision import GenServer, Ref
from greenroom.supervision.background_node import BackgroundNode

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


class Counter(GenServer):
    """Leave something running."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        """One more."""
        self.count += 1
        return self.count


def said(*calls: str) -> bytes:
    """The input of a client that calls these tools and closes."""
    messages: list[dict[str, object]] = [
        {"id": 0, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        *(
            {"id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}
            for number, name in enumerate(calls, 1)
        ),
    ]
    return b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)


def serve(tool: str) -> None:
    """Serve standard input and output, where `tool` is called once, until the input ends or a signal arrives."""
    server = Server("exits")

    @server.tool
    def nothing() -> str:
        return "done"

    @server.tool
    def terminate() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "told"

    @server.tool
    def child() -> str:
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(1_000_000,)).start()
        return "left"

    @server.tool
    def function() -> str:
        atexit.register(time.sleep, 1_000_000)
        return "left"

    (reading, writing), output = os.pipe(), os.open(os.devnull, os.O_WRONLY)
    os.write(writing, said(tool))
    os.dup2(reading, 0)
    os.dup2(output, 1)
    if tool != "terminate":
        os.close(writing)
    os.close(reading)
    server.run(grace=1)


def leave_a_node(*, busy: bool) -> BackgroundNode:
    """Open a node in a thread, and never close it; `busy`: other threads call it without a pause."""
    node = BackgroundNode()
    node.__enter__()
    counter = node.start(Counter)
    node.call(counter, Counter.add)
    if busy:
        for _ in range(2):
            threading.Thread(target=ask, args=(node, counter), daemon=True).start()
    return node


def ask(node: BackgroundNode, counter: Ref[Counter]) -> None:
    """For ever."""
    while True:
        node.call(counter, Counter.add)


KINDS: dict[str, Callable[[], object]] = {
    "end-of-input": lambda: serve("nothing"),
    "signal": lambda: serve("terminate"),
    "child-left": lambda: serve("child"),
    "function-left": lambda: serve("function"),
    "node-left": lambda: leave_a_node(busy=False),
    "busy-node-left": lambda: leave_a_node(busy=True),
}

if __name__ == "__main__":
    kind, count, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    codes: collections.Counter[int] = collections.Counter()
    running: set[int] = set()
    begun = pid = 0
    kept = None
    while begun < count or running:
        if begun < count and len(running) < at_once:
            pid = os.fork()
            if not pid:
                break
            running.add(pid)
            begun += 1
        else:
            ended, status = os.wait()
            running.discard(ended)
            codes[os.waitstatus_to_exitcode(status)] += 1
    if running or not codes:  # a fork ends at the end of this file
        kept = KINDS[kind]()
    else:
        print(json.dumps(codes))  # noqa: T201 - what it is for
