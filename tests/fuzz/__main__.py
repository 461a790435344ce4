"""Runs the fuzz targets: `python -m tests.fuzz [--seconds N] [--only TARGET…]`, which is `make fuzz`.

Each target runs for its time in a separate process, guided by coverage. An input that violates a property ends its target's run and is saved as a
file, which `--again FILE` repeats; the command then exits with 1. The corpus is kept, so that the next run continues from it.

Targets named `linear-…` are no search: they measure the cost of the worst inputs at growing sizes (`linearity`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import linearity
from .catalogue import TARGETS
from .fuzz_target import Target, dictionary

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
LINEAR = {f"linear-{name}": name for name in linearity.readers()}
PLACE = ROOT / ".referees" / "fuzz"
SECONDS = 60
SLOW = 60
"""The time limit of a single input in seconds: none takes one, but on a busy machine a process may have to wait."""
MEMORY = 2048
"""The memory limit of a target's process in megabytes."""
SLACK = 60
"""The seconds beyond its time after which a target's process dumps its stacks and ends."""
EACH = 0.25
"""The additional seconds for each seed input: all are run before the time is checked."""

_DONE = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
_LINE = re.compile(r"^#(\d+)\s.*?\bcov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """The result of one target."""

    target: str
    seconds: float
    runs: int
    coverage: int
    features: int
    corpus: int
    findings: tuple[Path, ...]
    wrong: str

    def __str__(self) -> str:
        verdict = f"WRONG\n{self.wrong}" if self.wrong else "right"
        figures = f"{self.runs:>10} runs {self.coverage:>6} edges {self.features:>6} features {self.corpus:>5} kept"
        return f"{self.target:<12} {self.seconds:6.0f} s {figures}  {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run each target for its time, and print a line for each; 1 if a property was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Inputs that break greenroom.")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"for each target; {SECONDS} unless told")
    parser.add_argument("--total", type=int, help="seconds for all targets together instead")
    parser.add_argument(
        "--only", metavar="TARGET", nargs="+", choices=sorted([*TARGETS, *LINEAR]), default=[*TARGETS, *LINEAR]
    )
    parser.add_argument(
        "--again", metavar="FILE", type=Path, help="repeat one finding, whose name begins with its target"
    )
    parser.add_argument(
        "--findings", metavar="FOLDER", type=Path, default=PLACE / "findings", help="where they are kept"
    )
    options = parser.parse_args(arguments)
    if options.again is not None:
        target = TARGETS[options.again.name.partition("-")[0]]
        target.check(options.again.read_bytes())
        print(f"{options.again.name}: nothing is wrong with it")
        return 0
    options.findings.mkdir(parents=True, exist_ok=True)
    searches = [TARGETS[name] for name in options.only if name in TARGETS]
    seconds = options.seconds if options.total is None else max(1, options.total // max(1, len(searches)))
    wrong = 0
    for target in searches:
        run = searched(target, seconds, options.findings)
        print(run, flush=True)
        wrong += bool(run.wrong)
    for cost in linearity.instructions([LINEAR[name] for name in options.only if name in LINEAR]):
        print(cost, flush=True)
        wrong += not cost.linear
    return 1 if wrong else 0


def searched(target: Target, seconds: int, findings: Path) -> Run:
    """Search for an input that breaks a target."""
    corpus = PLACE / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    words = PLACE / f"{target.name}.dict"
    words.write_text(dictionary(target.words), "ascii")
    before = set(findings.glob(f"{target.name}-*"))
    patience = seconds + SLACK + EACH * sum(1 for _ in corpus.iterdir())
    command = [sys.executable, "-m", "tests.fuzz.atheris_runner", target.name, str(patience), str(corpus)]
    command += [
        f"-max_total_time={seconds}",
        f"-timeout={SLOW}",
        f"-report_slow_units={SLOW}",
        f"-rss_limit_mb={MEMORY}",
        f"-max_len={target.longest}",
    ]
    command += [f"-dict={words}", f"-artifact_prefix={findings}/{target.name}-", "-print_final_stats=1"]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=patience + SLACK,  # it ends itself before
            check=False,
        )
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = -1, late.output or b""
    return reported(
        target.name,
        code,
        output.decode(errors="replace"),
        tuple(sorted(set(findings.glob(f"{target.name}-*")) - before)),
    )


def environment() -> dict[str, str]:
    """The environment, with Atheris and the packages on the path, where an instrumented import finds them."""
    (packages,) = PLACE.glob("lib/python3*/site-packages")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(packages)])}


def reported(name: str, code: int, output: str, findings: tuple[Path, ...]) -> Run:
    """Parse libFuzzer's output."""
    lines = _LINE.findall(output)
    runs, coverage, features, corpus = map(int, lines[-1]) if lines else (0, 0, 0, 0)
    done = _DONE.search(output)
    seconds = float(done[2]) if done else 0.0
    wrong = ""
    if code != 0 or findings or done is None:
        kept = "\n".join(f"kept: {path}" for path in findings)
        wrong = f"{output[-4000:]}\n{kept}\nended with {code}"
    return Run(name, seconds, int(done[1]) if done else runs, coverage, features, corpus, findings, wrong)


if __name__ == "__main__":
    sys.exit(main())
