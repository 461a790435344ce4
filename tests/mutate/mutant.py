"""Mutants (small changes to the code) and their outcomes."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

KILLED: Final = "killed"
SURVIVED: Final = "survived"
GONE: Final = "gone"
"""The changed lines no longer exist."""
BROKEN: Final = "unclear"
"""Its tests fail without the change too."""


@dataclass(frozen=True)
class Mutant:
    """Lines of a file, and their replacement."""

    file: str
    line: int
    operator: str
    old: list[str]
    new: list[str]

    @classmethod
    def of(cls, entry: dict[str, Any], tree: Path) -> Self:
        """Read a line of `python/mutants.py`."""
        before = (tree / entry["file"]).read_text("utf-8").splitlines(keepends=True)
        after = entry["source"].splitlines(keepends=True)
        changes = [
            code
            for code in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
            if code[0] != "equal"
        ]
        start, end = changes[0][1], changes[-1][2]
        new_start, new_end = changes[0][3], changes[-1][4]
        if start == end:  # an insertion is located by the line before it
            start, new_start = start - 1, new_start - 1
        return cls(entry["file"], start + 1, entry["operator"], before[start:end], after[new_start:new_end])

    @property
    def key(self) -> str:
        """A unique key within a sample."""
        return f"{self.file}:{self.line}:{self.operator}"

    def find(self, text: str) -> int | None:
        """The line of its old text, nearest to the original position."""
        lines = text.splitlines(keepends=True)
        starts = [at for at in range(len(lines)) if lines[at : at + len(self.old)] == self.old]
        return min(starts, key=lambda at: abs(at + 1 - self.line)) + 1 if starts else None

    def applied(self, text: str, line: int) -> str:
        """The text with the change at that line."""
        lines = text.splitlines(keepends=True)
        lines[line - 1 : line - 1 + len(self.old)] = self.new
        return "".join(lines)


class Results:
    """The outcomes, a line of JSON for each attempt."""

    def __init__(self, file: Path) -> None:
        """Store outcomes in that file."""
        self._file = file

    def add(self, mutant: Mutant, outcome: str, by: str) -> None:
        """Append an outcome at once, so that an interrupted run can continue."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(mutant), "key": mutant.key, "outcome": outcome, "by": by}) + "\n")

    def latest(self) -> dict[str, str]:
        """The last outcome of each mutant."""
        return {key: entry["outcome"] for key, entry in self._entries().items()}

    def report(self) -> str:
        """Totals by folder, then every surviving mutant as a diff."""
        entries = list(self._entries().values())
        counts = Counter((entry["file"].split("/")[0], entry["outcome"]) for entry in entries)
        outcomes = sorted({outcome for _, outcome in counts})
        rows = [f"| {'code':<12} | " + " | ".join(f"{outcome:>8}" for outcome in outcomes) + " |"]
        rows += [
            f"| {room:<12} | " + " | ".join(f"{counts[room, outcome]:>8}" for outcome in outcomes) + " |"
            for room in sorted({room for room, _ in counts})
        ]
        for entry in entries:
            if entry["outcome"] == SURVIVED:
                rows.append(f"\n{entry['file']}:{entry['line']} {entry['operator']} ({entry['by']})")
                rows += ["- " + line.rstrip() for line in entry["old"]] + [
                    "+ " + line.rstrip() for line in entry["new"]
                ]
        return "\n".join(rows)

    def _entries(self) -> dict[str, dict[str, Any]]:
        if not self._file.exists():
            return {}
        return {entry["key"]: entry for entry in map(json.loads, self._file.read_text("utf-8").splitlines())}
