"""Measures requests to a Thespian actor configured as the daemon's, without the rest of greenroom, and prints the results on one line.

A separate program, since hardening Thespian changes it for the whole process.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from typing import Any

from greenroom.supervision.cluster import thespian_patches as hardening
from greenroom.supervision.cluster.thespian_patches import Actor, ActorSystem

ADDRESS = "127.0.0.1"
QUIET: dict[str, object] = {"version": 1, "root": {"level": "CRITICAL"}, "disable_existing_loggers": False}
WINDOWS = (1, 10, 100, 500)
"""The numbers of messages in flight."""


class Echo(Actor):
    """Echoes requests and counts one-way messages."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's name
        """Handle bytes as one-way messages, and text as requests."""
        if isinstance(message, str):
            self.send(sender, message)


def _tell(system: Any, echo: Any, count: int, window: int) -> float:
    """The seconds per message, with this many in flight."""
    payload = b"x" * 100
    began = time.perf_counter()
    for number in range(count):
        system.tell(echo, payload)
        if number % window == window - 1:
            system.ask(echo, "so far", 30)
    system.ask(echo, "all of it", 30)
    return (time.perf_counter() - began) / count


def main(count: int) -> None:
    """Run the requests and the one-way messages of 100 bytes."""
    os.environ["THESPIAN_BASE_IPADDR"] = ADDRESS
    hardening.install_patches(secrets.token_bytes(32), ADDRESS)
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = probe.getsockname()[1]
    system = ActorSystem("multiprocTCPBase", {"Admin Port": port}, QUIET, transientUnique=True)
    try:
        echo = system.createActor(Echo)
        system.ask(echo, "ready", 10)
        began = time.perf_counter()
        for _ in range(count):
            system.ask(echo, "x" * 100, 10)
        asked = time.perf_counter() - began
        sent = {str(window): _tell(system, echo, count, window) for window in WINDOWS}
    finally:
        system.shutdown()
    print(json.dumps({"ask": asked / count, "tell": sent}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
