"""The tests on the testing page pass in a suite that has only the plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .pages import programs_of

PYTEST = Path(sys.executable).with_name("pytest")
INI = "[pytest]\ngreenroom_mode = auto\nfilterwarnings = error\n"


def outcome(folder: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [PYTEST, "-p", "no:cacheprovider", "-q", *options],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_the_tests_on_the_page_pass(root: Path, tmp_path: Path) -> None:
    page = (root / "docs/how-to/test-an-actor.md").read_text(encoding="utf-8")
    programs = programs_of(page)
    (tmp_path / "test_egg.py").write_text("\n".join(program.text for program in programs), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    promised = sum(len(re.findall(r"^async def test_", program.text, re.MULTILINE)) for program in programs)
    code, printed = outcome(tmp_path)
    assert code == 0, printed
    assert f"{promised - 1 + 20} passed" in printed  # one of them runs in 20 orders


def test_a_failure_shows_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    (tmp_path / "test_wrong.py").write_text(
        "import pytest\n"
        "@pytest.mark.greenroom(seeds=2)\n"
        "async def test_wrong():\n    assert False\n"
        "async def test_stuck():\n    import asyncio\n    await asyncio.Event().wait()\n",
        encoding="utf-8",
    )
    code, printed = outcome(tmp_path)
    assert code == 1
    assert "replay this delivery order: --greenroom-seed=" in printed
    assert "Deadlock: nothing can ever happen" in printed
