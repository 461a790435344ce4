"""Storms of faults: whatever dies, hangs or is lost, as many calls end as have started, and each once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.heard_events import HeardEvents, hearing

from greenroom import McpError, PeerError, ToolError
from greenroom.event_types import (
    CallEnded,
    QuestionAsked,
    QuestionEnded,
    SessionClosed,
    SessionOpened,
    TaskCreated,
    TaskEnded,
)
from greenroom.supervision import ActorError
from greenroom.supervision.testing import Fault, FaultPlan, inject
from greenroom.transports.interfaces import EncodedReply
from greenroom.wire_probe import WireEnded, WireProbe

from .call_stage import call_stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .call_stage import CallStage

EVERY: Final = 0.25
"""Seconds between two faults."""
SERVERS: Final = ("TaskProcess", "SessionProcess", "SessionProcess", "ListenProcess")
SUPERVISORS: Final = ("TaskSupervisor", "SessionSupervisor", "TaskProcessSupervisor", "DynamicSupervisor")
KINDS_FOR_WORKERS: Final = ("kill", "exit", "crash")
KINDS_FOR_SERVERS: Final = ("kill", "exit", "crash", "raise", "drop", "duplicate", "delay", "hang")
TOOLS: Final = ("echo", "complain", "refuse", "crash", "wait", "wait", "wait", "ask", "none")
CLIENTS: Final = 12


def draw_faults(count: int, seed: int) -> FaultPlan:
    """So many faults. Supervisors are killed as seldom as their own supervisors allow."""
    numbers = random.Random(seed)
    faults: list[Fault] = []
    for number in range(count):
        if number % 24 == 23:
            faults.append(Fault(EVERY * number, "kill", numbers.choice(SUPERVISORS), numbers.randrange(2)))
        elif numbers.random() < 0.5:
            what = numbers.choice(KINDS_FOR_WORKERS)
            # A pattern with a slash would be a path in the tree.
            faults.append(Fault(EVERY * number, what, "tools?call*", numbers.choice((0, -1))))
        else:
            what, target = numbers.choice(KINDS_FOR_SERVERS), numbers.choice(SERVERS)
            seconds = 0.5 if what in ("delay", "hang") else None
            faults.append(Fault(EVERY * number, what, target, numbers.choice((0, -1)), seconds))
    return FaultPlan(tuple(faults))


class StormClient:
    """Calls tools on all ways, until it is stopped."""

    def __init__(self, stage: CallStage, number: int, seed: int) -> None:
        self.stage = stage
        self.numbers = random.Random(f"{seed} {number}")

    async def play(self) -> None:
        """One call after the other."""
        acts: tuple[Callable[[], Awaitable[object]], ...] = (self.in_session, self.alone, self.alone, self.locally)
        while True:
            with contextlib.suppress(
                ActorError, McpError, PeerError, ToolError, ValueError, WireEnded, TimeoutError, AssertionError
            ):
                async with asyncio.timeout(self.numbers.choice((0.2, 2, 20))):
                    await self.numbers.choice(acts)()
            await asyncio.sleep(0.05)

    async def in_session(self) -> None:
        """Calls in a session of its own, as tasks too, some of them cancelled."""
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}}

        def decline(_: Any) -> dict[str, Any]:
            return {"action": "decline"}

        answers = {"elicitation/create": decline}
        async with WireProbe(self.stage.company, capabilities=capabilities, answers=answers) as probe:
            for _ in range(3):
                params: dict[str, Any] = {"name": self.numbers.choice(TOOLS), "arguments": {}}
                if self.numbers.random() < 0.4:
                    params["task"] = {}
                number = await probe.ask("tools/call", params)
                if self.numbers.random() < 0.2:
                    await probe.cancel(number)
                    continue
                found = await probe.answer(number, within=10)
                if "task" in found.get("result", {}):
                    task = found["result"]["task"]["taskId"]
                    await probe.answer(await probe.ask("tasks/result", {"taskId": task}), within=10)

    async def alone(self) -> None:
        """A call or a listen without a session."""
        client = self.stage.client
        if self.numbers.random() < 0.3:
            feed = await self.stage.listen()
            await feed.next(self.numbers.choice((0.1, 3)))
            feed.leave()
            return
        request = client.request("tools/call", {"name": self.numbers.choice(TOOLS), "arguments": {}})
        reply = await self.stage.company.exchange(client.peer, request, quiet=self.numbers.choice((None, 0.1)))
        if reply is not None and not isinstance(reply, EncodedReply):
            try:
                while await reply.next(5.0) is not None:
                    pass
            finally:
                reply.leave()

    async def locally(self) -> None:
        """A call from the program."""
        await self.stage.company.registry.call_tool(self.numbers.choice(TOOLS[:5]))


async def storm(faults: int, seed: int) -> tuple[HeardEvents, int]:
    """All events of a storm, and how many faults were applied."""
    with hearing() as heard:
        async with call_stage(max_in_flight=5, max_exchanges=8, max_tasks=20) as stage:
            clients = [asyncio.ensure_future(StormClient(stage, each, seed).play()) for each in range(CLIENTS)]
            injection = await inject(draw_faults(faults, seed))
            await asyncio.sleep(EVERY * faults + 5)
            applied = len(injection.injected)
            await injection.close()
            for each in clients:
                each.cancel()
            await asyncio.wait(clients)
            await asyncio.sleep(30)
    return heard, applied


def check(heard: HeardEvents) -> None:
    """Everything that began has ended, once."""
    assert heard.unbalanced() == []
    asked, answered = heard.of(QuestionAsked), heard.of(QuestionEnded)
    assert sorted(each.question for each in asked) == sorted(each.question for each in answered)
    opened, closed = heard.of(SessionOpened), heard.of(SessionClosed)
    assert sorted(each.session for each in opened) == sorted(each.session for each in closed)
    created, ended = heard.of(TaskCreated), heard.of(TaskEnded)
    assert sorted(each.task for each in created) == sorted(each.task for each in ended)
    assert {each.way for each in heard.of(CallEnded)} == {"session", "exchange", "task", "local"}


async def test_in_a_storm_of_fifty_faults_each_call_ends_once() -> None:
    heard, applied = await storm(70, seed=1)
    check(heard)
    assert applied >= 50


@pytest.mark.deep
async def test_in_a_storm_of_a_thousand_faults_each_call_ends_once_and_in_all_ways() -> None:
    heard, applied = await storm(1_250, seed=2)
    check(heard)
    assert applied >= 1_000
    found = {each.outcome for each in heard.of(CallEnded)}
    assert found >= {
        "result",
        "tool_error",
        "error",
        "asks",
        "deadline",
        "cancelled",
        "peer_gone",
        "worker_crashed",
        "process_ended",
        "refused",
    }
