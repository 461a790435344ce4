"""The line of a federation: its requests take turns, end with their callers, and are settled exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE, After

from greenroom.actors.client.errors import ClientClosed, RequestTimeout
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.federation.federation_errors import UpstreamBusy
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.protocol.errors import RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.supervision import kill, spawn, wait_down

from .fake_upstreams import Upstairs, all_ready, call, federated, reaches, spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from greenroom.actors.client.interfaces import Progress
    from greenroom.actors.federation.upstream_requests import UpstreamRequest


def slow(request: Any) -> After:
    return After(1.0, {"content": [{"text": request.params["name"]}]})


async def test_no_more_than_the_bound_are_under_way() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = slow
    async with federated({"git": spec(stage, concurrent=2, queue=4)}) as federation:
        await all_ready(federation)
        calls = [asyncio.ensure_future(call(federation, "git", str(number))) for number in range(10)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert outcomes[:6] == list("012345")
        assert all(isinstance(each, UpstreamBusy) for each in outcomes[6:])
        assert asyncio.get_running_loop().time() == 3.0
        outcomes = await asyncio.gather(*(call(federation, "git") for _ in range(10)), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, UpstreamBusy)]
        assert {each.retry_after for each in refused} == {0.5}


async def test_those_on_whose_behalf_it_is_asked_take_turns() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = slow
    async with federated({"git": spec(stage, concurrent=1)}) as federation:
        await all_ready(federation)
        order: list[str] = []

        async def ask(who: str, number: int) -> None:
            line = federation.line("git", who)
            assert line is not None
            await line.request("tools/call", {"name": f"{who}{number}"})
            order.append(f"{who}{number}")

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(ask("a", number))
            for number in range(2):
                group.create_task(ask("b", number))
        assert order == ["a0", "a1", "b0", "a2", "b1", "a3"]


async def test_waiting_and_running_share_one_deadline() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = lambda request: After(2.0, {})
    async with federated({"git": spec(stage, concurrent=1)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        first, second, third = (line.begin("tools/call", {}, timeout=3.0) for _ in range(3))
        fourth = line.begin("tools/call", {}, timeout=1.0)
        assert fourth.id == 0
        await first
        for late, at in ((fourth, 2.0), (second, 3.0), (third, 3.0)):
            with pytest.raises(RequestTimeout):
                await late
            assert asyncio.get_running_loop().time() == at
        assert await line.request("ping") == {}
        assert len(stage.asked("tools/call")) <= 3


async def test_a_waiting_request_ends_when_its_caller_cancels_or_dies() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = slow
    async with federated({"git": spec(stage, concurrent=1)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        gate = federation.members["git"].limiter
        first = line.begin("tools/call", {"name": "first"})
        cancelled = line.begin("tools/call", {"name": "cancelled"})
        cancelled.cancel("no need")

        async def ask() -> None:
            await line.request("tools/call", {"name": "dead"})

        dead = spawn(ask)
        task = asyncio.ensure_future(ask())
        await asyncio.sleep(0.5)
        assert (gate.under_way, gate.waiting) == (1, 2)
        kill(dead)
        await wait_down(dead)
        task.cancel()
        assert await first
        with pytest.raises(RequestCancelled, match="no need"):
            await cancelled
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [request.params["name"] for request in stage.asked("tools/call")] == ["first"]
        assert gate.idle


async def test_a_caller_that_dies_after_its_turn_came_is_its_own_affair_still() -> None:
    """The call that made room sends it, and it belongs to its caller all the same: the server is told that this one waits no more."""
    stage = Upstairs()
    stage.answers["tools/call"] = slow
    async with federated({"git": spec(stage, concurrent=1)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        first = line.begin("tools/call", {"name": "first"})

        async def ask() -> None:
            await line.request("tools/call", {"name": "dead"})

        dead = spawn(ask)
        await first
        await stage.wire.hears("tools/call", 2)
        kill(dead)
        await stage.wire.hears("notifications/cancelled")
        await asyncio.sleep(0)
        assert federation.members["git"].limiter.idle


async def test_cancelled_under_way() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        pending = line.begin("tools/call", {"name": "x"}, progress=True)
        told: list[object] = []
        pending.when_settled(lambda result, error: told.append((result, type(error))))
        heard = [each async for each in until(pending)]
        assert heard == []
        assert pending.settled
        await asyncio.sleep(0)
        assert told == [(None, RequestCancelled)]
        assert "settled" in repr(pending)


async def until(pending: UpstreamRequest) -> AsyncIterator[Progress]:
    """Its progress, cut short."""
    asyncio.get_running_loop().call_later(1.0, pending.cancel)
    async for each in pending.progress():
        yield each


async def test_watching_one() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = lambda request: After(1.0, stage._welcome(request))
    async with federated({"git": spec(stage)}) as federation:
        line = federation.line("git")
        assert line is not None
        watch = line.watch()
        phases = [(await anext(watch)).phase]
        welcome = await line.ready()
        assert welcome.server_info["name"] == "stage" == (line.welcome or welcome).server_info["name"]
        assert line.pid is not None
        assert "git" in repr(line)
        await line.notify("notifications/roots/list_changed")
        await line.close()
        await line.close()
        phases += [each.phase async for each in watch]
        assert phases[0] is not Phase.READY
        assert phases[-1] is Phase.CLOSED
        with pytest.raises(ClientClosed):
            await line.notify("notifications/roots/list_changed")
        with pytest.raises(ClientClosed):
            await line.ready()
        with pytest.raises(ClientClosed):
            await line.listen().__aenter__()
        assert str((line.pid, line.welcome)) == "(None, None)"
        assert "federation" in repr(federation)


async def test_not_ready_in_time_says_why() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = SILENCE
    async with federated({"git": spec(stage)}) as federation:
        line = federation.line("git")
        assert line is not None
        with pytest.raises(Exception, match="git is still starting after 1 s"):
            await line.ready(1.0)
        await reaches(federation, "git", UpstreamState.DEGRADED)
        with pytest.raises(Exception, match="git is away"):
            await line.ready(0.0)


async def test_progress_is_told_for_who_waited_and_who_did_not() -> None:
    stage = Upstairs()

    def step(request: Any) -> Any:
        token = request.params["_meta"]["progressToken"]
        stage.wire.say(JsonRpcNotification("notifications/progress", {"progressToken": token, "progress": 1}))
        return After(1.0, {"content": [{"text": "done"}]})

    stage.answers["tools/call"] = step
    async with federated({"git": spec(stage, concurrent=1)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        for each in [line.begin("tools/call", {"name": "x"}, progress=True) for _ in range(2)]:
            assert [word.progress async for word in each.progress()] == [1]
            assert (await each)["content"] == [{"text": "done"}]
            assert each.id


async def test_a_reader_without_its_block_listens_also_at_a_federation_and_over_replacements() -> None:
    stage, other = Upstairs(), Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        news = aiter(line.listen("notifications/tools/list_changed"))
        heard = asyncio.ensure_future(anext(news))
        await asyncio.sleep(0)
        stage.changed()
        assert (await heard).method == "notifications/tools/list_changed"
        await federation.replace("git", spec(other))
        assert (await anext(news)).gap
        other.changed()
        assert (await anext(news)).method == "notifications/tools/list_changed"
        await federation.stop("git")
        with pytest.raises(StopAsyncIteration):
            await anext(news)
        with pytest.raises(ClientClosed):
            await anext(aiter(line.listen()))
