"""The further targets beside the contest: measured on a real server, and compared in the right direction. Speed does not matter here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.serving import milestones
from benchmarks.serving.contenders import ours
from benchmarks.serving.milestones import Milestone
from benchmarks.serving.processes import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep


def test_targets_are_lower_or_upper_bounds() -> None:
    assert Milestone("rate", "x", 2.0, [1.0, 2.0, 9.0]).met
    assert not Milestone("rate", "x", 2.0, [1.0, 1.9, 9.0]).met
    assert Milestone("size", "KiB", 8.0, [7.9], least=False).met
    assert not Milestone("size", "KiB", 8.0, [8.1], least=False).met
    said = milestones.table([Milestone("size", "KiB", 8.0, [8.1], least=False), Milestone("rate", "x", 2.0, [3.0])])
    assert [line.split()[-1] for line in said.splitlines()[1:]] == ["MISSED", "met"]


def test_each_is_measured_on_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milestones, "LISTENERS", 5)
    monkeypatch.setattr(milestones, "SESSIONS", 5)
    with serving(ours("many"), tmp_path / "log") as served:
        assert milestones.listings(served.port, 0.01) > 0
        assert milestones.openings(served.port, 0.01) > 0
        assert milestones.fan_out(served.port) > 0
        assert milestones.fan_out(served.port) > 0
        assert milestones.weight(served) >= 0
