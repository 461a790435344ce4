"""The partition supervisor: several children with the same spec, which share the keys of one service.

A single process that all clients call is a bottleneck; the partitions divide its keys. The partition of a key depends only on
the key and the number of partitions: it is the same in each run, and for every caller. When the number changes, keys move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import Reject
from greenroom.supervision.kernel.api import resolve
from greenroom.supervision.kernel.errors import ActorError, NotRegistered, StartIgnored
from greenroom.supervision.kernel.process_lookup import current_node
from greenroom.supervision.kernel.process_messages import NO_PROCESS, Pid

from .child_spec import ONE_FOR_ONE, BadSpec, ChildSpec, check_child, check_count
from .supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .child_spec import Backoff, Strategy
    from .supervisor_base import ChildRecord


class PartitionSupervisor(Supervisor):
    """A supervisor of partitions, from one spec for all of them, or a function that makes the spec of partition `n`.

    ::

        await Options(name="counters").start_link(PartitionSupervisor, child(Counter), partitions=8)
        await partition("counters", "oslo").call(Counter.add, 2)
    """

    __slots__ = ("_otp_specs", "partitions")

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
        self._otp_specs = [check_child(spec).but(id=number) for number, spec in enumerate(specs)]
        super().__init__(
            self._otp_specs,
            strategy=strategy,
            intensity=intensity,
            period=period,
            backoff=backoff,
        )

    def strategy_text(self) -> str:
        """The number of partitions, and the strategy if it is not `one_for_one`."""
        strategy = super().strategy_text()
        return f"{self.partitions} partitions" + ("" if strategy == ONE_FOR_ONE else f", {strategy}")

    def pid_of(self, key: object) -> Pid | None:
        """The pid of the partition of that key; None while it does not run."""
        if not self.partitions:
            raise ActorError(f"no partition has {key!r}: {self._otp_process} was resized to zero partitions")
        child = self._otp_children.get(key_hash(key) % self.partitions)
        return None if child is None else child.pid

    async def resize(self, partitions: int) -> int:
        """Divide the keys among the first `partitions` children, at most the number at the start; returns the old number.

        Surplus partitions lose their keys first and are stopped then, the last one first; their specs stay. New partitions
        get keys as they start: a failed start is an error, and the partitions started before it stay.
        """
        before = self.partitions
        try:
            check_count("partitions", partitions, 0, len(self._otp_specs))
        except BadSpec as error:
            raise Reject(error) from None
        if partitions < before:
            self.partitions = partitions
            surplus = [self._otp_children.get(number) for number in range(partitions, before)]
            await self._otp_stop_all([child for child in surplus if child is not None])
        for number in range(before, partitions):
            await self._otp_start_partition(number)
            self.partitions = number + 1
        return before

    async def _otp_start_partition(self, number: int) -> None:
        child = self._otp_children.get(number)
        try:
            if child is None:  # a temporary child, whose spec was dropped
                await self.start_child(self._otp_specs[number])
            elif child.pid is None:
                await self.restart_child(number)
        except Reject as rejected:
            if not isinstance(rejected.error, StartIgnored):
                raise

    def _otp_affected(self, child: ChildRecord) -> list[ChildRecord]:
        resting = range(self.partitions, len(self._otp_specs))
        return [one for one in super()._otp_affected(child) if one.spec.id not in resting]


def _server(supervisor: Any) -> PartitionSupervisor:
    process, pid, name = resolve(current_node(), supervisor)
    if process is None or process.life:
        raise NotRegistered(NO_PROCESS, name or pid)
    server = process.behaviour.inner
    if not isinstance(server, PartitionSupervisor):
        message = f"{process} is no PartitionSupervisor"
        raise ActorError(message)
    return server


def count_partitions(supervisor: Any) -> int:
    """The current number of partitions, read without sending a message. Raises `NotRegistered`."""
    return _server(supervisor).partitions


@dataclass(frozen=True, slots=True)
class Partition:
    """The name of the partition that has `key`: a `Via`, so it can be used wherever a name is."""

    supervisor: Any
    key: Any

    def whereis(self) -> Pid | None:
        """The pid of the partition of the key. Raises `NotRegistered` when the supervisor does not run."""
        return _server(self.supervisor).pid_of(self.key)

    def register(self, pid: Pid) -> None:
        """Raise `ActorError`: only the supervisor starts partitions."""
        message = f"{pid} cannot register itself as a partition of {self.supervisor}"
        raise ActorError(message)

    def unregister(self, pid: Pid) -> None:
        """Do nothing: partitions are never registered."""

    def __str__(self) -> str:
        return f"the partition of {self.supervisor} for {self.key!r}"


def partition(supervisor: Any, key: object) -> Ref[Any]:
    """A `Ref` of the partition that has `key`, looked up at each use. `supervisor` is a `Ref`, pid or name.

    A key is a string, bytes, a number, None, a pid, or a tuple of these.
    """
    key_hash(key)
    return Ref(Partition(supervisor, key))


def key_hash(key: object) -> int:
    """A hash of a key that is the same in every run, unlike Python's own `hash` of a string."""
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
