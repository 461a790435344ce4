"""Mutation testing: `python -m tests.mutate --seed N`, which is `make mutate SEED=N`.

A seeded sample of small changes is applied to the code, one at a time, in clones of the repository, and the tests that reach the changed line must
fail.
The results of a sample are kept in `.mutants/`, so that an interrupted run continues. A failure counts only if the test passes without the change.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from .mutant import BROKEN, GONE, KILLED, SURVIVED, Mutant, Results
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tree import Reach

ROOT: Final = Path(__file__).parents[2]
OTHER: Final = ROOT / ".referees" / "mutate" / "bin" / "python"
CODE: Final = (
    "auth/**/*.py",
    "transports/http*.py",
    "actors/session_calls.py",
    "actors/session.py",
    "supervision/supervisors/*.py",
)
TESTS: Final = (
    *("actors/blast_radius", "actors/client", "actors/registry", "actors/server_questions", "actors/session"),
    *("actors/tasks", "actors/workers", "auth", "fuzz", "greenroom/protocol", "greenroom/server", "interop"),
    *("supervision/kernel", "supervision/otp", "supervision/supervisor_model", "supervision/supervisors"),
    *("transports/client_http", "transports/hostile", "transports/http", "transports/stdio", "transports/tls"),
)
LIMIT: Final = 240.0
"""The time limit of tests for one change in seconds; if all tests that reach the line take longer, the shortest run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rest of the sample, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description="change the code: does a test notice?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2, help="clones in which changes are tried at the same time")
    parser.add_argument(
        "--again", action="store_true", help="try those that were not noticed again, on the newest commit"
    )
    parser.add_argument("--report", action="store_true", help="print what is known, and run nothing")
    options = parser.parse_args(arguments)
    place = ROOT / ".mutants"
    place.mkdir(exist_ok=True)
    place = place.resolve()  # the coverage data has absolute paths
    results = Results(place / f"{options.seed}-{options.count}.jsonl")
    if not options.report:
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
        trees = [Tree(place / f"tree-{number}") for number in range(options.jobs)]
        for tree in trees:
            tree.make(ROOT, commit)
        sample = drawn(
            place / f"sample-{options.seed}-{options.count}.jsonl", trees[0].folder, options.seed, options.count
        )
        known = results.latest()
        left = [
            mutant for mutant in sample if mutant.key not in known or (options.again and known[mutant.key] == SURVIVED)
        ]
        try_all(trees, left, trees[0].reach([f"tests/{folder}" for folder in TESTS]), results)
    print(results.report())
    return 0


def drawn(file: Path, tree: Path, seed: int, count: int) -> list[Mutant]:
    """The sample of a seed, drawn from the commit at its first use."""
    if not file.exists():
        files = sorted({str(path.relative_to(tree)) for pattern in CODE for path in tree.glob(pattern)})
        script = Path(__file__).parent / "python" / "mutants.py"
        printed = subprocess.check_output([OTHER, script, str(seed), str(count), *files], cwd=tree, text=True)
        mutants = [Mutant.of(json.loads(line), tree) for line in printed.splitlines()]
        file.write_text("".join(json.dumps(asdict(mutant)) + "\n" for mutant in mutants), "utf-8")
    return [Mutant(**json.loads(line)) for line in file.read_text("utf-8").splitlines()]


def try_all(trees: list[Tree], mutants: list[Mutant], reach: Reach, results: Results) -> None:
    """Try the mutants in all clones concurrently."""
    waiting: SimpleQueue[Mutant] = SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)

    def work(tree: Tree) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except Empty:
                return
            outcome, by = attempt(tree, mutant, reach)
            results.add(mutant, outcome, by)
            print(f"{outcome:<10} {mutant.file}:{mutant.line} {mutant.operator}  {by}", flush=True)

    threads = [threading.Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def attempt(tree: Tree, mutant: Mutant, reach: Reach) -> tuple[str, str]:
    """Apply a mutant, run the tests that reach it, and undo it. Returns the outcome and the failed test."""
    path = tree.folder / mutant.file
    before = path.read_text("utf-8")
    line = mutant.find(before)
    if line is None:
        return GONE, ""
    tests: list[str] = []
    spent = 0.0
    for test in reach.tests(mutant.file, line):
        spent += reach.times[test]
        if spent > LIMIT:
            break
        tests.append(test)
    while tests:
        seconds = 30 + 5 * sum(reach.times[test] for test in tests)
        path.write_text(mutant.applied(before, line), "utf-8")
        try:
            failing = tree.failing(tests, seconds)
        finally:
            path.write_text(before, "utf-8")
        if failing is None:
            return SURVIVED, f"{len(tests)} tests"
        suspects = [failing] if failing in tests else tests
        if tree.failing(suspects, seconds) is None:
            return KILLED, failing
        if suspects is tests:
            return BROKEN, failing
        tests.remove(failing)  # the test fails without the change too
    return SURVIVED, "no test reaches it"


if __name__ == "__main__":
    sys.exit(main())
