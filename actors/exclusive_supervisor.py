"""A supervisor that starts only when its predecessor's children are gone: a company's own, and that of its listeners.

A killed supervisor leaves children that end in order, which takes a moment; until then they hold the company's names and its sockets. A successor that started
earlier would find those taken, and its own supervisor would soon give up on it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import AlreadyRegistered, StartLink, Supervisor, start_child, wait_down, whereis

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from greenroom.supervision import ChildSpec, Continue, DynamicSupervisor, Ignore, NoReply, Ref, Stop, Strategy

_PREDECESSOR_SECONDS: Final = 30.0
"""How many seconds a predecessor's children may take to end."""


class ExclusiveSupervisor(Supervisor):
    """A supervisor that waits until the registered names of its children are free."""

    def __init__(
        self,
        children: Sequence[ChildSpec[Any]],
        *,
        intensity: int,
        period: float,
        strategy: Strategy = "one_for_one",
    ) -> None:
        super().__init__(children, intensity=intensity, period=period, strategy=strategy)
        self._names = [name for spec in children if (name := child_name(spec)) is not None]

    async def init(self) -> Continue | NoReply | Ignore | Stop | None:
        """Wait for the names, and start the children."""
        for name in self._names:
            holder = whereis(name)
            if holder is not None:
                await wait_down(holder, _PREDECESSOR_SECONDS)
        return await super().init()


def child_name(spec: ChildSpec[Any]) -> Hashable | None:
    """The registered name of a child, if its spec has one."""
    return spec.start.options.name if isinstance(spec.start, StartLink) else None


def named_child(spec: ChildSpec[Any], name: Hashable) -> ChildSpec[Any]:
    """The same child under that name, unless it has one, or a start function of its own."""
    return spec.but(name=name) if isinstance(spec.start, StartLink) and child_name(spec) is None else spec


async def ensure_child(supervisor: Hashable | Ref[DynamicSupervisor], spec: ChildSpec[Any]) -> None:
    """Start the child unless it runs.

    Concurrent starts are serialized by the supervisor, and the later ones find the name taken.
    """
    with suppress(AlreadyRegistered):
        await start_child(supervisor, spec)
