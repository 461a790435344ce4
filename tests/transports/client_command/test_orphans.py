"""The host is killed with SIGKILL at any moment of its life, also while it starts a server: no process is left, also behind a shell.

The servers here ignore the end of their input, which is the worst that one can do and still be ended in order.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import os_processes

from .process_tree import MARK, PATIENCE, gone, marked, runs

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

HOST = Path(__file__).parent / "programs" / "host.py"
WAYS = ("direct", "shell")


@contextmanager
def hosting(way: str, count: int) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A host that begins to start its servers; the mark of every process that it starts. It is killed in the end."""
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen([sys.executable, HOST, way, str(count)], stdout=subprocess.PIPE, env=environment) as host:
        try:
            said(host, b"begin\n")
            yield host, mark
        finally:
            host.kill()


def said(host: subprocess.Popen[bytes], word: bytes) -> None:
    """Wait until it says so."""
    assert host.stdout is not None
    heard = b""
    while len(heard) < len(word):
        assert select.select([host.stdout], [], [], PATIENCE)[0], f"no {word!r} within {PATIENCE} s"
        piece = os.read(host.stdout.fileno(), len(word) - len(heard))
        assert piece, "the host has ended"
        heard += piece
    assert heard == word


def killed(way: str, count: int, delay: float) -> str:
    """A host that was killed so long after it began to start servers; the mark of every process that it has started."""
    with hosting(way, count) as (_, mark):
        time.sleep(delay)
    return mark


def all_gone(marks: Sequence[str]) -> None:
    left = {mark: found for mark in marks if (found := gone(mark))}
    assert not left


@pytest.mark.row("CT-10")
@pytest.mark.parametrize("way", WAYS)
def test_nobody_is_left_of_a_host_that_was_killed(way: str) -> None:
    chance = random.Random(way)
    all_gone([killed(way, 2, chance.choice((chance.uniform(0, 0.02), chance.uniform(0, 0.3)))) for _ in range(10)])


@pytest.mark.soak
@pytest.mark.row("CT-10")
@pytest.mark.parametrize("way", WAYS)
def test_nobody_is_left_of_two_hundred(way: str) -> None:
    chance = random.Random(f"200 {way}")
    all_gone([killed(way, 2, chance.choice((chance.uniform(0, 0.02), chance.uniform(0, 0.3)))) for _ in range(200)])


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_a_host_that_was_killed_while_all_it_had_started_was_stopped(way: str) -> None:
    with hosting(way, 2) as (host, mark):
        said(host, b"ready\n")
        (guardian,) = (
            each.pid
            for each in os_processes.all_processes().values()
            if each.parent == host.pid and each.pid not in marked(mark)
        )
        for pid in (guardian, *(pid for pid in marked(mark) if pid != host.pid)):
            os.kill(pid, signal.SIGSTOP)
    all_gone([mark])


@pytest.mark.row("CT-10")
@pytest.mark.parametrize("way", WAYS)
def test_the_servers_did_run(way: str) -> None:
    """So the tests above would see an orphan."""
    with hosting(way, 1) as (host, mark):
        said(host, b"ready\n")
        assert runs(mark, "wicked"), f"no server carries the mark after {PATIENCE} s"
    assert not gone(mark)
