"""The files of a run: JSON with every repeat and the environment, and the chart."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import instructions
from .client import over_http as client_http
from .client import over_stdio as client_stdio
from .cluster import isolation
from .curve_chart import svg
from .serving import contest, modern, stdio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curves import Drawn
    from .measure import Plan, Result

FOLDER = Path(__file__).parent / "results"


def write(  # noqa: PLR0913 - one for each kind of result
    folder: Path,
    plan: Plan,
    results: Sequence[Result],
    curves: Sequence[Drawn],
    served: contest.Contest | None = None,
    piped: stdio.Held | None = None,
    *,
    sessionless: modern.Held | None = None,
    called: client_http.Held | None = None,
    programs: client_stdio.Held | None = None,
    isolated: isolation.Held | None = None,
    counted: instructions.Held | None = None,
) -> list[Path]:
    """Write the files and return their paths; without curves there is no chart."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime())
    data = stem.with_suffix(".json")
    report = as_data(plan, results, curves)
    if served is not None:
        report["serving"] = contest.as_data(served)
    if piped is not None:
        report["stdio"] = stdio.as_data(piped)
    if sessionless is not None:
        report["modern"] = modern.as_data(sessionless)
    if called is not None:
        report["client-http"] = client_http.as_data(called)
    if programs is not None:
        report["client-stdio"] = client_stdio.as_data(programs)
    if isolated is not None:
        report["isolation"] = isolation.as_data(isolated)
    if counted is not None:
        report["instructions"] = instructions.as_data(counted)
    data.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not curves:
        return [data]
    picture = stem.with_suffix(".svg")
    picture.write_text(svg(curves), encoding="utf-8")
    return [data, picture]


def as_data(plan: Plan, results: Sequence[Result], curves: Sequence[Drawn]) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "where": {
            "python": sys.version,
            "implementation": platform.python_implementation(),
            "machine": platform.machine(),
            "system": platform.system(),
            "cores": os.cpu_count(),
        },
        "plan": {"repeats": plan.repeats, "divisor": plan.divisor, "largest": plan.largest},
        "benchmarks": [
            {
                "name": result.benchmark.name,
                "about": result.benchmark.about,
                "unit": result.benchmark.unit,
                "clock": result.benchmark.clock,
                "count": plan.count(result.benchmark),
                "floor": None if result.benchmark.floor is None else result.benchmark.floor.name,
                "target": result.benchmark.target,
                "met": result.met,
                "cost": result.cost,
                "ratio": statistics.median(result.ratios) if result.ratios else None,
                "spread": result.spread,
                "costs": result.costs,
                "ratios": result.ratios,
                "asides": result.asides,
            }
            for result in results
        ],
        "curves": [
            {
                "name": drawn.curve.name,
                "about": drawn.curve.about,
                "unit": drawn.curve.unit,
                "size": drawn.curve.size,
                "series": drawn.series,
            }
            for drawn in curves
        ],
    }
