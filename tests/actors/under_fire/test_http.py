"""An HTTP server that is restarted under load, and a network that breaks: one outcome for each call, nothing done twice, neighbours undisturbed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from greenroom import ClientSettings, Command, Host
from greenroom.supervision import Backoff
from greenroom.testing import FaultyNetwork

from .bystanders import bystanders, ledger
from .load_callers import DEADLINE, loaded, station

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.deep]

CALLERS = 12
SETTINGS = ClientSettings(request_timeout=DEADLINE, backoff=Backoff(first=0.02, longest=0.2))


@pytest.mark.row("CT-03", "FE-01")
@pytest.mark.parametrize("restarts", [4, pytest.param(40, marks=pytest.mark.soak)])
async def test_a_server_is_restarted_under_load(restarts: int, tmp_path: Path) -> None:
    book, aside = tmp_path / "book", tmp_path / "aside"
    async with station(book) as server, station(aside) as other:
        servers: dict[str, str | Command] = {"again": server.url, "other": other.url, "program": ledger(aside)}
        async with Host(servers, settings=SETTINGS) as host:
            for id in servers:
                await host.server(id).call("where")
            others = bystanders([host.server("other"), host.server("program")])
            async with others, loaded(host.server("again"), CALLERS) as load:
                for count in range(restarts):
                    await load.more(50)
                    await server.end(signal.SIGTERM if count % 2 else signal.SIGKILL)
                    await server.start()
                await load.more(50)
        ends = load.judge(book)
    assert set(ends) > {"answer"}, "it was restarted without any failed call: then there was no load"


@pytest.mark.row("CT-03", "FE-01")
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_the_way_to_it_breaks(rounds: int, tmp_path: Path) -> None:
    book, aside = tmp_path / "book", tmp_path / "aside"
    async with station(book) as server, FaultyNetwork(server.url) as net:
        servers: dict[str, str | Command] = {"far": net.url, "straight": server.url, "program": ledger(aside)}
        async with Host(servers, settings=SETTINGS) as host:
            for id in servers:
                await host.server(id).call("where")
            others = bystanders([host.server("straight"), host.server("program")])
            async with others as (straight, _), loaded(host.server("far"), CALLERS) as load:
                for count in range(rounds):
                    await load.more(50)
                    net.cut()
                    await load.more(50)
                    await net.refuse()
                    net.cut()
                    await load.lost(CALLERS)
                    await net.admit()
                    await load.more(50)
                    net.stall()
                    if count % 2:
                        await load.lost(CALLERS)  # longer than a call may take; otherwise shorter
                    else:
                        await load.all_waiting()
                        await straight.more(50)
                    net.resume()
                    await load.more(50)
                    net.back.cut_after(700 + 97 * count)
                    await load.more(50)
                    net.out.cut_after(500 + 61 * count)
                    await load.more(50)
                    net.back.garble(40)
                    await load.more(50)
                    net.out.garble(40)
                    await load.more(50)
        ends = load.judge(book)
    assert set(ends) > {"answer"}
