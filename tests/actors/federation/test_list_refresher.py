"""The list refresher: it fetches all pages, once for a storm of changes, and announces differences once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.actors.client.fake_server import SILENCE, After

from greenroom.actors.client.errors import ClientError, TooManyPages, Unavailable
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.protocol.errors import PeerError
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .fake_upstreams import Upstairs, all_ready, federated, none_leaving, reaches, spec


async def test_every_page_of_every_list_is_fetched() -> None:
    names = [f"tool {number}" for number in range(7)]
    stage = Upstairs(*names)
    stage.answers["resources/templates/list"] = {"resourceTemplates": [{"uriTemplate": "a:{x}", "name": "t"}]}
    async with federated({"git": spec(stage)}) as federation:
        offering = await federation.offering("git")
        assert list(offering.tools) == names
        assert list(offering.resources) == ["a:1"]
        assert list(offering.templates) == ["a:{x}"]
        assert not offering.prompts
        assert federation.known("git") is offering


async def test_undeclared_lists_are_not_requested() -> None:
    stage = Upstairs(capabilities={"tools": {}})
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        assert {request.method for request in stage.requests} == {"server/discover", "initialize", "tools/list"}


async def test_a_storm_is_one_fetch_and_one_announcement() -> None:
    stage, other = Upstairs("a"), Upstairs()
    async with federated({"git": spec(stage), "other": spec(other)}) as federation:
        await all_ready(federation)
        changes = federation.changes()
        news = asyncio.ensure_future(anext(changes))
        asked = len(stage.asked("tools/list"))
        stage.tools["b"] = "new"
        for _ in range(1000):
            stage.changed()
        change = await news
        assert change.id == "git"
        assert change.differences.tools.added == {"b"}
        await asyncio.sleep(5.0)
        assert len(stage.asked("tools/list")) - asked <= 2
        assert len(stage.asked("prompts/list")) == 1
        news = asyncio.ensure_future(anext(changes))
        for _ in range(1000):
            stage.changed()
            stage.changed("resources")
        await asyncio.sleep(5.0)
        assert not news.done()  # nothing was different
        stage.tools["a"] = "changed"
        stage.changed()
        assert (await news).differences.tools.changed == {"a"}


async def test_a_change_while_it_fetches_is_not_lost() -> None:
    stage = Upstairs("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        slow = stage.list_tools
        stage.answers["tools/list"] = lambda request: After(2.0, slow(request))
        stage.changed()
        await asyncio.sleep(1.0)
        stage.tools["b"] = ""
        stage.changed()
        await asyncio.sleep(4.0)
        known = federation.known("git")
        assert known is not None
        assert list(known.tools) == ["a", "b"]


async def test_a_new_handshake_asks_for_everything_again() -> None:
    stage = Upstairs("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        changes = federation.changes()
        stage.tools = {"z": ""}
        await stage.wire.break_off(ConnectionLost("cut"))
        change = await anext(changes)
        assert (set(change.differences.tools.added), set(change.differences.tools.removed)) == ({"z"}, {"a"})


@pytest.mark.parametrize(
    "answer",
    [
        {"tools": "none"},
        {"tools": [], "nextCursor": 7},
        {"tools": [], "nextCursor": "again"},
        PeerError(-32603, "broken"),
        SILENCE,
    ],
)
async def test_lists_that_cannot_be_had(answer: Any) -> None:
    stage = Upstairs("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        before = federation.known("git")
        stage.answers["tools/list"] = answer
        stage.changed()
        cause = await reaches(federation, "git", UpstreamState.DEGRADED)
        assert isinstance(cause, ClientError | PeerError)
        assert federation.known("git") is before
        stage.answers["tools/list"] = stage.list_tools
        await reaches(federation, "git", UpstreamState.READY)


async def test_too_many_pages() -> None:
    stage = Upstairs(*map(str, range(20)))
    async with federated({"git": spec(stage, settings=ClientSettings(max_pages=3))}) as federation:
        assert isinstance(await reaches(federation, "git", UpstreamState.DEGRADED), TooManyPages)
        with pytest.raises(TooManyPages):
            await federation.offering("git")


async def test_an_upstream_that_was_never_ready_offers_nothing() -> None:
    dead, hanging = Upstairs(), Upstairs()
    dead.failures = [ConnectFailed("connection refused")] * 100
    hanging.answers["initialize"] = SILENCE
    async with federated({"dead": spec(dead), "hanging": spec(hanging)}) as federation:
        assert federation.known("dead") is None
        with pytest.raises(Unavailable, match="connection refused"):
            await federation.offering("dead", timeout=2.0)
        with pytest.raises(Unavailable, match="it is still starting after 1 s"):
            await federation.offering("hanging", timeout=1.0)
        with pytest.raises(ClientError):
            await federation.offering("missing")


async def test_coming_and_going_are_changes_too() -> None:
    async with federated() as federation:
        changes = federation.changes()
        await federation.start("git", spec(Upstairs("a")))
        assert (await anext(changes)).differences.tools.added == {"a"}
        await federation.stop("git")
        assert (await anext(changes)).differences.tools.removed == {"a"}
        await none_leaving(federation)


async def test_updates_pass_a_gap_when_a_server_is_replaced() -> None:
    old, new = Upstairs(), Upstairs()
    async with federated({"git": spec(old)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        async with line.subscribe("a:1") as updates:
            reader = aiter(updates)
            old.updated("a:1")
            assert not (await anext(reader)).gap
            await federation.replace("git", spec(new))
            assert (await anext(reader)).gap
            assert new.asked("resources/subscribe")
            new.updated("a:1")
            assert (await anext(reader)).params == {"uri": "a:1"}
        await asyncio.sleep(0.1)
        assert new.asked("resources/unsubscribe")


async def test_the_level_of_logs_is_told_to_successors() -> None:
    old, new = Upstairs(), Upstairs()
    old.answers["logging/setLevel"] = new.answers["logging/setLevel"] = {}
    async with federated({"git": spec(old)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        await line.set_level("debug")
        await old.wire.break_off(ConnectionLost("cut"))
        await line.ready()
        assert [request.params for request in old.asked("logging/setLevel")] == [{"level": "debug"}] * 2
        await federation.replace("git", spec(new))
        await new.wire.hears("logging/setLevel")
        assert new.asked("logging/setLevel")[0].params == {"level": "debug"}
        await federation.stop("git")
        with pytest.raises(ClientError):
            await line.set_level("info")


async def test_a_new_handshake_does_not_wait_for_an_earlier_failed_fetch() -> None:
    stage = Upstairs()
    stage.answers["tools/list"] = PeerError(-32603, "not now")
    async with federated({"git": spec(stage)}) as federation:
        await asyncio.sleep(30.0)  # by now the next one would be asked for in half a minute
        await reaches(federation, "git", UpstreamState.DEGRADED)
        stage.answers["tools/list"] = stage.list_tools
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await asyncio.sleep(1.0)
        assert federation.status("git").state is UpstreamState.READY
