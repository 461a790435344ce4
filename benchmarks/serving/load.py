"""The load generator: keeps connections busy, each with one call after another, and takes the times."""

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
    """The result of a load."""

    connections: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list[float])
    busy: float = 0.0
    """The part of the time in which the generator was busy: near 1, the generator was the limit."""

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, part: float) -> float:
        """The quantile of the durations in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    @property
    def median(self) -> float:
        """The durations of all calls in seconds."""
        return statistics.median(self.latencies)


@contextmanager
def callers(port: int, count: int, kind: type[Caller] = Caller) -> Generator[Sequence[Caller]]:
    """Open this many callers, each with its connection and, unless they are of another kind, its session."""
    made: list[Caller] = []
    try:
        for _ in range(count):
            made.append(kind(port))  # noqa: PERF401 - earlier callers must be closed if a later one fails
        yield made
    finally:
        for caller in made:
            caller.end()


def drive(crowd: Sequence[Caller], tool: str, arguments: dict[str, Any], seconds: float) -> Load:
    """Let all callers call for this long, and wait for calls in progress.

    Every answer is checked: status 200, the call's own id, no error of any kind.
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
            answer = caller.line.read_response()
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
