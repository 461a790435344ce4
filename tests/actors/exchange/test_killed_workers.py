"""Calls that are parked in worker processes, which are killed: each request has one end, and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from tests.actors.survival.leaked_resources import descendants
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Pool, Server, Settings
from greenroom.transports.interfaces import Peer

pytestmark = pytest.mark.greenroom(clock="real")

PROGRAMS: Final = str(Path(__file__).parent / "programs")
if PROGRAMS not in sys.path:
    sys.path.append(PROGRAMS)  # where workers look too
AT_A_TIME: Final = 4
"""As many as there are processes: a call that waits for its user keeps its own."""
ENDS: Final = r"booked \d+|Tool execution failed.*"


class Booking:
    """A call, in two rounds."""

    def __init__(self, client: StatelessClient, number: int, path: Path) -> None:
        self._client = client
        self._params: dict[str, Any] = {"name": "book", "arguments": {"call": number, "path": str(path)}}

    async def ask(self) -> dict[str, Any]:
        """Begin it; its questions, or its end."""
        return await self._client.result("tools/call", **self._params)

    async def answer(self, first: dict[str, Any]) -> str:
        """Answer twice at a time; the first word of its end."""
        result = first
        if first["resultType"] == "input_required":
            answer = {"who": {"action": "accept", "content": {"value": "Ada"}}}
            retry = {"inputResponses": answer, "requestState": first["requestState"]}
            both = await asyncio.gather(*(self._client.answer("tools/call", **self._params, **retry) for _ in range(2)))
            (reason,) = [each["error"]["data"]["reason"] for each in both if "error" in each]
            assert reason in ("used", "gone"), both  # the call is being worked on, or over
            (result,) = (each["result"] for each in both if "result" in each)
        text: str = result["content"][0]["text"]
        assert re.fullmatch(ENDS, text), json.dumps(result)
        assert result["isError"] is not text.startswith("booked")
        return text.split(" ", maxsplit=1)[0]


def lines_of(path: Path) -> list[str]:
    """What the tools have noted."""
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


def kill_worker(numbers: random.Random, path: Path) -> None:
    """Kill a worker process, of those that have noted something."""
    pids = sorted({int(line.split()[2]) for line in lines_of(path) if "begun" in line} & descendants())
    if pids:
        os.kill(numbers.choice(pids), signal.SIGKILL)


async def storm(batches: int, seed: int, path: Path) -> Counter[str]:
    """So many batches of calls; in each, a worker process is killed while calls begin, while they are parked, or while they go on."""
    server = Server("killed", settings=Settings(cancel_grace=0.2))
    server.tool(isolation=Pool(size=AT_A_TIME))(import_module("asking_tools").book)
    before, numbers = descendants(), random.Random(seed)
    ends: Counter[str] = Counter()
    async with server.started() as company:
        client = StatelessClient(company, Peer("test", principal="ada"))
        for batch in range(batches):
            calls = [Booking(client, AT_A_TIME * batch + number, path) for number in range(AT_A_TIME)]
            when = numbers.choice(("beginning", "parked", "going on"))
            asking = [asyncio.ensure_future(call.ask()) for call in calls]
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            if when == "beginning":
                kill_worker(numbers, path)
            asked = await asyncio.gather(*asking)
            if when == "parked":
                kill_worker(numbers, path)
            answering = [asyncio.ensure_future(call.answer(first)) for call, first in zip(calls, asked, strict=True)]
            await asyncio.wait(answering, return_when=asyncio.FIRST_COMPLETED)
            if when == "going on":
                kill_worker(numbers, path)
            ends.update(await asyncio.gather(*answering))
            assert (company.exchanges.open, company.exchanges.parked) == (0, 0)
    assert descendants() <= before
    steps = Counter(tuple(line.split()[:2]) for line in lines_of(path))
    assert set(steps.values()) == {1}
    assert sum(step == "accept" for _, step in steps) >= ends["booked"]
    assert set(ends) == {"booked", "Tool"}
    assert ends.total() == batches * AT_A_TIME
    return ends


async def test_calls_in_worker_processes_end_once_when_those_are_killed(tmp_path: Path) -> None:
    await storm(8, seed=1, path=tmp_path / "notes")


@pytest.mark.soak
async def test_many_calls_in_worker_processes_end_once_when_those_are_killed(tmp_path: Path) -> None:
    await storm(400, seed=2, path=tmp_path / "notes")
