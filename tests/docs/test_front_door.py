"""The reference page of the front door is complete and current."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import greenroom

from . import front_door

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_is_current() -> None:
    assert front_door.main(["--check"]) == 0


def test_every_name_has_a_sentence() -> None:
    page = front_door.render()
    doors = (greenroom, *(room for room, _, _ in front_door.ROOMS))
    names = [name for door in doors for name in front_door.names_of(door) if not name.startswith("_")]
    assert [name for name in names if f"- `{name}" not in page] == []
    assert [line for line in page.splitlines() if line.rstrip().endswith("`:")] == []


@pytest.mark.parametrize("kind", [greenroom.Settings, greenroom.HttpConfig, greenroom.ClientSettings])
def test_every_setting_has_its_meaning_and_its_default(kind: type) -> None:
    lines = front_door.fields_of(kind)
    assert [line for line in lines if not re.fullmatch(r"  - `\w+` \(.+\): [A-Z0-9`].+", line)] == []
    page = front_door.render()
    assert all(line in page for line in lines)


def test_an_outdated_page_is_reported_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    assert front_door.main(["--check"], tmp_path) == 1
    assert "out of date" in capsys.readouterr().err
    assert front_door.main([], tmp_path) == 0
    assert front_door.main(["--check"], tmp_path) == 0
