"""Writes the page about ported cases of OTP's and Elixir's test suites, from the manifests beside this file and the marks of tests.

A manifest (`manifest/<suite>.toml`) lists every case of one suite, in the suite's order and groups. A case is

- ``port``: its behaviour is ported, and at least one test carries ``@pytest.mark.otp("<suite>", "<case>")``;
- ``differs``: a test carries the mark, but its promise is deliberately another one than OTP's, or a weaker one;
- ``n/a (<why>)``: it does not apply, for one of the reasons that `EXEMPTIONS` has for its family of suites;
- ``open``: it would apply, and is not ported.

A remark follows a colon: the reason, or how the behaviour deliberately differs from OTP's.

``python tests/supervision/otp/parity.py`` writes docs/reference/otp-parity.md; with ``--check`` it only reports whether the page is current.
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
        "hibernation": "An idle process is only an object; it has no heap of its own to compact.",
        "format callback": "One method, `report_state`, formats the state for reports, and not a family of callbacks.",
        "undefined callback": "A missing callback is the default one of the base class.",
        "change of callback module": "A server is an instance of its class, for as long as it lives.",
        "spawn option": "A process has no scheduling priority and no heap of its own to configure at its start.",
        "overlay network": "Groups are the table of one process, which other nodes ask. No node has a copy that could be outdated.",
    },
    "Elixir": {
        "code upgrade": "A running process does not change to another version of its code.",
        "spawn option": "A process has no scheduling priority and no heap of its own to configure at its start.",
        "child spec macro": "The function `child` makes a child spec: there is no `use`, and no spec as a tuple or a map.",
        "match specification": "A search takes a Python predicate: there are no ETS patterns, reserved words or errors in them.",
        "partitioned table": "A registry's tables are dicts of one thread; splitting them would gain nothing.",
    },
}
"""The reasons for which a case does not apply, by family of suites."""

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
    """The mark of a test that ports a case."""

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
    """All suites, by family and name."""
    found = [read(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))]
    return sorted(found, key=lambda suite: list(EXEMPTIONS).index(suite.family))


def marks_in(path: str, text: str) -> Iterator[Mark]:
    """The marks in a test file, from its syntax tree."""
    if ".otp" not in text:
        return  # parsing takes most of the time
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
    """Cases without a test, and tests that name an unknown case, or one that is not listed as ported."""
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
            wrong.append(f"{suite}, {name} is listed as ported, and no test carries its mark")
    return wrong


def render(every: Sequence[Suite], marked: Iterable[Mark]) -> str:
    """The page."""
    tests: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for mark in marked:
        tests[mark.suite, mark.case].append(mark.test)
    lines = [
        "# OTP parity",
        "",
        "This page compares greenroom with OTP: it lists every case of OTP's own test suites, and of Elixir's tests for features that OTP lacks, with the",
        "tests here that make the same promise. The behaviour is ported, not the text of the cases.",
        "",
        "- *Ported*: the tests beside the case show its behaviour. A remark explains a different form.",
        "- *Differs*: the tests show deliberately different behaviour, or less than the case does. It does not count as ported.",
        "- *Does not apply*: the case is about a feature that does not exist here. The remark says which.",
        "- *Not ported*: the case would apply, and no test shows it.",
        "",
        "`python tests/supervision/otp/parity.py` writes this page from the manifests in `tests/supervision/otp/manifest` and the tests' markers.",
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
        lines += ["", f"{family}'s cases about these features do not apply:"]
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
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description="Write docs/reference/otp-parity.md.")
    parser.add_argument("--check", action="store_true", help="only report whether the page is up to date")
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
