"""Processes of a company are killed in any order: each call has exactly one reply, and afterwards everything works."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.company import Company
from greenroom.actors.settings import Settings
from greenroom.supervision import DynamicSupervisor, NotRegistered, Ref, start, start_child, which_children
from greenroom.supervision.testing import kill, seeds
from greenroom.wire_probe import WireProbe

from .registry_services import until

if TYPE_CHECKING:
    from greenroom.actors.context import Context
    from greenroom.supervision.testing import Seed

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(["sleeps", "asks", "fails", "blocks"]), st.integers(0, 2)),
        st.tuples(
            st.just("kill"), st.sampled_from(["registry", "subscriptions", "workers", "a worker"]), st.integers(0, 9)
        ),
        st.tuples(st.just("wait"), st.just(""), st.integers(0, 3)),
    ),
    max_size=25,
)


async def sleeps(ctx: Context) -> str:
    await asyncio.sleep(1)
    return str(ctx.request_id)


async def asks(ctx: Context) -> str:
    return (await ctx.sample("x")).text


async def fails() -> None:
    await asyncio.sleep(0.5)
    raise SystemExit(3)


def blocks() -> str:
    return "done"


async def a_worker(company: Company, number: int) -> Any:
    try:
        workers = await which_children(company.workers)
    except Exception:  # noqa: BLE001 - the supervisor is not there to ask just now
        return None
    return workers[number % len(workers)].pid if workers else None


@settings(max_examples=examples(60))
@given(STEPS, seeds())
async def test_each_call_is_answered_once_and_the_company_recovers(
    steps: list[tuple[str, str, int]], seed: Seed
) -> None:
    company = Company(Settings(name="chaos"))
    top = await start(DynamicSupervisor, intensity=1000)
    await start_child(top, company.child_spec().but(restart="permanent"))
    for function in (sleeps, asks, fails, blocks):
        await company.registry.register_tool(function.__name__, function)
    answer = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}

    def sampled(params: dict[str, Any]) -> Any:
        return answer

    answers = {"sampling/createMessage": sampled}
    peers = [WireProbe(company, capabilities={"sampling": {}}, answers=answers) for _ in range(3)]
    for peer in peers:
        await peer.__aenter__()
    calls: list[asyncio.Task[Any]] = []
    kills = 0
    for what, name, number in steps:
        if what == "call":
            peer = peers[number]
            calls.append(asyncio.create_task(peer.request("tools/call", {"name": name}, within=120)))
        elif what == "wait":
            await asyncio.sleep(number / 4)
        elif kills < 4:  # more within ten seconds are the end of the company, as it should be
            who = await a_worker(company, number) if name == "a worker" else Ref[Any](company.name(name))
            if who is not None and (name == "a worker" or await _is_there(who)):
                kills += name != "a worker"
                with suppress(NotRegistered):  # it was just about to end by itself
                    await kill(who)
        await asyncio.sleep(0)
    if calls:
        await asyncio.wait(calls)
    for peer in peers:
        ids = [message["id"] for message in peer.received if "method" not in message]
        assert len(ids) == len(set(ids))
    await until(lambda: not company.bulkheads.running)
    await company.registry.ready()
    for peer in peers:
        result = await peer.call("blocks")
        assert result["content"][0]["text"] == "done"
        await peer.close()


async def _is_there(who: Ref[Any]) -> bool:
    try:
        return bool(who.pid)
    except Exception:  # noqa: BLE001 - it is being restarted
        return False
