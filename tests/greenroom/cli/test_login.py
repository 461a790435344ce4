"""`greenroom login` at a terminal: the address is shown, and only the user's browser opens it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.first_use.page import PAGE, PORTS, Saved, Words, free_ports, steps_of
from tests.first_use.shells import installed
from tests.pty_terminal import CTRL_C, WITHIN, at_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture
def diary(tmp_path: Path) -> Iterator[str]:
    """The URL of the tutorial's server, which requires a login."""
    ports = free_ports()
    files = [each for each in steps_of(PAGE.read_text()) if isinstance(each, Saved)]
    [program] = [each.text for each in files if each.name.endswith("diary.py")]
    (tmp_path / "diary.py").write_text(Words(ports).typed(program))
    served = subprocess.Popen([sys.executable, "diary.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        assert "the diary is at" in served.stdout.readline()
        yield f"http://127.0.0.1:{ports[PORTS[1]]}/mcp"
    finally:
        served.terminate()
        served.communicate(timeout=60)


@pytest.mark.row("CB-06")
def test_login_shows_the_address(diary: str, tmp_path: Path) -> None:
    with at_terminal(["greenroom", "login", diary], tmp_path, installed(tmp_path)) as terminal:
        terminal.see("To sign in, open this in a browser on this machine:\n\n  http://127.0.0.1:")
        terminal.see("/authorize?")
        terminal.see(f"signed in to {diary}, for ")
        assert terminal.end() == 0
    with at_terminal(["greenroom", "call", diary, "today"], tmp_path, installed(tmp_path)) as terminal:
        assert (terminal.end(), terminal.screen) == (0, "ada has nothing to do today\n")


def test_a_cancelled_login_stores_nothing(diary: str, tmp_path: Path) -> None:
    variables = installed(tmp_path)
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s" "$1" > begun && mv begun visited\n')
    browser.chmod(0o755)
    with at_terminal(["greenroom", "login", diary], tmp_path, variables | {"BROWSER": f"{browser} %s"}) as terminal:
        terminal.see("/authorize?")
        terminal.see("\n")
        deadline = time.monotonic() + WITHIN
        while not (tmp_path / "visited").exists() and time.monotonic() < deadline:
            terminal.look(0.05)
        assert f"\n\n  {(tmp_path / 'visited').read_text()}\n" in terminal.screen
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert terminal.screen.rstrip().endswith("greenroom: interrupted")
        assert "Traceback" not in terminal.screen
    with at_terminal(["greenroom", "whoami", diary], tmp_path, variables) as terminal:
        assert terminal.end() == 5
