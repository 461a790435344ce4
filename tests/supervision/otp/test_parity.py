"""Every case of the suites is accounted for, and the page is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.features import features

from . import parity

if TYPE_CHECKING:
    from pathlib import Path

SUITES = parity.suites()
SIZES = {
    "gen_server_SUITE": 74,
    "gen_statem_SUITE": 62,
    "supervisor_SUITE": 96,
    "dynamic_supervisor_test": 41,
    "partition_supervisor_test": 22,
    "registry_duplicate_test": 34,
    "registry_test": 6,
    "registry_unique_test": 35,
    "task_supervisor_test": 44,
    "sys_SUITE": 7,
    "proc_lib_SUITE": 17,
    "pg_SUITE": 28,
    "supervisor_test": 16,
    "task_test": 116,
}
"""How many cases OTP's suite has: a manifest that lost one would otherwise look complete."""

MANIFEST = """
origin = "https://example.com/x_SUITE.erl"
release = "29"
[[group]]
[group.cases]
start = "port"
[[group]]
name = "stop"
[group.cases]
stop1 = "port: it raises | instead"
hibernate = "n/a (hibernation): of the heap alone"
"""


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_case_has_a_test_and_every_mark_a_case(suite: parity.Suite) -> None:
    marks = [mark for mark in parity.marks() if mark.suite == suite.name]
    assert parity.problems([suite], marks) == []
    quick = [mark for mark in marks if mark.test not in features.deep()]
    assert parity.problems([suite], quick) == [], "`make test` leaves the only test out"


def test_no_mark_names_a_suite_that_is_not_there() -> None:
    assert {mark.suite for mark in parity.marks()} <= {suite.name for suite in SUITES}


def test_the_manifests_are_as_long_as_the_suites() -> None:
    assert {suite.name: len(suite.cases) for suite in SUITES} == SIZES


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert parity.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_is_written_and_then_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    assert parity.main(["--check"], tmp_path) == 1
    assert parity.PAGE in capsys.readouterr().err
    assert parity.main([], tmp_path) == 0
    assert parity.main(["--check"], tmp_path) == 0


def test_a_row_says_status_tests_and_remark() -> None:
    suite = parity.read("x_SUITE", MANIFEST)
    page = parity.render([suite], [parity.Mark("x_SUITE", "stop1", "tests/test_x.py::test_stop")])
    assert "| `stop1` | stop | ported | `test_x.py::test_stop` | it raises \\| instead |" in page
    assert "| `hibernate` | stop | does not apply: hibernation |  | of the heap alone |" in page
    assert "| `start` |  | to be ported |  |  |" in page
    assert "| [x_SUITE](#x_suite) | 3 | 2 | 0 | 1 | 0 |" in page


def test_marks_are_read_without_importing() -> None:
    text = (
        "import nowhere\n@pytest.mark.otp('a', 'b')\n@pytest.mark.otp('a', 'c')\nasync def test_it(): ...\n"
        "class TestMore:\n    @pytest.mark.otp('a', 'd')\n    def test_that(self): ...\n"
        "@pytest.mark.otp('a', 'e')\ndef helper(): ...\n"
    )
    assert [(mark.case, mark.test) for mark in parity.marks_in("t.py", text)] == [
        ("b", "t.py::test_it"),
        ("c", "t.py::test_it"),
        ("d", "t.py::test_that"),
    ]


def test_a_mark_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(parity.BadManifest, match=r"t.py:1: write @pytest.mark.otp"):
        list(parity.marks_in("t.py", "@pytest.mark.otp(SUITE, 'b')\ndef test_it(): ..."))


def test_a_differing_case_needs_a_test_and_an_open_one_needs_none() -> None:
    text = MANIFEST.replace('start = "port"', 'start = "differs: it does the opposite of that"').replace(
        '"port: it raises | instead"', '"open: nothing of ours does that"'
    )
    suite = parity.read("x_SUITE", text)
    page = parity.render([suite], [parity.Mark("x_SUITE", "start", "tests/test_x.py::test_start")])
    assert "| [x_SUITE](#x_suite) | 3 | 0 | 1 | 1 | 1 |" in page
    assert "| `start` |  | differs | `test_x.py::test_start` | it does the opposite of that |" in page
    assert "| `stop1` | stop | not ported |  | nothing of ours does that |" in page
    assert parity.problems([suite], []) == ["x_SUITE, start is listed as ported, and no test carries its mark"]
    assert parity.problems([suite], [parity.Mark("x_SUITE", case, "t") for case in ("start", "stop1")]) == [
        "t: x_SUITE, stop1 is listed as `open`, not as `port`"
    ]


def test_missing_tests_unknown_cases_and_cases_that_are_not_ported_are_found() -> None:
    suite = parity.read("x_SUITE", MANIFEST)
    marks = [parity.Mark("x_SUITE", case, f"t::{case}") for case in ("start", "hibernate", "stop9")]
    assert parity.problems([suite], marks) == [
        "t::hibernate: x_SUITE, hibernate is listed as `n/a`, not as `port`",
        "t::stop9: x_SUITE has no case stop9",
        "x_SUITE, stop1 is listed as ported, and no test carries its mark",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "ported",
        "differs",
        "open: no",
        "open (hibernation): of the heap",
        "port:",
        "port (hibernation): of the heap",
        "nodes",
        "nodes: later",
        "n/a",
        "n/a: no",
        "n/a (hibernation)",
        "n/a (hibernation): no",
        "n/a (too hard): it really is",
    ],
)
def test_a_case_without_a_good_reason_is_refused(entry: str) -> None:
    with pytest.raises(parity.BadManifest, match="x_SUITE, start"):
        parity.read("x_SUITE", MANIFEST.replace('start = "port"', f'start = "{entry}"'))


def test_a_family_has_exemptions_of_its_own_and_comes_in_its_turn(tmp_path: Path) -> None:
    elixir = 'family = "Elixir"\n' + MANIFEST.replace("hibernation", "child spec macro")
    (tmp_path / "a_test.toml").write_text(elixir, encoding="utf-8")
    (tmp_path / "x_SUITE.toml").write_text(MANIFEST, encoding="utf-8")
    suites = parity.suites(tmp_path)
    assert [suite.name for suite in suites] == ["x_SUITE", "a_test"]
    page = parity.render(suites, [])
    assert f"- *child spec macro*: {parity.EXEMPTIONS['Elixir']['child spec macro']}" in page
    assert "From [a_test](https://example.com/x_SUITE.erl), Elixir 29." in page
    with pytest.raises(parity.BadManifest, match="only code upgrade, hibernation"):
        parity.read("x_SUITE", MANIFEST.replace("hibernation", "child spec macro"))


def test_a_case_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(parity.BadManifest, match="start more than once"):
        parity.read("x_SUITE", MANIFEST.replace("hibernate", "start"))
