"""Which cases of OTP's and Elixir's own suites are ported: reads the manifests beside this file and the marks of tests, and writes the page.

A manifest (`manifest/<suite>.toml`) lists every case of one suite, in the suite's order and groups. A case is

- ``port``: its behaviour is ported, and at least one test carries ``@pytest.mark.otp("<suite>", "<case>")``;
- ``differs``: a test carries the mark, and shows something else than OTP's knowingly, or less;
- ``n/a (<why>)``: it does not apply, for one of the reasons that `EXEMPTIONS` has for its family of suites;
- ``open``: it would apply, and is not ported.

What follows a colon is a remark: the reason, or how the behaviour differs knowingly from OTP's.

``python tests/supervision/otp/parity.py`` writes docs/reference/otp-parity.md; with ``--check`` it only says whether that is due.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parents[3]
MANIFESTS = Path(__file__).parent / "manifest"
PAGE = "docs/reference/otp-parity.md"
BAR = "\\|"  # a bar inside a cell
EXEMPTIONS = {
    "OTP": {
        "code upgrade": "A running process does not change to another version of its code.",
        "hibernation": "There is no heap of a process that could be packed: an idle one is an object and nothing else.",
        "format callback": "What a report says of a state is one method, `report_state`, and not a family of callbacks.",
        "undefined callback": "A callback that is not there is Python's default one, from the base class.",
        "change of callback module": "A server is an instance of its class, for as long as it lives.",
        "spawn option": "A process has no scheduling priority and no heap of its own that could be set at its start.",
        "overlay network": "Groups are one process's table, which other nodes ask: no node has a copy that could be behind.",
    },
    "Elixir": {
        "code upgrade": "A running process does not change to another version of its code.",
        "spawn option": "A process has no scheduling priority and no heap of its own that could be set at its start.",
        "child spec macro": "A child spec is made by a function, `child`: there is no `use`, no spec as a tuple or a map.",
        "match specification": "What is sought is said by a Python predicate: ETS patterns, their reserved words and their mistakes are not here.",
        "partitioned table": "A registry's tables are dicts of one thread, which nothing is gained by splitting.",
    },
}
"""Why a case may not apply, by family of suites."""

Status = Literal["port", "differs", "n/a", "open"]
WORDS: dict[Status, str] = {"port": "ported", "differs": "differs", "n/a": "does not apply", "open": "not ported"}
TESTED: tuple[Status, ...] = ("port", "differs")
_STATUSES: dict[str, Status] = {status: status for status in WORDS}
_ENTRY = re.compile(r"(port|differs|n/a|open)(?: \(([^)]+)\))?(?:: (\S.*))?")


class BadManifest(Exception):
    """A wrong manifest."""


@dataclass(frozen=True)
class Case:
    """One case of a suite."""

    name: str
    group: str
    status: Status
    exemption: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Suite:
    """One suite of OTP's, or one file of Elixir's tests."""

    name: str
    family: str
    origin: str
    release: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Mark:
    """A test says that it ports a case."""

    suite: str
    case: str
    test: str


def read(name: str, text: str) -> Suite:
    """A suite from its manifest."""
    data = tomllib.loads(text)
    family = data.get("family", "OTP")
    exemptions = EXEMPTIONS[family]
    cases: list[Case] = []
    for group in data["group"]:
        for case, entry in group["cases"].items():
            found = _ENTRY.fullmatch(entry)
            if found is None:
                raise BadManifest(
                    f"{name}, {case}: {entry!r} is none of `port`, `differs: how`, `n/a (reason): why`, `open: why`"
                )
            status, exemption, remark = found.groups(default="")
            if (exemption in exemptions) != (status == "n/a") or (exemption and status != "n/a"):
                raise BadManifest(f"{name}, {case}: only {', '.join(exemptions)} excuse a case, not {exemption!r}")
            if status != "port" and len(remark.split()) < 3:
                raise BadManifest(f"{name}, {case}: why {WORDS[_STATUSES[status]]}?")
            cases.append(Case(case, group.get("name", ""), _STATUSES[status], exemption, remark))
    names = Counter(case.name for case in cases)
    if twice := [case for case, count in names.items() if count > 1]:
        raise BadManifest(f"{name} lists {', '.join(twice)} more than once")
    return Suite(name, family, data["origin"], data["release"], tuple(cases))


def suites(folder: Path = MANIFESTS) -> list[Suite]:
    """All of them, by family and name."""
    found = [read(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))]
    return sorted(found, key=lambda suite: list(EXEMPTIONS).index(suite.family))


def marks_in(path: str, text: str) -> Iterator[Mark]:
    """The marks of one file of tests, read and not imported."""
    if ".otp" not in text:
        return  # parsing is what takes the time
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            for decorator in node.decorator_list:
                match decorator:
                    case ast.Call(
                        func=ast.Attribute(attr="otp"), args=[ast.Constant(str(suite)), ast.Constant(str(case))]
                    ):
                        yield Mark(suite, case, f"{path}::{node.name}")
                    case ast.Call(func=ast.Attribute(attr="otp")):
                        raise BadManifest(
                            f"{path}:{decorator.lineno}: write @pytest.mark.otp(suite, case), both in quotes"
                        )
                    case _:
                        pass


@functools.cache
def marks(root: Path = ROOT) -> tuple[Mark, ...]:
    """The marks of all tests, in the order of their files and lines."""
    return tuple(
        mark
        for path in sorted((root / "tests").rglob("test_*.py"))
        for mark in marks_in(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    )


def problems(every: Sequence[Suite], marked: Iterable[Mark]) -> list[str]:
    """Cases without a test, and tests that name what is no case, or none that is ported."""
    known = {(suite.name, case.name): case for suite in every for case in suite.cases}
    tested: set[tuple[str, str]] = set()
    wrong: list[str] = []
    for mark in marked:
        case = known.get((mark.suite, mark.case))
        tested.add((mark.suite, mark.case))
        if case is None:
            wrong.append(f"{mark.test}: {mark.suite} has no case {mark.case}")
        elif case.status not in TESTED:
            wrong.append(f"{mark.test}: {mark.suite}, {mark.case} is listed as `{case.status}`, not as `port`")
    for (suite, name), case in known.items():
        if case.status in TESTED and (suite, name) not in tested:
            wrong.append(f"{suite}, {name} is to be ported, and no test says that it is")
    return wrong


def render(every: Sequence[Suite], marked: Iterable[Mark]) -> str:
    """The page."""
    tests: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for mark in marked:
        tests[mark.suite, mark.case].append(mark.test)
    lines = [
        "# OTP parity",
        "",
        "Which cases of OTP's own test suites greenroom keeps, and of Elixir's tests for what OTP has not. The behaviour is ported, not the",
        "text: a test here makes the promise of the case in the words of this library, and is listed beside it. The remarks say where the",
        "behaviour differs knowingly, and why a case does not apply. A case that *differs* is not counted as ported: the test beside it shows",
        "something else than OTP's, or less. One that is *not ported* would apply. This page is written by `python tests/supervision/otp/parity.py` from the manifests",
        "in `tests/supervision/otp/manifest` and the tests' markers, and a test compares.",
        "",
        f"| Suite | Cases | {' | '.join(word.capitalize() for word in WORDS.values())} |",
        f"| --- | --- | {' | '.join('---' for _ in WORDS)} |",
    ]
    for suite in every:
        counts = Counter(case.status for case in suite.cases)
        cells = [
            f"[{suite.name}](#{_anchor(suite.name)})",
            str(len(suite.cases)),
            *(str(counts[each]) for each in WORDS),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## What does not apply"]
    for family in sorted({suite.family for suite in every}, key=list(EXEMPTIONS).index):
        lines += ["", f"Of {family}'s cases, those about"]
        lines += ["", *(f"- *{word}*: {why}" for word, why in EXEMPTIONS[family].items())]
    for suite in every:
        source = f"From [{suite.name}]({suite.origin}), {suite.family} {suite.release}."
        lines += ["", f"## {suite.name}", "", source]
        lines += ["", "| Case | Group | Status | Tests | Remarks |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(case, tests[suite.name, case.name]) for case in suite.cases]
    return "\n".join(lines) + "\n"


def _row(case: Case, tests: Sequence[str]) -> str:
    status = WORDS[case.status] if tests or case.status not in TESTED else "to be ported"
    status += f": {case.exemption}" if case.exemption else ""
    where = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests)
    return f"| {' | '.join((f'`{case.name}`', case.group, status, where, case.remark.replace('|', BAR)))} |"


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the page, or say whether it has to be written."""
    parser = argparse.ArgumentParser(description="Write docs/reference/otp-parity.md.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check: bool = parser.parse_args(arguments).check
    page = root / PAGE
    text = render(suites(), marks(root))
    if not check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{PAGE} is out of date: run `python tests/supervision/otp/parity.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
