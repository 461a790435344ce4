"""Where workers run: the seam between a pool and whatever starts processes. `lodging` has the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ChildSpec, Ref

    from .claims import Claims
    from .pool import Pool


class Bench(Protocol):
    """One process for one worker, as the process at home that stands for it."""

    @property
    def who(self) -> Ref[Any]:
        """The process at home; it ends with the other one, and its reason says how that was."""
        ...

    @property
    def claims(self) -> Claims | None:
        """The file by which it is decided who begins with a call that was sent ahead; None where nothing is."""
        ...

    async def seat(self, home: Ref[Any], settings: Mapping[str, Any], plans: Mapping[int, bytes]) -> Ref[Any]:
        """Start a seat there. Raises what keeps it from coming up."""
        ...

    def busy(self, on: bool) -> None:  # noqa: FBT001 - a switch
        """It has a call, or none: while it has, it may be silent for as long as it likes."""
        ...

    def end(self) -> None:
        """End it, whatever it is at; certain, and soon."""
        ...


class Premises(Protocol):
    """Who has room for workers."""

    def child_spec(self) -> ChildSpec[Any] | None:
        """What has to run before anything is opened; it stops after all pools."""
        ...

    async def open(self, pool: Pool) -> Bench:
        """A new process, linked to the calling one. Raises what keeps it from coming up."""
        ...
