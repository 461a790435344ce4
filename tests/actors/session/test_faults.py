"""A whole company under fault: whatever goes wrong in which process, each call has one end, and in the end everything works again.

The workers are the real ones. Faults are drawn: kills, exceptions in handlers, exits, tasks that exit, handlers that hang; their victims
are sessions, workers, and all processes beside and above them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.company import Company
from greenroom.actors.settings import Settings
from greenroom.supervision import ProcessExited
from greenroom.supervision.testing import FaultPlan, Seed, fault_plans, inject, run, seeds, start_supervised
from greenroom.transports.interfaces import EncodedReply, Peer

from .session_client import SessionClient, initialize_request, join, message, messages_in

if TYPE_CHECKING:
    from greenroom.actors.context import Context
    from greenroom.transports.interfaces import FeedEvent

PEER = Peer("test")
VICTIMS = [
    "session",
    "SessionSupervisor",
    "TaskSupervisor",
    "Subscriptions",
    "CatalogueRegistrar",
    "*'work'*",
    "*'talk'*",
]
Plans = fault_plans(VICTIMS, most=4, within=4)
Times = st.lists(st.integers(0, 12), min_size=1, max_size=5)


async def work(seconds: float) -> str:
    """Take so long."""
    await asyncio.sleep(seconds)
    return "worked"


async def talk(seconds: float, ctx: Context) -> str:
    """Say something before and after."""
    await ctx.info("before")
    await asyncio.sleep(seconds)
    await ctx.info("after")
    return "talked"


async def begin() -> Company:
    company = Company(Settings(call_timeout=3, cancel_grace=0.5))
    await start_supervised(company.child_spec())
    await company.registry.register_tool("work", work)
    await company.registry.register_tool("talk", talk)
    return company


async def peer(company: Company, number: int, quarters: list[int]) -> list[Any]:
    """Clients one after another, each with its call; returns their outcomes."""
    found: list[Any] = []
    for turn, quarter in enumerate(quarters):
        await asyncio.sleep(0.25)
        entered = await company.start_session(PEER, initialize_request())
        if entered.session is None:
            found.append(message(entered.answer.body))
            continue
        player = SessionClient(company, entered.session)
        try:
            await player.tell("notifications/initialized")
            name = "work" if (number + turn) % 2 else "talk"
            reply = await player.reply("tools/call", id=turn, name=name, arguments={"seconds": quarter * 0.25})
            if isinstance(reply, EncodedReply):
                found.append(message(reply.body))
                continue
            events: list[FeedEvent] = []
            while (more := await reply.next()) is not None:
                events.extend(more)
            answers = [each for each in messages_in(events) if "id" in each]
            assert len(answers) == 1, answers
            found += answers
        except ProcessExited as error:
            found.append(error)
    return found


async def play(plan: FaultPlan, times: list[list[int]]) -> None:
    company = await begin()
    peers = [asyncio.create_task(peer(company, *each)) for each in enumerate(times)]
    injection = await inject(plan)
    await injection.wait()
    await asyncio.sleep(5)
    await injection.close()  # what was made to hang goes on
    found = await asyncio.wait_for(asyncio.gather(*peers), 1000)
    for quarters, ends in zip(times, found, strict=True):
        assert len(ends) == len(quarters)
        for end in ends:
            if isinstance(end, ProcessExited):
                continue
            if "error" in end:
                assert end["error"]["code"] == -32603
            else:
                text = end["result"]["content"][0]["text"]
                failed = text == "Tool execution failed" or "timed out" in text
                assert text in ("worked", "talked") or (end["result"]["isError"] and failed)
    await asyncio.sleep(30)
    player = await join(company)
    assert (await player.call("work", seconds=0))["result"]["content"][0]["text"] == "worked"
    assert (await player.ask("resources/subscribe", uri="x://y"))["result"] == {}


@settings(max_examples=examples(150))
@given(plan=Plans, times=st.lists(Times, min_size=1, max_size=3), seed=seeds())
def test_each_call_has_one_end_and_the_company_heals(plan: FaultPlan, times: list[list[int]], seed: Seed) -> None:
    run(partial(play, plan, times), seed=seed)
