"""A client's connection on which a resource is followed is in use, however long the client asks for nothing."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.supervision import which_children
from greenroom.wire_probe import WireProbe

from .recording_upstream import Upstream, gateway

NOTE = "upstream://one/note://one"
UPDATED = "notifications/resources/updated"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_followed_connection_is_kept_and_its_client_told_of_changes_alone(mode: str) -> None:
    up = Upstream("one")
    server = gateway(up, mode=mode)
    (mounted,) = server._gateways
    async with WireProbe(server) as probe:
        await probe.request("resources/subscribe", {"uri": NOTE})
        supervisor = mounted.upstream_subscriptions.supervisor
        assert supervisor is not None
        before = [each.pid for each in await which_children(supervisor)]
        await asyncio.sleep(1000.0)
        assert probe.notifications(UPDATED) == []
        assert [each.pid for each in await which_children(supervisor)] == before
        up.server.notify_resource_updated("note://one")
        assert await probe.wait_for_notifications(UPDATED) == [{"uri": NOTE}]
        await probe.request("resources/unsubscribe", {"uri": NOTE})
        await asyncio.sleep(1000.0)
        assert len(mounted.client_connections) == 0
