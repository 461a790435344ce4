"""One trial: a plan is predicted by the model and run on the engine, and the two are compared."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .engine_run import play
from .prediction import predict
from .run_comparison import differences

if TYPE_CHECKING:
    from greenroom.supervision.testing import Seed

    from .engine_run import EngineRun
    from .example_plan import Plan


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The differences between a run and its prediction, if there are any."""

    plan: Plan
    seed: Seed | None
    run: EngineRun
    wrong: list[str]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{len(self.wrong)} differences from the prediction:",
                *(f"  {line}" for line in self.wrong),
                "what happened:",
                *(f"  {line}" for line in self.run.dump().splitlines()),
                "replay with:",
                f"  .venv/bin/python {self.command()}",
            ]
        )

    def command(self) -> str:
        """The command-line arguments that replay the trial."""
        seed = "none" if self.seed is None else self.seed.number
        return f"tests/supervision/supervisor_model/replay.py --seed {seed} {shlex.quote(self.plan.dump())}"


def run_trial(plan: Plan, seed: Seed | None) -> TrialResult | None:
    """Predict, run and compare; None for a plan that cannot be predicted."""
    prediction = predict(plan)
    if prediction.races:
        return None
    run = play(plan, prediction, seed)
    return TrialResult(plan, seed, run, differences(plan, prediction, run))
