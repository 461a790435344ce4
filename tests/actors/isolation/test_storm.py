"""A storm over connection processes, with calls to every server all the time: each call has one outcome, none is done twice, and the spared servers notice nothing.

`make soak` runs all of it, `make deep` a twentieth, and `make test` six faults.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from tests.actors.federation.test_trouble import child_of
from tests.actors.under_fire.load_callers import DEADLINE, Load, loaded
from tests.transports.client_command.process_tree import marked_processes

from greenroom import ClientSettings, GreenroomError, Host
from greenroom.actors.federation.upstream_spec import ConnectionProcess, UpstreamSpec, UpstreamState
from greenroom.supervision import Backoff, CrashReport, Report, current_node, kill

from .isolated_hosts import connection_process_of, in_state, ledger, poisoned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.usefixtures("mark")]

FAULTS = 400
CALM = ClientSettings(backoff=Backoff(first=0.1, longest=1.0))
SPARED = ("apart", "home")
SHOT = ("own", "one", "two")
MANNERS = {
    "SIGKILL": 4,
    "SIGTERM": 2,
    "SIGSEGV": 2,
    "SIGSTOP": 1,
    "poison": 4,
    "server": 3,
    "lease": 2,
    "keeper": 2,
    "connection": 2,
    "refresher": 1,
}


async def befall(host: Host, id: str, manner: str) -> None:
    """One of the faults."""
    if manner == "poison":
        try:
            await host.server(id).call("book", what="exit")
        except GreenroomError:
            return
    elif manner == "server":
        os.kill(await host.server(id).within(20).call("where", into=int), signal.SIGKILL)
    elif manner in ("lease", "connection", "refresher"):
        kill(child_of(host.federation, id, manner))
    elif manner == "keeper":
        room = host.federation.members[id].connection_process
        assert room is not None
        kill(await room.processes.owner(room.spec))
    else:
        os.kill(await connection_process_of(host, id), signal.Signals[manner])


async def storm(seed: int, faults: int, folder: Path, mark: str) -> Counter[str]:
    """Call so many times in a row; returns how the calls ended."""
    source = random.Random(seed)
    group = ConnectionProcess("group")
    crashes: list[CrashReport] = []

    def hear(report: Report) -> None:
        error = getattr(report, "reason", None)
        if isinstance(report, CrashReport) and "Node" not in str(error) and "ProcessExited" not in str(error):
            crashes.append(report)

    current_node().reports.subscribe(hear)
    books = {id: folder / id for id in (*SHOT, *SPARED)}
    servers: dict[str, UpstreamSpec] = {
        "own": poisoned(books["own"], isolation="process", intensity=1000, settings=CALM),
        "one": poisoned(books["one"], isolation=group, intensity=1000, settings=CALM),
        "two": poisoned(books["two"], isolation=group, intensity=1000, settings=CALM),
        "apart": ledger(books["apart"], isolation="process"),
        "home": ledger(books["home"]),
    }
    loads: dict[str, Load] = {}
    async with Host(servers) as host:
        await host.tools()
        for id in servers:
            await host.server(id).call("where")
        before = len(marked_processes(mark))
        async with AsyncExitStack() as stack:
            for id in servers:
                loads[id] = await stack.enter_async_context(loaded(host.server(id).within(DEADLINE), 2))
            for _ in range(faults):
                victim = source.choice(SHOT)
                await befall(host, victim, *source.choices(list(MANNERS), list(MANNERS.values())))
                await asyncio.gather(*(load.more(1) for load in loads.values()))
        for id in servers:
            await in_state(host, id, UpstreamState.READY)
        async with asyncio.timeout(20):
            while len(marked_processes(mark)) > before:  # noqa: ASYNC110 - guardians of killed processes take a moment
                await asyncio.sleep(0.05)
    ends: Counter[str] = Counter()
    for id, load in loads.items():
        lines = [line for line in books[id].read_text().split() if line != "exit"]
        books[id].write_text("\n".join(lines))
        fates = load.judge(books[id])
        assert id not in SPARED or set(fates) == {"answer"}, (id, fates)
        ends += fates
    assert not crashes, "\n".join(str(each) for each in crashes[:5])
    return ends


@pytest.mark.row("FE-04")
@pytest.mark.parametrize("faults", [6, pytest.param(FAULTS // 20, marks=pytest.mark.deep)])
async def test_each_call_has_one_outcome_in_a_storm(faults: int, mark: str, tmp_path: Path) -> None:
    ends = await storm(1, faults, tmp_path, mark)
    assert ends["answer"] > 5 * faults


@pytest.mark.soak
@pytest.mark.row("FE-04")
@pytest.mark.parametrize("seed", [2, 3, 4])
async def test_four_hundred_faults(seed: int, mark: str, tmp_path: Path) -> None:
    ends = await storm(seed, FAULTS, tmp_path, mark)
    assert ends["answer"] > 1000
