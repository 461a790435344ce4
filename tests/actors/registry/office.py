"""What tests of the registry stand on: its processes under a supervisor, as a company has them, and a session that only listens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.actors.workers.desk import Nowhere

from greenroom.actors.bulkheads import Bulkheads
from greenroom.actors.catalogue import Shelf
from greenroom.actors.registry import Readiness, Registrar, ServerRegistry, registrar_child
from greenroom.actors.settings import Settings
from greenroom.actors.subscriptions import (
    Announced,
    Board,
    Subscriptions,
    subscriptions_child,
    tell_changed,
    tell_updated,
)
from greenroom.supervision import Ref, Supervisor, start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.jobs import Around
    from greenroom.actors.registry import WaitFor
    from greenroom.supervision.testing import Probe


@dataclass
class Office:
    """The part of a company that the registry is."""

    settings: Settings = field(default_factory=Settings)
    shelf: Shelf = field(default_factory=Shelf)
    bulkheads: Bulkheads = field(default_factory=Bulkheads)
    pools: Nowhere = field(default_factory=Nowhere)
    own: dict[str, Any] = field(default_factory=dict[str, Any])
    around: Around | None = None
    board: Board = field(default_factory=Board)
    registrar: Ref[Registrar] = field(default_factory=lambda: Ref[Registrar]("registry"))
    subscriptions: Ref[Subscriptions] = field(default_factory=lambda: Ref[Subscriptions]("subscriptions"))
    registry: ServerRegistry = field(init=False)
    supervisor: Ref[Supervisor] = field(init=False)

    def __post_init__(self) -> None:
        self.registry = ServerRegistry(self, self.registrar)

    def expect(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """No user is sent to a page here."""
        raise NotImplementedError

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """As a company does it that is on one node."""
        tell_updated(self.subscriptions, self.board, uri, extra)

    def list_changed(self, kind: Kind) -> None:
        """The same."""
        tell_changed(self.subscriptions, self.board, kind)

    def completed(self, elicitation_id: str) -> bool:
        """No user was sent to a page."""
        raise NotImplementedError(elicitation_id)

    async def open(self, wait_for: WaitFor = None, per_session: int = 1000) -> None:
        """Start it."""
        children = [
            subscriptions_child("subscriptions", self.board, per_session),
            registrar_child("registry", self.shelf, Readiness(wait_for), self.subscriptions, self.board),
        ]
        self.supervisor = await start(Supervisor, children, intensity=100)


async def open_office(wait_for: WaitFor = None) -> Office:
    """One that runs."""
    office = Office()
    await office.open(wait_for)
    return office


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that has no event."""
    while not condition():  # noqa: ASYNC110 - threads tell of nothing, and the time is virtual
        await asyncio.sleep(0.01)


async def announced(session: Probe, within: float = 1.0) -> tuple[str, dict[str, Any]]:
    """What a session is told next."""
    message = await session.expect(Announced, within=within)
    return message.method, dict(message.params)
