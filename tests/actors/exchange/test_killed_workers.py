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
ASKED: Final = 0.05
"""Seconds that each user takes."""
ENDS: Final = (
    r"booked \d+",
    r"Tool execution failed: its process was ended by signal 9 \(SIGKILL\), which greenroom did not send.*",
    r"Tool execution failed.*",
)


async def play(client: StatelessClient, number: int, path: Path) -> str:
    """One call with its answer; the text in its end."""
    params: dict[str, Any] = {"name": "book", "arguments": {"call": number, "path": str(path)}}
    result = await client.result("tools/call", **params)
    if result["resultType"] == "input_required":
        await asyncio.sleep(ASKED)
        answer = {"who": {"action": "accept", "content": {"value": "Ada"}}}
        retry = {"inputResponses": answer, "requestState": result["requestState"]}
        both = await asyncio.gather(*(client.answer("tools/call", **params, **retry) for _ in range(2)))
        refused = [each["error"]["data"]["reason"] for each in both if "error" in each]
        assert refused == ["gone"], both
        (result,) = (each["result"] for each in both if "result" in each)
    text: str = result["content"][0]["text"]
    assert any(re.fullmatch(end, text) for end in ENDS), json.dumps(result)
    assert result["isError"] is not text.startswith("booked")
    return text.split(" ", maxsplit=1)[0]


def lines_of(path: Path) -> list[str]:
    """What the tools have noted."""
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


async def storm(calls: int, kills: int, seed: int, path: Path) -> Counter[str]:
    """So many calls, while so many worker processes are killed."""
    server = Server("killed", settings=Settings(parked_timeout=20.0, max_exchanges=None, cancel_grace=0.2))
    server.tool(isolation=Pool(size=2))(import_module("asking_tools").book)
    before, numbers = descendants(), random.Random(seed)
    ends: Counter[str] = Counter()
    turns = asyncio.Semaphore(8)
    async with server.started() as company:
        client = StatelessClient(company, Peer("test", principal="ada"))

        async def one(number: int) -> None:
            async with turns:
                ends[await play(client, number, path)] += 1

        begun = [asyncio.ensure_future(one(number)) for number in range(calls)]
        killed = 0
        while killed < kills and not all(each.done() for each in begun):
            await asyncio.sleep(numbers.choice((0.02, 0.1, 0.3)))
            workers = sorted({int(line.split()[2]) for line in lines_of(path) if "begun" in line} & descendants())
            if workers:
                os.kill(numbers.choice(workers), signal.SIGKILL)
                killed += 1
        await asyncio.gather(*begun)
        assert (company.exchanges.open, company.exchanges.parked) == (0, 0)
    assert descendants() <= before
    steps = Counter(tuple(line.split()[:2]) for line in lines_of(path))
    assert set(steps.values()) == {1}
    assert sum(step == "accept" for _, step in steps) >= ends["booked"]
    return ends


async def test_calls_in_worker_processes_end_once_when_those_are_killed(tmp_path: Path) -> None:
    ends = await storm(60, 5, seed=1, path=tmp_path / "notes")
    assert ends.total() == 60
    assert set(ends) == {"booked", "Tool"}


@pytest.mark.soak
async def test_many_calls_in_worker_processes_end_once_when_those_are_killed(tmp_path: Path) -> None:
    ends = await storm(2_000, 200, seed=2, path=tmp_path / "notes")
    assert ends.total() == 2_000
    assert set(ends) == {"booked", "Tool"}
