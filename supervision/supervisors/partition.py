"""The partition supervisor: one child many times over, and every key belongs to one of them.

A process that everybody calls is a bottleneck; several of them share the keys. Which one has a key depends on nothing
but the key and their number: the same in each run, and for whoever asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.kernel.api import resolve
from greenroom.supervision.kernel.current import current_node
from greenroom.supervision.kernel.errors import ActorError, NotRegistered
from greenroom.supervision.kernel.pid import Pid
from greenroom.supervision.kernel.reasons import NO_PROCESS

from .spec import ONE_FOR_ONE, ChildSpec, check_child, check_count
from .supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backoff import Backoff
    from .strategy import Strategy


class PartitionSupervisor(Supervisor):
    """Start it with one spec for all partitions, or a function that makes the spec of partition `n`.

    ::

        await Options(name="counters").start_link(PartitionSupervisor, child(Counter), partitions=8)
        await partition("counters", "oslo").call(Counter.add, 2)
    """

    __slots__ = ("partitions",)

    def __init__(
        self,
        child: ChildSpec[Any] | Callable[[int], ChildSpec[Any]],
        *,
        partitions: int,
        strategy: Strategy = ONE_FOR_ONE,
        intensity: int = 1,
        period: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        """The partitions' ids are their numbers, from 0."""
        check_count("partitions", partitions, 1)
        self.partitions = partitions
        specs = [child(number) if callable(child) else child for number in range(partitions)]
        super().__init__(
            [check_child(spec).but(id=number) for number, spec in enumerate(specs)],
            strategy=strategy,
            intensity=intensity,
            period=period,
            backoff=backoff,
        )

    def shape(self) -> str:
        """How many partitions, and their strategy if it is not the usual one."""
        strategy = super().shape()
        return f"{self.partitions} partitions" + ("" if strategy == ONE_FOR_ONE else f", {strategy}")

    def pid_of(self, key: object) -> Pid | None:
        """Who has that key now; None while that child does not run."""
        child = self._children.get(key_hash(key) % self.partitions)
        return None if child is None else child.pid


@dataclass(frozen=True, slots=True)
class Partition:
    """The name of whichever partition has `key`: a `Via`, so it goes wherever a name does."""

    supervisor: Any
    key: Any

    def whereis(self) -> Pid | None:
        """Who has the key now. Raises `NotRegistered` when the supervisor itself is not there."""
        process, pid, name = resolve(current_node(), self.supervisor)
        if process is None or process.life:
            raise NotRegistered(NO_PROCESS, name or pid)
        supervisor = process.behaviour.inner
        if not isinstance(supervisor, PartitionSupervisor):
            message = f"{process} is no PartitionSupervisor"
            raise ActorError(message)
        return supervisor.pid_of(self.key)

    def register(self, pid: Pid) -> None:
        """Partitions are started by their supervisor alone."""
        message = f"{pid} cannot register itself as a partition of {self.supervisor}"
        raise ActorError(message)

    def unregister(self, pid: Pid) -> None:
        """Nothing was registered."""

    def __str__(self) -> str:
        return f"the partition of {self.supervisor} for {self.key!r}"


def partition(supervisor: Any, key: object) -> Ref[Any]:
    """A handle on whichever partition has `key`, looked up at each use. `supervisor` is a `Ref`, pid or name.

    A key is a string, bytes, a number, None, a pid, or a tuple of such.
    """
    key_hash(key)
    return Ref(Partition(supervisor, key))


def key_hash(key: object) -> int:
    """A number for a key, the same in every run: Python's own `hash` of a string is not."""
    if isinstance(key, Pid):
        return key.serial
    if isinstance(key, int):
        return key
    if isinstance(key, tuple):
        return crc32(b",".join(b"%d" % key_hash(part) for part in cast("tuple[object, ...]", key)))
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if key is None or isinstance(key, float):
        return crc32(repr(key).encode())
    message = f"{key!r} cannot choose a partition: use a string, bytes, a number, None, a pid, or a tuple of such"
    raise TypeError(message)
