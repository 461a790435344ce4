"""The judge counts checks: a scenario with no check, with a missing one or with an unknown one does not pass."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from greenroom.cli import check_command

from .expected_checks import (
    _TABLE,
    CLIENT_LEGS,
    COMMAND,
    LEGS,
    NEXT,
    PAGE,
    STABLE,
    Leg,
    complaints,
    count,
    page_complaints,
    row,
    summary,
)

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Leg("1.0", "small", ("--all",), {"ping": 2, "streams": 1}, frozenset({"streams"}), {"streams": 2})
RIGHT = {"ping": Counter(SUCCESS=2, INFO=5), "streams": Counter(SUCCESS=3)}


def test_the_expected_figures_are_unchanged() -> None:
    assert [(len(leg.checks) - len(leg.unscored), sum(leg.checks.values())) for leg in LEGS] == [
        (32, 44),
        (30, 84),
        (27, 56),
        (37, 197),
        (40, 153),
        (65, 276),
    ]
    assert [(len(leg.checks), sum(leg.checks.values())) for leg in CLIENT_LEGS] == [
        (25, 302),
        (25, 331),
        (39, 478),
        (48, 527),
    ]
    assert NEXT.beyond == {}
    assert STABLE.beyond == {"server-sse-polling": 3}


def test_the_scenarios_of_the_command_fit_the_fixture() -> None:
    offered = [name for name in check_command._BY_CAPABILITY.values() if name in STABLE.checks]
    assert list(COMMAND.checks) == [*check_command._FOR_ANY_SERVER, *offered]
    assert STABLE.release in check_command.SUITE


def due(leg: Leg) -> dict[str, Counter[str]]:
    """The counts of a run that passes."""
    counted = {name: Counter(SUCCESS=checks + leg.beyond.get(name, 0)) for name, checks in leg.checks.items()}
    counted |= {name: Counter(SKIPPED=1) for name in leg.empty}
    counted |= {name: counted[name] + Counter(SKIPPED=times) for name, times in leg.skipped.items()}
    return counted | {name: Counter(FAILURE=1) for name in leg.failing}


def test_the_page_has_the_expected_figures(root: Path) -> None:
    """`make conformance` compares the same page with its counts."""
    legs = (*LEGS, *CLIENT_LEGS)
    assert [complaints(leg, due(leg)) for leg in legs] == [[] for _ in legs]
    page = root.joinpath(PAGE).read_text(encoding="utf-8")
    assert page_complaints(page, [row(leg, due(leg)) for leg in legs]) == []


def test_a_page_with_another_figure_than_counted_is_wrong() -> None:
    measured = row(SMALL, {**RIGHT, "ping": Counter(SUCCESS=1, FAILURE=1)})
    assert measured == "| 1.0 | `server --all` | 2 | 1 | 1 | 1: `ping` |"
    page = f"{_TABLE}\n| --- | --- | --: | --: | --: | --- |\n{row(SMALL, RIGHT)}\n\nMore."
    assert page_complaints(page, [row(SMALL, RIGHT)]) == []
    assert page_complaints(page, [measured]) == [
        f"{PAGE}: measured, and not said: {measured}",
        f"{PAGE}: said, and not measured: | 1.0 | `server --all` | 2 | 2 | 3 | 0 |",
    ]


def test_a_correct_run_has_no_complaint() -> None:
    assert complaints(SMALL, RIGHT) == []
    line = "1.0 server --all: 1 scenarios, 3 checks, 0 failed, with those of 1 scenarios that are not required"
    assert summary(SMALL, RIGHT) == f"{line}; and 2 more in streams"


@pytest.mark.parametrize(
    ("scenario", "ended", "complaint"),
    [
        ("ping", Counter(SUCCESS=2, FAILURE=1), "ping: 1 FAILURE"),
        ("ping", Counter(SUCCESS=2, WARNING=1), "ping: 1 WARNING"),
        ("ping", Counter(SUCCESS=2, SKIPPED=1), "ping: 1 SKIPPED"),
        ("ping", Counter(SUCCESS=1), "ping: 1 checks passed where 2 have to"),
        ("ping", Counter(SUCCESS=3), "ping: 3 checks passed where 2 have to"),
        ("ping", Counter(INFO=7), "ping: 0 checks passed where 2 have to"),
        ("new", Counter(SUCCESS=1), "new: is not known here"),
    ],
)
def test_every_difference_is_named(scenario: str, ended: Counter[str], complaint: str) -> None:
    assert complaints(SMALL, {**RIGHT, scenario: ended}) == [complaint]


def test_contradicting_scenarios_have_to_fail() -> None:
    leg = replace(SMALL, contradicted={"odd": "it is wrong"})
    assert complaints(leg, {**RIGHT, "odd": Counter(SUCCESS=1, FAILURE=3)}) == []
    assert complaints(leg, {**RIGHT, "odd": Counter(SUCCESS=4)}) == ["odd: did not fail, though it is wrong"]


@pytest.mark.parametrize("ended", [Counter(FAILURE=1, SUCCESS=9), Counter(SKIPPED=3)])
def test_unimplemented_and_contradicting_scenarios_are_failures_by_name(ended: Counter[str]) -> None:
    leg = replace(SMALL, contradicted={"odd": "it is wrong"}, later=frozenset({"new"}))
    counted = {**RIGHT, "odd": ended, "new": ended}
    assert complaints(leg, counted) == []
    assert row(leg, counted).endswith(" 4 | 2 | 3 | 2: `new`, `odd` |")
    said = summary(leg, counted)
    assert "FAILED, as it is not built: new; FAILED, as it wants what must not be done: odd" in said
    assert complaints(leg, {**counted, "new": Counter(SUCCESS=9)}) == [
        "new: did not fail, though it is of what is not built: take it out of the table"
    ]


def test_a_scenario_that_the_suite_skips_neither_passes_nor_fails() -> None:
    leg = Leg("1.0", "small", ("--all",), {"ping": 2, "later": 0}, empty=frozenset({"later"}))
    counted = {"ping": Counter(SUCCESS=2), "later": Counter(SKIPPED=1)}
    assert complaints(leg, counted) == []
    assert row(leg, counted) == "| 1.0 | `server --all` | 2 | 1 | 2 | 0 |"
    assert complaints(leg, {**counted, "later": Counter(SUCCESS=1, SKIPPED=1)}) == [
        "later: 1 checks passed where 0 have to"
    ]
    assert complaints(leg, {**counted, "later": Counter(FAILURE=1)}) == ["later: 1 FAILURE"]
    assert complaints(leg, {"ping": Counter(SUCCESS=2)}) == ["later: was not run"]


@pytest.mark.parametrize(
    ("ended", "complaint"),
    [
        (Counter(SUCCESS=2, SKIPPED=2), []),
        (Counter(SUCCESS=2, SKIPPED=3), ["ping: 1 SKIPPED"]),
        (Counter(SUCCESS=2, SKIPPED=1), ["ping: 1 checks skipped where 2 have to be"]),
        (Counter(SUCCESS=1, SKIPPED=2), ["ping: 1 checks passed where 2 have to"]),
    ],
)
def test_checks_of_messages_that_a_revision_lacks_are_skipped_exactly(
    ended: Counter[str], complaint: list[str]
) -> None:
    leg = replace(SMALL, skipped={"ping": 2})
    assert complaints(leg, {**RIGHT, "ping": ended}) == complaint


def test_a_missing_scenario_is_reported() -> None:
    assert complaints(SMALL, {"ping": RIGHT["ping"]}) == ["streams: was not run"]


def test_checks_are_counted_from_the_suites_results(tmp_path: Path) -> None:
    for scenario, statuses in (("ping", ["SUCCESS", "FAILURE", "SUCCESS"]), ("tools-call-error", ["INFO"])):
        folder = tmp_path / f"server-{scenario}-2026-01-02T03-04-05-678Z"
        folder.mkdir()
        folder.joinpath("checks.json").write_text(json.dumps([{"status": status} for status in statuses]))
    assert count(tmp_path) == {"ping": Counter(SUCCESS=2, FAILURE=1), "tools-call-error": Counter(INFO=1)}


def test_a_client_is_judged_by_scenarios_of_several_families_without_later_revisions(tmp_path: Path) -> None:
    for scenario in ("tools_call", "auth/basic"):
        folder = tmp_path / f"{scenario}-2026-01-02T03-04-05-678Z"
        folder.mkdir(parents=True)
        folder.joinpath("checks.json").write_text('[{"status": "SUCCESS"}]')
    counted = count(tmp_path)
    assert set(counted) == {"tools_call", "auth/basic"}
    leg = Leg("1.0", "small", ("--all",), {"tools_call": 1}, side="client", later=frozenset({"auth/basic"}))
    assert complaints(leg, {**counted, "auth/basic": Counter(FAILURE=1)}) == []
    line = "1.0 client --all: 1 scenarios, 1 checks, 0 failed; FAILED, as it is not built: auth/basic"
    assert summary(leg, counted) == line


def test_a_directory_of_another_name_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "client-ping").mkdir()
    with pytest.raises(ValueError, match="client-ping is not named"):
        count(tmp_path)
