"""A host killed with SIGKILL at any moment, also while it starts a server, leaves no process, not even behind a shell.

The servers here ignore the end of their input, which is the worst behaviour that can still be ended in order.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import os_processes

from .process_tree import MARK, PATIENCE, marked_processes, runs, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

HOST = Path(__file__).parent / "programs" / "client_host.py"
WAYS = ("direct", "shell")


@contextmanager
def hosting(way: str, count: int) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A host that begins to start its servers, and the mark of its processes. It is killed in the end."""
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen([sys.executable, HOST, way, str(count)], stdout=subprocess.PIPE, env=environment) as host:
        try:
            said(host, b"begin\n")
            yield host, mark
        finally:
            host.kill()


def said(host: subprocess.Popen[bytes], word: bytes) -> None:
    """Wait until it reports that."""
    assert host.stdout is not None
    heard = b""
    while len(heard) < len(word):
        assert select.select([host.stdout], [], [], PATIENCE)[0], f"no {word!r} within {PATIENCE} s"
        piece = os.read(host.stdout.fileno(), len(word) - len(heard))
        assert piece, "the host has ended"
        heard += piece
    assert heard == word


def killed(way: str, count: int, delay: float) -> str:
    """A host killed so long after it began to start servers, and the mark of its processes."""
    with hosting(way, count) as (_, mark):
        time.sleep(delay)
    return mark


def all_gone(marks: Sequence[str]) -> None:
    left = {mark: found for mark in marks if (found := wait_until_gone(mark))}
    assert not left


@pytest.mark.row("CT-10")
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_host_leaves_no_process(way: str) -> None:
    chance = random.Random(way)
    all_gone([killed(way, 2, chance.choice((chance.uniform(0, 0.02), chance.uniform(0, 0.3)))) for _ in range(10)])


@pytest.mark.soak
@pytest.mark.row("CT-10")
@pytest.mark.parametrize("way", WAYS)
def test_two_hundred_killed_hosts_leave_no_process(way: str) -> None:
    chance = random.Random(f"200 {way}")
    all_gone([killed(way, 2, chance.choice((chance.uniform(0, 0.02), chance.uniform(0, 0.3)))) for _ in range(200)])


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_host_leaves_nothing_when_its_processes_were_stopped(way: str) -> None:
    with hosting(way, 2) as (host, mark):
        said(host, b"ready\n")
        guardians = [  # the guardian, and at times a helper that is just ending
            each.pid
            for each in os_processes.all_processes().values()
            if each.parent == host.pid and each.pid not in marked_processes(mark)
        ]
        assert guardians
        for pid in (*guardians, *(pid for pid in marked_processes(mark) if pid != host.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
    all_gone([mark])


@pytest.mark.row("CT-10")
@pytest.mark.parametrize("way", WAYS)
def test_the_servers_of_a_host_did_run(way: str) -> None:
    """So the tests above would notice an orphan."""
    with hosting(way, 1) as (host, mark):
        said(host, b"ready\n")
        assert runs(mark, "misbehaving_server"), f"no server carries the mark after {PATIENCE} s"
    assert not wait_until_gone(mark)
