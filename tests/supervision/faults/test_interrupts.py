"""A real SIGINT, at any moment and under each runner: the first stops in order, the second exits.

These programs run on real time, in processes of their own; nothing here waits for a time to pass, only for lines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.example_counts import one_in

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "interrupted_program.py"
NOTICE = "interrupted: stopping in order; interrupt again to exit at once"
PATIENCE = 60.0  # seconds after which a program that hangs is killed, so that its test fails


class Program:
    """The program, its output line by line, and its exit."""

    def __init__(self, runner: str, moment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), runner, moment],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        )
        self._killer = threading.Timer(PATIENCE, self.process.kill)
        self._killer.start()
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def interrupt(self) -> None:
        """Send a SIGINT."""
        self.process.send_signal(signal.SIGINT)

    def notice(self) -> None:
        """Wait until the program has reported the first SIGINT."""
        assert self.process.stderr is not None
        assert self.process.stderr.readline() == "\n"
        assert self.process.stderr.readline().strip() == NOTICE

    def end(self) -> list[str]:
        """The remaining lines after the exit."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().splitlines()
        self.process.wait()
        return lines

    def close(self) -> None:
        self._killer.cancel()
        self._killer.join()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.close()


MOMENTS = {
    "idle": ["stopped: shutdown"],
    "busy": ["handler saw CancelledError", "stopped: shutdown"],
    "computing": ["computed well", "stopped: shutdown", "stopped: shutdown"],
    "blocked": ["slept well", "stopped: shutdown", "stopped: shutdown"],
    "init": ["init saw CancelledError", "stopped: shutdown"],
    "blocked init": ["slept well", "stopped: shutdown"],
    "stop": ["stopped: shutdown", "stopped: shutdown"],
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("runner", one_in(4, ["greenroom", "asyncio", "loop", "uvloop"]))
def test_the_first_stops_in_order_and_no_handler_sees_it(runner: str, moment: str, programs: list[Program]) -> None:
    program = Program(runner, moment)
    programs.append(program)
    program.interrupt()
    program.notice()
    lines = program.end()
    if moment == "blocked init":
        lines = [line for line in lines if line not in ("started", "stopped: shutdown", "init saw CancelledError")]
        lines.insert(1, "stopped: shutdown")  # whether the start came through is a race between two right outcomes
    assert lines == [*MOMENTS[moment], "main saw KeyboardInterrupt"]
    assert program.process.returncode == -signal.SIGINT, "as Python exits of a KeyboardInterrupt"


@pytest.mark.parametrize("moment", ["blocked for long", "endless stop"])
@pytest.mark.parametrize("runner", one_in(2, ["greenroom", "asyncio", "loop", "uvloop"]))
def test_the_second_exits_at_once(runner: str, moment: str, programs: list[Program]) -> None:
    program = Program(runner, moment)
    programs.append(program)
    program.interrupt()
    program.notice()
    program.interrupt()
    assert program.end() == []
    assert program.process.returncode == -signal.SIGINT


def test_a_notice_that_cannot_be_written_does_not_affect_handlers(programs: list[Program]) -> None:
    program = Program("asyncio", "computing")
    programs.append(program)
    assert program.process.stderr is not None
    program.process.stderr.close()
    program.process.stderr = None
    program.interrupt()
    assert program.end() == [*MOMENTS["computing"], "main saw KeyboardInterrupt"]
