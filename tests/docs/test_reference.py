"""The reference lists every public name and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom import supervision
from greenroom.supervision import cluster

from . import reference

if TYPE_CHECKING:
    from pathlib import Path


def test_the_reference_is_complete(root: Path) -> None:
    page = (root / reference.FOLDER / "supervision.md").read_text(encoding="utf-8")
    wrong = reference.missing(page)
    assert not wrong, f"{wrong}: run `python tests/docs/reference.py`"


def test_every_report_and_error_has_its_entry(root: Path) -> None:
    pages = {name: (root / reference.FOLDER / name).read_text(encoding="utf-8") for name in reference.PAGES}
    for theme, page, mark in (("Reports", "reports.md", "## {}\n"), ("Errors", "errors.md", "- `{}`: ")):
        names = reference.by_theme()[theme]
        assert [name for name in names if mark.format(name) not in pages[page]] == [], (
            "run `python tests/docs/reference.py`"
        )


def test_the_page_of_other_nodes_is_current(root: Path) -> None:
    page = (root / reference.FOLDER / "nodes.md").read_text(encoding="utf-8")
    assert page == reference.nodes(), "run `python tests/docs/reference.py`"
    assert [name for name in cluster.__all__ if f"- `{name}" not in page] == []


def test_every_name_has_a_sentence() -> None:
    silent = [name for name in supervision.__all__ if not reference.sentence(getattr(supervision, name)).strip("`.")]
    assert silent == []


def test_the_tables_of_the_generator_name_what_exists() -> None:
    names = {f"{module}.{name}." for name, module in reference.homes().items()}
    parts = [part for theme in reference.THEMES.values() for part in theme]
    assert [part for part in parts if not any(name.startswith(f"{part}.") for name in names)] == []
    assert set(reference.MEMBERS) | reference.MADE_BY_HAND <= set(supervision.__all__)
    assert set(reference.NODE_MEMBERS) <= set(cluster.__all__)


def test_missing_and_unknown_names_are_found(tmp_path: Path) -> None:
    (tmp_path / reference.FOLDER).mkdir(parents=True)
    assert reference.main([], tmp_path) == 0
    page = (tmp_path / reference.FOLDER / "supervision.md").read_text(encoding="utf-8")
    assert reference.missing(page) == []
    assert reference.missing(page.replace("- `Ref(", "- `Reference(")) == [
        "Ref is missing",
        "Reference is not exported",
    ]
