"""Describes where a run and its prediction differ.

Lines of one supervisor are compared in order. Lines without a defined order are sorted first: children that a dynamic supervisor stops simultaneously, and those
that a killed supervisor leaves behind.

"""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from .example_plan import is_dynamic

if TYPE_CHECKING:
    from .engine_run import EngineRun
    from .example_plan import Plan
    from .prediction import Prediction


def differences(plan: Plan, predicted: Prediction, run: EngineRun) -> list[str]:
    """The differences from the prediction; empty if there are none."""
    found = list(run.faults)
    wanted, seen = predicted.history, run.history
    for whose in sorted({*wanted, *seen}):
        pairs = zip_longest(_in_order(plan, whose, wanted), _in_order(plan, whose, seen), fillvalue="(nothing)")
        different = next(((want, got) for want, got in pairs if want != got), None)
        if different is not None:
            found.append(f"children of {whose}: {different[0]!r} was predicted, {different[1]!r} was seen")
    for label in sorted({*predicted.outcomes, *run.outcomes}):
        want, got = predicted.outcomes.get(label), run.outcomes.get(label)
        if want != got:
            found.append(f"{label}: {want} was predicted, {got} was seen")
    for number, (look, check) in enumerate(zip_longest(predicted.checks, run.checks)):
        found += [
            f"check {number}, {whose}: {look[whose]} was predicted, {(check or {}).get(whose)} was seen"
            for whose in look or {}
            if look and look[whose] != (check or {}).get(whose)
        ]
    return found


def _in_order(plan: Plan, whose: str, history: dict[str, list[str]]) -> list[str]:
    lines = history.get(whose, [])
    role = whose.partition("#")[0]
    if role == "outside":
        return lines
    killed = _killed_at(whose, history)
    crowd = is_dynamic(plan.tree, role)
    ordered: list[str] = []
    for (when, ends), group in groupby(lines, lambda line: (line.split()[0], line.split()[1] in ("end", "report"))):
        same = list(group)
        ordered += sorted(same) if (crowd and ends) or (killed is not None and float(when) >= killed) else same
    return ordered


def _killed_at(whose: str, history: dict[str, list[str]]) -> float | None:
    """When that supervisor was killed, if it was."""
    for lines in history.values():
        for line in lines:
            when, what, *rest = line.split()
            if what == "end" and rest[0] == f"{whose}:":
                return float(when) if rest[1] == "killed" else None
    return None
