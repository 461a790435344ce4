"""Reports are collected with their times; a test takes those that it expects."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.supervision import Crash, CrashReport, GenServer, Ref, Unexpected, start
from greenroom.supervision.testing import CollectedReports, run


class Server(GenServer):
    async def boom(self, after: float) -> None:
        await asyncio.sleep(after)
        raise ValueError("boom")


async def crash(after: float) -> Ref[Server]:
    server = await start(Server)
    server.cast(Server.boom, after)
    return server


async def test_a_report_is_waited_for(reports: CollectedReports) -> None:
    server = await crash(3)
    report = await reports.expect(CrashReport, within=4)
    assert report.pid == server.pid
    assert asyncio.get_running_loop().time() == 3
    assert reports == [report]
    assert reports.unexpected() == []
    reports.assert_all_expected()


async def test_each_report_is_taken_once_and_only_if_it_fits(reports: CollectedReports) -> None:
    one, two = await crash(1), await crash(2)
    assert (await reports.expect(CrashReport, lambda report: report.pid == two.pid, within=5)).pid == two.pid
    assert (await reports.expect(CrashReport)).pid == one.pid
    with pytest.raises(AssertionError, match="no CrashReport came within 1 s; not expected: nothing"):
        await reports.expect(CrashReport)
    assert [isinstance(report.reason, Crash) for report in reports.of(CrashReport)] == [True, True]


async def test_unexpected_reports_are_listed(reports: CollectedReports) -> None:
    server = await crash(1)
    server.send("what?")
    await asyncio.sleep(2)
    with pytest.raises(AssertionError, match=r"unexpected reports:\n  Server .*ValueError: boom"):
        reports.assert_all_expected()
    with pytest.raises(AssertionError, match=r"no Unexpected came .*; not expected:\n  Server "):
        await reports.expect(Unexpected)
    assert reports.lines()[0].startswith("at 1 s: Server ")


def test_a_strict_run_fails_on_an_unexpected_crash() -> None:
    async def main() -> None:
        await crash(1)
        await asyncio.sleep(2)

    with pytest.raises(AssertionError, match="unexpected reports"):
        run(main, strict=True)
    run(main)
