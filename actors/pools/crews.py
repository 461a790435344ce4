"""One pool as a child of a company: its foreman, and the staff that the foreman starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision import TEMPORARY, TRANSIENT, DynamicSupervisor, Ref, Supervisor, child

from .foreman import Foreman

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision import ChildSpec

    from .pool import Pool


class _PoolTree(Supervisor):
    """The foreman of a pool and its staff: neither is any use without the other."""

    def __init__(self, pool: Pool, foreman: Hashable, staff: Hashable, *rest: Any) -> None:
        """`foreman` and `staff` are their names."""
        super().__init__(
            [
                child(DynamicSupervisor).but(id="staff", name=staff),
                child(Foreman, pool, Ref(staff), *rest).but(
                    id="foreman", name=foreman, restart=TRANSIENT, significant=True
                ),
            ],
            strategy="one_for_all",
            auto_shutdown="any_significant",
            intensity=3,
            period=10.0,
        )


def pool_child(pool: Pool, name: Hashable, foreman: Hashable, staff: Hashable, *rest: Any) -> ChildSpec[Any]:
    """A pool as a child; `rest` is what its foreman needs besides. One that gives up is started again by the next call."""
    tree = child(_PoolTree, pool, foreman, staff, *rest)
    return tree.but(id=f"pool {pool.serial}", name=name, restart=TEMPORARY)
