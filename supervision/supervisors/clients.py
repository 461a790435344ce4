"""What one asks of a supervisor, as functions.

Starting or stopping a child takes as long as it takes, so none of these has a deadline, as in OTP; wrap one in
`asyncio.timeout` for one. `who` is the supervisor's `Ref`, pid or name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from greenroom.supervision.behaviours.calls import Ref

from .base import BaseSupervisor
from .partition import PartitionSupervisor
from .supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision.kernel.names import Via
    from greenroom.supervision.kernel.pid import Pid

    from .children import ChildInfo, Counts
    from .spec import ChildSpec

    Who = Ref[Any] | Pid | Hashable | Via

R = TypeVar("R")


def _to(who: Any) -> Ref[Any]:
    if hasattr(who, "within"):
        return cast("Ref[Any]", who).within(None)
    ref: Ref[Any] = Ref(who, None)
    return ref


@overload
async def start_child(who: Who, spec: ChildSpec[R], /) -> R: ...
@overload
async def start_child(who: Who, /, *args: Any, **kwargs: Any) -> Any: ...
async def start_child(who: Who, /, *args: Any, **kwargs: Any) -> Any:
    """Add a child and start it; returns what its start function returned, a `Ref` when `child` made the spec.

    A dynamic supervisor with a template takes the child's own arguments instead of a spec. Raises `StartFailed`, and the spec is not kept; `StartIgnored`, and it is kept unless temporary; `AlreadyStarted`,
    `AlreadyPresent`, `BadSpec`, and of a dynamic supervisor `MaxChildren`.
    """
    return await _to(who).call(BaseSupervisor.start_child, *args, **kwargs)


async def terminate_child(who: Who, id: Hashable) -> None:
    """Stop a child; of a dynamic supervisor, the one with that pid. It is not restarted."""
    await _to(who).call(BaseSupervisor.terminate_child, id)


async def restart_child(who: Who, id: Hashable) -> Any:
    """Start a child that was stopped, or has ended and was not restarted."""
    return await _to(who).call(Supervisor.restart_child, id)


async def delete_child(who: Who, id: Hashable) -> None:
    """Forget a child that does not run."""
    await _to(who).call(Supervisor.delete_child, id)


async def which_children(who: Who) -> list[ChildInfo]:
    """All children, the one that was added last first."""
    return await _to(who).call(BaseSupervisor.which_children)


async def which_child(who: Who, id: Hashable) -> ChildInfo:
    """One child; raises `ChildNotFound`."""
    return await _to(who).call(BaseSupervisor.which_child, id)


async def count_children(who: Who) -> Counts:
    """How many children there are, and how many of them run."""
    return await _to(who).call(BaseSupervisor.count_children)


async def get_childspec(who: Who, id: Hashable) -> ChildSpec[Any]:
    """The spec of a child, with its defaults filled in."""
    return await _to(who).call(BaseSupervisor.get_childspec, id)


async def resize_partitions(who: Who, partitions: int) -> int:
    """Let so many partitions share the keys, up to the number it was started with; returns how many did before.

    Keys move, so what a partition kept of its keys is for another one to find again. Those that are too many are stopped.
    """
    return await _to(who).call(PartitionSupervisor.resize, partitions)
