"""Hot reload under load: a thousand random edits while fifty callers work. A twentieth of them in each run, all in `make soak`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .config_files import alive
from .random_edits import KINDS, trial

if TYPE_CHECKING:
    from pathlib import Path

    from .random_edits import Trial

EDITS = 1000
pytestmark = pytest.mark.greenroom(clock="real")


def judge(found: Trial, *also: str) -> None:
    assert found.wrong == []
    assert found.spared > found.edits
    assert found.ends["answer"] > found.edits
    assert set(found.ends) <= {"answer", "UnknownServer", "ClientClosed", "ConsentDenied", *also}, found.ends
    assert found.left == {}
    assert alive(found.pids) == set()
    assert set(found.kinds) <= set(KINDS)


@pytest.mark.deep
@pytest.mark.row("CB-21")
@pytest.mark.parametrize("watch", [False, True])
async def test_fifty_edits(tmp_path: Path, *, watch: bool) -> None:
    found = await trial(tmp_path / "greenroom.toml", EDITS // 20, 1, watch=watch)
    judge(found)
    if not watch:
        assert found.refused
        assert {"add", "replace", "remove", "adjust"} <= set(found.steps)


@pytest.mark.deep
@pytest.mark.row("CB-21")
@pytest.mark.parametrize("seed", [4, 5])
async def test_fifty_edits_while_their_processes_die(tmp_path: Path, seed: int) -> None:
    found = await trial(tmp_path / "greenroom.toml", EDITS // 20, seed, watch=bool(seed % 2), deaths=True)
    judge(found, "MisconfiguredServer")  # for a server whose start was interrupted, until the retry


@pytest.mark.row("CB-21")
@pytest.mark.soak
@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("seed", [2, 3])
async def test_a_thousand_edits(tmp_path: Path, seed: int, *, watch: bool) -> None:
    found = await trial(tmp_path / "greenroom.toml", EDITS, seed, watch=watch)
    judge(found)
    assert set(found.kinds) == set(KINDS)
