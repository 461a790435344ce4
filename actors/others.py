"""The seam between a company and the nodes that it is on besides this one; most are on one, and have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .catalogue import Kind


class NewId(Protocol):
    """Makes ids."""

    def __call__(self, kind: str, *, channel: bool = False) -> str:
        """One for a session, which may have a channel, or for a task."""
        ...


class Others(Protocol):
    """The nodes that a company is on besides this one, as it speaks to them. None of it waits, but for `broadcast`."""

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed."""

    def list_changed(self, kind: Kind) -> None:
        """What is offered has changed."""

    def completed(self, elicitation_id: str) -> None:
        """A user has done with a page."""

    def renew_certificates(self) -> None:
        """There are new ones to be read."""

    async def broadcast(self, method: str, params: Mapping[str, Any]) -> int:
        """A notification for everybody; to how many sessions it went."""
        ...
