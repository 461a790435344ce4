"""What another process needs to reach a server: a route as a value that travels, and what stays at home.

A program's command goes with the environment that it is to see; a URL with its headers, with what it trusts, and with a token if that is fixed.
Whoever can log in stays at home with all that it keeps: what travels is the header of each request, asked for when it is sent. Between the
two processes is a socket of this machine that only its user can open, with a key of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from greenroom.errors import ConfigError
from greenroom.supervision.cluster import CannotTravel
from greenroom.supervision.cluster.values import encode

if TYPE_CHECKING:
    from .seam import Credentials, Route


class Desk(Protocol):
    """What stays at home, for a route in another process."""

    def line(self, text: str) -> None:
        """A program has written this to stderr."""

    @property
    def credentials(self) -> Credentials:
        """Who we are, asked for at home."""
        ...


class Ticket(Protocol):
    """A route that travels."""

    def route(self, desk: Desk) -> Route:
        """The route, in the process that it has come to."""
        ...


@dataclass(frozen=True, slots=True)
class AsItIs:
    """For a route that is a value itself."""

    itself: Any

    def route(self, desk: Desk) -> Route:  # noqa: ARG002 - it needs nothing else
        """That."""
        route: Route = self.itself
        return route


def ticket_of(route: Route) -> Ticket:
    """The ticket. Raises `ConfigError` for what leads through this process alone."""
    make = getattr(route, "ticket", None)
    ticket: Ticket = AsItIs(route) if make is None else make()
    return ticket


def check_travels(route: Route) -> None:
    """Raises `ConfigError` for a route that cannot be followed in another process."""
    try:
        encode(ticket_of(route), "")
    except CannotTravel as error:
        raise ConfigError(f"{route!r} cannot be followed in another process: {error}") from None
