"""A peer that opens sessions without end: refused before anything is started, without effect on others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.catalogue import caller_key, quota_key
from greenroom.actors.company import Company
from greenroom.actors.session import SessionProcess
from greenroom.actors.session_supervisor import SessionSupervisor
from greenroom.actors.settings import Settings
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import McpError
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.supervision import count_children, current_node, kill, terminate_child, wait_down
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from greenroom.transports.interfaces import SessionStart

INFO = {"name": "flood", "version": "1"}
HELLO = JsonRpcRequest("h", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO})


async def open_company(hooks: Hooks | None = None, **settings: Any) -> Company:
    company = Company(Settings(**settings), hooks=hooks)
    await start_supervised(company.child_spec())
    return company


async def enter(company: Company, principal: object = None, address: str = "203.0.113.9:4711") -> SessionStart:
    return await company.start_session(Peer("http", address, principal), HELLO)


async def sessions_of(company: Company) -> int:
    return (await count_children(company.sessions)).active


@pytest.mark.row("SE-10")
async def test_a_flood_is_503_and_costs_no_process_and_no_call_of_the_servers_code() -> None:
    greeted: list[object] = []
    company = await open_company(Hooks(init=greeted.append), max_sessions=3)
    for _ in range(3):
        assert (await enter(company)).session is not None
    before = current_node()._serial
    for _ in range(500):
        entered = await enter(company)
        assert entered.session is None
        assert entered.answer.status == 503
        assert b"Maximum number of sessions reached" in entered.answer.body
    assert current_node()._serial == before, "no process was even begun"
    assert len(greeted) == 3


@pytest.mark.row("SE-10")
async def test_one_principal_cannot_take_all_sessions() -> None:
    company = await open_company(max_sessions=10, max_sessions_per_principal=4)
    for _ in range(4):
        assert (await enter(company, "greedy")).session is not None
    before = current_node()._serial
    for _ in range(100):
        entered = await enter(company, "greedy")
        assert entered.answer.status == 503
        assert b"one caller may have 4" in entered.answer.body
    assert current_node()._serial == before, "no process was even begun"
    assert await sessions_of(company) == 4
    assert (await enter(company, "modest")).session is not None


@pytest.mark.row("SE-10")
@pytest.mark.parametrize("how", ["ends", "is killed", "is closed", "is stopped"])
async def test_a_principal_may_replace_an_ended_session(how: str) -> None:
    company = await open_company(max_sessions_per_principal=1)
    for _ in range(5):
        session = (await enter(company, "one")).session
        assert session is not None
        assert (await enter(company, "one")).session is None
        found = company.peers.ref(session.id)
        pid = found.pid
        assert pid is not None
        match how:
            case "ends":
                await session.end()
            case "is killed":
                kill(pid)
            case "is closed":
                found.cast(SessionProcess.end)
            case _:
                await terminate_child(company.sessions, pid)
        await wait_down(pid)
        assert await sessions_of(company) == 0
    supervisor: Any = current_node().names[company.name("sessions")].behaviour
    assert isinstance(supervisor, SessionSupervisor)
    assert (supervisor._callers, supervisor._counts) == ({}, {})


@pytest.mark.row("SE-10")
async def test_without_a_principal_the_address_counts_unless_it_is_local() -> None:
    company = await open_company(max_sessions_per_principal=2)
    for port in range(5):
        entered = await enter(company, address=f"203.0.113.9:{port}")
        assert (entered.session is not None) is (port < 2)
        assert (await enter(company, address=f"127.0.0.1:{port}")).session is not None
    assert (await enter(company, address="203.0.113.10:1")).session is not None


@pytest.mark.parametrize(
    ("peer", "caller"),
    [
        (Peer("http", "203.0.113.9:4711"), ("address", "203.0.113.9")),
        (Peer("http", "::ffff:203.0.113.9:4711"), ("address", "203.0.113.9")),
        (Peer("http", "2001:db8:1:2:3:4:5:6:4711"), ("address", "2001:db8:1:2::/64")),
        (Peer("http", "2001:db8:1:2:ffff::6:4711"), ("address", "2001:db8:1:2::/64")),
        (Peer("http", "127.0.0.1:4711"), None),
        (Peer("http", "::1:4711"), None),
        (Peer("http", "::ffff:127.0.0.1:1"), None),
        (Peer("http", "127.0.0.1:4711", proxied=False), ("address", "127.0.0.1")),
        (Peer("http", "203.0.113.9:4711", proxied=True), None),
        (Peer("http", "203.0.113.9:4711", "anna", proxied=True), ("principal", "anna")),
        (Peer("http", "testclient:50000"), None),
        (Peer("stdio"), None),
        (Peer("http", "127.0.0.1:4711", 0), ("principal", 0)),
        (Peer("http", "203.0.113.9:4711", "anna"), ("principal", "anna")),
    ],
)
def test_peers_are_grouped_by_principal_or_address(peer: Peer, caller: tuple[str, object] | None) -> None:
    assert caller_key(peer) == caller
    assert quota_key(peer, "s1") == (caller or ("session", "s1"))


async def test_streams_of_legacy_clients_count_as_sessions() -> None:
    company = await open_company(max_sessions_per_principal=2)
    for port in (1, 2):
        await company.connect(Peer("http", f"203.0.113.9:{port}"))
    with pytest.raises(McpError):
        await company.connect(Peer("http", "203.0.113.9:3"))
    await company.connect(Peer("http", "203.0.113.10:1"))
    await company.connect(Peer("http", "203.0.113.9:4", "ann"))


async def test_a_request_without_session_counts_while_it_is_answered() -> None:
    company = await open_company(max_sessions_per_principal=1)
    assert (await enter(company, "one")).session is not None
    answer = await company.once(Peer("http", "203.0.113.9:1", "one"), JsonRpcRequest(1, "ping"))
    assert answer.status == 503
    answer = await company.once(Peer("http", "203.0.113.9:1", "two"), JsonRpcRequest(1, "ping"))
    assert answer.status == 200


async def test_the_log_reports_refusals_once_a_minute_without_the_principal(caplog: pytest.LogCaptureFixture) -> None:
    company = await open_company(max_sessions_per_principal=1)
    with caplog.at_level(logging.WARNING, "greenroom.sessions"):
        for _ in range(50):
            await enter(company, "secret")
    (record,) = caplog.records
    assert "max_sessions_per_principal" in record.getMessage()
    assert "secret" not in record.getMessage()
