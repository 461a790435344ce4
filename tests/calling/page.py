"""Writes the page of results: the outcome of each step for each server, and the servers' differences from the specification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .changing import CHANGES, TRANSPORTS, revision_after
from .grid import STATELESS, STEPS, Mark
from .together import CHECKS, LAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .grid import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "servers-we-call.md"
ALONE = frozenset({"JSON, no sessions", "plain JSON", "JSON, no sessions, legacy", "plain JSON, legacy"})
"""The transports whose answers are JSON alone, on which fewer steps are possible."""

SIGNS: Mapping[Mark, str] = {Mark.RIGHT: "yes", Mark.NOT_DECLARED: "n/a", Mark.NEVER: "never", Mark.WRONG: "WRONG"}

WHAT: Mapping[str, str] = {
    "open": "finding the revision, the server's name and version, ping",
    "revisions": "the same with a client for each revision that the server speaks, all at once",
    "list": "tools, over all pages",
    "call": "values of all kinds, sixteen concurrent calls",
    "structure": "structured content, checked against its schema and as a typed value",
    "failure": "a tool that fails, wrong arguments, an unknown name",
    "progress": "each step of a call, in order",
    "cancel": "a cancelled call, which also stops on the server if that can be observed; a deadline; the next call",
    "logging": "messages, and only those of the requested level",
    "read": "resources and templates, texts and bytes, an unknown URI",
    "subscribe": "a notification of an update, and none after unsubscribing",
    "prompt": "prompts with arguments",
    "complete": "an argument's completions",
    "changes": "a list that changes, with its notification, and is read again",
    "sampling": "the server asks our model",
    "elicitation": "the server asks our user, who fills in a form or declines",
    "url": "the server sends our user to a page",
    "roots": "the server asks for our roots, and again after they change",
    "rounds": "a question to our user, our model and our client at once; two questions one after the other",
    "headers": "arguments that the client repeats in headers, one of them encoded",
    "tasks": "a task that is started and awaited, asks a question, and has a result; one that is cancelled",
    "close": "the client is closed, and the server's programs have ended",
}

TEXT = """\
# Servers that our client calls

`make servers` runs our `Client` against servers of other authors and against ours, over every transport that each of them has. This page shows what worked. It is for you if
you want to know whether the client works with a certain server.

Our client finds out by itself which revision a server speaks. A row with `legacy` in its transport is the same server with a client that makes the handshake at once.

Every value is compared. The servers are installed from lock files into a folder that is never committed. Each runs as a program of its own for its row, and the run checks that
it ends.

| Mark | Meaning |
| ---- | ------- |
| yes | it works |
| n/a | The server does not declare the capability, and the run checks that the client refuses to ask for it. For features without a capability (progress, and requests of the server to its client): the server did nothing of the kind in the whole row. |
| never | The server declares the capability, but never uses it; the reasons are below. |

`python -m tests.calling --write` writes this page. A run with other results than the page's fails.

## Results

{grid}

## Steps

{what}

## Transports

Without sessions, each request is independent and has fewer steps, since the client gets only its answer. There, in the revisions with a handshake, a tool that asks its client has to
fail as its SDK does it: with an error (mcp 2.3.0, greenroom), with a failed result (FastMCP), or at the call's deadline, because it never ends (mcp 1.30.0). In revision 2026-07-28 it asks
by its result.

{transports}

## Declared, but never used

{never}

## Differences from the specification

None of these is an obstacle. The step expects the difference, and would fail if the server corrected it.

{differs}

## All in one host

{count} of these servers in one `Host`, with one set of tools:

{together}

## Servers that change their revision

Each of these servers is replaced by the other one, at the same URL and behind the same command, while a call is under way. The client stays: that call must end with an error
which says that it may have been done, and the next calls have their results. A client that has made a handshake with a server makes one with the next server, too, if that has one.

{changes}
"""


def page(outcomes: Sequence[Outcome], beside: Mapping[str, str], count: int) -> str:
    """The page. `beside` has the failed checks of the host."""
    whole = [outcome for outcome in outcomes if outcome.row.transport not in ALONE]
    servers = list(dict.fromkeys(outcome.row.server for outcome in whole))
    of = {server: [outcome for outcome in whole if outcome.row.server == server] for server in servers}
    grid = [(step, *(_cell(of[server], step) for server in servers)) for step in STEPS]
    counts = [
        (
            outcome.row.server,
            outcome.row.transport,
            outcome.row.revision,
            *(
                str(sum(1 for mark in outcome.marks.values() if mark is each))
                for each in (Mark.RIGHT, Mark.NOT_DECLARED, Mark.NEVER)
            ),
            str(outcome.tools),
        )
        for outcome in outcomes
    ]
    return TEXT.format(
        grid=_table(("Step", *servers), grid),
        what=_table(("Step", "What is tested"), WHAT.items()),
        transports=_table(("Server", "Transport", "Revision", "yes", "n/a", "never", "Tools"), counts),
        never=_table(
            ("Server", "Step", "Why"), _notes((outcome.row.name_in_notes, outcome.row.never) for outcome in outcomes)
        ),
        differs=_table(
            ("Server", "Step", "Difference"), _notes((each.row.server, each.row.differs) for each in outcomes)
        ),
        count=count,
        changes=_table(
            ("Change", "Then the client speaks", *TRANSPORTS),
            [(name, revision_after(*pair), *("yes" for _ in TRANSPORTS)) for name, pair in CHANGES.items()],
        ),
        together=_table(("Check", "Right"), [(name, "WRONG" if name in beside else "yes") for name in (*CHECKS, LAST)]),
    )


def _cell(outcomes: Sequence[Outcome], step: str) -> str:
    """The mark of a step: one for all transports, or one for each era, or one for each transport."""
    signs = [(outcome.row, SIGNS[outcome.marks[step]]) for outcome in outcomes]
    now, before = (
        {sign for row, sign in signs if (row.revision == STATELESS) is stateless} for stateless in (True, False)
    )
    if len(now | before) == 1:
        return (now | before).pop()
    if len(now) == len(before) == 1:
        return f"{STATELESS}: {now.pop()}, before: {before.pop()}"
    return ", ".join(f"{row.transport}: {sign}" for row, sign in signs)


def _notes(rows: Iterable[tuple[str, Mapping[str, str]]]) -> list[tuple[str, str, str]]:
    """The notes of a server, each once, with all its steps."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for server, notes in rows:
        for step, why in notes.items():
            steps = by_reason.setdefault((server, why), [])
            if step not in steps:
                steps.append(step)
    return [(server, ", ".join(steps), why) for (server, why), steps in by_reason.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["-" * len(each) for each in head], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
