"""Subscriptions of a gateway's clients to resources of upstreams, while clients leave and processes die."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import Server
from greenroom.actors.client.errors import Unavailable
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import McpError
from greenroom.supervision import kill, wait_down, whereis, which_children
from greenroom.wire_probe import WireProbe

from .recording_upstream import Upstream, gateway, session_host

NOTE = "upstream://one/note://one"
UPDATED = "notifications/resources/updated"


async def followers(mounted: Any) -> list[Any]:
    return [each.pid for each in await which_children(mounted.upstream_subscriptions.supervisor)]


def taken_by(subscribed: Any) -> tuple[Server, Server, Any]:
    """A server with a note, of which subscriptions are taken by that; and a gateway to it."""
    up = Server("one", hooks=Hooks(answers={"resources/subscribe": subscribed}))

    @up.resource("note://one")
    def note() -> str:
        raise NotImplementedError

    server = Server("front")
    server.mount(session_host({"one": up}, patience=1.0))
    (mounted,) = server._gateways
    return up, server, mounted


async def test_a_clients_subscriptions_end_with_the_client() -> None:
    server = gateway(Upstream("one"))
    (mounted,) = server._gateways
    async with server.started() as company:
        async with WireProbe(company) as probe:
            await probe.request("resources/subscribe", {"uri": NOTE})
            (follower,) = await followers(mounted)
        for card in await company.peers.all():
            await wait_down(company.peers.whereis(card.id))
        await mounted.sweep(0.0)
        await wait_down(follower)
        assert await followers(mounted) == []


@pytest.mark.parametrize("refused", [0, 1, 3])
async def test_a_follower_that_died_is_begun_anew_until_the_upstream_takes_it(refused: int) -> None:
    refusals: list[McpError] = []

    async def subscribed(*_: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return {}

    _, server, mounted = taken_by(subscribed)
    async with WireProbe(server) as probe:
        await probe.request("resources/subscribe", {"uri": NOTE})
        refusals += [McpError(-32050, "not now")] * refused
        for pid in await followers(mounted):
            kill(pid)
            await wait_down(pid)
        for _ in range(refused):
            await mounted.sweep(0.0)
            for pid in await followers(mounted):
                await wait_down(pid)
        assert (refusals, probe.notifications(UPDATED)) == ([], [])
        await mounted.sweep(0.0)
        assert await probe.wait_for_notifications(UPDATED) == [{"uri": NOTE}]  # it may have changed meanwhile


async def test_subscriptions_resume_after_their_supervisor_was_away() -> None:
    server = gateway(Upstream("one"))
    (mounted,) = server._gateways
    async with WireProbe(server) as probe:
        await probe.request("resources/subscribe", {"uri": NOTE})
        (session,) = await server.company.peers.all()
        supervisor = mounted.upstream_subscriptions.supervisor
        assert supervisor is not None
        before = supervisor.pid
        kill(before)
        await wait_down(before)
        assert whereis(supervisor.target) is None
        await mounted.sweep(0.0)
        with pytest.raises(Unavailable):
            await mounted.upstream_subscriptions.begin(
                "another", NOTE, "one", "note://one", lambda: server.session(session.id)
            )
        while whereis(supervisor.target) is None:  # noqa: ASYNC110 - its supervisor starts it in a moment
            await asyncio.sleep(0)
        assert await probe.wait_for_notifications(UPDATED, within=60.0) == [{"uri": NOTE}]


async def test_a_renewed_subscription_is_notified_once() -> None:
    up = Upstream("one")
    server = gateway(up)
    (mounted,) = server._gateways
    async with WireProbe(server) as probe:
        for method in ("subscribe", "unsubscribe", "subscribe"):
            await probe.request(f"resources/{method}", {"uri": NOTE})
        for _ in range(3):
            await asyncio.sleep(1.0)
            await mounted.sweep(0.0)
        assert len(await followers(mounted)) == 1
        up.server.notify_resource_updated("note://one")
        await asyncio.sleep(1.0)
        assert probe.notifications(UPDATED) == [{"uri": NOTE}]


async def test_an_upstream_hears_that_its_client_works_elsewhere_and_so_does_the_server() -> None:
    heard: list[str] = []
    told = asyncio.Event()

    def recording_hooks(name: str) -> Hooks:
        async def roots_changed(*_: Any) -> None:
            heard.append(name)
            if len(heard) == 2:
                told.set()

        return Hooks(roots_changed=roots_changed)

    up = Server("up", hooks=recording_hooks("up"))

    @up.tool
    async def where(ctx: Any) -> list[str]:
        return [str(each.uri) for each in await ctx.roots()]

    server = Server("front", hooks=recording_hooks("front"))
    server.mount(session_host({"up": up}, patience=1.0))
    roots = {"roots": [{"uri": "file:///here"}]}
    probe = WireProbe(server, capabilities={"roots": {"listChanged": True}}, answers={"roots/list": lambda _: roots})
    async with probe:
        result = await probe.call("up__where")
        assert result["structuredContent"] == {"result": ["file:///here"]}
        await probe.notify("notifications/roots/list_changed")
        await asyncio.wait_for(told.wait(), 60.0)
        assert sorted(heard) == ["front", "up"]


async def test_a_client_that_leaves_while_it_hears_of_progress_takes_its_call_along() -> None:
    up = Upstream("one")

    @up.server.tool
    async def slowly(ctx: Any) -> None:
        ctx.progress(1, 2)
        up.waiting.set()
        try:
            await ctx.cancelled.wait()
        finally:
            up.cancelled.set()

    server = gateway(up)
    async with server.started() as company:
        async with WireProbe(company) as probe:
            call = {"name": "one__slowly", "arguments": {}, "_meta": {"progressToken": "p"}}
            await probe.ask("tools/call", call)
            await up.waiting.wait()
            await probe.wait_for_notifications("notifications/progress")
        await asyncio.wait_for(up.cancelled.wait(), 60.0)
        for each in await which_children(company.workers):
            await wait_down(each.pid)


async def test_an_unsubscribe_during_the_subscribe_answers_both_and_leaves_no_process() -> None:
    begun = asyncio.Event()

    async def subscribed(*_: Any) -> Any:
        begun.set()
        await asyncio.sleep(3.0)
        return {}

    up, server, mounted = taken_by(subscribed)
    async with WireProbe(server) as probe:
        subscribing = await probe.ask("resources/subscribe", {"uri": NOTE})
        await begun.wait()
        assert await probe.request("resources/unsubscribe", {"uri": NOTE}) == {}
        assert (await probe.answer(subscribing))["result"] == {}
        await asyncio.sleep(6.0)
        assert await followers(mounted) == []
        up.notify_resource_updated("note://one")
        await probe.request("ping")
        assert probe.notifications(UPDATED) == []
