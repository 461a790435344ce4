"""Programs end with their exit code, never with a signal: none of our threads runs while the interpreter shuts down."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from tests.example_counts import one_in

from .child_programs import LOAD

PROGRAMS: Final = Path(__file__).parent / "programs"
AT_ONCE: Final = 8
KINDS: Final = ("end-of-input", "signal", "child-left", "function-left", "node-left", "busy-node-left")


def exits(kind: str, count: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, PROGRAMS / "exits.py", kind, str(count), str(AT_ONCE)],
        capture_output=True,
        text=True,
        check=True,
    )
    codes: dict[str, int] = json.loads(done.stdout)
    return codes


@pytest.mark.parametrize("count", [6, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_every_exit_is_clean(kind: str, count: int) -> None:
    assert exits(kind, count) == {"0": count}


# What coverage, for one, installs in place of `os._exit`: it saves to a database there, which the main thread closes as it exits.
REPLACED: Final = """
import atexit, multiprocessing, os, time
system_exit = os._exit
def replaced(code):
    time.sleep(3)
    system_exit(code)
os._exit = replaced
atexit.register(os.write, 2, b"the main thread went on\\n")
from greenroom.program_runner import ExitDeadline
deadline = ExitDeadline(0)
deadline.stopped_in_order = True
deadline.start_thread()
deadline.start()
deadline.wait_for_exit()
multiprocessing.get_context("fork").Process(target=time.sleep, args=(1_000_000,), name="the-child").start()
"""


def test_the_main_thread_does_not_exit_beside_the_thread_that_ends_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0
    assert done.stderr == "greenroom: stopped in order; not waiting for the-child\n"


def test_an_unread_stderr_does_not_delay_the_end() -> None:
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        served = subprocess.Popen(
            [sys.executable, "-c", "from greenroom import Server; Server('quiet').run(grace=0.5)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=writing,
        )
    finally:
        os.close(writing)
    try:
        assert served.stdout is not None
        assert served.stdin is not None
        served.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        served.stdin.flush()
        assert served.stdout.readline()
        served.terminate()
        began = time.monotonic()
        assert served.wait(20) == 0
        assert time.monotonic() - began < 0.5 + LOAD
    finally:
        served.kill()
        served.communicate()
        os.close(reading)
