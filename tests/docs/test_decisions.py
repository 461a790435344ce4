"""Decisions are dated, have figures, and say what would change them; the glossary is in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs/decisions").glob("*.md") if path.stem != "index")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_a_date_a_figure_and_what_would_change_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title, _, body = text.partition("\n")
    assert title.startswith("# ")
    assert re.match(r"\nDecided on 20\d\d-\d\d-\d\d: ", body), (
        "the first paragraph begins with `Decided on YYYY-MM-DD: `"
    )
    assert re.search(r"\d", body.replace(body.strip().split(":")[0], "")), "a decision has a figure"
    assert text.partition("## What would change it\n")[2].strip()


def test_the_index_lists_every_decision_once_with_its_title_and_date() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(.+)\]\(([\w-]+)\.md\) \| (.+) \|$", index, re.MULTILINE)
    texts = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}
    dates = {name: re.findall(r"Decided on ([\d-]+)", text)[0] for name, text in texts.items()}
    assert sorted(listed) == sorted((text.partition("\n")[0][2:], name, dates[name]) for name, text in texts.items())


def test_there_are_at_least_forty_decisions() -> None:
    assert len(PAGES) >= 40


def test_the_words_of_the_glossary_are_in_order_and_each_has_a_meaning() -> None:
    page = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", page, re.MULTILINE)[1:]
    words = [word.lower() for word, _ in rows]
    assert words == sorted(set(words))
    assert [word for word, meaning in rows if not meaning.endswith(".")] == []
