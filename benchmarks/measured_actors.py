"""The actors that are measured: as small as one that is of use can be, and no smaller."""

from __future__ import annotations

import time

from greenroom.supervision import Caller, Down, GenServer, Pid, Reply, monitor


class Counter(GenServer):
    """Keeps a number."""

    def __init__(self, total: int = 0) -> None:
        """Nothing is counted yet."""
        self.total = total

    def add(self, amount: int) -> int:
        """A plain handler."""
        self.total += amount
        return self.total

    async def add_slowly(self, amount: int) -> int:
        """An `async def` handler, which does not suspend."""
        self.total += amount
        return self.total

    def handle_call(self, request: int, caller: Caller[int]) -> Reply:  # noqa: ARG002 - the caller is answered by returning
        """What `ask` reaches."""
        self.total += request
        return Reply(self.total)


class Echo(GenServer):
    """Gives back what it gets."""

    def echo(self, value: bytes) -> bytes:
        """The same."""
        return value


class Witness(GenServer):
    """Monitors others, and writes down when it hears of their end."""

    def __init__(self) -> None:
        """No process has died yet."""
        self.heard: list[float] = []

    def watch(self, pid: Pid) -> None:
        """Monitor `pid`."""
        monitor(pid)

    def handle_info(self, message: object) -> None:
        """A `Down` comes."""
        if isinstance(message, Down):
            self.heard.append(time.perf_counter())

    def last(self) -> float:
        """When it heard of the last one."""
        return self.heard[-1]
