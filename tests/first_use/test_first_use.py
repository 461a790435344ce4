"""Whoever does what the first tutorial of the command line says, at terminals of their own, sees what it shows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from .page import HOME, PAGE, Saved, Words, free_ports, play, steps_of
from .shells import Ptys

pytestmark = pytest.mark.greenroom(clock="real")

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.row("ST-22", "CB-06", "CB-11", "OP-03")
def test_the_page_is_what_is_seen(tmp_path: Path) -> None:
    home = tmp_path / "ada"
    home.mkdir()
    words = Words({f"{HOME}/greenroom/.venv/bin/python": sys.executable, HOME: str(home), **free_ports()})
    steps = [each for each in steps_of(PAGE.read_text(encoding="utf-8")) if isinstance(each, Saved) or each.compared]

    with Ptys(home) as shells:
        play(PAGE.name, steps, home, shells, words)
