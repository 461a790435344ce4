"""Child processes that are killed, stopped, or crash in the middle of calls: those calls end at once, the next one works, the others never notice."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from typing import TYPE_CHECKING

import pytest

from greenroom import Client, ClientSettings, Host, RequestLost, RequestTimeout
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.transports import ProcessDied

from .bystanders import FACTOR, begun, bystanders, ledger

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

ROUNDS = 5
TOLD = 0.05
"""Seconds from the death of a server until its callers know of it,"""
BACK = 1.0
"""and until the next call is answered, besides what the server itself takes to start."""


@pytest.mark.deep
@pytest.mark.row("CT-10", "CT-11", "FE-01")
@pytest.mark.parametrize("with_what", ["SIGKILL", "SIGSEGV"])
async def test_a_death_in_mid_call(with_what: str, tmp_path: Path) -> None:
    number = signal.Signals[with_what]
    book = tmp_path / "book"
    began = time.perf_counter()
    async with Client(ledger(book)) as alone:
        await alone.call("where")
        start = time.perf_counter() - began
    patient = BreakerSettings(failures=1000)  # it is the deaths that are looked at, not when one loses patience
    others = {"left": ledger(book), "right": ledger(book)}
    told: list[float] = []
    back: list[float] = []
    async with Host({"shot": UpstreamSpec(ledger(book), breaker=patient), **others}) as host:
        shot, left, right = (host.server(id) for id in ("shot", *others))
        processes = {await words.call("where", into=int) for words in (left, right)}
        async with bystanders([left, right]) as callers:
            for _ in range(ROUNDS):
                process = await shot.call("where", into=int)
                calls = await begun(shot, 8)
                began = time.perf_counter()
                os.kill(process, number)
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(outcome, RequestLost)
                    assert outcome.maybe_done
                    assert isinstance(outcome.cause, ProcessDied)
                    assert outcome.cause.signal == with_what
                told.append(time.perf_counter() - began)
                assert await shot.call("where", into=int) != process
                back.append(time.perf_counter() - began)
        assert {process for one in callers for process in one.met} == processes
    assert statistics.median(told) < FACTOR * TOLD, told
    assert statistics.median(back) < FACTOR * (BACK + start), (back, start)


@pytest.mark.row("CT-10", "CL-05")
async def test_a_program_that_is_stopped_and_continued(tmp_path: Path) -> None:
    async with Host({"stopped": ledger(tmp_path / "book"), "other": ledger(tmp_path / "book")}) as host:
        stopped, other = host.server("stopped"), host.server("other")
        process = await stopped.call("where", into=int)
        async with bystanders([other]):
            os.kill(process, signal.SIGSTOP)
            late = asyncio.ensure_future(stopped.within(0.3).call("where"))
            patient = asyncio.ensure_future(stopped.call("book", what="once"))
            try:
                with pytest.raises(RequestTimeout):
                    await late
                assert not patient.done()
            finally:
                os.kill(process, signal.SIGCONT)
            assert await patient == "once"
        assert await stopped.call("where") == process, "a late answer is dropped, and no reason for a restart"
    assert (tmp_path / "book").read_text() == "once\n"


@pytest.mark.row("CL-17", "CT-10")
async def test_a_program_that_is_stopped_for_good(tmp_path: Path) -> None:
    settings = ClientSettings(ping_interval=0.2, ping_timeout=0.2, ping_failure_threshold=2)
    async with Host(
        {"stopped": ledger(tmp_path / "book"), "other": ledger(tmp_path / "book")}, settings=settings
    ) as host:
        stopped, other = host.server("stopped"), host.server("other")
        process = await stopped.call("where", into=int)
        await other.call("where")
        async with bystanders([other]):
            os.kill(process, signal.SIGSTOP)
            with pytest.raises(RequestLost):
                await stopped.call("book", what="lamp")
            assert await stopped.call("where") != process
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
