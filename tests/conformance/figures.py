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
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

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
    side: Literal["server", "client"] = "server"
    """Who is judged."""
    later: tuple[str, ...] = ()
    """Scenarios that run with the others, and are of what is not built yet."""

    @property
    def name(self) -> str:
        """The release and what it was asked for."""
        return f"{self.release} {self.side} {' '.join(self.arguments)}"

    def judges(self, scenario: str) -> bool:
        """Whether that scenario counts."""
        return not any(fnmatchcase(scenario, pattern) for pattern in self.later)


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

_BY_A_CLIENT = {"initialize": 1, "tools_call": 1, "elicitation-sep1034-client-defaults": 5, "sse-retry": 3}

STABLE_CLIENT = Leg(
    release="0.1.16",
    package="conformance-stable",
    arguments=("--suite", "core"),
    checks=_BY_A_CLIENT,
    side="client",
    later=("auth/*",),
)

NEXT_CLIENT = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--requirements", "2025-11-25"),
    checks={**_BY_A_CLIENT, "tools_call": 2},
    side="client",
    later=("auth/*", "json-schema-2020-12-preservation"),
)

LEGS = (STABLE, NEXT, OLDER)
CLIENT_LEGS = (STABLE_CLIENT, NEXT_CLIENT)

_FOLDER = re.compile(r"(?:server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_FAMILY = re.compile(r"[a-z]+")


def count(results: Path) -> dict[str, Counter[str]]:
    """How many checks of each scenario ended how, from the folders that a run left."""
    counted: dict[str, Counter[str]] = {}
    families = [one for one in results.iterdir() if _FAMILY.fullmatch(one.name)]
    for folder in sorted(one for place in (results, *families) for one in place.iterdir() if one not in families):
        named = _FOLDER.fullmatch(folder.relative_to(results).as_posix())
        if named is None:
            raise ValueError(f"{folder.name} is not named like the results of a scenario")
        checks = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
        counted.setdefault(named["scenario"], Counter()).update(check["status"] for check in checks)
    return counted


def complaints(leg: Leg, counted: Mapping[str, Counter[str]]) -> list[str]:
    """What is not as it has to be; an empty list is the verdict that everything was checked and passed."""
    counted = {name: ended for name, ended in counted.items() if leg.judges(name)}
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
    later = sum(not leg.judges(name) for name in counted)
    counted = {name: ended for name, ended in counted.items() if leg.judges(name)}
    scored = [name for name in counted if name not in leg.unscored]
    beyond = sum(leg.beyond.values())
    passed = sum(ended["SUCCESS"] for ended in counted.values()) - beyond
    failed = sum(ended["FAILURE"] for ended in counted.values())
    line = f"{leg.name}: {len(scored)} scenarios, {passed} checks, {failed} failed"
    if leg.unscored:
        line += f", with those of {len(counted) - len(scored)} scenarios that are not required"
    if later:
        line += f"; {later} scenarios are of what comes later"
    return f"{line}; and {beyond} more in {', '.join(leg.beyond)}" if beyond else line
