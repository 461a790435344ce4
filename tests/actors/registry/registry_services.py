"""Helpers of the registry tests: its processes under a supervisor, and a session that only listens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.actors.workers.job_runner import NoProcesses

from greenroom.actors.bulkheads import Bulkheads
from greenroom.actors.catalogue import CatalogueRef
from greenroom.actors.server_registry import CatalogueRegistrar, Readiness, ServerRegistry, registrar_child
from greenroom.actors.settings import Settings
from greenroom.actors.subscriptions import (
    ChangeAnnouncement,
    Subscriptions,
    SubscriptionTable,
    announce_list_changed,
    announce_resource_updated,
    subscriptions_child,
)
from greenroom.supervision import Ref, Supervisor, start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.server_registry import WaitFor
    from greenroom.actors.worker_interfaces import AroundHook
    from greenroom.supervision.testing import Probe


@dataclass
class RegistryServices:
    """The part of a company that belongs to the registry."""

    settings: Settings = field(default_factory=Settings)
    catalogue_ref: CatalogueRef = field(default_factory=CatalogueRef)
    bulkheads: Bulkheads = field(default_factory=Bulkheads)
    pools: NoProcesses = field(default_factory=NoProcesses)
    method_handlers: dict[str, Any] = field(default_factory=dict[str, Any])
    around: AroundHook | None = None
    subscription_table: SubscriptionTable = field(default_factory=SubscriptionTable)
    registrar: Ref[CatalogueRegistrar] = field(default_factory=lambda: Ref[CatalogueRegistrar]("registry"))
    subscriptions: Ref[Subscriptions] = field(default_factory=lambda: Ref[Subscriptions]("subscriptions"))
    registry: ServerRegistry = field(init=False)
    supervisor: Ref[Supervisor] = field(init=False)

    def __post_init__(self) -> None:
        self.registry = ServerRegistry(self, self.registrar)

    def expect_elicitations(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """Unused here."""
        raise NotImplementedError

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """Announce a resource, as a company on one node does."""
        announce_resource_updated(self.subscriptions, self.subscription_table, uri, extra)

    def list_changed(self, kind: Kind) -> None:
        """Announce a list, as a company on one node does."""
        announce_list_changed(self.subscriptions, self.subscription_table, kind)

    def completed(self, elicitation_id: str) -> bool:
        """Unused here."""
        raise NotImplementedError(elicitation_id)

    async def open(self, wait_for: WaitFor = None, per_session: int = 1000) -> None:
        """Start the processes."""
        children = [
            subscriptions_child("subscriptions", self.subscription_table, per_session),
            registrar_child(
                "registry", self.catalogue_ref, Readiness(wait_for), self.subscriptions, self.subscription_table
            ),
        ]
        self.supervisor = await start(Supervisor, children, intensity=100)


async def start_registry(wait_for: WaitFor = None) -> RegistryServices:
    """Start the processes of a registry."""
    services = RegistryServices()
    await services.open(wait_for)
    return services


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that has no event."""
    while not condition():  # noqa: ASYNC110 - threads tell of nothing, and the time is virtual
        await asyncio.sleep(0.01)


async def next_announcement(session: Probe, within: float = 1.0) -> tuple[str, dict[str, Any]]:
    """The next announcement that a session gets."""
    message = await session.expect(ChangeAnnouncement, within=within)
    return message.method, dict(message.params)
