"""Random calls through a gateway, while their callers leave and their upstream breaks off, asks, falls silent and changes its era."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE, After
from tests.actors.federation.era_upstreams import EraUpstream
from tests.actors.tasks.stateless_client import ABLE, StatelessClient

from greenroom import Server, Settings
from greenroom.protocol.envelope import LOG_LEVEL_KEY
from greenroom.transports.client.errors import ConnectionLost
from greenroom.transports.interfaces import Peer

from .recording_upstream import session_host

if TYPE_CHECKING:
    from greenroom.actors.company import Company
    from greenroom.protocol.jsonrpc import JsonRpcRequest

CALLS = 40
FORM: dict[str, Any] = {"type": "object", "properties": {}}


class FickleUpstream:
    """It asks most callers for their name, takes its time, and sometimes never answers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.stage = EraUpstream("echo")
        self.stage.is_http = chance.random() < 0.5
        self.stage.answers["tools/call"] = self._answer
        self.done: Counter[str] = Counter()
        """How often each call was carried out."""

    def _answer(self, request: JsonRpcRequest) -> Any:
        chance, params = self._chance, request.params
        who: str = params["arguments"]["who"]
        answer: dict[str, Any]
        if "requestState" in params:
            assert params["requestState"] == f"state of {who}"
            assert params["inputResponses"]["k"]["content"] == {"who": who}
        elif self.stage.stateless and chance.random() < 0.6:
            question: dict[str, Any] = {
                "method": "elicitation/create",
                "params": {"message": who, "requestedSchema": FORM},
            }
            answer = {
                "resultType": "input_required",
                "requestState": f"state of {who}",
                "inputRequests": {"k": question},
            }
            return After(chance.random(), answer)
        self.done[who] += 1
        if chance.random() < 0.1:
            return SILENCE
        answer = {"content": [{"type": "text", "text": who}]}
        return After(chance.random() * 2, answer) if chance.random() < 0.6 else answer

    async def break_down(self) -> None:
        """Six times, do one thing or another that servers do."""
        chance, stage = self._chance, self.stage
        for _ in range(6):
            await asyncio.sleep(chance.random() * 2)
            if chance.random() < 0.5:
                stage.deploy(stateless=chance.random() < 0.6)
            alive = [wire for wire in stage.wires if not wire.ended]
            if alive and chance.random() < 0.7:
                await chance.choice(alive).break_off(ConnectionLost("pulled out"))


async def visit(company: Company, number: int, chance: random.Random) -> bool:
    """Call the tool, and answer what it asks. Returns whether it has answered."""
    principal = chance.choice([None, None, "ann", "bob"])
    capabilities: dict[str, Any] = chance.choice([ABLE, {"elicitation": {}}])
    caller = StatelessClient(company, Peer("http", f"192.0.2.{number}:1", principal), capabilities)
    who = f"{principal} {number}"
    params: dict[str, Any] = {"name": "one__echo", "arguments": {"who": who}}
    if chance.random() < 0.3:
        params["_meta"] = {LOG_LEVEL_KEY: "debug"}
    await asyncio.sleep(chance.random() * 8)
    while True:
        message = await caller.answer("tools/call", **params)
        result = message.get("result")
        if result is None or result.get("isError"):
            return False
        if result["resultType"] == "complete":
            assert result["content"][0]["text"] == who
            return True
        asked: dict[str, Any] = result["inputRequests"]
        assert [each["params"]["message"] for each in asked.values()] == [who]
        await asyncio.sleep(chance.random() * 3)
        params["inputResponses"] = {key: {"action": "accept", "content": {"who": who}} for key in asked}
        params["requestState"] = result["requestState"]


@pytest.mark.row("26-R8")
@pytest.mark.parametrize("seed", range(16))
async def test_each_caller_is_asked_and_answered_for_itself_nothing_is_done_twice_and_nothing_stays(seed: int) -> None:
    chance = random.Random(seed)
    up = FickleUpstream(chance)
    server = Server("front", settings=Settings(parked_timeout=20.0, call_timeout=10.0))
    server.mount(session_host({"one": up.stage}, mode="auto", patience=5.0))
    (mounted,) = server._gateways
    connections = mounted.client_connections
    async with server.started() as company:
        await StatelessClient(company).result("tools/list")
        visits = [asyncio.create_task(visit(company, number, chance)) for number in range(CALLS)]
        await up.break_down()
        for each in chance.sample(visits, CALLS // 4):
            each.cancel()
        found = await asyncio.gather(*visits, return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, Exception):
                raise outcome
        assert True in found
        assert set(up.done.values()) == {1}
        await asyncio.sleep(40.0)
        assert (company.exchanges.open, company.exchanges.parked) == (0, 0)
        for connection in connections._connections.values():
            assert not connection.busy
            assert not connection._by_params
            assert not connection._cancels
        assert not connections._reserved
        assert not connections._opening
        await asyncio.sleep(400.0)
        assert len(connections) == 0
