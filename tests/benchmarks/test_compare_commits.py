"""The comparison with an earlier commit: medians of alternating rounds, and marks for worse rows."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks import compare_commits

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

BEFORE = Path("before")


def measured(monkeypatch: pytest.MonkeyPatch, now: Sequence[float]) -> list[Path]:
    """Trees return the given figures, the earlier one always 100; returns the order of the measurements."""
    order: list[Path] = []
    left = list(now)

    @contextmanager
    def checked_out(commit: str) -> Generator[Path]:
        assert commit == "earlier"
        yield BEFORE

    def figures(tree: Path, only: Sequence[str]) -> dict[str, tuple[float, float]]:
        assert list(only) == ["call"]
        order.append(tree)
        return {"call": (100.0 if tree == BEFORE else left.pop(0), compare_commits.MOST_TIME)}

    monkeypatch.setattr(compare_commits, "checked_out", checked_out)
    monkeypatch.setattr(compare_commits, "figures", figures)
    return order


@pytest.mark.parametrize(("now", "worse"), [((90, 110, 200), False), ((90, 111, 200), True)])
def test_a_row_is_worse_if_the_median_of_its_rounds_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], now: tuple[float, ...], *, worse: bool
) -> None:
    order = measured(monkeypatch, now)
    assert compare_commits.main(["earlier", "--only", "call", "--rounds", "3"]) == worse
    assert order == [compare_commits.ROOT, BEFORE, BEFORE, compare_commits.ROOT, compare_commits.ROOT, BEFORE]
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split()[:2] == ["call", "100"]
    assert line.endswith("worse") == worse
