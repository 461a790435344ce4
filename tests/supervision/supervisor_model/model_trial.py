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

    from .engine_run import Run
    from .example_plan import Plan


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out of a trial: where the run and its prediction differ, if they do."""

    plan: Plan
    seed: Seed | None
    run: Run
    wrong: list[str]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{len(self.wrong)} things are not as predicted:",
                *(f"  {line}" for line in self.wrong),
                "what happened:",
                *(f"  {line}" for line in self.run.dump().splitlines()),
                "the same again:",
                f"  .venv/bin/python {self.command()}",
            ]
        )

    def command(self) -> str:
        """The arguments of a Python that replays it."""
        seed = "none" if self.seed is None else self.seed.number
        return f"tests/supervision/supervisor_model/replay.py --seed {seed} {shlex.quote(self.plan.dump())}"


def attempt(plan: Plan, seed: Seed | None) -> Verdict | None:
    """Predict, play and compare; None for a plan that cannot be predicted."""
    prediction = predict(plan)
    if prediction.races:
        return None
    run = play(plan, prediction, seed)
    return Verdict(plan, seed, run, differences(plan, prediction, run))
