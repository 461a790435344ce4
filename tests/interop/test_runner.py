"""The runner believes no client: a step that is missing, an exit code, a server that stays, all of them make a row wrong."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from . import __main__ as runner
from .peers import ALL, MIXED, PEERS, STATELESS, TOGETHER, Peer


def client(code: str, *steps: str) -> Peer:
    """A client of one line."""
    return Peer("small", "auto", (sys.executable, "-c", code), steps)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("print('ok one'); print('ok two')", ""),
        ("print('ok one')", "these steps are missing: two"),
        ("print('ok two'); print('ok one')", "these steps are missing: none, but their order"),
        ("print('ok one'); print('ok two'); exit(3)", "ended with 3"),
        ("print('ok one'); print('WRONG two: no')", "these steps are missing: two"),
        ("", "these steps are missing: one, two"),
    ],
)
def test_a_row_is_right_only_when_every_step_was(tmp_path: Path, code: str, complaint: str) -> None:
    row = runner.play(client(code, "one", "two"), "http", [], tmp_path)
    assert row.wrong.partition("\n")[0] == complaint
    assert ("right" in str(row)) == (complaint == "")


def test_a_client_that_does_not_end_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ENDS_WITHIN", 0.2)
    row = runner.play(client("import threading; threading.Event().wait()"), "http", [], tmp_path)
    assert row.wrong.startswith("not done after 0.2 s")


def test_a_server_that_outlives_its_client_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GONE_WITHIN", 0.1)
    leaves = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
open(sys.argv[-1], "w").write(str(left.pid))
"""
    row = runner.play_on_stdio(client(leaves), ["server"], tmp_path)
    assert row.wrong == "its server was still there after 0.1 s"
    left = int((tmp_path / "pids").read_text())
    while runner._lives(left):
        time.sleep(0.01)  # it was killed, and is not a child of this process


def test_every_client_of_the_sdks_plays_the_whole_part() -> None:
    whole = {peer.name for peer in PEERS if peer.steps == ALL}
    assert whole == {
        "FastMCP 4.1.2",
        "Python mcp 1.30.0",
        "Python mcp 2.3.0",
        "TypeScript client 2.4.0",
        "TypeScript sdk 1.32.2",
    }


def test_each_client_of_the_stateless_era_plays_it_whole_whether_pinned_or_not() -> None:
    whole = {(peer.name, peer.mode) for peer in PEERS if peer.steps == STATELESS}
    names = ("FastMCP 4.1.2", "Python mcp 2.3.0", "TypeScript client 2.4.0")
    assert whole == {(name, mode) for name in names for mode in ("auto", "2026-07-28")}
    assert {peer.mode for peer in PEERS if peer.name in names} == {"auto", "2026-07-28", "legacy", "both"}


def test_what_both_eras_play_at_once_misses_only_what_they_share() -> None:
    (both,) = MIXED
    assert set(both.steps) == (set(ALL) | set(STATELESS) | {"shared"}) - set(TOGETHER)
    assert len(both.steps) == len(ALL) + len(STATELESS) - 5 + 1


def test_the_page_names_every_peer(root: Path) -> None:
    page = root.joinpath("docs/reference/referees.md").read_text(encoding="utf-8")
    for peer in PEERS:
        assert f"| {peer.name} |" in page


def test_only_what_is_named_is_played() -> None:
    assert runner._chosen("stdio", "1.32.2") == [peer for peer in PEERS if peer.name == "TypeScript sdk 1.32.2"]
    assert runner._chosen("stdio", "http") == []


def test_the_official_sdks_call_us_and_we_call_theirs() -> None:
    assert {"Python mcp 1.30.0", "Python mcp 2.3.0", "TypeScript sdk 1.32.2"} <= {peer.name for peer in PEERS}
    referees = (Path(__file__).parents[2] / ".ci" / "run").read_text().partition("referees=(")[2].partition(")")[0]
    assert {"interop", "servers"} <= set(referees.split())
