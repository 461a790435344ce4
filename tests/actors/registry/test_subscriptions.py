"""Announcements of changes: coalesced, bounded, never lost without a gap, and removed with their session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.actors.subscriptions import (
    LIST_CHANGED,
    MAILBOX_LIMIT,
    Subscriptions,
    announce_list_changed,
    announce_resource_updated,
)
from greenroom.protocol.errors import McpError
from greenroom.supervision import Ref
from greenroom.supervision.introspect import resume, suspend
from greenroom.supervision.testing import Probe, kill

from .registry_services import RegistryServices, next_announcement

if TYPE_CHECKING:
    from greenroom.supervision.testing import CollectedReports


async def subscribe(services: RegistryServices, session: Probe, *uris: str) -> None:
    for uri in uris:
        await services.subscriptions.call(Subscriptions.subscribe, session.pid, uri)


@pytest.mark.row("SE-09", "SC-01")
async def test_a_session_subscribes_unsubscribes_and_is_forgotten_when_it_dies(services: RegistryServices) -> None:
    session = Probe()
    await subscribe(services, session, "a://1", "a://2", "a://1")
    assert await services.subscriptions.call(Subscriptions.subscriptions, session.pid) == ["a://1", "a://2"]
    await services.subscriptions.call(Subscriptions.unsubscribe, session.pid, "a://1")
    await services.subscriptions.call(Subscriptions.unsubscribe, session.pid, "a://never")
    services.registry.notify_resource_updated("a://1")
    services.registry.notify_resource_updated("a://2")
    assert await next_announcement(session) == ("notifications/resources/updated", {"uri": "a://2"})
    await kill(session)
    assert await services.subscriptions.call(Subscriptions.subscriptions, session.pid) == []
    assert services.subscription_table.sessions == {}
    assert services.subscription_table.subscribers == {}


async def test_a_session_may_leave_before_it_dies(services: RegistryServices) -> None:
    session = Probe()
    await subscribe(services, session, "a://1")
    await services.subscriptions.call(Subscriptions.leave, session.pid)
    await services.subscriptions.call(Subscriptions.leave, session.pid)
    services.registry.notify_resource_updated("a://1")
    services.registry.notify_list_changed("tool")
    await session.expect_nothing(within=1)


async def test_a_session_that_joins_after_it_died_is_forgotten(services: RegistryServices) -> None:
    session = Probe()
    await kill(session)
    await services.subscriptions.call(Subscriptions.join, session.pid)
    await services.subscriptions.call(Subscriptions.subscriptions, session.pid)
    assert services.subscription_table.sessions == {}


async def test_a_session_has_so_many_subscriptions_at_the_most() -> None:
    services = RegistryServices()
    await services.open(per_session=3)
    session, other = Probe(), Probe()
    await subscribe(services, session, "a://1", "a://2", "a://3", "a://3")
    with pytest.raises(McpError, match="at most 3") as refused:
        await subscribe(services, session, "a://4")
    assert refused.value.code == -32602
    await subscribe(services, other, "a://4")
    await services.subscriptions.call(Subscriptions.unsubscribe, session.pid, "a://1")
    await subscribe(services, session, "a://4")


async def test_a_hot_resource_is_announced_once_with_its_last_extra(services: RegistryServices) -> None:
    session = Probe()
    await subscribe(services, session, "a://hot")
    for n in range(1000):
        services.registry.notify_resource_updated("a://hot", {"n": n})
    assert await next_announcement(session) == ("notifications/resources/updated", {"uri": "a://hot", "n": 999})
    await session.expect_nothing(within=1)


async def test_updates_without_subscribers_are_dropped(services: RegistryServices) -> None:
    for n in range(100):
        services.registry.notify_resource_updated(f"a://{n}")
    await services.subscriptions.call(Subscriptions.join, Probe().pid)
    assert services.subscription_table.subscribers == {}


async def test_after_a_crash_every_session_is_notified_of_all_its_subscriptions(services: RegistryServices) -> None:
    session = Probe()
    await subscribe(services, session, "a://1", "a://2")
    services.registry.notify_resource_updated("a://1")
    await kill(services.subscriptions, successor=True)
    methods = [await next_announcement(session) for _ in range(5)]
    assert {method for method, _ in methods} == {
        "notifications/resources/updated",
        *(method for method in LIST_CHANGED.values() if method),
    }
    assert sorted(params["uri"] for _, params in methods if "uri" in params) == ["a://1", "a://2"]
    await session.expect_nothing(within=1)
    services.registry.notify_resource_updated("a://2")
    assert await next_announcement(session) == ("notifications/resources/updated", {"uri": "a://2"})


async def test_a_session_that_dies_unmonitored_is_removed_by_the_successor(
    services: RegistryServices,
) -> None:
    session = Probe()
    await subscribe(services, session, "a://1")
    await suspend(services.subscriptions)
    await kill(session)
    await kill(services.subscriptions, successor=True)
    await services.subscriptions.call(Subscriptions.subscriptions, session.pid)
    assert services.subscription_table.sessions == {}


async def test_a_flood_beyond_the_mailbox_leaves_a_gap_that_is_announced(services: RegistryServices) -> None:
    session = Probe()
    await subscribe(services, session, "a://1", "a://2")
    await suspend(services.subscriptions)
    for n in range(MAILBOX_LIMIT + 10):
        announce_resource_updated(services.subscriptions, services.subscription_table, "a://other", {"n": n})
    announce_resource_updated(services.subscriptions, services.subscription_table, "a://1", {})
    announce_list_changed(services.subscriptions, services.subscription_table, "tool")
    assert services.subscription_table.gap
    await resume(services.subscriptions)
    told = [await next_announcement(session) for _ in range(5)]
    assert ("notifications/tools/list_changed", {}) in told
    assert ("notifications/resources/updated", {"uri": "a://1"}) in told
    await session.expect_nothing(within=1)


async def test_changes_without_a_running_process_leave_a_gap(services: RegistryServices) -> None:
    session = Probe()
    await subscribe(services, session, "a://1")
    announce_list_changed(Ref("unknown"), services.subscription_table, "tool")
    await services.subscriptions.call(Subscriptions.join, Probe().pid)
    services.registry.notify_list_changed("prompt")
    told = [await next_announcement(session) for _ in range(4)]
    assert len({method for method, _ in told}) == 4


async def test_unexpected_messages_are_reported(services: RegistryServices, reports: CollectedReports) -> None:
    services.subscriptions.send("what?")
    await services.subscriptions.call(Subscriptions.join, Probe().pid)
    assert any("what?" in str(report) for report in reports)
