"""Runners that share the suite: each file is one runner's, and none is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.halves import Turns

if TYPE_CHECKING:
    from pathlib import Path


def test_each_file_is_one_runners_and_whole(tmp_path: Path) -> None:
    suite: list[Any] = [SimpleNamespace(path=tmp_path / f"{file}.py", number=n) for file in "abcd" for n in range(3)]
    one, other = Turns(tmp_path).items(suite), Turns(tmp_path).items(list(reversed(suite)))
    first = [next(one) for _ in range(4)]
    rest = list(other)
    first += one
    files = [{item.path.stem for item in part} for part in (first, rest)]
    assert files == [{"a", "b"}, {"c", "d"}]
    assert len(first) == len(rest) == 6
