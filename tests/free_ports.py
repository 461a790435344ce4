"""Free ports for programs that need to know theirs before they listen."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def _candidates() -> list[int]:
    """Ports outside the range that the kernel gives to `bind(0)` and `connect`, which could take the port before the program listens."""
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    fixed = [*range(10_000, lowest), *range(highest + 1, 65_536)]
    return fixed if len(fixed) > 1000 else list(range(10_000, 65_536))


_shuffled = _candidates()
random.Random().shuffle(_shuffled)


def free_port(address: str = "127.0.0.1") -> int:
    """A port at which no program listens; a process never gets one twice."""
    while _shuffled:
        port = _shuffled.pop()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is in use")
