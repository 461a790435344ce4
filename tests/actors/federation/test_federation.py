"""The members of a federation: starting, replacing and stopping one affects no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.actors.client.fake_server import SILENCE, After

from greenroom.actors.client.errors import ClientClosed
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.federation.federation import Federation
from greenroom.actors.federation.offering import Difference
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.errors import ConfigError
from greenroom.supervision import AlreadyRegistered, NotRegistered, Supervisor, is_alive, start, stop, tree
from greenroom.transports.client.errors import ConnectFailed

from .fake_upstreams import Upstairs, all_ready, call, federated, none_leaving, reaches, spec

if TYPE_CHECKING:
    from greenroom.actors.federation.offering import Upstreams


@pytest.mark.row("FE-01", "FE-02", "FE-03")
async def test_a_server_comes_and_goes() -> None:
    async with federated() as federation:
        pid = await federation.start("git", spec(Upstairs("log", "diff", "show")))
        assert federation.whereis("git") == pid
        assert federation.clients() == {"git": pid}
        await all_ready(federation)
        assert list((await federation.offering("git")).tools) == ["log", "diff", "show"]
        assert await call(federation, "git", "log") == "log"
        line = federation.line("git")
        assert line is not None
        await federation.stop("git")
        assert federation.whereis("git") is None
        assert federation.ids() == ()
        assert not is_alive(pid)
        assert line.status.phase is Phase.CLOSED
        with pytest.raises(ClientClosed):
            await line.request("tools/list")
        with pytest.raises(NotRegistered):
            await federation.stop("git")
        assert federation.line("git") is None


@pytest.mark.row("FE-05")
@pytest.mark.greenroom(seeds=5)
async def test_of_concurrent_starts_of_one_id_one_wins() -> None:
    async with federated() as federation:
        results = await asyncio.gather(
            *(federation.start("git", spec(Upstairs())) for _ in range(20)), return_exceptions=True
        )
        won = [each for each in results if not isinstance(each, BaseException)]
        lost = [each for each in results if isinstance(each, AlreadyRegistered)]
        assert (len(won), len(lost)) == (1, 19)
        assert {each.pid for each in lost} == {federation.whereis("git")} == set(won)


async def test_a_server_that_cannot_be_started_leaves_nothing() -> None:
    def wrong(id: str, spec: UpstreamSpec) -> object:
        raise LookupError(id)

    async with federated() as federation:
        with pytest.raises(LookupError):
            await federation.start("git", spec(Upstairs(), connect=wrong))
        assert federation.ids() == ()
        assert not federation.arriving
        await federation.start("git", spec(Upstairs()))


async def test_a_dead_and_a_hanging_server_delay_no_other() -> None:
    dead, hanging = Upstairs(), Upstairs()
    dead.failures = [ConnectFailed("connection refused")] * 1000
    hanging.answers["initialize"] = SILENCE
    first = {name: spec(Upstairs()) for name in ("a", "b", "c")} | {"dead": spec(dead), "hanging": spec(hanging)}
    loop = asyncio.get_running_loop()
    async with federated(first) as federation:
        await all_ready(federation, "a", "b", "c")
        assert loop.time() == 0.0
        assert federation.status("hanging").state is UpstreamState.STARTING
        cause = await reaches(federation, "dead", UpstreamState.DEGRADED)
        assert isinstance(cause, ConnectFailed)
        await reaches(federation, "hanging", UpstreamState.DEGRADED)
        assert loop.time() == 5.0
        dead.failures.clear()
        hanging.answers["initialize"] = hanging._welcome
        await all_ready(federation, "dead", "hanging")


async def test_requests_in_flight_end_on_the_old_one() -> None:
    old, new = Upstairs("a", "b"), Upstairs("a", "c")
    old.answers["tools/call"] = lambda request: After(5.0, {"content": [{"text": "old"}]})
    new.answers["tools/call"] = {"content": [{"text": "new"}]}
    new.answers["initialize"] = lambda request: After(2.0, new._welcome(request))
    async with federated({"git": spec(old)}) as federation:
        await all_ready(federation)
        changes = federation.changes()
        under_way = asyncio.ensure_future(call(federation, "git"))
        before = federation.whereis("git")
        replaced = asyncio.ensure_future(federation.replace("git", spec(new)))
        await asyncio.sleep(1.0)
        assert federation.whereis("git") == before
        assert await replaced == federation.whereis("git") != before
        assert asyncio.get_running_loop().time() == 2.0
        assert await call(federation, "git") == "new"
        assert await under_way == "old"
        change = await anext(changes)
        assert change.differences.tools == Difference(frozenset("c"), frozenset("b"))
        assert before is not None
        await none_leaving(federation)
        assert not is_alive(before)


async def test_a_new_one_that_is_not_ready_in_time() -> None:
    new = Upstairs()
    new.answers["initialize"] = SILENCE
    async with federated({"git": spec(Upstairs())}) as federation:
        await all_ready(federation)
        before = federation.whereis("git")
        with pytest.raises(Exception, match="git is away"):
            await federation.replace("git", spec(new), ready_within=1.0, keep_old=True)
        assert federation.whereis("git") == before
        assert federation.status("git").state is UpstreamState.READY
        await federation.replace("git", spec(new), ready_within=1.0)
        assert federation.whereis("git") != before
        known = federation.known("git")
        assert known is not None
        assert list(known.tools) == ["echo"]  # what the old one offered, until the new one says
        with pytest.raises(NotRegistered):
            await federation.replace("missing", spec(new))


async def test_stopping_gives_what_is_under_way_its_time() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = lambda request: After(float(request.params["name"]), {"content": [{"text": "done"}]})
    async with federated({"git": spec(stage, grace=3.0)}) as federation:
        await all_ready(federation)
        quick = asyncio.ensure_future(call(federation, "git", "2"))
        slow = asyncio.ensure_future(call(federation, "git", "4"))
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(federation.stop("git"))
        await asyncio.sleep(0.5)
        assert federation.ids() == ()
        await federation.start("git", spec(Upstairs()))  # the id is free
        assert await quick == "done"
        with pytest.raises(ClientClosed):
            await slow
        assert asyncio.get_running_loop().time() == 3.0
        await stopping
        assert not federation.leaving
        await all_ready(federation)


async def test_a_stop_ends_a_replacement() -> None:
    new = Upstairs()
    new.answers["initialize"] = SILENCE
    async with federated({"git": spec(Upstairs())}) as federation:
        await all_ready(federation)
        replacing = asyncio.ensure_future(federation.replace("git", spec(new)))
        await asyncio.sleep(1.0)
        with pytest.raises(Exception, match="being replaced already"):
            await federation.replace("git", spec(new))
        await federation.stop("git")
        with pytest.raises(ClientClosed):
            await replacing
        await none_leaving(federation)
        assert not federation.arriving
        assert "git" not in str(tree())


async def test_watching_tells_every_state_once() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = lambda request: After(1.0, stage._welcome(request))
    async with federated() as federation:
        watch = federation.watch()
        await federation.start("git", spec(stage))
        states = [(await anext(watch)).state]
        while states[-1] is not UpstreamState.READY:
            states.append((await anext(watch)).state)
        assert states == [UpstreamState.STARTING, UpstreamState.READY]
        await stage.wire.break_off(ConnectFailed("pulled out"))
        await federation.stop("git")
        states = [(await anext(watch)).state]
        while states[-1] is not UpstreamState.STOPPED:
            states.append((await anext(watch)).state)
        assert len(set(states)) == len(states)


async def test_a_whole_federation_is_a_child() -> None:
    async with federated({"a": spec(Upstairs())}) as one, federated({"a": spec(Upstairs("x"))}) as other:
        await all_ready(one)
        await all_ready(other)
        assert one.whereis("a") != other.whereis("a")
        assert await call(one, "a", "echo") == "echo"


async def test_a_federation_that_is_no_more_says_so() -> None:
    stage = Upstairs()
    async with federated({"a": spec(stage)}) as federation:
        await all_ready(federation)
        answer, stage.answers["tools/call"] = stage.answers["tools/call"], SILENCE
        line = federation.line("a")
        assert line is not None
        waiting = asyncio.ensure_future(line.request("tools/call", {"name": "echo"}))
        await asyncio.sleep(0)
    for refused in (waiting, line.request("tools/list")):
        with pytest.raises(ClientClosed):
            await refused
    assert federation.status("a").state is UpstreamState.STOPPED
    assert asyncio.get_running_loop().time() == 0.0
    stage.answers["tools/call"] = answer
    top = await start(Supervisor, [federation.child_spec()])
    await all_ready(federation)
    assert await call(federation, "a") == "echo"
    await stop(top)


def test_a_federation_provides_what_a_tool_router_needs() -> None:
    upstreams: Upstreams = Federation()
    assert not upstreams.ids()


def test_specs_that_cannot_be() -> None:
    for wrong in ({"concurrent": 0}, {"queue": -1}, {"period": 0.0}, {"grace": -1.0}):
        with pytest.raises(ConfigError):
            spec(Upstairs(), **wrong)


@pytest.mark.row("FE-01", "FE-06")
async def test_ids_may_be_any_hashable_value() -> None:
    """Full names of tools are made by the host: here the tools have their servers' names."""
    ids = [("tenant", 1), ("tenant", 2)]
    async with federated() as federation:
        for id in ids:
            await federation.start(id, spec(Upstairs("same")))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        for id in ids:
            assert list((await federation.offering(id)).tools) == ["same"]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            assert await call(federation, id, "same") == "same"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert set(federation.statuses()) == {*ids}  # type: ignore[comparison-overlap]
