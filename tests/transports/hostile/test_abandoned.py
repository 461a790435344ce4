"""Abandoned sessions: gone after their timeout, with everything that was theirs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from greenroom.actors.company import Company
from greenroom.actors.session_supervisor import SessionSupervisor
from greenroom.actors.settings import Settings
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from greenroom.supervision import count_children, current_node
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import Peer

from .raw_clients import TargetServer, target_server

INFO = {"name": "forgetful", "version": "1"}
HELLO = JsonRpcRequest("h", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO})
IDLE = 300.0


def there() -> tuple[int, int, int]:
    """Processes, names and running timers, except the timer for all deadlines of the node."""
    node = current_node()
    loop: Any = asyncio.get_running_loop()
    timers = [each for each in loop._scheduled if not each.cancelled() and "Deadlines" not in repr(each)]
    return len(node.processes), len(node.names), len(timers)


@pytest.mark.row("SE-11", "SE-13")
@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_abandoned_sessions_end_after_their_timeout(count: int) -> None:
    company = Company(Settings(max_sessions=None, max_sessions_per_principal=None, session_idle=IDLE))
    await start_supervised(company.child_spec())
    await asyncio.sleep(1.0)
    before = there()
    for number in range(count):
        session = (await company.start_session(Peer("http", f"203.0.113.{number % 250}:1", number % 7), HELLO)).session
        assert session is not None
        if number % 2:  # the others are refused before
            await session.notify(JsonRpcNotification("notifications/initialized"))
            await session.request(JsonRpcRequest(1, "resources/subscribe", {"uri": f"note://{number}"}))
        if number % 4 == 1:
            (await session.listen()).leave()
    assert (await count_children(company.sessions)).active == count
    await asyncio.sleep(IDLE - 10.0)
    assert (await count_children(company.sessions)).active == count, "their time is not over"
    await asyncio.sleep(30.0)
    assert (await count_children(company.sessions)).active == 0
    assert there() == before
    assert not company.subscription_table.sessions
    assert not company.subscription_table.subscribers
    supervisor: Any = current_node().names[company.name("sessions")].behaviour
    assert isinstance(supervisor, SessionSupervisor)
    assert (supervisor._callers, supervisor._counts) == ({}, {})


@pytest.mark.row("SE-12")
async def test_a_lifetime_ends_active_sessions_as_well() -> None:
    company = Company(Settings(session_idle=IDLE, session_lifetime=60.0))
    await start_supervised(company.child_spec())
    sessions = [(await company.start_session(Peer("http", "127.0.0.1:1"), HELLO)).session for _ in range(20)]
    for _ in range(5):
        await asyncio.sleep(11.0)
        for session in sessions:
            assert session is not None
            await session.request(JsonRpcRequest(1, "ping"))
    await asyncio.sleep(11.0)
    assert (await count_children(company.sessions)).active == 0


@pytest.mark.row("SE-11")
@pytest.mark.soak
def test_the_memory_of_abandoned_sessions_is_returned(no_leaks: None) -> None:
    count, idle = 20_000, 40.0
    with target_server(settings={"max_sessions": None, "session_idle": idle}) as opened:
        empty = opened.cost()["processes"]
        _abandon(opened, 100)
        before = _once_gone(opened, empty, idle)  # afterwards the process has all that it ever needs
        _abandon(opened, count)
        full = opened.cost()
        assert full["processes"] >= before["processes"] + count
        after = _once_gone(opened, before["processes"], idle)
        for what in ("processes", "names", "descriptors"):
            assert after[what] <= before[what], what
        assert after["timers"] <= before["timers"] + 2
        growth = full["memory"] - before["memory"]
        kept = _settled(opened, before["memory"] + growth * KEPT) - before["memory"]
        print(f"{count} abandoned: {growth / count / 1024:.1f} KiB each, {kept / growth:.0%} of it kept")  # noqa: T201
        assert kept <= growth * KEPT, (before, full, after)


@pytest.mark.deep
@pytest.mark.row("SE-11")
def test_repeated_crowds_take_no_more_memory_than_the_first(no_leaks: None) -> None:
    count, idle = 1_000, 3.0
    with target_server(settings={"max_sessions": None, "session_idle": idle}) as opened:
        empty = opened.cost()["processes"]
        _abandon(opened, 100)
        before = _once_gone(opened, empty, idle)
        most: list[int] = []
        for _ in range(2):
            _abandon(opened, count)
            most.append(opened.memory())  # the kernel tells: a session that could tell may be over by now
            assert _once_gone(opened, empty, idle)["names"] <= before["names"]
        taken = most[0] - before["memory"]
        assert most[1] - most[0] <= taken // 4, (before, most)


KEPT = 0.4
"""How much of the memory may stay. Of twenty thousand sessions it is a fifth to a third: the page on hostile peers explains it."""


def _abandon(opened: TargetServer, count: int) -> None:
    """Start sessions that no client comes back to."""
    line = opened.caller()
    for _ in range(count):
        line.session = ""
        line.enter()
    line.close()


def _once_gone(opened: TargetServer, processes: int, idle: float) -> dict[str, int]:
    """The memory of the server once its sessions are gone. It is another process, so there is no event to wait for."""
    opened.forget()
    time.sleep(idle)
    deadline = time.perf_counter() + idle + 30.0
    while (cost := opened.cost())[
        "processes"
    ] > processes:  # each measurement leaves a timer for a minute, so there are few
        assert time.perf_counter() < deadline, cost
        time.sleep(1.0)
    return cost


def _settled(opened: TargetServer, enough: float) -> int:
    """The memory of the server when it is down to that, or after as long as a cancelled object may be kept."""
    deadline = time.perf_counter() + 70.0
    while (memory := opened.memory()) > enough and time.perf_counter() < deadline:
        time.sleep(1.0)
    return memory
