"""Tasks under fault: whichever process fails, none works for ever, and each wait is answered once.

Peers begin tasks, wait for them, cancel them and look at them, while sessions, task processes, workers and the supervisors above them are
killed. A principal owns the tasks, so they outlive sessions, and are looked for again in the next one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.session.session_client import SessionClient, initialize_request, message, messages_in
from tests.example_counts import examples

from greenroom.actors.company import Company
from greenroom.actors.handler_options import ToolOptions
from greenroom.actors.settings import Settings
from greenroom.supervision import ProcessExited
from greenroom.supervision.testing import FaultPlan, Seed, fault_plans, inject, run, seeds, start_supervised
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from greenroom.actors.context import Context
    from greenroom.actors.task_record import TaskRecord
    from greenroom.transports.interfaces import FeedEvent

VICTIMS = [
    "session",
    "SessionSupervisor",
    "task",
    "TaskProcessSupervisor",
    "TaskSweeper",
    "*tasks*",
    "TaskSupervisor",
    "*'work'*",
    "*'talk'*",
]
Plans = fault_plans(VICTIMS, most=4, within=4)
Acts = st.lists(
    st.tuples(
        st.sampled_from(["work", "talk"]), st.integers(0, 12), st.sampled_from(["result", "cancel", "leave", "call"])
    ),
    min_size=1,
    max_size=5,
)
TERMINAL = ("completed", "failed", "cancelled")


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
    for tool in (work, talk):
        await company.registry.register_tool(tool.__name__, tool, ToolOptions(task_support="optional"))
    return company


async def answer(player: SessionClient, id: int, method: str, **params: Any) -> dict[str, Any] | None:
    """The one message that answers a request; None when its session died first, and nothing more can come."""
    try:
        reply = await player.reply(method, id=id, **params)
    except ProcessExited:
        return None
    if isinstance(reply, EncodedReply):
        return message(reply.body)
    events: list[FeedEvent] = []
    while (more := await reply.next()) is not None:
        events.extend(more)
    answers = [each for each in messages_in(events) if "id" in each and "method" not in each]
    assert len(answers) == 1, answers
    return answers[0]


async def meet(company: Company, peer: Peer) -> SessionClient | None:
    """A session, if there is one to be had just now."""
    entered = await company.start_session(peer, initialize_request())
    if entered.session is None:
        return None
    player = SessionClient(company, entered.session)
    try:
        await player.tell("notifications/initialized")
    except ProcessExited:
        return None
    return player


async def peer(company: Company, number: int, acts: list[tuple[str, int, str]]) -> None:
    """Clients one after another, each with its task."""
    for turn, (tool, quarter, then) in enumerate(acts):
        await asyncio.sleep(0.25)
        player = await meet(company, Peer("test", principal=f"peer {number}"))
        if player is None:
            continue
        task = {} if then == "call" else {"task": {"ttl": 1000_000}}
        begun = await answer(player, 10 * turn, "tools/call", name=tool, arguments={"seconds": quarter * 0.25}, **task)
        if begun is None or "error" in begun or then in ("call", "leave"):
            continue
        id = begun["result"]["task"]["taskId"]
        waiting = asyncio.create_task(answer(player, 10 * turn + 1, "tasks/result", taskId=id))
        if then == "cancel":
            await asyncio.sleep(0.25)
            cancelled = await answer(player, 10 * turn + 2, "tasks/cancel", taskId=id)
            assert cancelled is None or "error" in cancelled or cancelled["result"]["status"] == "cancelled"
            if cancelled is not None and "result" in cancelled:
                assert company.tasks.find(id, f"principal peer {number}").status == "cancelled"
        found = await waiting
        record = company.tasks.store.get(id)
        assert record is not None
        if found is None:
            continue  # the session is gone, and the task goes on
        assert record.terminal or found["error"]["code"] == -32603
        if "result" in found:
            text = found["result"]["content"][0]["text"]
            assert (record.status == "completed") == (text in ("worked", "talked"))


async def play(plan: FaultPlan, acts: list[list[tuple[str, int, str]]]) -> None:
    company = await begin()
    peers = [asyncio.create_task(peer(company, *each)) for each in enumerate(acts)]
    injection = await inject(plan)
    await injection.wait()
    await asyncio.sleep(5)
    await injection.close()  # what was made to hang goes on
    await asyncio.wait_for(asyncio.gather(*peers), 1000)
    await asyncio.sleep(130)  # the process that looks after them has come by
    left: list[TaskRecord] = [each for each in company.tasks.store.list() if not each.terminal]
    assert not left
    player = await meet(company, Peer("test", principal="peer 0"))
    assert player is not None
    begun = await answer(player, 1, "tools/call", name="work", arguments={"seconds": 0}, task={})
    assert begun is not None
    ended = await answer(player, 2, "tasks/result", taskId=begun["result"]["task"]["taskId"])
    assert ended is not None
    assert ended["result"]["content"][0]["text"] == "worked"


@settings(max_examples=examples(150))
@given(plan=Plans, acts=st.lists(Acts, min_size=1, max_size=3), seed=seeds())
def test_no_task_works_for_ever_and_each_wait_has_one_end(
    plan: FaultPlan, acts: list[list[tuple[str, int, str]]], seed: Seed
) -> None:
    run(partial(play, plan, acts), seed=seed)
