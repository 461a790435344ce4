"""The checks that the official suite has to count, scenario by scenario.

The suite reports success for a scenario in which nothing failed, even if nothing was checked. So the checks are counted here from the
suite's results, and every figure has to be met exactly: a missing check is as wrong as a failed one, and a new one deserves a look before
its figure is raised.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
    """One run of one release of the suite: its command line, and the checks that pass in each scenario."""

    release: str
    package: str
    arguments: tuple[str, ...]
    checks: Mapping[str, int]
    unscored: frozenset[str] = frozenset()
    beyond: Mapping[str, int] = field(default_factory=dict[str, int])
    """Checks that pass here and do not count, since other servers get a warning for them."""
    side: Literal["server", "client", "authorization"] = "server"
    """Whether a server or a client is judged."""
    later: frozenset[str] = frozenset()
    """Scenarios of features that are not implemented. They run with the others, and must be reported as failures."""
    contradicted: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scenarios that require forbidden behaviour, each with the reason. They must be reported as failures."""
    empty: frozenset[str] = frozenset()
    """Scenarios that the suite itself does not check yet: it skips all that they have."""
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Checks of messages that the revision does not have: the suite skips them, and has to."""

    @property
    def name(self) -> str:
        """The release and its options."""
        return f"{self.release} {self.side} {' '.join(self.arguments)}"

    @property
    def failing(self) -> frozenset[str]:
        """The scenarios that are known to fail."""
        return self.later | set(self.contradicted)


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
    # Its request names 2025-03-26 in a session of 2025-11-25. Servers that follow the request send no priming event, and get a warning;
    # here a session has one revision.
    beyond={"server-sse-polling": 3},
)

NEXT = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--requirements", "2025-11-25"),
    checks={
        **dict.fromkeys(
            _ONE_EACH, 2
        ),  # the second one checks that every message on the wire is valid by the revision's own schema
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

_TASKS = {
    "tasks-capability-negotiation": 5, "tasks-dispatch-and-envelope": 9, "tasks-lifecycle": 9, "tasks-mrtr-composition": 2,
    "tasks-mrtr-input": 4, "tasks-request-headers": 5, "tasks-request-state-removal": 3, "tasks-required-task-error": 3,
    "tasks-status-notifications": 0, "tasks-wire-fields": 4,
}  # fmt: skip
_STATELESS = {
    "server-stateless": 30, "caching": 8, "sep-2164-resource-not-found": 4, "http-header-validation": 14,
    "http-custom-header-server-validation": 10, "input-required-result-basic-elicitation": 3,
    "input-required-result-basic-list-roots": 3, "input-required-result-basic-sampling": 3,
    "input-required-result-capability-check": 2, "input-required-result-ignore-extra-params": 2,
    "input-required-result-missing-input-response": 2, "input-required-result-multi-round": 4,
    "input-required-result-multiple-input-requests": 3, "input-required-result-non-tool-request": 3,
    "input-required-result-request-state": 3, "input-required-result-result-type": 2,
    "input-required-result-tampered-state": 2, "input-required-result-unsupported-methods": 2,
    "input-required-result-validate-input": 3,
}  # fmt: skip
"""The scenarios that revision 2026-07-28 brought."""
_SKILLS = {"sep-2640-skills-directory": 7, "sep-2640-skills-enumeration": 32, "sep-2640-skills-manifest": 6}
_GONE = (
    "server-initialize", "logging-set-level", "ping", "tools-call-with-logging", "tools-call-sampling",
    "tools-call-elicitation", "resources-subscribe", "resources-unsubscribe",
)  # fmt: skip
_UNTESTED = frozenset({"tasks-status-notifications"})

NEWEST = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--requirements", "2026-07-28"),
    checks={
        **{name: 2 for name in _ONE_EACH if name not in _GONE},
        **_STATELESS,
        **_TASKS,
        "dns-rebinding-protection": 2,
        "json-schema-2020-12": 8,
        "server-sse-multiple-streams": 2,
        "tools-list": 4,
    },
    unscored=frozenset(
        {*_TASKS, "json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"}
    ),
    empty=_UNTESTED,
)

# Each scenario runs at the newest revision that has it: so both eras meet in one run, at one address.
NEWEST_CORE = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--suite", "all", "--spec-version", "2026-07-28"),
    checks={name: checks for name, checks in NEWEST.checks.items() if name not in _TASKS},
)

BOTH_ERAS = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--suite", "all"),
    checks={**NEXT.checks, **_STATELESS, **_TASKS, **_SKILLS},
    empty=_UNTESTED,
)

_BY_A_CLIENT = {"initialize": 1, "tools_call": 1, "elicitation-sep1034-client-defaults": 5, "sse-retry": 3}

# The client asks each server for its revision first, also with its token: one more check of most scenarios of revisions with a handshake.
_SIGNING_IN = {
    "auth/metadata-default": 14, "auth/metadata-var1": 14, "auth/metadata-var2": 14, "auth/metadata-var3": 14,
    "auth/basic-cimd": 14, "auth/scope-from-www-authenticate": 15, "auth/scope-from-scopes-supported": 15,
    "auth/scope-omitted-when-undefined": 15, "auth/scope-step-up": 22, "auth/scope-retry-limit": 17,
    "auth/token-endpoint-auth-basic": 19, "auth/token-endpoint-auth-post": 19, "auth/token-endpoint-auth-none": 19,
    "auth/pre-registration": 14, "auth/client-credentials-jwt": 9, "auth/client-credentials-basic": 9,
}  # fmt: skip
_MORE_OF_METADATA = {
    "auth/metadata-default": 19, "auth/metadata-var1": 19, "auth/metadata-var2": 19, "auth/metadata-var3": 19,
    "auth/token-endpoint-auth-basic": 20, "auth/token-endpoint-auth-post": 20, "auth/token-endpoint-auth-none": 20,
    "auth/enterprise-managed-authorization": 10,
}  # fmt: skip
_BOUND = {"auth/dpop": 12, "auth/dpop-nonce": 14, "auth/wif-jwt-bearer": 9}
_EXTENSIONS = frozenset(
    {
        *("auth/client-credentials-jwt", "auth/client-credentials-basic", "auth/enterprise-managed-authorization"),
        *("auth/dpop", "auth/dpop-nonce", "auth/wif-jwt-bearer"),
    }
)

STABLE_CLIENT = Leg(
    release="0.1.16",
    package="conformance-stable",
    arguments=("--suite", "all"),
    checks={
        **_BY_A_CLIENT,
        **_SIGNING_IN,
        "auth/cross-app-access-complete-flow": 10,
        "auth/resource-mismatch": 2,
        "auth/offline-access-scope": 14,
        "auth/offline-access-not-supported": 15,
        "auth/2025-03-26-oauth-endpoint-fallback": 8,
    },
    side="client",
    contradicted={
        "auth/2025-03-26-oauth-metadata-backcompat": "its metadata are of another issuer than the one they were asked of",
    },
)

NEXT_CLIENT = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--requirements", "2025-11-25"),
    checks={
        **_BY_A_CLIENT,
        **_SIGNING_IN,
        **_MORE_OF_METADATA,
        **_BOUND,
        "tools_call": 2,
        "json-schema-2020-12-preservation": 9,
    },
    side="client",
    unscored=_EXTENSIONS,
)

NEWEST_CLIENT = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--requirements", "2026-07-28"),
    checks={
        **dict.fromkeys((f"auth/metadata-{each}" for each in ("default", "var1", "var2", "var3")), 18),
        **dict.fromkeys((f"auth/token-endpoint-auth-{each}" for each in ("basic", "post", "none")), 19),
        **dict.fromkeys(
            (f"auth/iss-{each}" for each in ("supported-missing", "wrong-issuer", "unexpected", "normalized")), 8
        ),
        **dict.fromkeys(
            (
                f"auth/scope-{each}"
                for each in ("from-www-authenticate", "from-scopes-supported", "omitted-when-undefined")
            ),
            14,
        ),
        "auth/scope-step-up": 25,
        "auth/scope-retry-limit": 19,
        "auth/authorization-server-migration": 27,
        "auth/basic-cimd": 12,
        "auth/pre-registration": 12,
        "auth/resource-mismatch": 2,
        "auth/offline-access-scope": 12,
        "auth/offline-access-not-supported": 14,
        "auth/iss-supported": 14,
        "auth/iss-not-advertised": 14,
        "auth/metadata-issuer-mismatch": 3,
        "auth/client-credentials-jwt": 7,
        "auth/client-credentials-basic": 7,
        "auth/enterprise-managed-authorization": 8,
        "auth/dpop": 13,
        "auth/dpop-nonce": 15,
        "auth/wif-jwt-bearer": 7,
        "http-custom-headers": 18,
        "http-invalid-tool-headers": 12,
        "http-standard-headers": 9,
        "json-schema-2020-12-preservation": 9,
        "json-schema-ref-no-deref": 1,
        "request-metadata": 8,
        "sep-2322-client-request-state": 5,
        "tools_call": 2,
    },
    side="client",
    unscored=_EXTENSIONS | {"json-schema-2020-12-preservation"},
    # The headers of `initialize` and of its notification, which the revision does not have.
    skipped={"http-standard-headers": 2},
)

# Each scenario runs at the newest revision that has it: so one client meets both eras, and skills.
BOTH_ERAS_CLIENT = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--suite", "all"),
    checks={
        **NEWEST_CLIENT.checks,
        **NEXT_CLIENT.checks,
        **dict.fromkeys((f"sep-2640-client-verify-{part}" for part in ("digest", "frontmatter", "size")), 1),
        "sep-2640-client-no-prefetch": 1,
        "auth/2025-03-26-oauth-endpoint-fallback": 8,
        "auth/2025-03-26-oauth-metadata-backcompat": 13,
    },
    side="client",
    skipped=NEWEST_CLIENT.skipped,
)

# The authorization server for tests: clients that pass with it should pass with others.
ISSUER = Leg(
    release="0.2.0-alpha.12",
    package="conformance-next",
    arguments=("--scenario", "authorization-server-metadata-endpoint"),
    checks={"authorization-server-metadata-endpoint": 2},
    side="authorization",
)

# What `greenroom check` runs by itself, against a server that has something of everything.
COMMAND = Leg(
    release=STABLE.release,
    package=STABLE.package,
    arguments=("check",),
    checks={
        name: STABLE.checks[name]
        for name in (
            "server-initialize",
            "ping",
            "dns-rebinding-protection",
            "tools-list",
            "resources-list",
            "prompts-list",
            "logging-set-level",
        )
    },
)

LEGS = (STABLE, NEXT, OLDER, NEWEST, NEWEST_CORE, BOTH_ERAS)
CLIENT_LEGS = (STABLE_CLIENT, NEXT_CLIENT, NEWEST_CLIENT, BOTH_ERAS_CLIENT)

_FOLDER = re.compile(r"(?:authorization-server-|server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_FAMILY = re.compile(r"[a-z]+")


def count(results: Path) -> dict[str, Counter[str]]:
    """How many checks of each scenario ended in which way, from the directories of a run."""
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
    """The differences from what is expected; an empty list means that everything was checked and passed."""
    wrong = [
        f"{name}: did not fail, though {leg.contradicted.get(name, 'it is of what is not built: take it out of the table')}"
        for name in sorted(leg.failing)
        if not _failed(counted.get(name, Counter()))
    ]
    counted = {name: ended for name, ended in counted.items() if name not in leg.failing}
    wrong += [f"{name}: was not run" for name in sorted(set(leg.checks) - set(counted))]
    wrong += [f"{name}: is not known here" for name in sorted(set(counted) - set(leg.checks))]
    for name in sorted(set(counted) & set(leg.checks)):
        ended, due = counted[name], leg.checks[name] + leg.beyond.get(name, 0)
        if ended["SUCCESS"] != due:
            wrong.append(f"{name}: {ended['SUCCESS']} checks passed where {due} have to")
        fine = {"SUCCESS", "INFO", "SKIPPED"} if name in leg.empty else {"SUCCESS", "INFO"}
        bad = {
            status: times
            for status, times in (ended - Counter(SKIPPED=leg.skipped.get(name, 0))).items()
            if status not in fine
        }
        wrong += [f"{name}: {times} {status}" for status, times in sorted(bad.items())]
        if ended["SKIPPED"] < leg.skipped.get(name, 0):
            wrong.append(f"{name}: {ended['SKIPPED']} checks skipped where {leg.skipped[name]} have to be")
    return wrong


def _failed(ended: Counter[str]) -> bool:
    """Whether a scenario failed. One without any check, because all were skipped, did."""
    return ended["FAILURE"] > 0 or (ended["SKIPPED"] > 0 and not ended["SUCCESS"])


PAGE = "docs/reference/referees.md"
_TABLE = "| Release | Run as | Scenarios | Passed | Checks in them | Failed |"


def row(leg: Leg, counted: Mapping[str, Counter[str]]) -> str:
    """A run's line in the page's table, from its counts. Each failed scenario is named."""
    failed = sorted(name for name, ended in counted.items() if _failed(ended) and name not in leg.empty)
    passed = len(counted) - len(failed) - len(leg.empty & set(counted))
    checks = sum(ended["SUCCESS"] for name, ended in counted.items() if name not in failed) - sum(leg.beyond.values())
    named = f"{len(failed)}: {', '.join(f'`{name}`' for name in failed)}" if failed else "0"
    called = f"{leg.side} {' '.join(leg.arguments)}"
    return f"| {leg.release} | `{called}` | {len(counted)} | {passed} | {checks} | {named} |"


def page_complaints(page: str, rows: Sequence[str]) -> list[str]:
    """Where the page's table differs from these measured rows."""
    table = page.partition(_TABLE)[2].lstrip("\n").partition("\n\n")[0].splitlines()[1:]
    wrong = [f"{PAGE}: measured, and not said: {each}" for each in rows if each not in table]
    return wrong + [f"{PAGE}: said, and not measured: {each}" for each in table if each not in rows]


def summary(leg: Leg, counted: Mapping[str, Counter[str]]) -> str:
    """The figures of a run in one line."""
    later, against = ([name for name in sorted(those) if name in counted] for those in (leg.later, leg.contradicted))
    counted = {name: ended for name, ended in counted.items() if name not in leg.failing}
    scored = [name for name in counted if name not in leg.unscored]
    beyond = sum(leg.beyond.values())
    passed = sum(ended["SUCCESS"] for ended in counted.values()) - beyond
    failed = sum(ended["FAILURE"] for ended in counted.values())
    line = f"{leg.name}: {len(scored)} scenarios, {passed} checks, {failed} failed"
    if leg.unscored:
        line += f", with those of {len(counted) - len(scored)} scenarios that are not required"
    if later:
        line += f"; FAILED, as it is not built: {', '.join(later)}"
    if against:
        line += f"; FAILED, as it wants what must not be done: {', '.join(against)}"
    return f"{line}; and {beyond} more in {', '.join(leg.beyond)}" if beyond else line
