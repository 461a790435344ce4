"""The theatre demonstration as a program: it ends in order and on Ctrl-C, fits a terminal, and leaves no processes."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING

import pytest
from examples.demo.theatre.tree_picture import uncoloured

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.deep

COMMAND = [sys.executable, "-W", "error", "-m", "examples.demo.theatre", "--seed", "7"]
SECONDS = 60
ORDER = "guests, fool, queen, king, cast, sax, bass, drums, band, spots, dimmer, console, light, theatre"


def no_process_is_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def on_a_terminal(command: list[str], react: Callable[[str, int], None], rows: int = 24) -> tuple[int, str]:
    """Run the demo under a terminal of 80 columns; `react` gets the output so far and the pid."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    ) as process:
        os.close(slave)
        screen = ""
        while select.select([master], [], [], SECONDS)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:  # Linux's error for a closed other end
                break
            if not data:
                break
            screen += data.decode()
            react(screen, process.pid)
        os.close(master)
        code = process.wait(SECONDS)
    assert no_process_is_left(process.pid)
    return code, screen


def frames(screen: str) -> list[str]:
    return [uncoloured(re.sub(r"\x1b\[[KJ]|\r", "", frame)) for frame in screen.split("\x1b[H")[1:]]


def test_the_demo_ends_in_order_without_a_terminal() -> None:
    with subprocess.Popen(
        [*COMMAND, "--seconds", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, "")
    assert no_process_is_left(process.pid)
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[1] == "theatre <demo.1> (one_for_one)"
    assert ORDER in lines[-2]
    assert lines[-1].startswith("deaths ")


def test_the_demo_draws_in_place_on_a_terminal_of_80_by_24() -> None:
    code, screen = on_a_terminal([*COMMAND, "--seconds", "2.5"], lambda _screen, _pid: None)
    assert code == 0
    drawn = frames(screen)
    assert len(drawn) > 10
    for frame in drawn:
        lines = frame.splitlines()
        assert len(lines) == 23
        assert max(map(len, lines)) <= 80
    assert "├─ light" in drawn[0]
    assert "gone" in drawn[-1]
    assert "●" not in drawn[-1]


def test_the_demo_fits_a_small_terminal() -> None:
    code, screen = on_a_terminal([*COMMAND, "--seconds", "0"], lambda _screen, _pid: None, rows=10)
    assert code == 0
    assert {len(frame.splitlines()) for frame in frames(screen)} == {9}


def test_ctrl_c_closes_it_in_order_and_ends_it_as_an_interrupt() -> None:
    pressed: list[int] = []

    def press(screen: str, pid: int) -> None:
        if not pressed and "deaths 1" in uncoloured(screen):
            pressed.append(pid)
            os.kill(pid, signal.SIGINT)

    code, screen = on_a_terminal([*COMMAND, "--seconds", "300"], press)
    assert pressed
    assert code == -signal.SIGINT
    last = frames(screen)[-1]
    assert "closing, the last one first" in last
    assert "●" not in last
    assert "Traceback" not in screen


def test_the_second_ctrl_c_does_not_wait() -> None:
    pressed: list[int] = []

    def press(screen: str, pid: int) -> None:
        words = ("beat 1", "interrupt again")
        if len(pressed) < len(words) and words[len(pressed)] in screen:
            pressed.append(pid)
            os.kill(pid, signal.SIGINT)

    code, _ = on_a_terminal([*COMMAND, "--seconds", "300"], press)
    assert len(pressed) == 2
    assert code == -signal.SIGINT


def test_the_demo_ends_when_its_output_is_closed() -> None:
    with subprocess.Popen(
        [*COMMAND, "--seconds", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(SECONDS) == 1
    assert no_process_is_left(process.pid)


@pytest.mark.parametrize(
    "wrong", [["--seconds", "soon"], ["--seconds", "-1"], ["--seconds", "nan"], ["--seed", "x"], ["--loud"]]
)
def test_a_wrong_option_is_told(wrong: list[str]) -> None:
    done = subprocess.run([*COMMAND, *wrong], capture_output=True, check=False, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "usage: python -m examples.demo.theatre" in done.stderr
