"""Hosts with servers whose connections run in other processes, and helpers to find and kill those processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.actors.under_fire.bystanders import LEDGER
from tests.transports.client_command.process_tree import MARK, PATIENCE, marked_processes

from greenroom import Command
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState

from .killing_parser import Poisoned

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom import Host

PATIENT = BreakerSettings(failures=1000)
"""Breakers that never open: the tests are about deaths."""


def ledger(book: Path, **changes: Any) -> UpstreamSpec:
    """A server that returns its pid, as a child process of the process that has its connection."""
    mark = os.environ.get(MARK, "")
    return UpstreamSpec(Command(sys.executable, LEDGER, book, env={MARK: mark}), breaker=PATIENT, **changes)


def poisoned(book: Path, **changes: Any) -> UpstreamSpec:
    """The same, with a parser that its answers can kill."""
    route = Poisoned((sys.executable, str(LEDGER), str(book)), os.environ.get(MARK, ""))
    return UpstreamSpec(route, breaker=PATIENT, **changes)


async def connection_process_of(host: Host, id: str) -> int:
    """The pid of the process in which the connection to that server runs."""
    found = await host.federation.process_id(id)
    assert found != os.getpid()
    return found


async def in_state(host: Host, id: str, state: UpstreamState) -> BaseException | None:
    """Wait for that state; returns its cause."""
    async with asyncio.timeout(20):
        async for standing in host.watch():
            if standing.id == id and standing.state is state:
                return standing.cause
    raise AssertionError


async def all_gone(mark: str, *, but: int = 0) -> None:
    """Wait until no process carries the mark, except for `but` of them."""
    until = time.monotonic() + PATIENCE
    while len(left := marked_processes(mark)) > but:
        assert time.monotonic() < until, left
        await asyncio.sleep(0.02)  # other programs: there is no event to wait for
