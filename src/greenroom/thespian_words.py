"""What a server has for Thespian programs: their actors as its tools, and guests who call it. `Server` derives from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Unpack

    from greenroom.actors.company import Company
    from greenroom.actors.guest.listener import Reception
    from greenroom.supervision import ChildSpec

    from .decorators import Registrations, ToolWords


class ThespianWords:
    """For whoever has a company."""

    company: Company
    registry: Registrations
    _with: list[ChildSpec[Any]]
    """What lives beside the company's listeners."""
    _receptions: tuple[Reception, ...] = ()

    def thespian_tool(
        self,
        system: Any,
        actor: Any,
        name: str | None = None,
        *,
        request: Callable[..., Any],
        reply: Callable[[Any], Any] | None = None,
        **options: Unpack[ToolWords],
    ) -> None:
        """Offer an actor of a Thespian system as a tool: its arguments are those of `request`, which makes the message that is sent.

        `actor` is an address; or a class, of which one is made when the tool is first called, and ended with the server. `reply` makes the
        result of what comes back, which is the result itself otherwise. Whoever does not answer within `timeout` (30 seconds), has failed or is
        gone is an `isError` result that says so.
        """
        from .thespian_tools import register  # noqa: PLC0415 - it loads Thespian

        made = register(self.registry, system, actor, name=name, request=request, reply=reply, options=options)
        self._with.append(made)

    def admit_guests(
        self, key: bytes | str | os.PathLike[str], *, address: str | None = None, most_guests: int = 64
    ) -> Reception:
        """Let Thespian programs in, over a keyed link, while the server runs: see `greenroom.thespian`. To them it is a server of its own name.

        `key` is a file that its owner alone can read, or bytes. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default a name on
        this machine alone, which what is returned knows.
        """
        from .host import admitted_to_company  # noqa: PLC0415 - few have guests

        reception, made = admitted_to_company(self.company, key, address, most_guests)
        self._with.append(made)
        self._receptions = (*self._receptions, reception)
        return reception

    def _stand_by(self) -> None:
        """This node is one of several: guests are let in by one of them, and by another when that is gone."""
        for each in self._receptions:
            each.stands_by = True
