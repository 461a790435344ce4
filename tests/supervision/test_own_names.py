"""A class that derives from a behaviour may name its fields and methods freely: private names of the engine begin with `_otp_`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    DynamicSupervisor,
    GenServer,
    PartitionSupervisor,
    Registry,
    Supervisor,
    TaskSupervisor,
    child,
    start,
    stop,
)
from greenroom.supervision.statem import GenStatem

BASES = [GenServer, GenStatem, Supervisor, DynamicSupervisor, PartitionSupervisor, TaskSupervisor]


def private(cls: type) -> set[str]:
    """Private names of the class and its bases, slots and annotations included."""
    found: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("greenroom."):
            found |= {*vars(base), *vars(base).get("__annotations__", {}), *vars(base).get("__slots__", ())}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


@pytest.mark.parametrize("cls", BASES, ids=lambda cls: cls.__name__)
def test_every_private_name_of_a_behaviour_begins_with_otp(cls: type) -> None:
    mine = {name for name in private(cls) if not name.startswith(("_otp_", "_abc_", "_is_protocol"))}
    assert not mine


class Busy(GenServer):
    """Uses every private name that comes to mind."""

    def __init__(self) -> None:
        for name in ("process", "call", "timer", "kept", "done", "failed", "handle", "stop", "end", "report", "take"):
            setattr(self, f"_{name}", name)

    def _start(self) -> str:
        return "mine"

    def names(self) -> str:
        return self._start()

    async def names_later(self) -> str:
        await asyncio.sleep(0)
        return self._start()


async def test_private_names_of_a_server_do_not_collide() -> None:
    busy = await start(Busy)
    assert await busy.call(Busy.names) == await busy.call(Busy.names_later) == "mine"
    await stop(busy)


class Office(Supervisor):
    """A supervisor with fields of its own."""

    def __init__(self, *specs: Any) -> None:
        super().__init__(specs)
        self._children = self._flags = self._window = self._by_pid = None


async def test_private_names_of_a_supervisor_do_not_collide() -> None:
    office = await start(Office, child(Registry), child(Busy))
    assert len(await office.call(Supervisor.which_children)) == 2
    await stop(office)
