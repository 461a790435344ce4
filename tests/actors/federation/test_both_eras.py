"""Upstreams of both eras: their lists and how long these are fresh, their probes, and calls that go on when a server is deployed as the other era."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE, After

from greenroom.actors.client.errors import CircuitOpen, InitFailed, RequestLost, RequestTimeout, StreamLost
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.protocol.cache_hints import Cache
from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.envelope import LOG_LEVEL_KEY
from greenroom.protocol.errors import PeerError
from greenroom.supervision import DynamicSupervisor, start, start_child, stop
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost
from greenroom.transports.client.interfaces import UnansweredRequest

from .era_upstreams import EITHER_ERA, EraUpstream
from .fake_upstreams import STEADY, Upstairs, all_ready, call, federated, reaches, spec

if TYPE_CHECKING:
    from greenroom.actors.federation.federation import Federation
    from greenroom.protocol.jsonrpc import JsonRpcRequest

NO_NEWS: dict[str, Any] = {"tools": {}}
BOTH = pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])
TO_STATELESS = pytest.mark.parametrize("stateless", [False, True], ids=["to the stateless era", "to a handshake"])


def now() -> float:
    return asyncio.get_running_loop().time()


def line_to(federation: Federation, id: str = "git") -> Any:
    line = federation.line(id)
    assert line is not None
    return line


# --- one upstream of either era


@BOTH
async def test_an_upstream_of_either_era_has_its_lists_and_answers_calls(*, stateless: bool) -> None:
    stage = EraUpstream("a", "b", "c", stateless=stateless)
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        welcome = line_to(federation).welcome
        assert welcome.is_stateless is stateless
        assert list((await federation.offering("git")).tools) == ["a", "b", "c"]
        assert await call(federation, "git", "b") == "b"
        assert len(stage.asked("initialize")) == (not stateless)
        assert stage.executions("tools/call") == 1


@BOTH
async def test_a_changed_list_is_fetched_again_on_the_news_of_either_era(*, stateless: bool) -> None:
    stage = EraUpstream("a", stateless=stateless)
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        changes = federation.changes()
        for name in ("b", "c"):
            stage.tools[name] = ""
            stage.changed()
            assert (await anext(changes)).differences.tools.added == {name}
        assert len(stage.listens) == stateless


@pytest.mark.row("26-L1")
async def test_an_upstream_gets_one_listen_with_all_that_is_followed_there() -> None:
    stage = EraUpstream("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = line_to(federation)
        async with line.subscribe("a:1") as one, line.subscribe("a:2") as other, line_to(federation).subscribe("a:1"):
            lists = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
            assert list(stage.listens.values())[-1] == {**lists, "resourceSubscriptions": ["a:1", "a:2"]}
            stage.listens = dict(list(stage.listens.items())[-1:])  # the others were cancelled
            stage.updated("a:2")
            stage.updated("a:1")
            assert (await anext(aiter(one))).params["uri"] == "a:1"
            assert (await anext(aiter(other))).params["uri"] == "a:2"


@pytest.mark.parametrize(("mode", "first"), [("legacy", "initialize"), (STATELESS_DIALECT.version, "server/discover")])
async def test_the_mode_of_a_spec_decides_how_its_connections_begin(mode: str, first: str) -> None:
    settings = ClientSettings(mode=mode, backoff=STEADY)
    stage = EraUpstream("a", stateless=mode != "legacy")
    async with federated({"git": spec(stage, settings=settings)}) as federation:
        await all_ready(federation)
        assert stage.requests[0].method == first
        other = EraUpstream("a", stateless=mode == "legacy")
        await federation.start("other", spec(other, settings=settings))
        assert isinstance(await reaches(federation, "other", UpstreamState.PARKED), InitFailed)
        assert {request.method for request in other.requests} == {first}


@pytest.mark.row("26-V10")
async def test_a_server_with_a_handshake_is_asked_for_its_era_once_for_all_connections_to_it() -> None:
    stage = EraUpstream("a", stateless=False)
    stage.endpoint = "stage of this test"  # type: ignore[attr-defined]
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        await stage.wire.break_off(ConnectionLost("restarted"))
        assert await call(federation, "git", "a") == "a"
        supervisor = await start(DynamicSupervisor)
        child_spec, own = federation.extra_connection("git", spec(stage))
        await start_child(supervisor, child_spec)
        await own.ready()
        await federation.start("again", spec(stage))
        await all_ready(federation)
        assert len(stage.asked("server/discover")) == 1
        assert len(stage.asked("initialize")) == 4
        await stop(supervisor)


async def test_the_log_level_of_a_stateless_upstream_stands_in_each_request_and_survives_its_replacement() -> None:
    stage, other = EraUpstream("a"), EraUpstream("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        await line_to(federation).set_level("warning")
        await call(federation, "git", "a")
        await federation.replace("git", spec(other))
        await asyncio.sleep(1.0)  # the level is set once the id has moved
        await call(federation, "git", "a")
        for each in (stage, other):
            assert each.asked("logging/setLevel") == []
            assert each.asked("tools/call")[0].params["_meta"][LOG_LEVEL_KEY] == "warning"


# --- how long a list is fresh


@pytest.mark.row("26-C5")
async def test_a_list_that_is_no_longer_fresh_is_fetched_again_when_it_is_shown_and_not_before() -> None:
    stage = EraUpstream("a", capabilities=NO_NEWS)
    stage.hints = {"ttlMs": 60_000}
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.tools["b"] = ""
        await federation.freshen("tools")
        assert stage.executions("tools/list") == 1
        await asyncio.sleep(600.0)
        assert stage.executions("tools/list") == 1  # no timer fetches it
        await federation.freshen("tools")
        assert list((await federation.offering("git")).tools) == ["a", "b"]
        assert stage.executions("tools/list") == 2
        assert await federation.listed("tools", timeout=1.0) == {}
        assert stage.executions("tools/list") == 2


@pytest.mark.row("26-C4")
@pytest.mark.parametrize(
    ("hints", "capabilities", "stateless", "old_after"),
    [
        ({"ttlMs": 60_000}, EITHER_ERA, True, 60.0),
        ({"ttlMs": 1}, EITHER_ERA, True, 5.0),
        ({"ttlMs": 0}, NO_NEWS, True, 60.0),
        ({}, NO_NEWS, True, 60.0),
        ({"ttlMs": -5}, NO_NEWS, True, 60.0),
        ({}, EITHER_ERA, True, None),
        ({}, NO_NEWS, False, None),
    ],
    ids=["said", "said too short", "said to be stale", "unsaid", "nonsense", "announced", "a session's"],
)
async def test_how_old_a_list_may_be(
    *, hints: dict[str, Any], capabilities: dict[str, Any], stateless: bool, old_after: float | None
) -> None:
    stage = EraUpstream("a", stateless=stateless, capabilities=capabilities)
    stage.hints = hints
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        began = now()
        while old_after is not None and now() < began + old_after - 0.6:
            await asyncio.sleep(0.5)
            await federation.freshen("tools")
            assert stage.executions("tools/list") == 1
        await asyncio.sleep(3600.0)
        await federation.freshen("tools")
        assert stage.executions("tools/list") == 1 + (old_after is not None)


async def test_a_list_whose_changes_are_announced_but_do_not_arrive_is_fetched_again_after_a_while() -> None:
    stage = EraUpstream("a")
    listen = stage.answers["subscriptions/listen"]
    stage.answers["subscriptions/listen"] = lambda _: PeerError(-32603, "not now")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.tools["b"] = ""
        await asyncio.sleep(61.0)
        await federation.freshen("tools")
        assert "b" in (await federation.offering("git")).tools
        stage.answers["subscriptions/listen"] = listen
        await asyncio.sleep(60.0)  # the longest pause between two attempts is 8
        assert len(stage.listens) == 1
        await federation.freshen("tools")
        fetched = stage.executions("tools/list")
        await asyncio.sleep(3600.0)
        await federation.freshen("tools")
        assert stage.executions("tools/list") == fetched


async def test_a_list_that_cannot_be_fetched_again_is_shown_as_it_was_and_waited_for_once() -> None:
    stage = EraUpstream("a", capabilities=NO_NEWS)
    stage.hints = {"ttlMs": 10_000}
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        answer = stage.answers["tools/list"]
        stage.answers["tools/list"] = SILENCE
        await asyncio.sleep(20.0)
        before = now()
        await federation.freshen("tools")
        assert now() - before == 2.0  # for a moment
        assert federation.known("git") is federation.shown("git")
        await federation.freshen("tools")
        assert now() - before == 2.0  # and not again
        cause = await reaches(federation, "git", UpstreamState.DEGRADED)
        assert isinstance(cause, RequestTimeout)
        assert await call(federation, "git", "a") == "a"
        stage.answers["tools/list"] = answer
        stage.tools["b"] = ""
        await reaches(federation, "git", UpstreamState.READY)
        assert list((await federation.offering("git")).tools) == ["a", "b"]


async def test_concurrent_readers_share_one_fetch() -> None:
    stage = EraUpstream("a", capabilities=NO_NEWS)
    stage.hints = {"ttlMs": 10_000}
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.answers["tools/list"] = lambda request: After(1.0, stage.list_tools(request))
        await asyncio.sleep(20.0)
        before = now()
        await asyncio.gather(*(federation.freshen("tools") for _ in range(20)))
        assert now() - before == 1.0
        assert stage.executions("tools/list") == 2


@pytest.mark.row("26-C2")
async def test_clients_may_keep_a_merged_list_no_longer_than_any_server_says() -> None:
    one, other = EraUpstream("a"), EraUpstream("b", "c", "d")
    one.hints = {"ttlMs": 60_000, "cacheScope": "public"}
    other.hints = {"ttlMs": 90_000, "cacheScope": "public"}
    async with federated({"one": spec(one), "other": spec(other)}) as federation:
        await all_ready(federation)
        assert federation.cache_of("tools") == Cache(60.0, public=True)
        await asyncio.sleep(20.0)
        assert federation.cache_of("tools") == Cache(40.0, public=True)
        await asyncio.sleep(50.0)
        assert federation.cache_of("tools") == Cache(0.0, public=True)
        await federation.freshen("tools")
        assert federation.cache_of("tools") == Cache(20.0, public=True)  # what is left of the other's
        other.hints = {"ttlMs": 30_000, "cacheScope": "private"}
        other.tools["e"] = ""
        other.changed()
        await anext(federation.changes())
        assert federation.cache_of("tools") == Cache(30.0)
        await federation.start("third", spec(Upstairs("f")))
        assert federation.cache_of("tools") == Cache(0.0)  # it has no list yet
        await all_ready(federation)
        assert federation.cache_of("tools") == Cache(0.0)  # and its era has no hints


async def test_a_list_that_is_marked_because_its_server_is_away_is_not_to_be_kept() -> None:
    stage = EraUpstream("a")
    stage.hints = {"ttlMs": 600_000, "cacheScope": "public"}
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.failures = [ConnectFailed("refused")] * 2
        await stage.wire.break_off(ConnectionLost("it ended"))
        await reaches(federation, "git", UpstreamState.OPEN)
        assert federation.cache_of("tools") == Cache(0.0)
        await reaches(federation, "git", UpstreamState.READY)
        async with asyncio.timeout(5.0):
            while not federation.cache_of("tools").seconds:
                await federation.members["git"].wakeup.wait()


async def test_a_server_without_a_kind_of_list_does_not_shorten_it() -> None:
    one, other = EraUpstream("a"), EraUpstream("b", capabilities={"tools": {"listChanged": True}})
    one.hints = other.hints = {"ttlMs": 60_000, "cacheScope": "public"}
    async with federated({"one": spec(one), "other": spec(other)}) as federation:
        await all_ready(federation)
        assert federation.cache_of("prompts") == Cache(60.0, public=True)


# --- failures


@BOTH
async def test_the_breaker_probes_an_upstream_by_what_its_era_has(*, stateless: bool) -> None:
    stage = EraUpstream("a", stateless=stateless)
    breaker = BreakerSettings(failures=1, rate=0.0, cooldown=STEADY, probe_timeout=2.0)
    async with federated({"git": spec(stage, breaker=breaker)}) as federation:
        await all_ready(federation)
        before = len(stage.requests)
        stage.answers["tools/call"] = SILENCE
        with pytest.raises(RequestTimeout):
            await call(federation, "git", "a", timeout=1.0)
        with pytest.raises(CircuitOpen):
            await call(federation, "git", "a")
        await reaches(federation, "git", UpstreamState.READY)
        probe = "server/discover" if stateless else "ping"
        assert [request.method for request in stage.requests[before:]] == ["tools/call", probe]


@pytest.mark.row("26-H12")
async def test_a_call_that_was_lost_at_a_stateless_upstream_is_not_repeated_and_says_that_it_may_be_done() -> None:
    stage = EraUpstream("a")
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        lost = asyncio.ensure_future(call(federation, "git", "a"))
        read = asyncio.ensure_future(line_to(federation).request("resources/read", {"uri": "a:1"}))
        stage.answers["resources/read"] = SILENCE
        await stage.wire.hears("resources/read")
        stage.answers["resources/read"] = {"contents": []}
        await stage.wire.break_off(ConnectionLost("pulled out"))
        with pytest.raises(StreamLost) as caught:
            await lost
        assert caught.value.maybe_done
        assert isinstance(caught.value, RequestLost)
        assert (await read)["contents"] == []
        assert stage.executions("tools/call") == 1
        assert [request.id for request in stage.asked("resources/read")] != [stage.asked("resources/read")[0].id] * 2


@pytest.mark.row("26-L7")
@pytest.mark.row("26-S3")
async def test_after_a_loss_it_listens_again_tells_the_gap_and_fetches_the_lists() -> None:
    stage = EraUpstream("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = line_to(federation)
        async with line.subscribe("a:1") as updates:
            news = aiter(updates)
            stage.tools["b"] = ""
            await stage.redeploy(ConnectionLost("pulled out"), stateless=True)
            assert (await anext(news)).gap
            assert list(stage.listens.values())[-1]["resourceSubscriptions"] == ["a:1"]
            assert len(stage.listens) == 1
            stage.updated("a:1")
            assert (await anext(news)).params["uri"] == "a:1"
            while "b" not in (await federation.offering("git")).tools:
                await federation.members["git"].wakeup.wait()


# --- a server that is deployed anew as the other era


@pytest.mark.row("26-V10")
@pytest.mark.parametrize("breaks", [True, False], ids=["the wire breaks", "the wire stays"])
@TO_STATELESS
async def test_calls_go_on_when_a_server_changes_its_era_and_nothing_is_done_twice(
    *, stateless: bool, breaks: bool
) -> None:
    stage = EraUpstream("a", stateless=not stateless)
    stage.is_http = not breaks  # a program that is replaced ends, and its pipes with it
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = line_to(federation)
        async with line.subscribe("a:1") as updates:
            news = aiter(updates)
            assert await call(federation, "git", "a") == "a"
            for turn in range(1, 5):
                stage.tools[f"new {turn}"] = ""
                era = stateless if turn % 2 else not stateless
                if breaks:
                    await stage.redeploy(ConnectionLost("deployed anew"), stateless=era)
                else:
                    stage.deploy(stateless=era)
                assert await call(federation, "git", "a") == "a"
                assert stage.executions("tools/call") == turn + 1
                assert line.welcome.is_stateless is era
                assert (await anext(news)).gap
                while f"new {turn}" not in (await federation.offering("git")).tools:
                    await federation.members["git"].wakeup.wait()
                stage.updated("a:1")
                assert (await anext(news)).params["uri"] == "a:1"
        assert federation.members["git"].breaker.closed
        assert federation.status("git").state is UpstreamState.READY


@TO_STATELESS
async def test_a_call_in_the_middle_of_which_a_server_changes_its_era_is_lost_and_the_next_one_answered(
    *,
    stateless: bool,
) -> None:
    stage = EraUpstream("a", stateless=not stateless)
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.answers["tools/call"] = SILENCE
        lost = asyncio.ensure_future(call(federation, "git", "a"))
        await stage.wire.hears("tools/call")
        stage.answers["tools/call"] = {"content": [{"type": "text", "text": "again"}]}
        await stage.redeploy(ConnectionLost("deployed anew"), stateless=stateless)
        with pytest.raises(RequestLost) as caught:
            await lost
        assert caught.value.maybe_done
        assert stage.executions("tools/call") == 1
        assert await call(federation, "git", "a") == "again"


@TO_STATELESS
async def test_a_replacement_may_be_of_the_other_era(*, stateless: bool) -> None:
    old, new = EraUpstream("a", stateless=not stateless), EraUpstream("b", stateless=stateless)

    def slow(request: JsonRpcRequest) -> After:
        return After(3.0, {"content": [{"type": "text", "text": request.params["name"]}]})

    old.answers["tools/call"] = slow
    async with federated({"git": spec(old)}) as federation:
        await all_ready(federation)
        under_way = asyncio.ensure_future(call(federation, "git", "a"))
        async with line_to(federation).listen("notifications/tools/list_changed") as updates:
            news = aiter(updates)
            await old.wire.hears("tools/call")
            await federation.replace("git", spec(new))
            assert await call(federation, "git", "b") == "b"
            assert (await anext(news)).gap
            new.changed()
            assert (await anext(news)).method == "notifications/tools/list_changed"
        assert await under_way == "a"
        assert new.executions("tools/call") == 1


async def test_a_call_whose_answer_looks_like_one_of_the_other_era_is_not_made_twice() -> None:
    """The server is asked for its era, and when that is the same the error is the caller's: the tool may have done something before it."""
    stage = EraUpstream("a")
    stage.is_http = True
    stage.answers["tools/call"] = lambda _: PeerError(-32600, "the request makes no sense")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        for turn in range(1, 4):
            with pytest.raises(PeerError, match="makes no sense"):
                await call(federation, "git", "a")
            assert stage.executions("tools/call") == turn
            assert len(stage.asked("server/discover")) == 2  # once at first, and once for these errors
        await asyncio.sleep(120.0)
        with pytest.raises(PeerError, match="makes no sense"):
            await call(federation, "git", "a")
        assert stage.executions("tools/call") == 4
        assert len(stage.asked("server/discover")) == 3
        stage.deploy(stateless=False)
        stage.answers["tools/call"] = {"content": [{"type": "text", "text": "done"}]}
        await asyncio.sleep(120.0)
        assert await call(federation, "git", "a") == "done"
        assert stage.executions("tools/call") == 5


@pytest.mark.row("26-L7")
async def test_a_server_behind_http_that_dies_and_returns_is_probed_listened_to_again_and_its_lists_fetched() -> None:
    """Nothing of a connection is left to break there but the stream of the listen."""
    stage = EraUpstream("a")
    stage.is_http = True
    breaker = BreakerSettings(cooldown=STEADY, probe_timeout=2.0)
    async with federated({"git": spec(stage, breaker=breaker)}) as federation:
        await all_ready(federation)
        (listen,) = stage.listens
        answers = dict(stage.answers)
        for method in answers:
            stage.answers[method] = lambda _: ConnectFailed("refused")
        stage.tools["b"] = ""
        stage.listens = {}
        stage.wire.say(UnansweredRequest(listen, ConnectionLost("the stream broke")))
        with pytest.raises(RequestLost) as caught:
            await call(federation, "git", "a")
        assert not caught.value.maybe_done
        with pytest.raises(CircuitOpen):
            await call(federation, "git", "a")
        executed = stage.executions("tools/call")
        await asyncio.sleep(30.0)
        assert federation.status("git").state is UpstreamState.OPEN
        assert stage.executions("tools/call") == executed  # no caller's request is a probe
        stage.answers.update(answers)
        await reaches(federation, "git", UpstreamState.READY)
        while "b" not in (await federation.offering("git")).tools:
            await federation.members["git"].wakeup.wait()
        assert len(stage.listens) == 1
        assert await call(federation, "git", "a") == "a"
        assert len(stage.wires) == 1
