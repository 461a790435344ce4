"""A supervisor that does not begin before its predecessor's children are gone: a company's own, and that of its listeners.

When it is killed, it leaves children behind that end in order, which takes them a moment; until then they have the company's names, and its sockets. A
successor that came up in between would find those taken, and its own supervisor would soon give up on it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import AlreadyRegistered, StartLink, Supervisor, start_child, wait_down, whereis

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from greenroom.supervision import ChildSpec, Continue, DynamicSupervisor, Ignore, NoReply, Ref, Stop, Strategy

_PREDECESSOR_SECONDS: Final = 30.0
"""How long a predecessor's children may take to end, in seconds."""


class SuccessorSupervisor(Supervisor):
    """It knows its predecessor's children by the names that its own are to have."""

    def __init__(
        self,
        children: Sequence[ChildSpec[Any]],
        *,
        intensity: int,
        period: float,
        strategy: Strategy = "one_for_one",
    ) -> None:
        """As any supervisor."""
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
    """What a child will be registered as, if its spec says so."""
    return spec.start.options.name if isinstance(spec.start, StartLink) else None


def named_child(spec: ChildSpec[Any], name: Hashable) -> ChildSpec[Any]:
    """The same child under that name, unless it has one, or starts in a way of its own."""
    return spec.but(name=name) if isinstance(spec.start, StartLink) and child_name(spec) is None else spec


async def ensure_child(supervisor: Hashable | Ref[DynamicSupervisor], spec: ChildSpec[Any]) -> None:
    """That child runs there, started by this call or another: supervisors start one after the other, and the second finds its name taken."""
    with suppress(AlreadyRegistered):
        await start_child(supervisor, spec)
