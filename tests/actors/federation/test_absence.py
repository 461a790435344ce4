"""A server that cannot be reached: calls wait for a first start or a first restart, and fail at once when an attempt has failed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE, After

from greenroom import Host, Server
from greenroom.actors.client.errors import CircuitOpen, InitTimeout, Parked, RequestLost, RequestTimeout, Unavailable
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.consent.consent import Consent, ConsentAnswer
from greenroom.actors.consent.rules import Permissions
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.errors import ConfigError
from greenroom.supervision import kill
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .fake_upstreams import STEADY, Upstairs, all_ready, call, federated, reaches, spec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.federation.federation import Federation

REFUSED = ConnectFailed("connection refused")


def now() -> float:
    return asyncio.get_running_loop().time()


async def gone(federation: Federation, stage: Upstairs, attempts: int = 99) -> None:
    """It was there, and is not any more: the first attempt to start it again has failed."""
    await all_ready(federation, "git")
    stage.failures = [ConnectFailed(f"attempt {number}") for number in range(1, attempts + 1)]
    await stage.wire.break_off(ConnectionLost("killed"))
    await reaches(federation, "git", UpstreamState.OPEN)


@asynccontextmanager
async def hosted(**servers: Any) -> AsyncGenerator[Host]:
    async with Host(servers) as host:
        yield host


# --- what waits, and for how long


async def test_a_call_waits_for_a_server_that_is_started_for_the_first_time() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = lambda request: After(3.0, stage._welcome(request))
    async with federated({"git": spec(stage)}) as federation:
        assert await call(federation, "git") == "echo"
        assert now() == 3.0


async def test_a_call_waits_for_a_first_start_no_longer_than_the_patience() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = SILENCE
    async with federated({"git": spec(stage, settings=ClientSettings(init_timeout=60.0))}) as federation:
        with pytest.raises(Unavailable) as refused:
            await call(federation, "git", timeout=20.0)
        assert now() == 5.0
        assert (refused.value.server, refused.value.retry_in) == ("git", None)
        assert isinstance(refused.value.cause, InitTimeout)
        assert federation.status("git").in_progress == 0


async def test_a_call_waits_for_a_first_start_no_longer_than_its_deadline() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = SILENCE
    async with federated({"git": spec(stage)}) as federation:
        with pytest.raises(RequestTimeout):
            await call(federation, "git", timeout=2.0)
        assert now() == 2.0


async def test_a_call_that_waits_fails_when_the_attempt_does() -> None:
    stage = Upstairs()
    stage.answers["initialize"] = SILENCE
    async with federated(
        {"git": spec(stage, settings=ClientSettings(mode="legacy", init_timeout=2.0, backoff=STEADY))}
    ) as federation:
        with pytest.raises(Unavailable) as refused:
            await call(federation, "git")
        assert now() == 2.0
        assert refused.value.retry_in == 1.0


async def test_once_an_attempt_has_failed_calls_fail_at_once_also_while_the_next_is_under_way() -> None:
    stage = Upstairs()
    stage.failures = [REFUSED]
    stage.answers["initialize"] = lambda request: After(4.0, stage._welcome(request))
    async with federated({"git": spec(stage)}) as federation:
        await reaches(federation, "git", UpstreamState.DEGRADED)
        await asyncio.sleep(0.25)
        with pytest.raises(Unavailable) as refused:
            await call(federation, "git")
        assert (refused.value.cause, refused.value.retry_in, now()) == (REFUSED, 0.75, 0.25)
        assert "connection refused; the next attempt is in 0.8 s" in str(refused.value)
        await asyncio.sleep(1.0)
        with pytest.raises(Unavailable) as refused:
            await call(federation, "git")
        assert (refused.value.cause, refused.value.retry_in, now()) == (REFUSED, 0.0, 1.25)
        assert "it is being tried again" in str(refused.value)
        await reaches(federation, "git", UpstreamState.READY)
        assert await call(federation, "git") == "echo"


async def test_a_call_waits_for_the_first_restart() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.answers["initialize"] = lambda request: After(2.0, stage._welcome(request))
        await stage.wire.break_off(ConnectionLost("killed"))
        assert await call(federation, "git") == "echo"
        assert now() == 2.0


async def test_a_read_that_was_lost_waits_for_the_first_restart_no_longer_than_the_patience() -> None:
    stage = Upstairs()
    stage.answers["resources/read"] = SILENCE
    async with federated({"git": spec(stage, settings=ClientSettings(init_timeout=60.0))}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        reading = line.begin("resources/read", {"uri": "a:1"}, timeout=50.0)
        await stage.wire.hears("resources/read")
        stage.answers["initialize"] = SILENCE
        await stage.wire.break_off(ConnectionLost("killed"))
        with pytest.raises(Unavailable):
            await reading
        assert now() == 5.0


# --- a server that was there and is gone


async def test_a_server_that_is_gone_opens_its_breaker_until_it_is_back() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await gone(federation, stage, attempts=3)
        began = now()
        with pytest.raises(CircuitOpen) as refused:
            await call(federation, "git")
        assert str(refused.value.cause) == "attempt 1"
        assert refused.value.retry_in == federation.status("git").next_attempt == 2.0
        assert now() == began
        assert not stage.asked("ping")
        await reaches(federation, "git", UpstreamState.READY)
        assert now() == began + 2.0 + 4.0 + 8.0
        assert await call(federation, "git") == "echo"
        assert not stage.asked("ping")


async def test_a_server_at_which_connections_are_refused_opens_its_breaker_at_once() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.answers["tools/call"] = stage.answers["ping"] = REFUSED
        with pytest.raises(RequestLost) as lost:
            await call(federation, "git")
        assert not lost.value.maybe_done
        assert federation.status("git").state is UpstreamState.OPEN
        with pytest.raises(CircuitOpen) as refused:
            await call(federation, "git")
        assert refused.value.retry_in == 1.0
        stage.answers["ping"] = {}
        await reaches(federation, "git", UpstreamState.READY)


async def test_calls_wait_for_a_manual_retry_as_for_a_first_start() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage)}) as federation:
        await gone(federation, stage, attempts=1)
        stage.answers["initialize"] = lambda request: After(3.0, stage._welcome(request))
        began = now()
        federation.retry("git")
        assert await call(federation, "git") == "echo"
        assert now() == began + 3.0


async def test_a_parked_server_refuses_calls_also_while_it_is_started_again_by_itself() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage, intensity=0)}) as federation:
        await all_ready(federation)
        stage.answers["initialize"] = lambda request: After(4.0, stage._welcome(request))
        kill(federation.whereis("git"))
        await reaches(federation, "git", UpstreamState.PARKED)
        with pytest.raises(Parked):
            await call(federation, "git")
        await asyncio.sleep(31.0)
        with pytest.raises(Unavailable) as refused:
            await call(federation, "git")
        assert (refused.value.retry_in, now()) == (0.0, 31.0)
        await reaches(federation, "git", UpstreamState.READY)
        assert await call(federation, "git") == "echo"


async def test_a_parked_server_that_is_tried_again_by_hand_is_waited_for() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage, intensity=0)}) as federation:
        await all_ready(federation)
        kill(federation.whereis("git"))
        await reaches(federation, "git", UpstreamState.PARKED)
        stage.answers["initialize"] = lambda request: After(2.0, stage._welcome(request))
        federation.retry("git")
        assert federation.status("git").state is UpstreamState.DEGRADED
        assert await call(federation, "git") == "echo"
        assert now() == 2.0


async def test_an_offering_of_a_connection_that_has_given_up_is_refused_at_once() -> None:
    stage = Upstairs()
    stage.failures = [REFUSED] * 3
    settings = ClientSettings(backoff=STEADY, park_after=1)
    async with federated({"git": spec(stage, settings=settings)}) as federation:
        await reaches(federation, "git", UpstreamState.PARKED)
        with pytest.raises(Parked) as refused:
            await federation.offering("git")
        assert (refused.value.cause, now()) == (REFUSED, 0.0)


# --- a host


async def test_a_server_that_does_not_start_costs_the_first_catalogue_its_patience_once() -> None:
    mute, failing = Upstairs(), Upstairs()
    mute.answers["initialize"] = SILENCE
    failing.failures = [REFUSED] * 99
    slow = ClientSettings(init_timeout=600.0)
    async with hosted(good=spec(Upstairs()), mute=spec(mute, settings=slow), failing=spec(failing)) as host:
        assert await host.call("good:echo") == "echo"
        answer = await host.run({"type": "tool_use", "id": "1", "name": "good__echo", "input": {}})
        assert answer["content"] == [{"type": "text", "text": "echo"}]
        assert now() == 0.0
        assert [one["name"] for one in await host.to_anthropic()] == ["good__echo"]
        assert now() == 5.0
        assert [one["name"] for one in await host.to_anthropic()] == ["good__echo"]
        catalogue = await host.catalogue()
        assert set(catalogue.skipped) == {"mute", "failing"}
        assert now() == 5.0
        mute.answers["initialize"] = mute._welcome
        host.retry("mute")
        failing.failures.clear()
        await mute.wire.break_off(ConnectionLost("killed"))
        await reaches(host.federation, "mute", UpstreamState.READY)
        assert "mute__echo" in [one["name"] for one in await host.to_anthropic()]


async def test_the_next_catalogue_waits_for_a_manual_retry() -> None:
    mute = Upstairs()
    mute.answers["initialize"] = SILENCE
    async with hosted(
        mute=spec(mute, settings=ClientSettings(mode="legacy", init_timeout=8.0, backoff=STEADY))
    ) as host:
        assert not await host.to_openai()
        assert now() == 5.0
        await reaches(host.federation, "mute", UpstreamState.DEGRADED)
        mute.answers["initialize"] = lambda request: After(2.0, mute._welcome(request))
        host.retry("mute")
        await mute.opened(2)
        began = now()
        assert [one["function"]["name"] for one in await host.to_openai()] == ["mute__echo"]
        assert now() == began + 2.0


async def test_the_timeouts_of_a_server_hold_also_for_a_call_that_waits_for_it() -> None:
    mute = Upstairs()
    mute.answers["initialize"] = SILENCE
    slow = ClientSettings(init_timeout=60.0)
    async with hosted(mute=spec(mute, settings=slow, tool_timeout=2.0)) as host:
        with pytest.raises(RequestTimeout):
            await host.call("mute:echo")
        assert now() == 2.0
        with pytest.raises(RequestTimeout):
            await host.call_tool("mute:echo", timeout=1.0)
        assert now() == 3.0


async def test_a_model_that_calls_a_tool_of_a_server_that_is_away_is_told_why() -> None:
    stage, other = Upstairs(), Upstairs()
    other.failures = [REFUSED] * 99
    async with hosted(git=spec(stage, away="withdraw"), other=spec(other)) as host:
        await gone(host.federation, stage)
        for name, why in (("git__echo", "attempt 1"), ("git:echo", "attempt 1"), ("other__echo", "connection refused")):
            answer = await host.run({"type": "tool_use", "id": "1", "name": name, "input": {}})
            assert answer["is_error"]
            assert why in answer["content"][0]["text"]
        answer = await host.run({"type": "tool_use", "id": "1", "name": "third__echo", "input": {}})
        assert "there is no tool called" in answer["content"][0]["text"]


async def test_the_user_is_not_asked_about_a_call_of_a_server_that_is_away() -> None:
    asked: list[str] = []

    async def ask(question: Any) -> ConsentAnswer:
        asked.append(question.name)
        return ConsentAnswer(allow=True)

    stage = Upstairs()
    consent = Consent(Permissions(otherwise="ask"), ask=ask)
    async with Host({"git": spec(stage)}, consent=consent) as host:
        assert await host.call("git:echo") == "echo"
        await gone(host.federation, stage)
        with pytest.raises(CircuitOpen):
            await host.call("git:echo")
        assert asked == ["git:echo"]


# --- its tools


async def test_the_tools_of_a_server_that_is_gone_are_marked_until_it_is_back() -> None:
    stage, other = Upstairs(), Upstairs()
    stage.tools["echo"] = "Says it again."
    async with hosted(git=spec(stage), other=spec(other)) as host:
        before = await host.to_anthropic()
        assert "other__echo" in [one["name"] for one in before]
        changes = host.changes()
        await gone(host.federation, stage, attempts=2)
        (tool, untouched) = await host.to_anthropic()
        assert tool["description"] == "[Not available now: the server of this tool is away.] Says it again."
        assert untouched["description"] == ""
        assert (await host.tools())[0].description == tool["description"]
        change = await anext(changes)
        assert (change.id, set(change.differences.tools.changed)) == ("git", {"echo"})
        assert (await host.catalogue()).tools["git:echo"].definition["description"] == "Says it again."
        await reaches(host.federation, "git", UpstreamState.READY)
        assert await host.to_anthropic() == before
        assert set((await anext(changes)).differences.tools.changed) == {"echo"}


async def test_the_tools_of_a_server_that_is_gone_are_withdrawn_where_that_is_wanted() -> None:
    stage = Upstairs()
    async with hosted(git=spec(stage, away="withdraw"), kept=spec(Upstairs(), away="keep")) as host:
        await host.catalogue()
        changes = host.changes()
        await gone(host.federation, stage, attempts=2)
        assert [one["name"] for one in await host.to_openai() if "function" not in one] == []
        assert [one["function"]["name"] for one in await host.to_openai()] == ["kept__echo"]
        assert isinstance((await host.catalogue()).skipped["git"], CircuitOpen)
        assert set((await anext(changes)).differences.tools.removed) == {"echo"}
        await reaches(host.federation, "git", UpstreamState.READY)
        assert [one["function"]["name"] for one in await host.to_openai()] == ["git__echo", "kept__echo"]
        assert not (await host.catalogue()).skipped
        assert set((await anext(changes)).differences.tools.added) == {"echo"}


async def test_tools_are_kept_as_they_are_where_that_is_wanted_and_during_a_first_restart() -> None:
    stage, other = Upstairs(), Upstairs()
    async with hosted(git=spec(stage, away="keep"), other=spec(other)) as host:
        before = await host.to_anthropic()
        await gone(host.federation, stage)
        assert await host.to_anthropic() == before
        other.answers["initialize"] = SILENCE
        await other.wire.break_off(ConnectionLost("killed"))
        await other.opened(2)
        assert await host.to_anthropic() == before


def test_away_accepts_three_values() -> None:
    with pytest.raises(ConfigError, match="away is 'mark', 'withdraw', 'keep', not 'hide'"):
        Host(away="hide")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="away is"):
        spec(Upstairs(), away=None)


# --- servers of this program


async def test_a_server_of_this_program_that_does_not_start_is_told_of_and_the_others_serve() -> None:
    good, bad, slow = Server("good"), Server("bad"), Server("slow")
    held = asyncio.Event()
    tries: list[float] = []

    @good.tool
    async def hi() -> str:
        return "hi"

    @bad.tool
    async def late() -> str:
        return "at last"

    @bad.lifespan
    async def database() -> Any:
        tries.append(now())
        if len(tries) == 1:
            raise RuntimeError("no database")
        yield

    @slow.lifespan
    async def model() -> Any:
        await held.wait()
        yield

    async with Host({"good": good, "bad": bad, "slow": slow}) as host:
        assert await host.call("good:hi") == "hi"
        await reaches(host.federation, "bad", UpstreamState.DEGRADED)
        with pytest.raises(Unavailable, match="no database"):
            await host.call("bad:late")
        assert host.status()["slow"].state is UpstreamState.STARTING
        assert now() < 1.0
        await reaches(host.federation, "bad", UpstreamState.READY)
        assert await host.call("bad:late") == "at last"
        held.set()
        await reaches(host.federation, "slow", UpstreamState.READY)
