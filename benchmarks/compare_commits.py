"""Compares this tree with an earlier commit: `python -m benchmarks.compare_commits COMMIT [--only NAME]… [--rounds 5]`.

Both are measured in alternating rounds, so that other load affects both, and the median of the rounds' ratios is printed for each row. The earlier
tree is checked out, with its own environment, in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

ROOT: Final = Path(__file__).parents[1]
MOST_TIME: Final = 1.10
MOST_INSTRUCTIONS: Final = 1.03


@dataclass
class Row:
    """One figure of both trees: a value for each round."""

    name: str
    most: float
    """The ratio that counts as worse."""
    before: list[float] = field(default_factory=list[float])
    now: list[float] = field(default_factory=list[float])

    @property
    def ratio(self) -> float:
        """The median ratio of now to before."""
        return statistics.median(now / before for before, now in zip(self.before, self.now, strict=True))

    @property
    def line(self) -> str:
        """The row as text."""
        before, now = statistics.median(self.before), statistics.median(self.now)
        verdict = "worse" if self.ratio > self.most else ""
        return f"{self.name:44}{before:>16,.6g}{now:>16,.6g}{self.ratio:>9.3f}  {verdict}".rstrip()


@contextmanager
def checked_out(commit: str) -> Generator[Path]:
    """Check out a commit with its environment."""
    with tempfile.TemporaryDirectory(prefix="greenroom-before-") as folder:
        there = Path(folder) / "tree"
        _run(["git", "worktree", "add", "--quiet", "--detach", str(there), commit], ROOT)
        try:
            _run(["make", "--silent", "venv"], there)
            yield there
        finally:
            _run(["git", "worktree", "remove", "--force", str(there)], ROOT)


def figures(tree: Path, only: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Run a tree's benchmarks: by row, the figure and the ratio that counts as worse."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = [word for each in only for word in ("--only", each)]
        command = [str(tree / ".venv/bin/python"), "-m", "benchmarks", "--quick", *chosen, "--into", folder]
        _run(command, tree)
        output: dict[str, Any] = json.loads(next(Path(folder).glob("*.json")).read_text())
    found = {
        each["name"]: (statistics.median(each["costs"]), MOST_TIME)
        for each in output["benchmarks"]
        if each["clock"] == "cpu"
    }
    counted: Any = output.get("instructions") or {"rows": []}
    found |= {each["name"]: (statistics.median(each["values"]), MOST_INSTRUCTIONS) for each in counted["rows"]}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both trees and print the rows; 1 if a row is worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_commits", description=__doc__)
    parser.add_argument("commit", help="the commit to compare this tree with")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="rows with NAME in their name")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    rows: dict[str, Row] = {}
    with checked_out(options.commit) as before:
        for number in range(options.rounds):
            trees = (before, ROOT) if number % 2 else (ROOT, before)
            seen = {tree: figures(tree, options.only) for tree in trees}
            for name in seen[ROOT].keys() & seen[before].keys():
                row = rows.setdefault(name, Row(name, seen[ROOT][name][1]))
                row.before.append(seen[before][name][0])
                row.now.append(seen[ROOT][name][0])
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(f"{'':44}{'before':>16}{'now':>16}{'ratio':>9}")
    print("\n".join(rows[name].line for name in sorted(rows)))
    return 1 if any(row.ratio > row.most for row in rows.values()) else 0


def _run(command: Sequence[str], where: Path) -> None:
    subprocess.run(command, cwd=where, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own commands


if __name__ == "__main__":
    sys.exit(main())
