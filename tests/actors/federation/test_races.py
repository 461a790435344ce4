"""Callers start, stop and replace at the same time, while the manager and its helpers die: one tree for each id, and none besides."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.client.fake_server import SILENCE, After
from tests.example_counts import examples

from greenroom.actors.client.errors import ClientError
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.supervision import ActorError, current_node
from greenroom.supervision.testing import Fault, FaultPlan, inject, run

from .fake_upstreams import Upstairs, all_ready, federated, none_leaving, spec

if TYPE_CHECKING:
    from greenroom.actors.federation.federation import Federation

IDS = ("a", "b", "c")
HELPERS = ("manager", "jobs", "upstreams", "upstream a", "upstream b", "upstream c")


class Slow(Upstairs):
    """Takes a moment to shake hands, or for ever."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__()
        welcome = self._welcome
        self.answers["initialize"] = lambda request: SILENCE if seconds is None else After(seconds, welcome(request))


async def operate(federation: Federation, seed: int, done: list[str]) -> None:
    """Do this and that. Whatever comes of it has a type, and comes."""
    source = random.Random(seed)
    for _ in range(12):
        await asyncio.sleep(source.choice((0.0, 0.0, 0.3, 2.0)))
        id = source.choice(IDS)
        what = source.choice(("start", "start", "stop", "replace", "retry", "call"))
        made = spec(Slow(source.choice((0.0, 0.0, 1.0, None))), grace=1.0)
        try:
            async with asyncio.timeout(100):
                match what:
                    case "start":
                        await federation.start(id, made)
                    case "stop":
                        await federation.stop(id)
                    case "replace":
                        keep_old = source.random() < 0.5
                        await federation.replace(id, made, ready_within=2.0, keep_old=keep_old)
                    case "retry":
                        federation.retry(id)
                    case _:
                        line = federation.line(id)
                        if line is not None:
                            await line.request("ping", timeout=3.0)
        except (ActorError, ClientError) as error:
            done.append(f"{what}: {type(error).__name__}")
        else:
            done.append(f"{what}: done")


async def scene(seed: int) -> list[str]:
    """All at once; and what is left of it."""
    source = random.Random(seed)
    faults = [Fault(source.random() * 2 + 3.5 * number, "kill", f"**/{source.choice(HELPERS)}") for number in range(5)]
    done: list[str] = []
    async with federated() as federation:
        injection = await inject(FaultPlan(tuple(faults)))
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(operate(federation, seed + number, done))
        await injection.wait()
        await injection.close()
        await asyncio.sleep(10.0)
        await none_leaving(federation)
        assert not federation.arriving
        trees = sorted(each.label for each in current_node().processes.values() if each.label.startswith("upstream "))
        running = [id for id, each in federation.statuses().items() if each.state is not UpstreamState.PARKED]
        assert trees == sorted(f"upstream {id}" for id in running)
        for id in IDS:
            if id not in federation.ids():
                await federation.start(id, spec(Upstairs()))
        for id in federation.ids():
            await federation.replace(id, spec(Upstairs()))
        await all_ready(federation)
        assert {each.state for each in federation.statuses().values()} == {UpstreamState.READY}
        await none_leaving(federation)
    return done


@given(st.integers(0, 2**32), st.none() | st.integers(0, 2**32))
@settings(max_examples=examples(30))
def test_each_id_has_exactly_one_tree(seed: int, order: int | None) -> None:
    assert len(run(lambda: scene(seed), seed=order)) == 48
