"""Replays a trial: `python tests/supervision/supervisor_model/replay.py --seed 7 '<plan as JSON>'` prints the run and the prediction.

The file is run directly and makes a package of its neighbours itself, so that the root of the repository is not on sys.path, where `import actors` would
succeed.

"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType


def main(arguments: list[str]) -> int:
    """Replay; the exit status says whether all was as predicted."""
    parser = argparse.ArgumentParser(description="Replay a trial of the `sups` property.")
    parser.add_argument("plan", help="the plan, as JSON")
    parser.add_argument("--seed", default="none", help="of the delivery order: a number, or none")
    given = parser.parse_args(arguments)
    here = ModuleType("sups")
    here.__path__ = [str(Path(__file__).parent)]
    sys.modules["sups"] = here
    plan = importlib.import_module("sups.example_plan").Plan.load(given.plan)
    seed = (
        None if given.seed == "none" else importlib.import_module("greenroom.supervision.testing").Seed(int(given.seed))
    )
    verdict = importlib.import_module("sups.model_trial").run_trial(plan, seed)
    if verdict is None:
        print("two events of this plan coincide: the run cannot be predicted")  # noqa: T201 - a command line tool
        return 2
    print(verdict.run.dump())  # noqa: T201 - same
    for line in verdict.wrong:
        print(f"wrong: {line}", file=sys.stderr)  # noqa: T201 - same
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
