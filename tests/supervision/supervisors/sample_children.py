"""Sample children for the supervisor tests, and helpers that collect reports."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from greenroom.supervision import GenServer, Ref, current_node, which_children
from greenroom.supervision.supervisors.supervisor_base import BaseSupervisor

if TYPE_CHECKING:
    from collections.abc import Generator

    from greenroom.supervision import Pid, Report
    from greenroom.supervision.kernel.process_messages import ExitReason
    from greenroom.supervision.supervisors.supervisor_base import ChildRecord

R = TypeVar("R")


class Broken(Exception):
    """The error of crashing children."""


class Counter(GenServer):
    """Counts, and crashes when told to."""

    def __init__(self, total: int = 0, *more: Any) -> None:
        self.total = total
        self.more = more

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    def crash(self) -> NoReturn:
        raise Broken


class Polite(Counter):
    """Traps exits, and takes some time to stop."""

    traps_exit = True

    def __init__(self, goodbye: float = 0.0, told: list[Any] | None = None, name: Any = None) -> None:
        super().__init__()
        self.goodbye = goodbye
        self.told = told
        self.name = name

    async def terminate(self, reason: ExitReason) -> None:
        if self.goodbye:
            await asyncio.sleep(self.goodbye)
        if self.told is not None:
            self.told.append(self.name)


class World:
    """An external dependency of children, which is available or not."""

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.tries: list[float] = []


class Dependent(Counter):
    """Starts when its dependency is available."""

    def __init__(self, world: World) -> None:
        super().__init__()
        world.tries.append(asyncio.get_running_loop().time())
        if not world.there:
            raise Broken


class SlowDependent(GenServer):
    """Takes a second to find out whether its dependency is available."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def init(self) -> None:
        self.world.tries.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        if not self.world.there:
            raise Broken


@contextmanager
def heard() -> Generator[list[Report]]:
    """All reports of the node, while the block runs."""
    reports: list[Report] = []
    end = current_node().reports.subscribe(reports.append)
    try:
        yield reports
    finally:
        end()


def of(reports: list[Any], kind: type[R]) -> list[R]:
    """Those of one kind."""
    return [report for report in reports if isinstance(report, kind)]


async def settled(sup: Ref[Any]) -> None:
    """Wait until the supervisor has handled all earlier events, including immediate retries."""
    for _ in range(3):
        await which_children(sup)


async def pids(sup: Ref[Any]) -> list[Pid | None]:
    """Its children's pids, in start order."""
    return [each.pid for each in reversed(await which_children(sup))]


def kept_of(sup: Ref[Any]) -> list[ChildRecord]:
    """The records of its children."""
    behaviour = sup._find().behaviour
    assert isinstance(behaviour, BaseSupervisor)
    return list(behaviour.children())


async def ref_of(sup: Ref[Any], number: int = 0) -> Ref[Any]:
    """A handle on the child at that place in start order."""
    pid = (await pids(sup))[number]
    assert pid is not None
    return Ref(pid)
