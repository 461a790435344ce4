"""Clients that never read while events arrive: their cost, when they are cut, and the effect on others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from .raw_clients import target_server, until_dropped

if TYPE_CHECKING:
    from .raw_clients import RawCaller, TargetServer

TIGHT = 4096
"""The kernel buffer of each of them."""
KIB = 1024


class Seen(NamedTuple):
    """The result of a measurement."""

    quiet: float
    """Another client's p99 in seconds, with the same sessions and none stalled."""
    crowded: float
    """The same with all of them stalled."""
    each: float
    """Bytes of our memory for each."""
    cut: list[float]
    """When each of them was cut."""


def p99(caller: RawCaller, calls: int) -> float:
    """The best of three: a busy machine is slow by itself."""
    best = 1e9
    for _ in range(3):
        times: list[float] = []
        for _ in range(calls):
            began = time.perf_counter()
            caller.call("echo", text="x")
            times.append(time.perf_counter() - began)
        best = min(best, sorted(times)[int(calls * 0.99)])
    return best


def stall(opened: TargetServer, count: int, *, calls: int, within: float) -> Seen:
    """Half of them on standalone streams, half on the stream of a call that keeps sending."""
    healthy, herald = opened.entered(), opened.entered()
    sessions = [opened.entered(buffer=TIGHT) for _ in range(count)]
    quiet = p99(healthy, calls)
    before = opened.cost()["memory"]
    for number, each in enumerate(sessions):
        if number % 2:
            each.send("GET")
        else:
            each.begin("chatter", words=1000, size=50, pause=0.01)
    cut: list[float] = []
    watcher = threading.Thread(target=lambda: cut.extend(until_dropped(opened.port, sessions, within)))
    watcher.start()
    herald.call("shout", words=800, size=50, pause=0.005)
    most = opened.memory()
    crowded = p99(healthy, calls)
    watcher.join()
    return Seen(quiet, crowded, (most - before) / count, cut)


@pytest.mark.row("ST-11")
@pytest.mark.parametrize(
    ("count", "patience"),
    [
        (30, 5.0),
        pytest.param(100, 5.0, marks=pytest.mark.deep),
        pytest.param(1_000, 20.0, marks=pytest.mark.soak),
    ],
    ids=["30", "100", "1000"],
)
def test_many_stalled_readers_cost_little_and_are_cut_soon_without_effect_on_others(
    count: int, patience: float, no_leaks: None
) -> None:
    with target_server({"write_timeout": patience}) as opened:
        seen = stall(opened, count, calls=300, within=patience + 60.0)
    print(  # noqa: T201 - the page of figures has them
        f"{count} stalled: {seen.each / KIB:.0f} KiB each, p99 {seen.quiet * 1e3:.2f} -> {seen.crowded * 1e3:.2f} ms, "
        f"cut after {min(seen.cut):.1f} to {max(seen.cut):.1f} s"
    )
    assert len(seen.cut) == count
    assert seen.each <= 96 * KIB
    # Other programs use the processor as well, in one half more than in the other; a client held up by a stalled peer would wait for
    # seconds.
    assert seen.crowded <= max(5 * seen.quiet, 0.1)
