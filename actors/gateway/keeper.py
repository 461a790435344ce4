"""The processes of a gateway, as a child of the company that it serves in.

::

    gateway (rest_for_one)
    ├─ keeper           keeps the host open, says when lists change, and sweeps
    ├─ connections      the clients' own connections to upstreams
    └─ followers        one for each client's subscription to an upstream's resource
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.federation.offering import PARTS
from greenroom.actors.tree import Tree
from greenroom.supervision import DynamicSupervisor, GenServer, Ref, TaskSupervisor, child, send_after, spawn_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.actors.catalogue import Kind
    from greenroom.supervision import ChildSpec, ExitReason

    from .gateway import Gateway

_SWEEP: Final = object()
_EVERY: Final = 5.0
_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("tools", "tool"),
    ("resources", "resource"),
    ("templates", "resource_template"),
    ("prompts", "prompt"),
)
_numbers: Final = count(1)


class Keeper(GenServer):
    """One in each gateway."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, gateway: Gateway, changed: Callable[[Kind], object]) -> None:
        """`changed` is told which list is another one now."""
        self._gateway = gateway
        self._changed = changed
        self._opened = False

    async def init(self) -> None:
        """Open the host, and listen. Whoever lists here wants all that there is, and to hear when it is something else."""
        self._gateway.host.federation.keep(*PARTS)
        await self._gateway.host.open()
        self._opened = True
        spawn_link(_announce, self._gateway, self._changed)
        send_after(_EVERY, self.pid, _SWEEP)

    async def handle_info(self, message: Any) -> None:
        """It is time to sweep."""
        if message is _SWEEP:
            await self._gateway.sweep(asyncio.get_running_loop().time())
            send_after(_EVERY, self.pid, _SWEEP)
            return
        super().handle_info(message)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Let go of the host."""
        if self._opened:
            await self._gateway.host.close()


async def _announce(gateway: Gateway, changed: Callable[[Kind], object]) -> None:
    async for change in gateway.host.changes():
        for part, kind in _KINDS:
            if getattr(change.differences, part):
                changed(kind)


def gateway_spec(gateway: Gateway, changed: Callable[[Kind], object]) -> ChildSpec[Any]:
    """The gateway's processes as a child."""
    company = gateway.company
    number = next(_numbers)
    connections, followers = company.name(f"gateway connections {number}"), company.name(f"gateway followers {number}")
    gateway.lodgings.supervisor = connections
    gateway.following.supervisor = Ref(followers, None)
    children: list[ChildSpec[Any]] = [
        child(Keeper, gateway, changed).but(id="keeper", name=company.name(f"gateway keeper {number}")),
        child(DynamicSupervisor).but(id="connections", name=connections),
        child(TaskSupervisor).but(id="followers", name=followers),
    ]
    return child(Tree, children, intensity=5, period=10.0, strategy="rest_for_one").but(id=f"gateway {number}")
