"""Every row of the checklist has a test or a reason, and the page is current."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import features

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {
    "ST": 29,
    "WC": 32,
    "RG": 30,
    "TF": 27,
    "SE": 21,
    "SC": 11,
    "SM": 5,
    "SX": 11,
    "SA": 32,
    "CL": 26,
    "CT": 11,
    "CA": 11,
    "FE": 6,
    "AG": 3,
    "FM": 5,
    "CB": 22,
    "OP": 6,
    "26": 129,
}
"""The number of rows of each area: without it, a manifest that lost a row would look complete."""
PROMISED = 277
GROUPS = {
    "M": 20, "V": 10, "H": 13, "P": 9, "S": 6, "R": 14, "L": 8, "C": 6, "F": 12, "J": 4, "T": 11, "X": 3, "A": 13,
}  # fmt: skip
"""The groups of rows of revision 2026-07-28, in their order."""

MANIFEST = """
[waits]
tasks = "tasks"
[[area]]
id = "AA"
title = "First"
[area.rows]
AA-01 = "One"
AA-02 = { text = "Two", waits = "tasks" }
"""

TESTS = """
import pytest
pytestmark = pytest.mark.row("AA-02")
@pytest.mark.row("AA-01")
def test_one(): ...
@pytest.mark.row("AA-07")
class TestMany:
    def test_two(self): ...
    def helper(self): ...
"""


def test_every_row_has_a_quick_test_and_every_mark_a_row() -> None:
    assert features.problems(features.checklist(), features.marks(), features.deep()) == []


def test_no_row_was_lost() -> None:
    areas = features.checklist().areas
    assert {area.id: len(area.rows) for area in areas} == SIZES
    for area in areas:
        numbered = [f"{area.id}-{n:02}" for n in range(1, len(area.rows) + 1)]
        grouped = [f"{area.id}-{group}{n}" for group, size in GROUPS.items() for n in range(1, size + 1)]
        assert [row.id for row in area.rows] == (grouped if area.apart else numbered)


def test_all_promised_rows_are_done() -> None:
    rows = features.checklist()
    assert sum(not row.beyond for area in rows.areas if not area.apart for row in area.rows) == PROMISED
    assert [row.id for area in rows.areas if not area.apart for row in area.rows if row.waits] == []
    page = features.render(rows, features.marks())
    summary = "**277 rows are promised, and 276 of them are done**; deliberately different: OP-05. Done of 11 further rows: all. "
    assert summary in page
    assert "| OP-05 | One library reads JSON, and the documentation says which and why | differs: msgspec, " in page


def test_rows_apart_are_counted_by_themselves() -> None:
    rows = features.read(
        MANIFEST + '[[area]]\nid = "BB"\ntitle = "Second"\napart = true\n[area.rows]\nBB-1 = "A"\nBB-2 = "B"\n'
    )
    page = features.render(rows, [("AA-01", "tests/t.py::test_one"), ("BB-1", "tests/t.py::test_two")])
    counted = "**2 rows are promised, and 1 of them are done** (not AA-02). Done of 0 further rows: all."
    assert f"{counted} Second has 2 rows of its own, and 1 of them are done.\n" in page
    assert "| [Second](#bb) | 2 | 1 | 0 | 0 |" in page
    assert features.problems(rows, [("AA-01", "t")]) == ["BB-1 has no test: A", "BB-2 has no test: B"]


def test_missing_rows_are_counted_and_named() -> None:
    rows = features.read(MANIFEST)
    page = features.render(rows, [("AA-01", "tests/t.py::test_one"), ("AA-02", "tests/t.py::test_two")])
    assert "**2 rows are promised, and 1 of them are done** (not AA-02). Done of 0 further rows: all." in page
    assert "| [First](#aa) | 2 | 1 | 0 | 1 |" in page
    assert "may have tests already" in page
    assert "| AA-02 | Two | waits for tasks; so far<br>`t.py::test_two` |" in page
    none = features.render(features.read('beyond = ["AA-01"]\n' + MANIFEST), [])
    assert "**1 rows are promised, and 0 of them are done** (not AA-02). Done of 1 further rows: 0." in none


def test_differing_rows_are_named_and_not_counted() -> None:
    differs = MANIFEST.replace('AA-01 = "One"', 'AA-01 = { text = "One", differs = "two, for one was too few" }')
    rows = features.read(
        differs.replace('{ text = "Two", waits = "tasks" }', '"Two"').replace('[waits]\ntasks = "tasks"', "")
    )
    marks = [("AA-01", "tests/t.py::test_one"), ("AA-02", "tests/t.py::test_two")]
    page = features.render(rows, marks)
    assert "**2 rows are promised, and 1 of them are done**; deliberately different: AA-01. Done of 0 further" in page
    assert "| [First](#aa) | 2 | 1 | 1 |" in page
    assert "| AA-01 | One | differs: two, for one was too few<br>`t.py::test_one` |" in page
    assert features.problems(rows, marks[1:]) == []


def test_the_page_is_up_to_date() -> None:
    assert features.main(["--check"]) == 0


def test_marks_are_found_on_functions_classes_and_modules() -> None:
    assert list(features.marks_in("t.py", TESTS)) == [
        ("AA-02", "t.py::test_one"),
        ("AA-01", "t.py::test_one"),
        ("AA-02", "t.py::test_two"),
        ("AA-07", "t.py::test_two"),
    ]


def test_a_row_without_a_test_and_a_mark_without_a_row_are_reported() -> None:
    rows = features.read(MANIFEST)
    assert features.problems(rows, []) == ["AA-01 has no test: One"]
    assert features.problems(rows, [("AA-01", "t"), ("AA-03", "t")]) == ["t: there is no row AA-03"]


def test_a_row_with_deep_tests_only_is_reported() -> None:
    rows = features.read(MANIFEST)
    found = [("AA-01", "t.py::test_one"), ("AA-02", "t.py::test_two")]
    expected = ["AA-01 has deep tests only, which `make test` leaves out: One"]
    assert features.problems(rows, found, {"t.py::test_one"}) == expected
    assert features.problems(rows, [*found, ("AA-01", "t.py::test_three")], {"t.py::test_one"}) == []


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        ("@pytest.mark.deep\ndef test_one(): ...", ("t.py::test_one",)),
        ("@pytest.mark.row('AA-01')\n@pytest.mark.soak\nasync def test_one(): ...", ("t.py::test_one",)),
        ("@pytest.mark.deep\nclass TestMany:\n    def test_two(self): ...\n    def helper(self): ...", ("t.py::test_two",)),
        ("pytestmark = pytest.mark.deep\ndef test_one(): ...", ("t.py::test_one",)),
        ("pytestmark = [pytest.mark.greenroom(clock='real'), pytest.mark.deep]\ndef test_one(): ...", ("t.py::test_one",)),
        ("pytestmark = pytest.mark.greenroom(clock='real')\ndef test_one(): ...", ()),
        ("@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.deep)])\ndef test_one(n): ...", ()),
    ],
)  # fmt: skip
def test_deep_tests_are_found_and_a_test_with_a_deep_parameter_is_not_one(text: str, deep: tuple[str, ...]) -> None:
    assert tuple(features.deep_in("t.py", text)) == deep


def test_an_outdated_page_is_reported_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    assert features.main(["--check"], tmp_path) == 1
    assert "out of date" in capsys.readouterr().err
    assert features.main([], tmp_path) == 0
    assert features.main(["--check"], tmp_path) == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (MANIFEST.replace("AA-01", "BB-01"), "is in area AA"),
        (MANIFEST.replace('waits = "tasks"', 'waits = "luck"'), "known are tasks"),
        (MANIFEST.replace("[waits]", '[waits]\nhost = "the host"'), "waits names host"),
        ('beyond = ["AA-09"]\n' + MANIFEST, "beyond names AA-09"),
        (MANIFEST.replace('"One"', '{ text = "One", differs = "just so" }'), "AA-01 must be a text"),
        (MANIFEST.replace('"One"', '{ text = "One" }'), "AA-01 must be a text"),
    ],
)
def test_a_wrong_manifest_is_refused(wrong: str, why: str) -> None:
    with pytest.raises(features.BadManifest, match=why):
        features.read(wrong)


def test_a_mark_that_is_not_a_text_is_refused() -> None:
    with pytest.raises(features.BadManifest, match="in quotes"):
        list(features.marks_in("t.py", "import pytest\n@pytest.mark.row(ID)\ndef test(): ..."))
