"""Calls of several rounds under faults at random: each request has one end, nothing is done twice, and nothing is left.

Clients answer late, in part, twice, or never, and some leave in the middle, while workers, their supervisor, the processes beside it and the whole company are
killed. All of it follows from a seed, on virtual time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Context, Server, Settings
from greenroom.actors.context import Context as CallContext
from greenroom.actors.exchange import Exchange
from greenroom.actors.worker_interfaces import Job
from greenroom.supervision import current_node, kill
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.company import Company
    from greenroom.supervision import Process

PARKED: Final = 60.0
AT_A_TIME: Final = 50
REASONS: Final = {"gone", "used", "expired", "busy"}
RESTARTED: Final = "The server was restarted during this request"
VICTIMS: Final = ("worker", "worker", "worker", "worker", "exchanges", "tasks", "registry", "sessions", "company")
"""Workers die most often. The others have a pause between them that their supervisors allow."""


@dataclass
class Ends:
    """What has become of the requests, and what the tools have done."""

    ends: Counter[str] = field(default_factory=Counter[str])
    kills: Counter[str] = field(default_factory=Counter[str])
    steps: Counter[tuple[str, int, int]] = field(default_factory=Counter[tuple[str, int, int]])
    """How often each step of each call was done, by tool, call and step."""
    requests: Counter[int] = field(default_factory=Counter[int])


def stage_server(ends: Ends) -> Server:
    """A server with two tools that do a step before each of their questions. One of them may be repeated."""
    server = Server("faults", settings=Settings(parked_timeout=PARKED, call_timeout=20.0, cancel_grace=0.5))

    async def play(tool: str, ctx: Context, call: int, rounds: int) -> str:
        for step in range(rounds):
            ends.steps[tool, call, step] += 1
            await ctx.progress(step + 1, rounds)
            async with asyncio.TaskGroup() as group:
                for key in ("a", "b"):
                    group.create_task(ctx.elicit(f"{call}: {key} of step {step}?", str, key=key))
            await asyncio.sleep(0.25)
        return f"{tool} {call}"

    @server.tool
    async def book(ctx: Context, call: int, rounds: int) -> str:
        return await play("book", ctx, call, rounds)

    @server.tool(annotations={"idempotentHint": True})
    async def look(ctx: Context, call: int, rounds: int) -> str:
        return await play("look", ctx, call, rounds)

    return server


class CallOfRounds:
    """One call, whose client is as odd as its numbers say."""

    def __init__(self, company: Company, number: int, seed: int, ends: Ends) -> None:
        self.numbers = random.Random(f"{seed} {number}")
        self.number = number
        self.ends = ends
        self.tool = self.numbers.choice(("book", "look"))
        self.rounds = self.numbers.randint(1, 3)
        self.client = StatelessClient(company, Peer("test", principal=f"principal {number % 7}"))
        self.params: dict[str, Any] = {
            "name": self.tool,
            "arguments": {"call": number, "rounds": self.rounds},
            "_meta": {"progressToken": number},
        }

    async def play(self) -> None:
        """Send the call and its next rounds, until it ends or the client gives up."""
        message = await self._send({})
        for _ in range(4 * self.rounds):
            asked: dict[str, Any] = {} if message is None or "error" in message else message["result"]
            if asked.get("resultType") != "input_required":
                return
            await asyncio.sleep(self.numbers.choice((0, 0, 0.25, 1, 5)))
            if self.numbers.random() < 0.05:
                await asyncio.sleep(PARKED + 1)  # too late: the state has expired
            if self.numbers.random() < 0.05:
                return  # it never answers
            keys = self.numbers.choice((["a", "b"], ["a", "b"], ["a"], ["b", "unknown"], []))
            answer = {"action": "accept", "content": {"value": "yes"}}
            retry: dict[str, Any] = {
                "inputResponses": dict.fromkeys(keys, answer),
                "requestState": asked["requestState"],
            }
            copies = 2 if self.numbers.random() < 0.2 else 1
            found = await asyncio.gather(*(self._send(retry, after=0.5 * copy) for copy in range(copies)))
            if copies == 2 and self.tool == "book":
                assert sum(each is not None and "result" in each for each in found) <= 1, found
            message = next((each for each in found if each is not None and "result" in each), found[0])

    async def _send(self, retry: Mapping[str, Any], after: float = 0.0) -> dict[str, Any] | None:
        """Send a request; the one message that answers it, or None where the client leaves first."""
        await asyncio.sleep(self.numbers.choice((0, after)))
        self.ends.requests[self.number] += 1
        request = self.client.request("tools/call", {**self.params, **retry})
        quiet = self.numbers.choice((None, math.inf, 1.0))
        sending = asyncio.ensure_future(self.client.company.exchange(self.client.peer, request, quiet=quiet))
        if self.numbers.random() < 0.1:
            await asyncio.sleep(self.numbers.choice((0, 0.001, 0.1)))
            sending.cancel()
        try:
            reply = await sending
        except asyncio.CancelledError:
            self.ends.ends["left"] += 1
            return None
        assert reply is not None
        if isinstance(reply, EncodedReply):
            bodies = [reply.body]
        else:
            bodies = list[bytes]()
            while (more := await reply.next(PARKED)) is not None:
                assert more, "the stream neither ends nor says anything"
                bodies += [event.data for event in more if event.answers is not None]
            reply.leave()
        (message,) = map(json.loads, bodies)
        assert message["id"] == request.id
        self._note(message)
        return dict(message)

    def _note(self, message: dict[str, Any]) -> None:
        if "error" in message:
            error = message["error"]
            reason = RESTARTED if error["message"] == RESTARTED else error["data"]["reason"]
            assert reason in REASONS | {RESTARTED}, message
            self.ends.ends[reason] += 1
            return
        result = message["result"]
        if result["resultType"] == "complete":
            text = result["content"][0]["text"]
            assert text == ("Tool execution failed" if result["isError"] else f"{self.tool} {self.number}")
            self.ends.ends["failed" if result["isError"] else "done"] += 1
            if not result["isError"]:
                assert all(self.ends.steps[self.tool, self.number, step] for step in range(self.rounds))


def workers() -> list[Process]:
    """The processes of calls."""
    return [each for each in current_node().processes.values() if each.label.startswith("tools/call")]


async def kill_at_random(company: Company, numbers: random.Random, ends: Ends) -> None:
    """Kill a process now and then, until it is cancelled."""
    next_supervisor = 0.0
    while True:
        await asyncio.sleep(numbers.choice((0.1, 0.3, 0.5)))
        now, victim = current_node().now(), numbers.choice(VICTIMS)
        if victim == "worker":
            running = workers()
            found = numbers.choice(running) if running else None
        elif now >= next_supervisor:
            next_supervisor = now + 6
            found = current_node().named(company.name(victim))
        else:
            found = None
        if found is not None:
            ends.kills[victim] += 1
            kill(found.pid)


def left_of_calls() -> Counter[str]:
    """The objects of calls that are not free."""
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, Exchange | Job | CallContext))


async def storm(calls: int, seed: int) -> Ends:
    """So many calls under fault. Nothing is left of them."""
    ends = Ends()
    before = left_of_calls()
    async with stage_server(ends).started() as company:
        processes = len(current_node().processes)
        turns = asyncio.Semaphore(AT_A_TIME)

        async def play(number: int) -> None:
            async with turns:
                await CallOfRounds(company, number, seed, ends).play()

        killing = asyncio.ensure_future(kill_at_random(company, random.Random(seed), ends))
        await asyncio.wait_for(asyncio.gather(*map(play, range(calls))), 100_000)
        killing.cancel()
        await asyncio.wait([killing])
        await asyncio.sleep(PARKED + 1)
        exchanges = company.exchanges
        assert (exchanges.open, exchanges.parked) == (0, 0)
        assert not workers()
        assert len(current_node().processes) == processes
        assert left_of_calls() == before
        begun = await StatelessClient(company, Peer("test")).call("book", call=calls, rounds=0)
        assert begun["content"][0]["text"] == f"book {calls}"
    for (tool, call, _), count in ends.steps.items():
        assert count <= (1 if tool == "book" else ends.requests[call])
    return ends


def check_variety(ends: Ends) -> None:
    """A storm in which something never happened shows nothing about it."""
    assert set(ends.kills) == set(VICTIMS)
    assert set(ends.ends) >= {"done", "failed", "left", "gone", "used", "expired"}, ends.ends


@pytest.mark.row("26-R10", "26-R12")
async def test_calls_of_several_rounds_end_once_whatever_dies() -> None:
    check_variety(await storm(1_000, seed=1))


@pytest.mark.soak
async def test_twenty_thousand_calls_of_several_rounds_end_once_whatever_dies() -> None:
    ends = await storm(20_000, seed=2)
    check_variety(ends)
    print(dict(ends.ends), dict(ends.kills))  # noqa: T201 - with -s
