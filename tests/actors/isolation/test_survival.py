"""The death of a connection process ends the calls of its own servers and no others: each gets one error, and the tools come back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.under_fire.bystanders import begun, bystanders

from greenroom import ConfigError, Host, RequestLost, Server
from greenroom.actors.client.errors import Parked
from greenroom.actors.federation.upstream_spec import ConnectionProcess, UpstreamSpec, UpstreamState
from greenroom.client_targets import route_of
from greenroom.supervision.cluster.node_records import NodeLost
from greenroom.transports.client.errors import NodeEnded

from .isolated_hosts import all_gone, connection_process_of, in_state, ledger, poisoned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.usefixtures("mark"), pytest.mark.deep]

MIB = 1024 * 1024
TOLD = 0.05 * 5
"""Seconds from the death of a connection process until its callers know of it, with other tests running beside."""
SILENT = 3.0 + 2.0
"""Seconds until a process that has stopped counts as hung, which takes three heartbeats."""

DEATHS = {
    "exit": "exited with code 3",
    "segfault": "SIGSEGV",
    "abort": "SIGABRT",
    "spin": "did not answer any more",
    "stop": "did not answer any more",
}


@pytest.mark.deep
@pytest.mark.parametrize("manner", DEATHS)
async def test_an_answer_that_takes_its_reader_down(manner: str, tmp_path: Path) -> None:
    book = tmp_path / "book"
    group = ConnectionProcess("risky")
    servers = {
        "bad": poisoned(book, isolation=group),
        "sharing": ledger(book, isolation=group),
        "apart": ledger(book, isolation="process"),
        "home": ledger(book),
    }
    async with Host(servers) as host:
        bad, sharing, apart, home = (host.server(id) for id in servers)
        assert len(await host.tools()) == 16
        before = await connection_process_of(host, "bad")
        assert await connection_process_of(host, "sharing") == before
        async with bystanders([apart, home]):
            calls = [*await begun(bad, 2), *await begun(sharing, 2)]
            began = time.perf_counter()
            calls.append(asyncio.ensure_future(bad.call("book", what=manner)))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert time.perf_counter() - began < (SILENT if "not answer" in DEATHS[manner] else TOLD + 0.5)
            if outcomes[-1] == "stop":  # it has left its process group
                del outcomes[-1]
            for outcome in outcomes:
                assert isinstance(outcome, RequestLost), outcome
                assert outcome.maybe_done
                assert isinstance(outcome.cause, NodeEnded)
                assert DEATHS[manner] in str(outcome)
            assert await bad.call("book", what="lamp") == "lamp"
            assert await sharing.call("book", what="table") == "table"
            assert await connection_process_of(host, "bad") == await connection_process_of(host, "sharing") != before
            assert len(await host.tools()) == 16
    assert book.read_text().split() == [manner, "lamp", "table"], "what may have been done is not done again"


async def test_an_answer_that_takes_all_memory_ends_its_connection_or_its_process(tmp_path: Path) -> None:
    servers = {
        "bad": poisoned(tmp_path / "book", isolation=ConnectionProcess(memory=256 * MIB)),
        "home": ledger(tmp_path / "book"),
    }
    async with Host(servers) as host:
        bad, home = (host.server(id) for id in servers)
        await host.tools()
        async with bystanders([home]):
            with pytest.raises(RequestLost):
                await bad.call("book", what="memory")
            await bad.line.ready()  # the process may end a moment after its connection, and take the next attempt along
            assert await bad.call("book", what="lamp") == "lamp"


@pytest.mark.deep
@pytest.mark.parametrize("with_what", ["SIGKILL", "SIGTERM", "SIGSEGV"])
async def test_a_connection_process_that_is_killed_from_outside(with_what: str, mark: str, tmp_path: Path) -> None:
    number = signal.Signals[with_what]
    servers = {"one": ledger(tmp_path / "book", isolation="process"), "home": ledger(tmp_path / "book")}
    async with Host(servers) as host:
        one, home = (host.server(id) for id in servers)
        server = await one.call("where", into=int)
        async with bystanders([home]):
            calls = await begun(one, 8)
            process = await connection_process_of(host, "one")
            began = time.perf_counter()
            os.kill(process, number)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert time.perf_counter() - began < TOLD
            assert all(isinstance(each, RequestLost) and isinstance(each.cause, NodeEnded) for each in outcomes)
            assert with_what in str(outcomes[0])
            other = await one.call("where", into=int)
            assert other != server
            while _lives(server):  # the child reaper sees to that
                assert time.perf_counter() - began < 10
                await asyncio.sleep(0.02)
    await all_gone(mark)


async def test_a_connection_process_that_is_stopped_from_outside(tmp_path: Path) -> None:
    servers = {"one": ledger(tmp_path / "book", isolation="process"), "home": ledger(tmp_path / "book")}
    async with Host(servers) as host:
        one, home = (host.server(id) for id in servers)
        await one.call("where")
        async with bystanders([home]):
            calls = await begun(one, 3)
            began = time.perf_counter()
            os.kill(await connection_process_of(host, "one"), signal.SIGSTOP)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert time.perf_counter() - began < SILENT
            assert all(isinstance(each, RequestLost) for each in outcomes)
            assert await one.call("book", what="lamp") == "lamp"


async def test_a_server_that_kills_its_connection_process_too_often_is_parked_and_returns_on_demand(
    tmp_path: Path,
) -> None:
    book = tmp_path / "book"
    servers = {"bad": poisoned(book, isolation="process", intensity=1), "other": ledger(book, isolation="process")}
    async with Host(servers) as host:
        bad, other = host.server("bad"), host.server("other")
        async with bystanders([other]):
            for _ in range(2):
                with pytest.raises(RequestLost):
                    await bad.call("book", what="exit")
            cause = await in_state(host, "bad", UpstreamState.PARKED)
            assert cause is not None
            assert isinstance(cause.cause, NodeLost)  # type: ignore[attr-defined]
            assert "died more than 1 times within 60 s" in cause.__notes__[0]
            with pytest.raises(Parked, match="exited with code 3"):
                await bad.call("where")
            host.retry("bad")
            await in_state(host, "bad", UpstreamState.READY)
            assert await bad.call("book", what="lamp") == "lamp"


async def test_proxied_callers_are_counted_by_their_own_budgets(tmp_path: Path) -> None:
    book, group = tmp_path / "book", ConnectionProcess()
    servers = {
        "bad": poisoned(book, isolation=group, intensity=1),
        "patient": ledger(book, isolation=group, intensity=5),
    }
    async with Host(servers) as host:
        bad, patient = host.server("bad"), host.server("patient")
        for _ in range(2):
            await patient.call("where")
            with pytest.raises(RequestLost):
                await bad.call("book", what="exit")
        await in_state(host, "bad", UpstreamState.PARKED)
        assert await patient.call("book", what="lamp") == "lamp"


async def test_the_connection_process_ends_with_its_last_connection(mark: str, tmp_path: Path) -> None:
    book, group = tmp_path / "book", ConnectionProcess()
    async with Host({"one": ledger(book, isolation=group), "two": ledger(book, isolation=group)}) as host:
        one, two = [await host.server(id).call("where", into=int) for id in ("one", "two")]
        process = await connection_process_of(host, "one")
        await host.remove("one", grace=0.0)
        assert not _lives(one)
        assert await host.server("two").call("where") == two
        assert _lives(process)
        await host.remove("two", grace=0.0)
        while _lives(process):  # noqa: ASYNC110 - another program
            await asyncio.sleep(0.02)
        assert not host.status()
        await host.add("three", ledger(book, isolation=group))
        assert await host.server("three").call("book", what="lamp") == "lamp"
    await all_gone(mark)


async def test_all_of_it_stops_in_order(mark: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    began = 0.0
    async with Host({"one": ledger(tmp_path / "book", isolation="process")}) as host:
        await host.server("one").call("where")
        began = time.perf_counter()
    assert time.perf_counter() - began < 3.0
    await all_gone(mark)
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]


async def test_a_server_is_replaced_by_one_in_a_connection_process_and_back(tmp_path: Path) -> None:
    book = tmp_path / "book"
    async with Host({"one": ledger(book)}) as host:
        one = host.server("one")
        calls = [asyncio.ensure_future(one.call("book", what=f"a{number}")) for number in range(5)]
        await host.replace("one", ledger(book, isolation="process"))
        assert await connection_process_of(host, "one")
        calls += [asyncio.ensure_future(one.call("book", what=f"b{number}")) for number in range(5)]
        await host.replace("one", ledger(book))
        await asyncio.gather(*calls)
    assert len(book.read_text().split()) == 10


def test_a_server_that_cannot_be_isolated_is_refused_with_the_reason() -> None:
    server = Server("here")
    with pytest.raises(ConfigError, match="is a server of this program"):
        UpstreamSpec(route_of(server), isolation="process")
    with pytest.raises(ConfigError, match="isolation is 'process' or a ConnectionProcess"):
        UpstreamSpec(route_of("http://x/mcp"), isolation="thread")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="memory must be"):
        ConnectionProcess(memory=1)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("isolation", [None, "process"])
async def test_a_bug_in_a_parser_is_its_wires_end_and_no_call_that_hangs(isolation: Any, tmp_path: Path) -> None:
    async with Host({"bad": poisoned(tmp_path / "book", isolation=isolation)}) as host:
        bad = host.server("bad")
        process = await bad.call("where", into=int)
        with pytest.raises(RequestLost, match="a bug in a parser"):
            await bad.call("book", what="bug")
        assert await bad.call("where", into=int) != process


async def test_all_servers_of_a_host_that_says_no_more_of_them(tmp_path: Path) -> None:
    one, two = (ledger(tmp_path / id).route for id in ("one", "two"))
    async with Host({"one": one, "two": two}, isolation="process") as host:
        await asyncio.gather(*(host.server(id).call("where") for id in ("one", "two")))
        assert await connection_process_of(host, "one") != await connection_process_of(host, "two")
    async with Host({"one": one, "two": two}, isolation=ConnectionProcess()) as host:
        await asyncio.gather(*(host.server(id).call("where") for id in ("one", "two")))
        assert await connection_process_of(host, "one") == await connection_process_of(host, "two")
    with pytest.raises(ConfigError, match="is a server of this program"):
        Host({"here": Server("here")}, isolation="process")
