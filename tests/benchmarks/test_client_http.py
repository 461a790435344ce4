"""The benchmark of clients over HTTP: its participants, ratios and server."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from benchmarks import __main__ as command
from benchmarks.client import fixed_answers
from benchmarks.client import over_http as bench
from benchmarks.contest_rounds import Effort, Program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

SHORT = Effort(rounds=1, seconds=0.05)


def test_our_client_takes_part_and_missing_clients_are_named() -> None:
    absent = Program("absent", ("/nowhere/python",))
    broken = Program("broken", (sys.executable, "-c", "raise SystemExit(3)"))
    held = bench.hold(SHORT, (bench.OURS, absent, broken))
    assert {(each.kind, each.crowd) for each in held.entries} == {
        ("json", 1),
        ("json", 16),
        ("stream", 1),
        ("stream", 16),
    }
    assert all(each.rate[0] > 0 and each.processor[0] > 0 for each in held.entries)
    assert set(held.missing) == {"absent", "broken"}
    shown = bench.table(held)
    assert "greenroom" in shown
    assert "absent: left out" in shown
    assert json.loads(json.dumps(bench.as_data(held)))["entries"]


def test_ratios_to_the_other_clients_are_reported() -> None:
    def entry(driver: Program, rate: float) -> bench.Entry:
        return bench.Entry(driver, "json", 1, [rate], [1e-6])

    held = bench.Held(SHORT, [entry(bench.OURS, 18.0), entry(bench.MCP, 2.0), entry(bench.FASTMCP, 36.0)])
    assert [(each.median, each.met) for each in bench.reached(held)] == [(9.0, True), (0.5, False)]
    eras = bench.Held(SHORT, [entry(bench.OURS, 6.0), entry(bench.SESSION, 6.0)])
    assert [(each.median, each.met) for each in bench.reached(eras)] == [(1.0, True)]
    assert bench.reached(bench.Held(SHORT, [entry(bench.OURS, 6.0)])) == []


def test_the_server_answers_by_what_it_is_asked() -> None:
    call = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call"}'
    assert b"application/json" in fixed_answers.answer(b"POST /json HTTP/1.1", call)
    assert b"text/event-stream" in fixed_answers.answer(b"POST /stream HTTP/1.1", call)
    assert b'"id":7' in fixed_answers.answer(b"POST /json HTTP/1.1", call)
    assert fixed_answers.answer(b"POST /json HTTP/1.1", b'{"method": "notifications/x"}').startswith(b"HTTP/1.1 202")
    assert fixed_answers.answer(b"GET /json HTTP/1.1", b"").startswith(b"HTTP/1.1 405")


def test_the_command_lists_the_client_benchmark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main(["--list", "--only", "client-http", "--into", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("client-http\n")
