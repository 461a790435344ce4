"""A test that hangs fails by itself, shows where it hung, and the tests after it run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests import time_limits
from tests.time_limits import limit_of

if TYPE_CHECKING:
    from pathlib import Path


HANGS = """
    import asyncio, queue, subprocess, sys, threading, time
    import pytest
    from hypothesis import given, strategies

    def test_in_a_lock():
        threading.Lock().acquire() and queue.SimpleQueue().get()

    async def asleep_at_the_bottom():
        await asyncio.get_running_loop().create_future()

    @pytest.mark.time_limit(1.5)  # until its task has begun, on a busy machine
    @pytest.mark.greenroom(clock="real")
    async def test_in_a_future():
        await asyncio.create_task(asleep_at_the_bottom(), name="the-sleeper")

    def test_in_another_program():
        subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])

    def test_that_catches_everything_once():
        try:
            time.sleep(600)
        except BaseException:
            time.sleep(600)

    @pytest.mark.greenroom(clock="real")
    async def test_whose_processes_take_it_for_a_crash():
        async def stubborn():
            for _ in range(3):
                try:
                    while True:
                        pass
                except BaseException:
                    await asyncio.sleep(0)
        await asyncio.create_task(stubborn())
        await asyncio.get_running_loop().create_future()

    @given(strategies.integers())
    def test_of_many_examples(number):
        time.sleep(600)

    @pytest.fixture
    def slow():
        time.sleep(600)

    def test_whose_fixture_hangs(slow):
        pass

    @pytest.mark.time_limit(30)
    def test_that_may_take_longer():
        time.sleep(0.5)

    def test_of_its_own_pace():
        pass
"""
BUSY_IN_C = """
    import signal, threading

    def test_with_signals_shut_out():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        while True:
            pass
"""


def play(folder: Path, text: str, *, again: float = 0.2, last: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a test file with a limit of 0.3 s, in a pytest of its own."""
    (folder / "conftest.py").write_text(
        f"from tests import time_limits\ntime_limits.AGAIN, time_limits.LAST = {again}, {last}\n"
    )
    (folder / "test_hangs.py").write_text(textwrap.dedent(text))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.time_limits",
        "--time-limit=0.3",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-c", str(folder / "none.ini"), "-o", "greenroom_mode=auto", f"--rootdir={folder}", str(folder)]
    (folder / "none.ini").write_text("[pytest]\n")
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_each_kind_of_hang_fails_alone_and_shows_where_it_hung(tmp_path: Path) -> None:
    done = play(tmp_path, HANGS)
    assert re.search(r"6 failed, 2 passed, 1 error", done.stdout), done.stdout + done.stderr
    failed = re.findall(r"TimeLimitExceeded: test_hangs.py::(\w+) took more than (?:0\.3|1\.5) s", done.stdout)
    assert len(set(failed)) == 7
    assert "--- task the-sleeper" in done.stdout
    assert "in asleep_at_the_bottom" in done.stdout
    assert "--- thread MainThread" in done.stdout


def test_a_main_thread_that_no_exception_reaches_ends_the_runner_with_its_stacks(tmp_path: Path) -> None:
    done = play(tmp_path, BUSY_IN_C, last=0.3)
    assert done.returncode == -27, done.stdout + done.stderr  # SIGPROF
    assert "in test_with_signals_shut_out" in done.stderr


@pytest.mark.parametrize(
    ("marks", "seconds"),
    [({}, 120), ({"soak": pytest.mark.soak}, 3600), ({"time_limit": pytest.mark.time_limit(7)}, 7)],
)
def test_the_limit_is_the_marker_s_or_an_hour_for_a_soak_test_or_the_default(
    marks: dict[str, Any], seconds: float
) -> None:
    no_options: dict[str, Any] = {}
    item: Any = SimpleNamespace(get_closest_marker=marks.get, config=SimpleNamespace(getoption=no_options.get))
    assert limit_of(item) == seconds


def test_this_suite_has_the_limits(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.is_registered(time_limits)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
