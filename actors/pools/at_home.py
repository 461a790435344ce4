"""In a worker: who at home has the call that runs here, for what a handler says by its server and not by its context.

The server that a worker has imported runs nowhere. What it is told goes to the company whose call this is; without a call there is nobody
to tell.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.catalogue import Kind


class Home(Protocol):
    """What can be said to all who listen to the company of a call."""

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource is not what it was."""

    def list_changed(self, kind: Kind) -> None:
        """What is offered has changed."""

    def completed(self, elicitation_id: str) -> bool:
        """A user has done with the page that they were sent to; whether anybody may hear of it."""
        ...


_home: Final[ContextVar[Home | None]] = ContextVar("greenroom_home", default=None)


def at_home(home: Home) -> None:
    """From now on the code that runs in this context, and in threads that it is handed to, is of a call of that home."""
    _home.set(home)


def home_of_call() -> Home | None:
    """Who is to be told; None outside of a worker's calls."""
    return _home.get()
