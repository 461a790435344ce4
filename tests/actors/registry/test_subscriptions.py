"""Who hears of which change: coalesced, bounded, never lost in silence, and gone with its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.actors.subscriptions import LIST_CHANGED, MAILBOX, Subscriptions, tell_changed, tell_updated
from greenroom.protocol.errors import McpError
from greenroom.supervision import Ref
from greenroom.supervision.introspect import resume, suspend
from greenroom.supervision.testing import Probe, kill

from .office import Office, announced

if TYPE_CHECKING:
    from greenroom.supervision.testing import Collected


async def subscribe(office: Office, session: Probe, *uris: str) -> None:
    for uri in uris:
        await office.subscriptions.call(Subscriptions.subscribe, session.pid, uri)


@pytest.mark.row("SE-09", "SC-01")
async def test_a_session_subscribes_unsubscribes_and_is_forgotten_when_it_dies(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://1", "a://2", "a://1")
    assert await office.subscriptions.call(Subscriptions.subscriptions, session.pid) == ["a://1", "a://2"]
    await office.subscriptions.call(Subscriptions.unsubscribe, session.pid, "a://1")
    await office.subscriptions.call(Subscriptions.unsubscribe, session.pid, "a://never")
    office.registry.notify_resource_updated("a://1")
    office.registry.notify_resource_updated("a://2")
    assert await announced(session) == ("notifications/resources/updated", {"uri": "a://2"})
    await kill(session)
    assert await office.subscriptions.call(Subscriptions.subscriptions, session.pid) == []
    assert office.board.sessions == {}
    assert office.board.readers == {}


async def test_a_session_may_leave_before_it_dies(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://1")
    await office.subscriptions.call(Subscriptions.leave, session.pid)
    await office.subscriptions.call(Subscriptions.leave, session.pid)
    office.registry.notify_resource_updated("a://1")
    office.registry.notify_list_changed("tool")
    await session.expect_nothing(within=1)


async def test_a_session_that_joins_after_it_died_is_forgotten(office: Office) -> None:
    session = Probe()
    await kill(session)
    await office.subscriptions.call(Subscriptions.join, session.pid)
    await office.subscriptions.call(Subscriptions.subscriptions, session.pid)
    assert office.board.sessions == {}


async def test_a_session_has_so_many_subscriptions_at_the_most() -> None:
    office = Office()
    await office.open(per_session=3)
    session, other = Probe(), Probe()
    await subscribe(office, session, "a://1", "a://2", "a://3", "a://3")
    with pytest.raises(McpError, match="at most 3") as refused:
        await subscribe(office, session, "a://4")
    assert refused.value.code == -32602
    await subscribe(office, other, "a://4")
    await office.subscriptions.call(Subscriptions.unsubscribe, session.pid, "a://1")
    await subscribe(office, session, "a://4")


async def test_a_hot_resource_is_told_once_in_a_moment_with_the_last_word(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://hot")
    for n in range(1000):
        office.registry.notify_resource_updated("a://hot", {"n": n})
    assert await announced(session) == ("notifications/resources/updated", {"uri": "a://hot", "n": 999})
    await session.expect_nothing(within=1)


async def test_what_nobody_subscribed_to_is_kept_nowhere(office: Office) -> None:
    for n in range(100):
        office.registry.notify_resource_updated(f"a://{n}")
    await office.subscriptions.call(Subscriptions.join, Probe().pid)
    assert office.board.readers == {}


async def test_after_a_crash_everybody_is_told_of_all_that_they_wait_for(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://1", "a://2")
    office.registry.notify_resource_updated("a://1")
    await kill(office.subscriptions, successor=True)
    methods = [await announced(session) for _ in range(5)]
    assert {method for method, _ in methods} == {
        "notifications/resources/updated",
        *(method for method in LIST_CHANGED.values() if method),
    }
    assert sorted(params["uri"] for _, params in methods if "uri" in params) == ["a://1", "a://2"]
    await session.expect_nothing(within=1)
    office.registry.notify_resource_updated("a://2")
    assert await announced(session) == ("notifications/resources/updated", {"uri": "a://2"})


async def test_a_session_that_dies_while_nobody_watches_is_forgotten_by_the_successor(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://1")
    await suspend(office.subscriptions)
    await kill(session)
    await kill(office.subscriptions, successor=True)
    await office.subscriptions.call(Subscriptions.subscriptions, session.pid)
    assert office.board.sessions == {}


async def test_a_flood_that_finds_no_room_leaves_a_gap_that_is_told(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://1", "a://2")
    await suspend(office.subscriptions)
    for n in range(MAILBOX + 10):
        tell_updated(office.subscriptions, office.board, "a://other", {"n": n})
    tell_updated(office.subscriptions, office.board, "a://1", {})
    tell_changed(office.subscriptions, office.board, "tool")
    assert office.board.gap
    await resume(office.subscriptions)
    told = [await announced(session) for _ in range(5)]
    assert ("notifications/tools/list_changed", {}) in told
    assert ("notifications/resources/updated", {"uri": "a://1"}) in told
    await session.expect_nothing(within=1)


async def test_what_changes_while_nobody_is_there_is_a_gap_too(office: Office) -> None:
    session = Probe()
    await subscribe(office, session, "a://1")
    tell_changed(Ref("nobody"), office.board, "tool")
    await office.subscriptions.call(Subscriptions.join, Probe().pid)
    office.registry.notify_list_changed("prompt")
    told = [await announced(session) for _ in range(4)]
    assert len({method for method, _ in told}) == 4


async def test_what_nobody_expects_is_reported(office: Office, reports: Collected) -> None:
    office.subscriptions.send("what?")
    await office.subscriptions.call(Subscriptions.join, Probe().pid)
    assert any("what?" in str(report) for report in reports)
