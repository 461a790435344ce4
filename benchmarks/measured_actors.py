"""The measured actors, as small as useful actors can be."""

from __future__ import annotations

import time

from greenroom.supervision import Caller, Down, GenServer, Pid, Reply, monitor


class Counter(GenServer):
    """A counter."""

    def __init__(self, total: int = 0) -> None:
        """Begin at zero."""
        self.total = total

    def add(self, amount: int) -> int:
        """A plain handler."""
        self.total += amount
        return self.total

    async def add_slowly(self, amount: int) -> int:
        """An `async def` handler, which does not suspend."""
        self.total += amount
        return self.total

    def handle_call(self, request: int, caller: Caller[int]) -> Reply:  # noqa: ARG002 - the return value is the answer
        """Handle `ask`."""
        self.total += request
        return Reply(self.total)


class Echo(GenServer):
    """Echoes its argument."""

    def echo(self, value: bytes) -> bytes:
        """Return the argument."""
        return value


class Witness(GenServer):
    """Monitors others, and records when it gets their `Down`."""

    def __init__(self) -> None:
        """Begin with no deaths."""
        self.heard: list[float] = []

    def watch(self, pid: Pid) -> None:
        """Monitor `pid`."""
        monitor(pid)

    def handle_info(self, message: object) -> None:
        """Record a `Down`."""
        if isinstance(message, Down):
            self.heard.append(time.perf_counter())

    def last(self) -> float:
        """The time of the last `Down`."""
        return self.heard[-1]
