"""Permanent decisions: their number, their file, and files that cannot be written or trusted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from greenroom.actors.consent import consent as memory
from greenroom.actors.consent.consent import DecisionMemory
from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PUSH = "git:push"


def now() -> float:
    return 1000.0


def test_the_oldest_decisions_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_DECISIONS", 3)
    kept = DecisionMemory(now)
    keys = [f"git:t{number}" for number in range(4)]
    for key in keys:
        kept.keep(key, "hash", allow=True, seconds=60.0)
    assert [kept.of(key, "hash") for key in keys] == [None, True, True, True]
    assert len(kept) == 3


def test_without_a_file_what_is_for_good_lasts_as_long_as_the_program_and_can_be_forgotten() -> None:
    kept = DecisionMemory(now)
    kept.keep(PUSH, "hash", allow=False, seconds=None)
    kept.keep("Elicit(git)", "", allow=True, seconds=None)
    assert kept.of(PUSH, "hash") is False
    assert kept.forget("git:pull") == 0
    assert kept.forget(PUSH) == 1
    assert kept.of(PUSH, "hash") is None
    assert kept.forget() == 1
    assert len(DecisionMemory(now)) == 0


def test_a_file_that_cannot_be_written_leaves_nothing_lying_and_the_decision_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "decisions.json"
    kept = DecisionMemory(now, path)
    kept.keep("git:pull", "hash", allow=True, seconds=None)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept.keep(PUSH, "hash", allow=True, seconds=None)
    assert kept.of(PUSH, "hash") is True
    assert [each.name for each in tmp_path.iterdir()] == ["decisions.json"]
    assert path.read_bytes() == before


def test_a_file_of_another_user_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decisions.json"
    DecisionMemory(now, path).keep(PUSH, "hash", allow=True, seconds=None)
    if os.geteuid() == 0:
        os.chown(path, 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(
        ConfigError, match=r"decisions\.json: .* \(it belongs to another user\): correct the file, or remove it"
    ):
        DecisionMemory(now, path)


def test_an_oversized_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    path.touch(0o600)
    os.truncate(path, memory._LARGEST + 1)
    with pytest.raises(ConfigError, match="it is larger than 16777216 bytes"):
        DecisionMemory(now, path)
