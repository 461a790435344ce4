"""Keeps connections busy for a while, each sending its next call when the last is answered, and takes the times."""

from __future__ import annotations

import select
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .sessions import Caller, Unexpected

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

PATIENCE = 60.0


@dataclass
class Load:
    """What came of it."""

    connections: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list[float])
    busy: float = 0.0
    """Which part of the time the generator itself was at work: near 1, it is the generator that was measured."""

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, part: float) -> float:
        """So long at most took that part of the calls, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    @property
    def median(self) -> float:
        """How long a call took, in seconds."""
        return statistics.median(self.latencies)


@contextmanager
def callers(port: int, count: int) -> Generator[Sequence[Caller]]:
    """So many, each with a connection and a session of its own."""
    made: list[Caller] = []
    try:
        for _ in range(count):
            made.append(Caller(port))  # noqa: PERF401 - those made before one that fails are to be ended
        yield made
    finally:
        for caller in made:
            caller.end()


def drive(crowd: Sequence[Caller], tool: str, arguments: dict[str, Any], seconds: float) -> Load:
    """Have all of them call for so long, and wait for what is under way then.

    Every answer is looked at: status 200, the call's own id, no error of any kind.
    """
    load = Load(len(crowd))
    began_at: dict[int, float] = {}
    marks: dict[int, bytes] = {}
    poll = select.epoll()
    by_number = {caller.line.fileno(): caller for caller in crowd}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    clock = time.perf_counter
    began, worked = clock(), time.process_time()
    until = began + seconds
    for number, caller in by_number.items():
        caller.prepare(tool, arguments)
        began_at[number] = clock()
        marks[number] = caller.begin()
    while began_at:
        ready = poll.poll(PATIENCE)
        if not ready:
            raise TimeoutError
        for number, _ in ready:
            caller = by_number[number]
            answer = caller.line.hear()
            if answer is None:
                continue
            now = clock()
            if (
                answer[9:12] != b"200"
                or marks[number] not in answer
                or b'"error"' in answer
                or b'"isError":true' in answer
            ):
                raise Unexpected(answer)
            load.latencies.append(now - began_at[number])
            if now < until:
                began_at[number] = now
                marks[number] = caller.begin()
            else:
                del began_at[number]
    poll.close()
    load.seconds = clock() - began
    load.busy = (time.process_time() - worked) / load.seconds
    return load
