"""What a gateway needs of a host: its servers as one set, more connections to each, and to be kept open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from greenroom.actors.federation.seam import Upstreams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.client.handler import ClientHandler
    from greenroom.actors.client.seam import Line
    from greenroom.actors.federation.agent import Agent
    from greenroom.actors.federation.offering import Part
    from greenroom.actors.federation.specs import Change
    from greenroom.supervision import ChildSpec


class Listed(Upstreams, Protocol):
    """Servers, of which all lists can be had."""

    def keep(self, *parts: Part) -> None:
        """Keep these lists of all of them from now on."""
        ...

    async def listed(self, *parts: Part, timeout: float | None) -> dict[str, Exception]:
        """The same, and wait until they are here. Returns who has failed to list them, and why."""
        ...


class Hosted(Protocol):
    """Many servers."""

    @property
    def agent(self) -> Agent:
        """Their tools as one set."""
        ...

    @property
    def federation(self) -> Listed:
        """The servers, each with one connection that is the host's own."""
        ...

    def connection(self, id: str, handler: ClientHandler) -> tuple[ChildSpec[Any], Line]:
        """Another connection to one of them: the child that keeps it, and the line. Raises `UnknownServer`."""
        ...

    def turn(self, id: str) -> int:
        """Which server it is that has this id now: another number after it was replaced."""
        ...

    def changes(self) -> AsyncGenerator[Change]:
        """What is different in what they offer."""
        ...

    async def open(self) -> None:
        """Keep it running, until `close`."""

    async def close(self) -> None:
        """It is not needed any more."""
