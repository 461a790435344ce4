"""Each call is executed once and has one outcome, over all routes at once; the ledger reports violations."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom import PeerError, RequestLost, RequestTimeout, ToolError, Unavailable
from greenroom.transports import ConnectFailed, HttpError

from .balancer import FAULTS, Balancer
from .ledger import MAYBE, NONE, NOT_DONE, RESULT, Books, outcome_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.deep
@pytest.mark.row("CT-03", "FE-01")
@pytest.mark.parametrize(
    ("leg", "calls"),
    [
        ("http", 150),  # `make once` runs the other legs, which takes minutes
        pytest.param("all", 200_000, marks=pytest.mark.soak),
    ],
)
def test_no_call_is_done_twice_and_each_has_one_outcome(leg: str, calls: int, root: Path) -> None:
    command = [sys.executable, "-m", "tests.once", "--calls", str(calls), "--seed", "15"]
    command += [] if leg == "all" else ["--only", leg]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{calls:,} calls in \d+ s, 0 wrong", done.stdout, re.MULTILINE), done.stdout


LOST = ConnectFailed("no listener")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RequestLost("tools/call", LOST), MAYBE),
        (RequestLost("tools/call", LOST, maybe_done=False), NOT_DONE),
        (RequestLost("tools/call", HttpError(429, retry_after=3.0), maybe_done=False), NOT_DONE),
        (RequestTimeout("tools/call", 3.0), MAYBE),
        (Unavailable("one"), NOT_DONE),
        (ToolError("the process was lost"), MAYBE),
        (PeerError(-32603, "no", {"server": "one", "reason": "lost", "maybeDone": True}), MAYBE),
        (PeerError(-32603, "no", {"server": "one", "reason": "lost", "maybeDone": False}), NOT_DONE),
        (PeerError(-32603, "no", {"server": "one", "reason": "unavailable"}), NOT_DONE),
        (PeerError(-32603, "the session has ended"), MAYBE),
        (ValueError("what is this?"), NONE),
    ],
)
def test_an_error_of_the_client_keeps_its_reason(error: Exception, outcome: str) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize(
    ("outcomes", "done", "wrong"),
    [
        ([RESULT], 1, ""),
        ([RESULT], 0, "answered, and not done"),
        ([RESULT], 2, "done 2 times"),
        ([NOT_DONE], 0, ""),
        ([NOT_DONE], 1, "done: not done"),
        ([MAYBE], 0, ""),
        ([MAYBE], 1, ""),
        ([MAYBE], 2, "done 2 times"),
        ([NONE], 0, NONE),
        ([RESULT, MAYBE], 1, "2 outcomes"),
        ([], 1, "done, and never called"),
    ],
)
def test_the_books_notice_what_must_not_be(outcomes: list[str], done: int, wrong: str, tmp_path: Path) -> None:
    books = Books("leg", tmp_path / "book")
    books.path.write_text("leg-1\n" * done)
    for outcome in outcomes:
        books.tell("leg-1", outcome)
    assert [wrong in line for line in books.wrong()] == ([True] if wrong else [])


async def test_the_same_seed_plans_the_same_faults_and_another_seed_others() -> None:
    def plans(seed: int) -> list[object]:
        balancer = Balancer(seed, 0.5)
        return [balancer.plan(f"leg-{number % 100}") for number in range(1000)]

    assert plans(1) == plans(1)
    assert plans(1) != plans(2)
    kinds = {fault.kind for fault in plans(1) if fault is not None}  # type: ignore[attr-defined]
    assert kinds == set(FAULTS)
