"""Deaths around a parked call: its next round learns of them, once, and no place stays taken."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Context, Server, Settings
from greenroom.supervision import Process, current_node, kill
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.company import Company

BOOK: dict[str, Any] = {"name": "book", "arguments": {}}
YES: dict[str, Any] = {"action": "accept", "content": {"value": "Ada"}}


def booking_server() -> Server:
    """A server whose tool asks."""
    server = Server("booking", settings=Settings(parked_timeout=60.0))

    @server.tool
    async def book(ctx: Context) -> str:
        return (await ctx.elicit("Who?", str, key="who")).action

    return server


def process_of(company: Company, id: str) -> Process:
    """The process of the company with that id, or the one that runs the call."""
    node = current_node()
    if id != "worker":
        found = node.named(company.name(id))
        assert found is not None
        return found
    (worker,) = (each for each in node.processes.values() if each.label.startswith("tools/call 'book'"))
    return worker


@dataclass
class ParkedCall:
    """A call that waits for an answer, and its next round."""

    client: StatelessClient
    retry: dict[str, Any]

    async def check_over(self) -> None:
        """There is no other round, nothing is left of the call, and new ones are served."""
        exchanges = self.client.company.exchanges
        assert (exchanges.parked, exchanges.open) == (0, 0)
        error = await self.client.error("tools/call", **BOOK, **self.retry)
        assert (error["code"], error["data"]) == (-32602, GONE)
        assert list((await self.client.result("tools/call", **BOOK))["inputRequests"]) == ["who"]


@asynccontextmanager
async def parked_call(victim: str) -> AsyncGenerator[ParkedCall]:
    """A parked call in a company of which this process has been killed since."""
    async with booking_server().started() as company:
        client = StatelessClient(company, Peer("test", principal="ada"))
        asked = await client.result("tools/call", **BOOK)
        kill(process_of(company, victim).pid)
        await asyncio.sleep(5)
        yield ParkedCall(client, {"inputResponses": {"who": YES}, "requestState": asked["requestState"]})


GONE: dict[str, Any] = {"reason": "gone", "maybe_done": True}


@pytest.mark.parametrize("id", ["tasks", "registry", "sessions"])
async def test_a_parked_call_does_not_depend_on_other_processes(id: str) -> None:
    async with parked_call(id) as call:
        last = await call.client.result("tools/call", **BOOK, **call.retry)
        assert (last["isError"], last["content"][0]["text"]) == (False, "accept")
        await call.check_over()


async def test_the_next_round_of_a_call_whose_process_has_died_gets_its_failure() -> None:
    async with parked_call("worker") as call:
        assert call.client.company.exchanges.parked == 1
        last = await call.client.result("tools/call", **BOOK, **call.retry)
        assert (last["isError"], last["content"][0]["text"]) == (True, "Tool execution failed")
        await call.check_over()


@pytest.mark.parametrize("id", ["exchanges", "company"])
async def test_parked_calls_are_forgotten_with_the_supervisor_of_their_processes(id: str) -> None:
    async with parked_call(id) as call:
        assert call.client.company.exchanges.parked == 0
        await call.check_over()


async def test_a_call_without_a_process_is_told_that_nothing_was_done() -> None:
    async with booking_server().started() as company:
        client = StatelessClient(company, Peer("test", principal="ada"))
        kill(process_of(company, "exchanges").pid)
        error = await client.error("tools/call", **BOOK)
        assert (error["code"], error["data"]) == (-32603, {"reason": "busy", "maybe_done": False})
        assert company.exchanges.open == 0
        await asyncio.sleep(5)
        assert list((await client.result("tools/call", **BOOK))["inputRequests"]) == ["who"]


async def test_equal_questions_of_a_call_that_is_gone_have_their_answers_in_its_next_run() -> None:
    server = Server("twins")

    @server.tool(annotations={"idempotentHint": True})
    async def name_both(ctx: Context) -> list[str]:
        both = await asyncio.gather(*(ctx.elicit("Who?", str) for _ in range(2)))
        return [str(each) for each in both]

    async with server.started() as company:
        client = StatelessClient(company)
        params: dict[str, Any] = {"name": "name_both", "arguments": {}}
        asked = await client.result("tools/call", **params)
        kill(process_of(company, "exchanges").pid)
        await asyncio.sleep(5)
        answers = {
            key: {"action": "accept", "content": {"value": name}}
            for key, name in reversed(list(zip(asked["inputRequests"], ("Ada", "Eve"), strict=True)))
        }
        done = await client.result("tools/call", **params, inputResponses=answers, requestState=asked["requestState"])
        assert done["resultType"] == "complete"
        assert done["structuredContent"] == ["Accepted(value='Ada')", "Accepted(value='Eve')"]
