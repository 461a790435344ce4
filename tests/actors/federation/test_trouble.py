"""Failures of one upstream: its breaker opens and closes, its processes die, it is parked and comes back; no other upstream notices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE

from greenroom.actors.client.errors import CircuitOpen, NotReady, Parked, RequestLost, RequestTimeout
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.protocol.errors import PeerError
from greenroom.supervision import kill, wait_down, whereis
from greenroom.supervision.testing import kill as kill_and_wait
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .fake_upstreams import STEADY, Upstairs, all_ready, call, federated, reaches, spec

if TYPE_CHECKING:
    from greenroom.actors.federation.federation import Federation


async def break_it(federation: Federation, stage: Upstairs) -> None:
    """Three calls without an answer."""
    stage.answers["tools/call"] = SILENCE
    for _ in range(3):
        with pytest.raises(RequestTimeout):
            await call(federation, "git", timeout=1.0)


async def test_the_breaker_opens_probes_and_closes() -> None:
    stage, other = Upstairs(), Upstairs()
    loop = asyncio.get_running_loop()
    async with federated({"git": spec(stage), "other": spec(other)}) as federation:
        await all_ready(federation)
        await break_it(federation, stage)
        assert loop.time() == 3.0
        stage.answers["ping"] = SILENCE
        assert federation.status("git").state is UpstreamState.OPEN
        sent = len(stage.asked("tools/call"))
        with pytest.raises(CircuitOpen) as refused:
            await call(federation, "git")
        assert loop.time() == 3.0
        assert refused.value.retry_in == 1.0
        assert isinstance(refused.value.cause, RequestTimeout)
        assert await call(federation, "other") == "echo"
        await asyncio.sleep(9.5)  # probes at 4 s and 8 s, each a ping of 2 s
        assert len(stage.asked("ping")) == 2
        assert len(stage.asked("tools/call")) == sent
        stage.answers["ping"] = {}
        stage.answers["tools/call"] = {"content": [{"text": "again"}]}
        await reaches(federation, "git", UpstreamState.READY)
        assert loop.time() == 14.0
        assert await call(federation, "git") == "again"


async def test_a_retry_probes_at_once() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        await break_it(federation, stage)
        line = federation.line("git")
        assert line is not None
        line.retry()
        await reaches(federation, "git", UpstreamState.READY)
        assert asyncio.get_running_loop().time() == 3.0


async def test_errors_of_the_application_open_nothing() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = PeerError(-32603, "broken")
    breaker = BreakerSettings(failures=3, cooldown=STEADY, peer_codes={-32603})
    async with federated({"git": spec(stage), "strict": spec(stage, breaker=breaker)}) as federation:
        await all_ready(federation)
        for id in ("git", "strict"):
            for _ in range(3):
                with pytest.raises(PeerError):
                    await call(federation, id)
        assert federation.status("git").state is UpstreamState.READY
        assert federation.status("strict").state is UpstreamState.OPEN


async def test_waiting_requests_fail_when_the_breaker_opens() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage, concurrent=3)}) as federation:
        await all_ready(federation)
        calls = [asyncio.ensure_future(call(federation, "git", timeout=2.0 + number // 3)) for number in range(8)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        # Two had their turn when the first two were over; the third failure let no call go any more.
        assert [type(each) for each in outcomes] == [RequestTimeout] * 5 + [CircuitOpen] * 3
        assert asyncio.get_running_loop().time() == 3.0


async def test_a_breaker_probe_that_dies_in_mid_probe_is_replaced() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        await break_it(federation, stage)
        stage.answers["ping"] = SILENCE
        await asyncio.sleep(1.5)
        assert len(stage.asked("ping")) == 1
        await kill_and_wait(child_of(federation, "git", "probe"))
        stage.answers["ping"] = {}
        await reaches(federation, "git", UpstreamState.READY, within=20.0)


def child_of(federation: Federation, id: str, role: str) -> Any:
    """A process of an upstream's tree."""
    from greenroom.supervision import tree  # noqa: PLC0415 - for this alone

    def walk(branch: Any) -> Any:
        if branch.pid == federation.members[id].pid:
            return next(each.pid for each in branch.children if each.id == role)
        return next((found for each in branch.children if (found := walk(each)) is not None), None)

    return walk(tree())


@pytest.mark.row("FE-04")
@pytest.mark.parametrize("role", ["connection", "refresher", "probe", "supervisor", "upstreams", "manager", "jobs"])
async def test_each_process_of_a_federation_is_restarted(role: str) -> None:
    stage, other = Upstairs(), Upstairs()
    other.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage), "other": spec(other)}) as federation:
        await all_ready(federation)
        under_way = asyncio.ensure_future(call(federation, "other", timeout=9.0))
        await asyncio.sleep(0)
        line = federation.line("git")
        assert line is not None
        async with line.listen() as updates:
            if role == "supervisor":
                victim: Any = federation.whereis("git")
            elif role in ("connection", "refresher", "probe"):
                victim = child_of(federation, "git", role)
            else:
                victim = whereis(federation.name(role))
            await kill_and_wait(victim)
            assert await call(federation, "git") == "echo"
            assert federation.ids() == ("git", "other")
            await all_ready(federation)
            await federation.start("new", spec(Upstairs()))
            await all_ready(federation, "new")
            if role in ("connection", "supervisor", "upstreams"):
                assert (await anext(aiter(updates))).gap
        with pytest.raises(RequestLost if role == "upstreams" else RequestTimeout):
            await under_way


async def test_whose_processes_die_too_often_is_parked() -> None:
    stage, other = Upstairs(), Upstairs()
    loop = asyncio.get_running_loop()
    async with federated({"git": spec(stage, intensity=2), "other": spec(other)}) as federation:
        await all_ready(federation)
        before = federation.whereis("other")
        line = federation.line("git")
        assert line is not None
        for _ in range(3):
            await kill_and_wait(child_of(federation, "git", "refresher"))
        cause = await reaches(federation, "git", UpstreamState.PARKED)
        assert cause is not None
        assert "more than 2 times within 60 s" in cause.__notes__[0]
        assert line.status.phase is Phase.PARKED
        with pytest.raises(Parked):
            await call(federation, "git")
        with pytest.raises(Parked):
            await line.ready()
        assert loop.time() == 0.0
        assert federation.whereis("git") is None
        assert federation.whereis("other") == before
        await reaches(federation, "git", UpstreamState.READY)
        assert loop.time() == 30.0
        assert await call(federation, "git") == "echo"


async def test_a_parked_upstream_is_started_by_retry() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage, intensity=0)}) as federation:
        await all_ready(federation)
        pid = federation.whereis("git")
        kill(pid)
        await reaches(federation, "git", UpstreamState.PARKED)
        federation.retry("git")
        await reaches(federation, "git", UpstreamState.READY)
        assert asyncio.get_running_loop().time() == 0.0
        assert federation.whereis("git") != pid


async def test_a_connection_that_gave_up_is_woken_slowly() -> None:
    stage = Upstairs()
    stage.failures = [ConnectFailed("connection refused")] * 3
    settings = ClientSettings(backoff=STEADY, park_after=2)
    async with federated({"git": spec(stage, settings=settings)}) as federation:
        cause = await reaches(federation, "git", UpstreamState.PARKED)
        assert isinstance(cause, ConnectFailed)
        began = asyncio.get_running_loop().time()
        await reaches(federation, "git", UpstreamState.READY, within=200.0)
        assert asyncio.get_running_loop().time() >= began + 30.0


async def test_requests_to_a_stopped_upstream_wait_only_if_told_to() -> None:
    async with federated({"git": spec(Upstairs())}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        kill(federation.whereis("git"))
        impatient = line.begin("ping", wait=False)
        patient = line.begin("ping")
        assert await patient == {}
        with pytest.raises((NotReady, RequestLost)):
            await impatient


async def test_a_wire_that_breaks_is_no_death() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        before = federation.whereis("git")
        for _ in range(10):
            await stage.wire.break_off(ConnectionLost("pulled out"))
            await all_ready(federation)
        assert federation.whereis("git") == before
        assert await call(federation, "git") == "echo"


async def test_requests_that_wait_for_a_parked_upstream_fail() -> None:
    async with federated({"git": spec(Upstairs(), intensity=0)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        kill(federation.whereis("git"))
        told: list[Any] = []
        pending = line.begin("ping")
        pending.when_settled(lambda result, error: told.append((result, type(error))))
        with pytest.raises(Parked):
            await pending
        await asyncio.sleep(0)
        assert told == [(None, Parked)]
        assert asyncio.get_running_loop().time() == 0.0
        refused = line.begin("ping")
        refused.when_settled(lambda result, error: told.append((result, type(error))))
        refused.cancel()
        await asyncio.sleep(0)
        assert told[1:] == [(None, Parked)]
        assert [each async for each in refused.progress()] == []


async def test_a_call_that_had_gone_when_its_upstream_was_parked_may_have_been_done() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage, intensity=0)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        pending = line.begin("tools/call", {"name": "echo", "arguments": {}})
        await stage.wire.hears("tools/call")
        kill(federation.whereis("git"))
        with pytest.raises(RequestLost) as caught:
            await pending
        assert caught.value.maybe_done


async def test_a_start_is_retried_while_the_supervisor_of_upstreams_restarts() -> None:
    async with federated({"git": spec(Upstairs())}) as federation:
        await all_ready(federation)
        kill(federation.whereis("git"))
        kill(whereis(federation.name("upstreams")))
        kill(whereis(federation.name("jobs")))
        assert await call(federation, "git") == "echo"
        assert federation.status("git").state is UpstreamState.READY


@pytest.mark.row("FE-04")
@pytest.mark.parametrize("kind", ["listen", "subscribe"])
async def test_readers_of_a_parked_upstream_receive_updates_again_after_its_return(kind: str) -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage, intensity=2)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        async with line.listen() if kind == "listen" else line.subscribe("a:1") as updates:
            for _ in range(3):
                await kill_and_wait(child_of(federation, "git", "refresher"))
                await asyncio.sleep(0.1)
            await reaches(federation, "git", UpstreamState.PARKED)
            reading = aiter(updates)
            soonest = asyncio.ensure_future(anext(reading))
            await reaches(federation, "git", UpstreamState.READY, within=60.0)
            async with asyncio.timeout(1.0):
                assert (await soonest).gap
            if kind == "listen":
                stage.changed("prompts")
            else:
                stage.updated("a:1")
            async with asyncio.timeout(1.0):
                while (told := await anext(reading)).gap:
                    pass
            assert told.params == ({} if kind == "listen" else {"uri": "a:1"})


class _FailsOnce:
    """In front of another object: the first call of one method raises."""

    def __init__(self, behind: Any, method: str) -> None:
        self._behind = behind
        self._method: str | None = method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._method = None
            raise RuntimeError("a bug of ours")
        return getattr(self._behind, name)


@pytest.mark.row("FE-04")
async def test_a_bug_in_a_task_of_the_refresher_or_the_probe_crashes_its_process() -> None:
    stage = Upstairs("a")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        upstream: Any = federation.members["git"]
        upstream.spec = _FailsOnce(upstream.spec, "settings")
        before = child_of(federation, "git", "refresher")
        stage.tools["b"] = ""
        stage.changed()
        await wait_down(before)
        await asyncio.sleep(1.0)
        known = federation.known("git")
        assert known is not None
        assert list(known.tools) == ["a", "b"]
        await break_it(federation, stage)
        upstream.breaker = _FailsOnce(upstream.breaker, "record_probe")
        await wait_down(child_of(federation, "git", "probe"), 10.0)
        await reaches(federation, "git", UpstreamState.READY)
