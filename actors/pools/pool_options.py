"""The options of handlers that run in processes of their own: a `Pool` says how many processes there are, and what each may use.

::

    drawing = Pool(size=4, memory=512 * MIB, cpu=20)

    @server.tool(isolation=drawing)          # all tools with this pool share its four processes
    def render(svg: str) -> bytes: ...

It is a value and owns nothing: each company with a handler that has it runs a pool of its own, by a `PoolScheduler`.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from greenroom.errors import GreenroomError, suggests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision.cluster import Cluster

KIB: Final = 1024
MIB: Final = 1024 * KIB
_LEAST_MEMORY: Final = 64 * MIB
"""An interpreter that has loaded a handler takes half of that."""


_serials: Final = count(1)


class BadPool(GreenroomError, ValueError):
    """An invalid option of a `Pool`: its name, the value, and what it must be."""

    def __init__(self, name: str, value: object, needed: str) -> None:
        """`needed` completes "must be"."""
        super().__init__(f"Pool: {name} must be {needed}, not {value!r}")
        self.name = name


@suggests("Pool")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """Processes that handlers run in, each with one call at a time. Several handlers may share one pool.

    `size` is the largest number of processes (default: one per processor). They are started when needed, and end after `idle` seconds without a call; `warm` of them
    are started with the server, and stay.

    `memory` is in bytes for one process (default: half of the machine's; None for no limit), `cpu` in seconds of processor time for one call. A process that exceeds a
    limit is ended, and the caller is told which limit. After `max_calls` calls a process is replaced, so that leaks do not accumulate.

    `cluster` is one that the program has started in its own tree, before anything that uses such a pool: it then places the processes, on machines that have
    everything in `requires`. The handlers' modules must be installed there.

    `queue` is how many calls may wait for a process; the next one is refused at once. `start` is how many seconds a process may take to start, including the import of
    the handler's module.
    """

    size: int | None = None
    warm: int = 0
    max_calls: int | None = 10_000
    memory: int | Literal["half"] | None = "half"
    cpu: float | None = None
    queue: int = 1000
    idle: float = 60.0
    start: float = 60.0
    cluster: Cluster | None = None
    requires: Mapping[str, object] = field(default_factory=dict[str, object])
    serial: int = field(init=False, repr=False)
    """Distinguishes it from the program's other pools."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "serial", next(_serials))
        _check_count("size", self.size, least=1, or_none=" or None for one on each processor")
        _check_count("warm", self.warm, least=0)
        _check_count("max_calls", self.max_calls, least=1, or_none=" or None for no end")
        _check_count("queue", self.queue, least=0)
        if self.memory != "half":
            _check_memory(self.memory)
        if self.cpu is not None:
            _check_seconds("cpu", self.cpu)
        _check_seconds("idle", self.idle)
        _check_seconds("start", self.start)
        if self.requires and self.cluster is None:
            raise BadPool("cluster", None, "the program's Cluster when its processes require something")
        if self.warm > self.most:
            raise BadPool("warm", self.warm, f"at most its size, {self.most}")

    @property
    def most(self) -> int:
        """The largest number of processes."""
        return processors() if self.size is None else self.size

    @property
    def memory_limit(self) -> int | None:
        """The memory limit of one process in bytes."""
        return memory_of_the_machine() // 2 if self.memory == "half" else self.memory


def _check_memory(value: Any) -> None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST_MEMORY):
        return
    least = f"a whole number of bytes, {_LEAST_MEMORY // MIB} MiB ({_LEAST_MEMORY // MIB} * 1024 * 1024) or more, or None for no limit"
    raise BadPool("memory", _InMib(value) if type(value) is int and value >= MIB else value, least)


class _InMib(int):
    """A number of bytes whose repr is in MiB."""

    def __repr__(self) -> str:
        return f"{self / MIB:g} MiB"


def _check_count(name: str, value: Any, *, least: int, or_none: str = "") -> None:
    if value is None and or_none:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadPool(name, value, f"a whole number, {least} or more{or_none}")


def _check_seconds(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not (value > 0 and math.isfinite(value)):
        raise BadPool(name, value, "a number of seconds, more than 0")


def processors() -> int:
    """The number of processors that this program may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def memory_of_the_machine() -> int:
    """The memory of the machine in bytes, or of the container where that has less."""
    found = [1 << 40]
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(ValueError, OSError):  # there is no such file, or it says "max"
            found.append(int(Path(limit).read_text(encoding="ascii")))
    return min(each for each in found if each > 0)
