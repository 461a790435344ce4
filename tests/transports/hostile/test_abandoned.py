"""Sessions that no client comes back to: gone when their time is over, with everything that was theirs."""

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
    """Processes, names, and timers that are running, but for the one that looks after all deadlines of the node."""
    node = current_node()
    loop: Any = asyncio.get_running_loop()
    timers = [each for each in loop._scheduled if not each.cancelled() and "Deadlines" not in repr(each)]
    return len(node.processes), len(node.names), len(timers)


@pytest.mark.row("SE-11", "SE-13")
@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_abandoned_sessions_are_gone_after_their_time(count: int) -> None:
    company = Company(Settings(max_sessions=None, max_sessions_per_principal=None, session_idle=IDLE))
    await start_supervised(company.child_spec())
    await asyncio.sleep(1.0)
    before = there()
    for number in range(count):
        session = (await company.start_session(Peer("http", f"203.0.113.{number % 250}:1", number % 7), HELLO)).session
        assert session is not None
        if number % 2:  # the others do not even get that far
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
async def test_a_lifetime_ends_also_who_is_never_silent() -> None:
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
def test_the_memory_of_abandoned_sessions_comes_back(no_leaks: None) -> None:
    count, idle = 20_000, 40.0
    with target_server(settings={"max_sessions": None, "session_idle": idle}) as opened:
        empty = opened.cost()["processes"]
        _abandon(opened, 100)
        before = _once_gone(opened, empty, idle)  # then it has all that it ever needs
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
def test_one_crowd_after_another_takes_no_more_memory_than_the_first(no_leaks: None) -> None:
    count, idle = 1_000, 3.0
    with target_server(settings={"max_sessions": None, "session_idle": idle}) as opened:
        empty = opened.cost()["processes"]
        _abandon(opened, 100)
        before = _once_gone(opened, empty, idle)
        most: list[int] = []
        for _ in range(2):
            _abandon(opened, count)
            most.append(opened.memory())  # the kernel says so: a session that asks may be over by now
            assert _once_gone(opened, empty, idle)["names"] <= before["names"]
        taken = most[0] - before["memory"]
        assert most[1] - most[0] <= taken // 4, (before, most)


KEPT = 0.4
"""How much of it may stay. Of twenty thousand sessions it is a fifth to a third: the page on hostile peers says what holds it."""


def _abandon(opened: TargetServer, count: int) -> None:
    """Begin sessions that no client comes back to."""
    line = opened.caller()
    for _ in range(count):
        line.session = ""
        line.enter()
    line.close()


def _once_gone(opened: TargetServer, processes: int, idle: float) -> dict[str, int]:
    """What the server costs once its sessions are gone. It is another process: there is no event to wait for."""
    opened.forget()
    time.sleep(idle)
    deadline = time.perf_counter() + idle + 30.0
    while (cost := opened.cost())["processes"] > processes:  # each look leaves a timer behind for a minute: few looks
        assert time.perf_counter() < deadline, cost
        time.sleep(1.0)
    return cost


def _settled(opened: TargetServer, enough: float) -> int:
    """What the server has in memory when it has come down so far, or after as long as anything cancelled may be kept."""
    deadline = time.perf_counter() + 70.0
    while (memory := opened.memory()) > enough and time.perf_counter() < deadline:
        time.sleep(1.0)
    return memory
