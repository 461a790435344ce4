"""The parts of an engine without processes: what would start one is played, so that decisions can be tested in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from greenroom.supervision.cluster.machine_host import MachineHost
from greenroom.supervision.cluster.machines import Machine
from greenroom.supervision.cluster.node_engine import NodeEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from greenroom.supervision import ExitReason, Pid, Ref
    from greenroom.supervision.cluster.daemon_protocol import DaemonMessage, MachineJoined

VERSION = "1.0"


def machine(
    name: str, run: int = 1, *, room: int | None = None, version: str = VERSION, **capabilities: Any
) -> Machine:
    """One run of a machine's program."""
    return Machine(
        name=name,
        id=f"{name}-{run}",
        addresses=(f"tcp:10.0.0.{run}:7400",),
        capabilities=capabilities,
        room=room,
        greenroom=version,
    )


async def settled() -> None:
    """Wait until nothing moves any more."""
    await asyncio.sleep(0.001)


class PlayedEngine(NodeEngine):
    """A machine's engine, as its machine host and a membership know it; it records its calls."""

    def __init__(self, here: Machine, joined: Iterable[MachineJoined] = ()) -> None:
        self.here = here
        self.others = list(joined)
        self.ended: list[tuple[str, int]] = []
        self.rejoined: list[bool] = []
        self.told: list[Any] = []

    def init(self) -> None:
        """It has no links."""

    async def terminate(self, reason: ExitReason) -> None:
        """It has no daemon."""

    def accept_foreign_nodes(self, machine_host: Ref[Any]) -> tuple[Machine, str]:
        return self.here, "system-1"

    def join(self, membership: Ref[Any]) -> tuple[Machine, list[MachineJoined]]:
        return self.here, self.others

    def signal_foreign_node(self, name: str, number: int) -> None:
        self.ended.append((name, number))

    def rejoin(self, *, anew: bool) -> None:
        self.rejoined.append(anew)

    def handle_info(self, message: Any) -> None:
        self.told.append(message)

    def all_told(self) -> list[Any]:
        return self.told

    def all_ended(self) -> list[tuple[str, int]]:
        return self.ended

    def all_rejoined(self) -> list[bool]:
        return self.rejoined


class PlayedMachineHost(MachineHost):
    """The machine host of another machine, as a membership knows it."""

    def __init__(self, here: Machine, system: str = "system-1") -> None:
        self.here = here
        self.system = system
        self.refuses: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.heard: list[Any] = []

    async def init(self) -> None:
        """It has no engine."""

    def register_application(self, other: Machine, membership: Pid) -> tuple[Pid, Machine, str]:
        return self.pid, self.here, self.system

    async def reserve(self, name: str, owner: Pid) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.gate is not None:
            await self.gate.wait()
        self.heard.append(("reserve", name))

    def release(self, name: str) -> None:
        self.heard.append(("release", name))

    def rejoin(self) -> None:
        self.heard.append("rejoin")

    def all_heard(self) -> list[Any]:
        return self.heard

    def hold(self, gate: asyncio.Event | None) -> None:
        self.gate = gate


class PlayedPeers:
    """The links of a node, whose peers are decided by the test."""

    def __init__(self) -> None:
        self.addresses = ("unix:/home",)
        self.connected: tuple[str, ...] = ()
        self.opens: tuple[str, ...] = ()
        """The nodes that can be connected to."""
        self.dialled: list[tuple[str, ...]] = []
        self.forgotten: list[str] = []
        self.cut: list[str] = []
        self.fails: Exception | None = None
        self.watchers: list[Ref[Any]] = []

    def watch(self, who: Ref[Any]) -> None:
        self.watchers.append(who)

    def unwatch(self, who: Ref[Any]) -> None:
        self.watchers.remove(who)

    def introduce(self, name: str, addresses: tuple[str, ...]) -> None:
        """The addresses by which it can be dialled."""

    def forget(self, name: str) -> None:
        self.forgotten.append(name)

    def disconnect(self, name: str, why: str = "") -> None:
        self.cut.append(name)

    async def connect(self, addresses: tuple[str, ...], timeout: float) -> None:
        self.dialled.append(addresses)
        if self.fails is not None:
            raise self.fails


class PlayedDaemon:
    """The daemon as an engine sees it. The test says what it reports, and how it ends."""

    pid = 4_000_001
    dies_of_finish = True

    def __init__(self, told: Callable[[DaemonMessage | None], object]) -> None:
        self.told = told
        self.sent: list[DaemonMessage] = []
        self.killed = 0
        self.over = False
        self.status: int | None = None
        self.ended = asyncio.Event()

    def send(self, order: DaemonMessage) -> None:
        self.sent.append(order)
        if type(order).__name__ == "FinishDaemon" and self.dies_of_finish:
            self.end(0)

    def kill(self) -> None:
        self.killed += 1
        self.end(-9)

    def end(self, status: int) -> None:
        if not self.over:
            self.over = True
            self.status = status
            self.ended.set()
            self.told(None)

    def release(self) -> None:
        self.over = True

    def error_output(self) -> str:
        return "Its last words."

    def of(self, kind: type[DaemonMessage]) -> list[Any]:
        """The messages of that kind that it got."""
        return [order for order in self.sent if isinstance(order, kind)]
