"""The application itself ends, in order or not: no process of it is left, its ports are free, and a program that captures its output goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenroom.supervision.cluster import os_processes

from .tcp_listeners import sockets

APPLICATION = Path(__file__).parent / "programs" / "application.py"
SECONDS = 5 * 3.0
"""How long processes may remain, times five, since the machine may be busy."""


def left(of: dict[str, int], seconds: float) -> dict[str, int]:
    """The processes that still run when that time is over; sooner, if none does."""
    until = time.monotonic() + seconds
    while (found := {name: pid for name, pid in of.items() if os_processes.is_alive(pid)}) and time.monotonic() < until:
        time.sleep(0.01)
    return found


@pytest.mark.deep
@pytest.mark.parametrize("way", ["wait", "busy"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_no_process_is_left_of_an_application_that_was_killed(way: str, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, APPLICATION, way], stdout=subprocess.PIPE) as application:
        try:
            assert application.stdout is not None
            running: dict[str, int] = json.loads(application.stdout.readline())
            assert {"daemon", "admin", "logger", "forkserver", "executed"} < set(running)
            assert all(os_processes.is_alive(pid) for pid in running.values())
            listening = sockets(*running.values())
            assert listening
        finally:
            application.send_signal(number)
        assert not left(running, SECONDS)
    # A process with several threads is as good as dead a little before its last thread has let go of what it had open.
    until = time.monotonic() + SECONDS
    while listening.keys() & sockets().keys():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(
    "stopped", [("daemon",), ("daemon", "admin", "logger", "forkserver", "executed")], ids="+".join
)
def test_a_stopped_process_does_not_outlive_the_application(stopped: tuple[str, ...], number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, APPLICATION, "busy"], stdout=subprocess.PIPE) as application:
        try:
            assert application.stdout is not None
            running: dict[str, int] = json.loads(application.stdout.readline())
            for name in stopped:
                os.kill(running[name], signal.SIGSTOP)
        finally:
            application.send_signal(number)
        assert not left(running, SECONDS)


def test_no_process_is_left_of_an_application_killed_while_thespian_is_replaced() -> None:
    """The daemon waits for parts of Thespian that are killed at once, as the application is gone."""
    with subprocess.Popen([sys.executable, APPLICATION, "wait"], stdout=subprocess.PIPE) as application:
        try:
            assert application.stdout is not None
            running: dict[str, int] = json.loads(application.stdout.readline())
            daemon, fork_server = running["daemon"], running["forkserver"]
            os.kill(fork_server, signal.SIGKILL)
            until = time.monotonic() + SECONDS
            while not set(os_processes.descendants(daemon, named="gr-thespian")) - set(running.values()):
                assert time.monotonic() < until
        finally:
            application.kill()
        assert not left(running, SECONDS / 2)


@pytest.mark.parametrize(("way", "code"), [("in order", 0), ("at once", 3)])
def test_a_program_that_captures_the_output_goes_on_when_the_application_has_ended(way: str, code: int) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, APPLICATION, way], capture_output=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert time.monotonic() - began < 30.0
    assert not left(json.loads(done.stdout), SECONDS)


FORKING = """
import os, signal, sys
from greenroom.supervision.cluster.bootstrap import DeathPipe
line = DeathPipe()
theirs = os.dup(line.reading)
line.handed_over()
child = os.fork()
if child == 0:
    signal.pause()
if os.fork() == 0:
    os.close(1)
    os.read(theirs, 1)  # as one below does
    os.kill(child, signal.SIGKILL)
    os._exit(0)
print(child, flush=True)
os._exit(0)
"""


def test_a_fork_of_the_application_keeps_no_process_alive() -> None:
    """The fork has copies of the application's descriptors, and outlives it; the death pipe is closed all the same."""
    with subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE) as application:
        assert application.stdout is not None
        child = int(application.stdout.readline())
    assert not left({"child": child}, 20.0)
