"""The reference page of guests names everything there is, and every reason that can be given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import greenroom.thespian
from greenroom.actors.thespian_guests.guest_messages import REASONS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs/reference/thespian.md").read_text(encoding="utf-8")


def test_every_name_is_on_the_page(page: str) -> None:
    assert [name for name in greenroom.thespian.__all__ if f"`{name}" not in page] == []


def test_every_reason_is_on_the_page_and_is_used(page: str) -> None:
    table = page.partition("## Failures")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == REASONS
    sources = [each for each in (ROOT / "actors/thespian_guests").glob("*.py") if each.name != "guest_messages.py"]
    text = "\n".join(each.read_text(encoding="utf-8") for each in sources)
    assert [word for word in REASONS if f'"{word}"' not in text] == []
