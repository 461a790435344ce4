"""Keeps the plan of a failed test in a file, and says what replays it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plans import FaultPlan


def keep(plan: FaultPlan, test: str, folder: Path) -> Path:
    """Write the plan into a file named for the test; returns where that is, in short."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{re.sub(r'[^a-zA-Z0-9]+', '-', test).strip('-')}.json"
    file.write_text(f"{plan.dump(indent=2)}\n", encoding="utf-8")
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def command(test: str, file: Path, seed: int | None) -> str:
    """What runs the test again, under that plan and in that order of delivery."""
    words = ["pytest", test, f"--greenroom-plan={file}"]
    if seed:
        words.append(f"--greenroom-seed={seed}")
    return shlex.join(words)


def replayed(plan: FaultPlan, test: str, place: Path | None, seed: int | None, shrunk_from: int | None) -> str:
    """What to show with a failure: the plan, and how to play it again. `place` is its file, or the folder for one."""
    lines = str(plan).splitlines()
    if shrunk_from is not None:
        lines.append(f"(the smallest found, of {shrunk_from} faults)")
    if place is None:
        lines.append(f"as JSON, for --greenroom-plan: {plan.dump()}")
    else:
        file = place if place.is_file() else keep(plan, test, place)
        lines.append(f"again: {command(test, file, seed)}")
    return "\n".join(lines)
