"""Fault trials of clients: each kind works with our client, and an error is one cell of the table."""

from __future__ import annotations

import sys

import pytest
from benchmarks.client import fault_table
from benchmarks.contest_rounds import Program

pytestmark = pytest.mark.deep


def trial(name: str) -> fault_table.Trial:
    return next(each for each in fault_table.TRIALS if name in each.name)


def test_ours_when_its_program_is_shot() -> None:
    once = fault_table.Trial("once", "shot", fault_table.shot, {"words": fault_table.SERVER, "number": 9, "rounds": 1})
    cell = fault_table.try_out(once, fault_table.OURS)
    assert cell.startswith("callers: `StreamLost` after ")
    assert "; next call: answered after " in cell
    assert cell.endswith("; neighbours notice: nothing")


def test_ours_when_its_server_is_restarted() -> None:
    cell = fault_table.try_out(trial("an HTTP server"), fault_table.OURS)
    assert cell.startswith("callers: `StreamLost` after ")
    assert cell.endswith(" after it listens again")


@pytest.mark.parametrize(("name", "starts"), [("twice", "caller: answered"), ("half a line", "caller: `RequestLost`")])
def test_ours_when_its_server_misbehaves(name: str, starts: str) -> None:
    cell = fault_table.try_out(trial(name), fault_table.OURS)
    assert cell.startswith(starts)
    assert cell.endswith("; goes on")


def test_a_missing_or_failing_client_is_one_cell() -> None:
    missing = Program("missing", ("/no/such/python",))
    broken = Program("broken", (sys.executable, "-c", "raise SystemExit('no such show')"))
    stuck = Program("stuck", (sys.executable, "-c", "input = __import__('time').sleep(60)"))
    table = fault_table.table([trial("twice")], [missing, broken], lambda _line: None)
    assert "| its environment is not there | the program ends: `no such show` |" in table
    assert fault_table.try_out(trial("twice"), stuck, 0.2) == "the whole program hangs, 0 s and more"


def test_a_cell_names_a_client_that_never_recovers() -> None:
    found = {
        "notified_after": 0.003,
        "slowest": 0.004,
        "hanging": 0,
        "errors": ["Closed"],
        "start": 0.2,
        "back": None,
        "again": "Closed",
        "neighbours": {"calls": 1000, "failed": 2, "longest": 1.0},
    }
    assert fault_table.shot(found) == (
        "callers: `Closed` after 3.0 ms (4.0 ms at most); dead for good: `Closed`; neighbours notice: 2 of 1,000 lost"
    )
    assert fault_table.shot(found | {"hanging": 8}).startswith("callers: 8 hang, 10 s and more")
    assert fault_table.restarted(found) == "callers: `Closed` after 3.0 ms (4.0 ms at most); dead for good: `Closed`"
    assert (
        fault_table.stopped({"took": 2.0, "error": "nothing", "back": False})
        == "caller: nothing after 2.0 s; never works again"
    )
    assert fault_table.misled({"took": 0.1, "error": None, "right": False, "lists": True}).startswith(
        "caller: a wrong answer"
    )
