"""A program that asks a Thespian actor as the warden has it run, and says on a line what that took; nothing else of greenroom is in between.

A program of its own because Thespian is changed for good where it is hardened, and belongs to no process that measures something else.
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
"""How many messages are on their way before an answer is waited for."""


class Echo(Actor):
    """Gives back what is asked, and counts what is told."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's name
        """Bytes are told; a text is asked."""
        if isinstance(message, str):
            self.send(sender, message)


def _tell(system: Any, echo: Any, count: int, window: int) -> float:
    """Seconds for each of so many messages, so many of them on their way."""
    told = b"x" * 100
    began = time.perf_counter()
    for number in range(count):
        system.tell(echo, told)
        if number % window == window - 1:
            system.ask(echo, "so far", 30)
    system.ask(echo, "all of it", 30)
    return (time.perf_counter() - began) / count


def main(count: int) -> None:
    """So many questions, and so many messages of 100 bytes."""
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
