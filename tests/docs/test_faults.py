"""The fault tutorial's file replays from the command line as the page shows, and the tests of the how-to pass."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .pages import blocks_of, play, programs_of
from .test_testing_page import INI, outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tutorial(root: Path, tmp_path: Path) -> str:
    """The page, whose programs are a file now, and have run."""
    text = (root / "docs/tutorial/kill-it-and-see.md").read_text(encoding="utf-8")
    (tmp_path / "gate.py").write_text("\n".join(program.text for program in programs_of(text)), encoding="utf-8")
    play("kill-it-and-see.md", text, tmp_path)
    return text


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_command_prints_what_the_page_shows(tutorial: str, tmp_path: Path, hash_seed: str) -> None:
    (shown,) = [block.text for block in blocks_of(tutorial) if block.info == "console"]
    command, _, printed = shown.partition("\n")
    done = subprocess.run(
        [sys.executable, "-P", *shlex.split(command.removeprefix("$ python "))],
        cwd=tmp_path,
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.stdout == printed
    assert done.returncode == 1


def test_the_test_that_the_tutorial_keeps_fails_as_it_says(tutorial: str, tmp_path: Path) -> None:
    (kept,) = [block.text for block in blocks_of(tutorial) if block.info.startswith("python no-run")]
    (tmp_path / "test_gate.py").write_text(kept, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(f"{INI}pythonpath = .\n", encoding="utf-8")
    code, printed = outcome(tmp_path, "--greenroom-plans=kept")
    assert code == 1
    assert "Ben has paid, but the gate said: pay first" in printed
    assert "again: pytest test_gate.py::test_a_visitor_who_has_paid_gets_in --greenroom-plan=kept/" in printed


def test_the_tests_on_the_page_pass(root: Path, tmp_path: Path) -> None:
    programs = programs_of((root / "docs/how-to/inject-faults.md").read_text(encoding="utf-8"))
    (tmp_path / "test_cups.py").write_text("\n".join(program.text for program in programs), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    code, printed = outcome(tmp_path)
    assert code == 0, printed
    assert "3 passed" in printed
