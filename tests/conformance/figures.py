"""What the official suite has to count, scenario by scenario.

The suite prints a tick for a scenario in which nothing failed, also when nothing was checked. So the checks are counted here, in
the results that it leaves, and every figure has to be met exactly: a check that is gone is as wrong as one that failed, and one
that is new deserves a look before its figure is raised.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ONE_EACH = (
    "server-initialize", "logging-set-level", "ping", "completion-complete", "tools-list", "tools-call-simple-text",
    "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content",
    "tools-call-with-logging", "tools-call-error", "tools-call-with-progress", "tools-call-sampling",
    "tools-call-elicitation", "resources-list", "resources-read-text", "resources-read-binary",
    "resources-templates-read", "resources-subscribe", "resources-unsubscribe", "prompts-list", "prompts-get-simple",
    "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
)  # fmt: skip


@dataclass(frozen=True)
class Leg:
    """One run of one release of the suite: how it is called, and the checks that pass in each scenario."""

    release: str
    package: str
    arguments: tuple[str, ...]
    checks: Mapping[str, int]
    unscored: frozenset[str] = frozenset()
    beyond: Mapping[str, int] = field(default_factory=dict[str, int])
    """Checks that pass here, but count for nothing as others get a warning for them."""

    @property
    def name(self) -> str:
        """The release and what it was asked for."""
        return f"{self.release} server {' '.join(self.arguments)}"


STABLE = Leg(
    release="0.1.16",
    package="conformance-stable",
    arguments=("--suite", "all"),
    checks={
        **dict.fromkeys(_ONE_EACH, 1),
        "dns-rebinding-protection": 2,
        "elicitation-sep1034-defaults": 5,
        "elicitation-sep1330-enums": 5,
        "json-schema-2020-12": 4,
        "server-sse-multiple-streams": 2,
        "server-sse-polling": 0,
    },
    # Its request says 2025-03-26 in a session of 2025-11-25. Servers that believe the request send no priming event, and get a
    # warning; here a session has one revision.
    beyond={"server-sse-polling": 3},
)

NEXT = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--requirements", "2025-11-25"),
    checks={
        **dict.fromkeys(
            _ONE_EACH, 2
        ),  # the second says that every message on the wire is valid by the revision's own schema
        "dns-rebinding-protection": 2,
        "elicitation-sep1034-defaults": 6,
        "elicitation-sep1330-enums": 6,
        "json-schema-2020-12": 8,
        "server-initialize": 3,
        "server-session-lifecycle": 3,
        "server-sse-multiple-streams": 2,
        "server-sse-polling": 3,
        "tools-list": 3,
    },
    unscored=frozenset({"json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"}),
)

OLDER = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--suite", "all", "--spec-version", "2025-06-18"),
    checks={**dict.fromkeys(_ONE_EACH, 2), "server-initialize": 3, "server-session-lifecycle": 3},
)

LEGS = (STABLE, NEXT, OLDER)

_FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


def count(results: Path) -> dict[str, Counter[str]]:
    """How many checks of each scenario ended how, from the folders that a run left."""
    counted: dict[str, Counter[str]] = {}
    for folder in sorted(results.iterdir()):
        named = _FOLDER.fullmatch(folder.name)
        if named is None:
            raise ValueError(f"{folder.name} is not named like the results of a scenario")
        checks = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
        counted.setdefault(named["scenario"], Counter()).update(check["status"] for check in checks)
    return counted


def complaints(leg: Leg, counted: Mapping[str, Counter[str]]) -> list[str]:
    """What is not as it has to be; an empty list is the verdict that everything was checked and passed."""
    wrong = [f"{name}: was not run" for name in sorted(set(leg.checks) - set(counted))]
    wrong += [f"{name}: is not known here" for name in sorted(set(counted) - set(leg.checks))]
    for name in sorted(set(counted) & set(leg.checks)):
        ended, due = counted[name], leg.checks[name] + leg.beyond.get(name, 0)
        if ended["SUCCESS"] != due:
            wrong.append(f"{name}: {ended['SUCCESS']} checks passed where {due} have to")
        bad = {status: times for status, times in ended.items() if status not in {"SUCCESS", "INFO"} and times}
        wrong += [f"{name}: {times} {status}" for status, times in sorted(bad.items())]
    return wrong


def summary(leg: Leg, counted: Mapping[str, Counter[str]]) -> str:
    """The figures of a run in one line."""
    scored = [name for name in counted if name not in leg.unscored]
    beyond = sum(leg.beyond.values())
    passed = sum(ended["SUCCESS"] for ended in counted.values()) - beyond
    failed = sum(ended["FAILURE"] for ended in counted.values())
    line = f"{leg.name}: {len(scored)} scenarios, {passed} checks, {failed} failed"
    if leg.unscored:
        line += f", with those of {len(counted) - len(scored)} scenarios that are not required"
    return f"{line}; and {beyond} more in {', '.join(leg.beyond)}" if beyond else line
