"""Which of two processes has started a call: always exactly one, though neither waits for the other."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom.actors.pools.remote_call import StartLocks

if TYPE_CHECKING:
    from collections.abc import Generator

CALLS = 3 * 4096
BEGINS = f"""
import os, sys
from greenroom.actors.pools.remote_call import StartLocks

locks = StartLocks.opened(sys.argv[1])
print("here", flush=True)
sys.stdin.readline()
begun = [number for number in range(1, {CALLS}) if locks.begin(number)]
print(*begun, flush=True)
if sys.argv[2:]:
    os.closerange(3, 4096)
    print("closed", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def locks() -> Generator[StartLocks]:
    made = StartLocks.made()
    assert made is not None
    yield made
    made.close()


def worker(locks: StartLocks, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BEGINS, locks.path, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert said(process) == "here"
    return process


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")


def test_each_call_is_one_ends(locks: StartLocks) -> None:
    with worker(locks) as process:
        tell(process)
        ours = {number for number in range(CALLS - 1, 0, -1) if locks.take(number)}
        theirs = set(map(int, said(process).split()))
        assert not ours & theirs
        assert ours | theirs == set(range(1, CALLS))
        assert not any(map(locks.take, theirs))
        tell(process)


@pytest.mark.parametrize("how", ["lives", "closes", "dies"])
def test_a_call_that_a_worker_has_started_is_never_taken_back(locks: StartLocks, how: str) -> None:
    with worker(locks, *["closes"] * (how == "closes")) as process:
        tell(process)
        assert len(said(process).split()) == CALLS - 1
        if how == "closes":
            assert said(process) == "closed"
        elif how == "dies":
            process.kill()
            process.wait()
        # Older ones are not asked for: a worker has a few calls before it, and they are the latest.
        assert not any(locks.take(number) for number in range(CALLS - 8, CALLS))
        assert locks.take(CALLS)
        if how != "dies":
            tell(process)


def test_a_file_that_cannot_be_opened_is_none() -> None:
    assert StartLocks.opened(None) is None
    assert StartLocks.opened("/proc/self/fd/999999") is None


def test_nothing_is_anybodys_once_it_is_closed(locks: StartLocks) -> None:
    locks.close()
    assert not locks.take(1)
    assert not locks.begin(1)
