"""The page of results: what each server has, by step, and where others are not as the specification wants them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .grid import STEPS, Mark
from .together import CHECKS, LAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .grid import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "servers-we-call.md"
ALONE = frozenset({"JSON, no sessions", "plain JSON"})
"""Where each request stands alone, and less can be done than elsewhere."""

SIGNS: Mapping[Mark, str] = {Mark.RIGHT: "yes", Mark.NOT_DECLARED: "n/a", Mark.NEVER: "never", Mark.WRONG: "WRONG"}

WHAT: Mapping[str, str] = {
    "open": "handshake, who it is, ping",
    "revisions": "the same with clients that ask for an older one, three at once",
    "list": "tools, over all pages",
    "call": "values of all kinds, sixteen calls side by side",
    "structure": "structured content, against its schema and as a typed value",
    "failure": "a tool that fails, wrong arguments, an unknown name",
    "progress": "each step of a call, in order",
    "cancel": "a call that is taken back and, where the server can be seen to stop, that it does; a deadline; the next call",
    "logging": "messages, and only those of the level that was asked for",
    "read": "resources and templates, texts and bytes, an unknown URI",
    "subscribe": "an update that is told, and none after unsubscribing",
    "prompt": "prompts with arguments",
    "complete": "an argument's completions",
    "changes": "a list that changes, is told and read again",
    "sampling": "the server asks our model",
    "elicitation": "the server asks our user, who fills in a form, or declines",
    "url": "the server sends our user to a page",
    "roots": "the server asks where we work, and again when that is another place",
    "tasks": "begun, listed, followed, asked in between, its result; one that is cancelled",
    "close": "the client is closed, the server's programs are gone",
}

TEXT = """\
# Servers that we call

`make servers` has our `Client` call servers that others wrote, and ours, over every transport that they have, with every value compared. They are
installed from locks, into a folder that is never committed, and each is a program of its own, started for its row, whose end is looked at.

*n/a* is what a server has not declared: the client refuses to ask for it, which is looked at as well. What no capability declares (progress, and what
a server asks its client) is *n/a* when nothing of the kind happened in the whole row. *never* is declared, and does not happen; the reasons are
below. The page is written by the run itself, `python -m tests.calling --write`, and a run whose results are others fails.

## What each has

{grid}

## What each step is

{what}

## On which transports

Where each request stands alone there are fewer steps: nothing comes but its answer. There, a tool that would ask has to end in the way of its SDK: in
an error (mcp 2.3.0, greenroom), in a failed result (FastMCP), or never, so that the call's deadline ends it (mcp 1.30.0).

{transports}

## Declared, and never done

{never}

## Where they differ from the specification

None of these is an obstacle: the step goes through with the difference in it, and would fail if the server mended its ways.

{differs}

## All in one host

{count} of these servers in one `Host`, whose tools are one set:

{together}
"""


def page(outcomes: Sequence[Outcome], beside: Mapping[str, str], count: int) -> str:
    """The whole of it. `beside` is what was wrong in the host."""
    whole = [outcome for outcome in outcomes if outcome.row.transport not in ALONE]
    servers = list(dict.fromkeys(outcome.row.server for outcome in whole))
    of = {server: [outcome for outcome in whole if outcome.row.server == server] for server in servers}
    grid = [(step, *(_cell(of[server], step) for server in servers)) for step in STEPS]
    counts = [
        (
            outcome.row.server,
            outcome.row.transport,
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
        what=_table(("Step", "What has to be right"), WHAT.items()),
        transports=_table(("Server", "Transport", "yes", "n/a", "never", "Tools"), counts),
        never=_table(
            ("Server", "Step", "Why"), _notes((outcome.row.name_in_notes, outcome.row.never) for outcome in outcomes)
        ),
        differs=_table(
            ("Server", "Step", "What it does"), _notes((each.row.server, each.row.differs) for each in outcomes)
        ),
        count=count,
        together=_table(("Check", "Right"), [(name, "WRONG" if name in beside else "yes") for name in (*CHECKS, LAST)]),
    )


def _cell(outcomes: Sequence[Outcome], step: str) -> str:
    """On all of its transports, or on which."""
    marks = {outcome.row.transport: SIGNS[outcome.marks[step]] for outcome in outcomes}
    found = set(marks.values())
    return found.pop() if len(found) == 1 else ", ".join(f"{transport}: {mark}" for transport, mark in marks.items())


def _notes(said: Iterable[tuple[str, Mapping[str, str]]]) -> list[tuple[str, str, str]]:
    """Each thing once, with all the steps of one server that it is the same for."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for server, notes in said:
        for step, why in notes.items():
            steps = by_reason.setdefault((server, why), [])
            if step not in steps:
                steps.append(step)
    return [(server, ", ".join(steps), why) for (server, why), steps in by_reason.items()]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["-" * len(each) for each in head], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
