"""What a gateway needs of a host: its servers as one set, more connections to each, and to be kept open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from greenroom.actors.federation.seam import Upstreams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
    from contextlib import AbstractContextManager

    from greenroom.actors.client.handler import ClientHandler
    from greenroom.actors.client.seam import Line
    from greenroom.actors.federation.agent import Agent
    from greenroom.actors.federation.offering import Part
    from greenroom.actors.federation.specs import Change
    from greenroom.auth.client.per_caller import CallerIdentity
    from greenroom.supervision import ChildSpec


class Listed(Upstreams, Protocol):
    """Servers, of which all lists can be had."""

    def line(self, id: str, who: Hashable = None) -> Line | None:
        """The way to a server, on behalf of `who`: where more requests wait than may go, those take turns."""
        ...

    def calling(self, id: str) -> AbstractContextManager[None]:
        """Count a call of a server that goes over another connection than `line`, for as long as the block lasts."""
        ...

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

    def connection(
        self, id: str, handler: ClientHandler, caller: CallerIdentity | None = None
    ) -> tuple[ChildSpec[Any], Line]:
        """Another connection to one of them: the child that keeps it, and the line. Raises `UnknownServer`, `CallerNotSignedIn`."""
        ...

    def per_caller(self, id: str) -> bool:
        """Whether each caller shows a login of its own to this server: then no connection of the host's serves a caller."""
        ...

    def most_pages(self, id: str) -> int:
        """How many pages a list of this server may have. Raises `UnknownServer`."""
        ...

    def turn(self, id: str) -> int:
        """Which server it is that has this id now: another number after it was replaced."""
        ...

    def on_departure(self, depart: Callable[[str, int, float], Awaitable[None]]) -> None:
        """Call `depart` with the id, the turn and the seconds of grace of each server that is removed or replaced from now on."""

    def changes(self) -> AsyncGenerator[Change]:
        """What is different in what they offer."""
        ...

    async def open(self) -> None:
        """Keep it running, until `close`."""

    async def close(self) -> None:
        """It is not needed any more."""
