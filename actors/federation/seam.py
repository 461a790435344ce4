"""What an agent, a host and a gateway need of a federation: who is in it, the way to each, and what each of them offers.

The federation implements it; so may a test, or a program that has its servers from somewhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from greenroom.actors.client.seam import Line

    from .offering import Offering


class Upstreams(Protocol):
    """Servers by their ids."""

    def ids(self) -> Collection[str]:
        """Who is in it just now."""
        ...

    def line(self, id: str) -> Line | None:
        """The way to a server; None when there is no such server."""
        ...

    def serial(self, id: str) -> int | None:
        """Which server it is that has this id now: another number after it was replaced; None when there is none."""
        ...

    def known(self, id: str) -> Offering | None:
        """What it offers as far as that is known, at once; None when it was never asked. The same object as long as nothing has changed."""
        ...

    def shown(self, id: str) -> Offering | None:
        """The same as it is to be listed: a server that is away may show nothing, or tools that say so."""
        ...

    def refusal(self, id: str) -> Exception | None:
        """Why calls of it fail just now, before they are sent; None where they would go, or wait for it to be started."""
        ...

    def timeout(self, id: str, method: str) -> float | None:
        """How long such a request of a server may take whose caller does not say; None for no limit."""
        ...

    async def offering(self, id: str, *, timeout: float | None = ...) -> Offering:
        """What it offers. Asked of the server where that is not known. Raises `ClientError` or `PeerError`."""
        ...
