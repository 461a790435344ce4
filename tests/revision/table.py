"""Writes the page of promises: the outcome of each check at each server, the evidence of each deviation, and why a check was not made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .servers import Contestant

    Outcomes: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
    """By transport and id, the outcome of a check as the command prints it."""

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "promises-of-the-current-revision.md"
SIGNS: Final[Mapping[str, str]] = {"passed": "yes", "failed": "**no**", "absent": "lacks", "not applicable": "n/a"}
_CHANGING: Final = re.compile(r"(?<![\d.-])\d+\.\d+(?= s\b)|127\.0\.0\.1:\d+")

TEXT: Final = """\
# Promises of the current revision, and which servers keep them

[`greenroom check --era modern`](../how-to/check-a-server-of-the-current-revision.md) checks promises of revision 2026-07-28 that the official conformance suite does not check, or
checks in part. This page shows the outcome for servers of four makes, each over HTTP and on stdio. It is for you if you want to know what to expect of a server, or what another
implementation has to look at.

`make interop` runs the checks again, and fails if an outcome differs from this page. `python -m tests.revision --write` writes the page.

| Mark | Meaning |
| ---- | ------- |
| yes | the server keeps the promise |
| **no** | it does not; the evidence is [below](#deviations) |
| lacks | an optional behaviour (*may*) that it does not have, which is no deviation |
| n/a | the check could not be made; the reasons are [below](#checks-that-were-not-made) |

A cell with two marks has the one of HTTP first. The level is the specification's: *must*, *should* or *may*. The first part of a check's id is the row of the
[checklist](features.md) that it belongs to.

## Count

{count}

## How the servers are written

Each server offers the tools of [the contract](../how-to/check-a-server-of-the-current-revision.md#tools-that-make-more-checks-possible), written as its own documentation does
it, with the defaults of its library. Where the author of a server decides about an outcome, it is said here.

{how}

## Outcomes

{outcomes}

## Deviations

The evidence is what the command printed.

{deviations}

## Checks that were not made

{missing}
"""


def stable(evidence: str) -> str:
    """The evidence without what differs from run to run."""
    return _CHANGING.sub("…", evidence)


def page(found: Mapping[Contestant, Outcomes]) -> str:
    """The page."""
    checks = {id: one for outcomes in found.values() for by_id in outcomes.values() for id, one in by_id.items()}
    rows = [
        (id, one["level"], _cell_text(one["promise"]), *(_marks(outcomes, id) for outcomes in found.values()))
        for id, one in checks.items()
    ]
    return TEXT.format(
        count=_table(("Server", "Transport", *SIGNS.values()), _counts(found)),
        how=_table(("Server", "How"), [(server.name, server.how) for server in found]),
        outcomes=_table(("Check", "Level", "Promise", *(server.name for server in found)), rows),
        deviations=_table(("Server", "Transport", "Check", "Evidence"), _evidence(found, "failed")),
        missing=_table(("Server", "Checks", "Why"), _reasons(found)),
    )


def _counts(found: Mapping[Contestant, Outcomes]) -> Iterable[Sequence[str]]:
    for server, outcomes in found.items():
        for transport, by_id in outcomes.items():
            verdicts = [one["verdict"] for one in by_id.values()]
            yield server.name, transport, *(str(verdicts.count(verdict)) for verdict in SIGNS)


def _marks(outcomes: Outcomes, id: str) -> str:
    """The mark of a check; one for each transport where they differ."""
    marks = [SIGNS[by_id[id]["verdict"]] for by_id in outcomes.values() if id in by_id]
    return marks[0] if len(set(marks)) == 1 else ", ".join(marks)


def _evidence(found: Mapping[Contestant, Outcomes], verdict: str) -> list[Sequence[str]]:
    """The evidence of each outcome of that kind; once where it is the same on both transports."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for server, outcomes in found.items():
        for transport, by_id in outcomes.items():
            for id, one in by_id.items():
                if one["verdict"] == verdict:
                    evidence = _cell_text(stable(one["evidence"]))
                    rows.setdefault((server.name, id, evidence), []).append(transport)
    return [(name, ", ".join(transports), id, evidence) for (name, id, evidence), transports in rows.items()]


def _reasons(found: Mapping[Contestant, Outcomes]) -> list[Sequence[str]]:
    rows: dict[tuple[str, str], list[str]] = {}
    for name, _, id, reason in _evidence(found, "not applicable"):
        rows.setdefault((name, reason), []).append(id)
    return [(name, ", ".join(ids), reason) for (name, reason), ids in rows.items()]


def _cell_text(text: str) -> str:
    """A text that Markdown shows as it is, in a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["-" * len(each) for each in head], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
