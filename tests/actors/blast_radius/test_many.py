"""Thousands of faults in one busy company: every call is accounted for, and no process dies but those that should."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Server, Settings
from greenroom.supervision import draw, tree

from .counting_clients import MemoryPeer, house
from .test_faults import FAULTS

if TYPE_CHECKING:
    from .counting_clients import House

HONEST, GUILTY = 20, 5
ENDS = ("is waited for", "is waited for", "is cancelled", "is left alone")


class Ledger:
    """What was called, and what came of it."""

    def __init__(self) -> None:
        self.faults = 0
        self.calls = 0


async def be_honest(peer: Any, ledger: Ledger, over: asyncio.Event) -> None:
    """Call without a pause; each call brings its own value, once."""
    while not over.is_set():
        ledger.calls += 1
        text = f"call {ledger.calls}"
        request = await peer.probe.ask("tools/call", {"name": "echo", "arguments": {"text": text}})
        answer = await peer.answer(request)
        assert answer["result"]["content"] == [{"type": "text", "text": text}]
        assert len(peer.answers(request)) == 1
        peer.probe.received.clear()


async def be_guilty(peer: MemoryPeer, ledger: Ledger, dice: random.Random, faults: int) -> None:
    """One fault after the other."""
    for _ in range(faults):
        ledger.faults += 1
        await asyncio.sleep(dice.random() / 10)
        request = await peer.begin(dice.choice(FAULTS).__name__)
        match dice.choice(ENDS):
            case "is waited for":
                assert (await peer.answer(request))["result"]["isError"] is True
                assert len(peer.answers(request)) == 1
            case "is cancelled":
                await peer.cancel(request)
            case _:
                pass


def shape(opened: House) -> str:
    return draw(tree(opened.server.company.name("company")))


@pytest.mark.deep
@pytest.mark.greenroom(seeds=2)
@pytest.mark.parametrize("faults", [200, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_every_call_is_accounted_for_whatever_dies(faults: int) -> None:
    dice = random.Random(faults)
    server = Server("stage", settings=Settings(max_in_flight=100_000))
    for fault in FAULTS:
        server.tool(fault)

    @server.tool
    async def echo(text: str) -> str:
        await asyncio.sleep(dice.random() / 10)
        return text

    ledger = Ledger()
    async with house(server, "memory") as opened:
        honest = [await opened.peer() for _ in range(HONEST)]
        guilty = [await opened.peer() for _ in range(GUILTY)]
        await asyncio.sleep(1.0)
        before = shape(opened)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for peer in honest:
                group.create_task(be_honest(peer, ledger, over))
            async with asyncio.TaskGroup() as faulty:
                for peer in guilty:
                    assert isinstance(peer, MemoryPeer)
                    faulty.create_task(be_guilty(peer, ledger, dice, faults // GUILTY))
            over.set()
        await asyncio.sleep(5.0)
        assert shape(opened) == before
        for peer in guilty:
            assert isinstance(peer, MemoryPeer)
            answered = [each["id"] for each in peer.probe.received]
            assert len(answered) == len(set(answered)), "nothing is answered twice"
    assert ledger.faults == faults
    assert ledger.calls > faults
