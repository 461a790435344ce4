"""The reference page of the front door is complete and current."""

from __future__ import annotations

from typing import TYPE_CHECKING

import greenroom

from . import front_door

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_page_is_current() -> None:
    assert front_door.main(["--check"]) == 0


def test_every_name_has_a_sentence() -> None:
    page = front_door.render()
    names = [name for name in greenroom.__all__ if not name.startswith("_")]
    assert [name for name in names if f"- `{name}" not in page] == []
    assert [line for line in page.splitlines() if line.rstrip().endswith("`:")] == []


def test_a_page_that_is_due_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    assert front_door.main(["--check"], tmp_path) == 1
    assert "out of date" in capsys.readouterr().err
    assert front_door.main([], tmp_path) == 0
    assert front_door.main(["--check"], tmp_path) == 0
