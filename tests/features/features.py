"""The feature checklist: `rows.toml` beside this file, the tests that carry a row's id, and the generated page.

A test names the rows that it proves by ``@pytest.mark.row("WC-08", …)``. A row without a test must wait for a condition in
the manifest; otherwise a test in this folder fails.

``python tests/features/features.py`` writes docs/reference/features.md; with ``--check`` it only reports whether the page is current.
"""

from __future__ import annotations

import argparse
import ast
import functools
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
MANIFEST = Path(__file__).parent / "rows.toml"
PAGE = "docs/reference/features.md"


class BadManifest(Exception):
    """A wrong entry in the manifest, or a wrong mark."""


@dataclass(frozen=True)
class Row:
    """A row of the checklist. `beyond` is whether it was added to the promised rows."""

    id: str
    text: str
    waits: str = ""
    beyond: bool = False
    differs: str = ""
    """How greenroom deliberately differs from the promise, and why; such a row does not count as done."""


@dataclass(frozen=True)
class Area:
    """An area of the checklist, with its rows. `apart` is whether they are counted by themselves, as those of one revision are."""

    id: str
    title: str
    rows: tuple[Row, ...]
    apart: bool = False


@dataclass(frozen=True)
class Checklist:
    """The areas, and the conditions that rows may wait for."""

    areas: tuple[Area, ...]
    waits: Mapping[str, str]

    @property
    def rows(self) -> dict[str, Row]:
        """Every row by its id."""
        return {row.id: row for area in self.areas for row in area.rows}


def read(text: str) -> Checklist:
    """The checklist from its manifest."""
    data = tomllib.loads(text)
    waits: dict[str, str] = data.get("waits", {})
    beyond: frozenset[str] = frozenset(data.get("beyond", ()))
    areas: list[Area] = []
    for area in data["area"]:
        rows = tuple(_row(id, entry, id in beyond) for id, entry in area["rows"].items())
        for row in rows:
            if not row.id.startswith(f"{area['id']}-"):
                raise BadManifest(f"{row.id} is in area {area['id']}")
            if row.waits and row.waits not in waits:
                raise BadManifest(f"{row.id} waits for {row.waits!r}; known are {', '.join(waits)}")
        areas.append(Area(area["id"], area["title"], rows, area.get("apart", False)))
    found = Checklist(tuple(areas), waits)
    for what, named, used in (
        ("beyond", beyond, set(found.rows)),
        ("waits", set(waits), {row.waits for row in found.rows.values()}),
    ):
        if named - used:
            raise BadManifest(f"{what} names {', '.join(sorted(named - used))}, which no row has")
    return found


def _row(id: str, entry: Any, beyond: bool) -> Row:  # noqa: FBT001 - to itself
    if isinstance(entry, str):
        return Row(id, entry, beyond=beyond)
    differs: str = entry.get("differs", "")
    if set(entry) not in ({"text", "waits"}, {"text", "differs"}) or (differs and len(differs.split()) < 5):
        raise BadManifest(
            f"{id} must be a text, or a table with `text` and `waits`, or with `text` and `differs` (at least five words)"
        )
    return Row(id, entry["text"], entry.get("waits", ""), beyond, differs)


def checklist() -> Checklist:
    """The checklist of this repository."""
    return read(MANIFEST.read_text(encoding="utf-8"))


def marks_in(path: str, text: str) -> Iterator[tuple[str, str]]:
    """The row and the test of each mark in a test file. A mark of a class or module applies to its tests."""
    if ".row" not in text:
        return  # parsing takes most of the time
    module = ast.parse(text, path)
    everywhere = [
        id
        for node in module.body
        if isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "pytestmark" for to in node.targets)
        for call in ast.walk(node.value)
        for id in _ids(path, call)
    ]
    yield from _marks(path, module.body, everywhere)


def _marks(path: str, body: Sequence[ast.stmt], above: Sequence[str]) -> Iterator[tuple[str, str]]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        ids = [*above, *(id for mark in node.decorator_list for call in ast.walk(mark) for id in _ids(path, call))]
        if isinstance(node, ast.ClassDef):
            yield from _marks(path, node.body, ids)
        elif node.name.startswith("test"):
            yield from ((id, f"{path}::{node.name}") for id in dict.fromkeys(ids))


def _ids(path: str, node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="row"), args=args):
            for each in args:
                if not (isinstance(each, ast.Constant) and isinstance(each.value, str)):
                    raise BadManifest(f"{path}:{node.lineno}: write @pytest.mark.row(id), the id in quotes")
                yield each.value
        case _:
            pass


def deep_in(path: str, text: str) -> Iterator[str]:
    """The tests of a file that `make test` leaves out with all of their parameters."""
    if "pytest.mark.deep" not in text and "pytest.mark.soak" not in text:
        return
    module = ast.parse(text, path)
    everywhere = any(
        _left_out(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "pytestmark" for to in node.targets)
    )
    yield from _deep(path, module.body, above=everywhere)


def _deep(path: str, body: Sequence[ast.stmt], *, above: bool) -> Iterator[str]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        # A mark of one parameter stands inside the call of `parametrize` and does not count: only decorators do.
        left_out = above or any(_left_out(mark) for mark in node.decorator_list)
        if isinstance(node, ast.ClassDef):
            yield from _deep(path, node.body, above=left_out)
        elif left_out and node.name.startswith("test"):
            yield f"{path}::{node.name}"


def _left_out(mark: ast.expr) -> bool:
    """Whether this is `pytest.mark.deep` or `pytest.mark.soak`, or a list with one of them."""
    if isinstance(mark, ast.List | ast.Tuple):
        return any(_left_out(each) for each in mark.elts)
    return ast.unparse(mark) in ("pytest.mark.deep", "pytest.mark.soak")


@functools.cache
def deep(root: Path = ROOT) -> frozenset[str]:
    """All tests that `make test` leaves out."""
    return frozenset(
        test
        for path in sorted((root / "tests").rglob("test_*.py"))
        for test in deep_in(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    )


@functools.cache
def marks(root: Path = ROOT) -> tuple[tuple[str, str], ...]:
    """The marks of all tests, in the order of their files and lines."""
    return tuple(
        mark
        for path in sorted((root / "tests").rglob("test_*.py"))
        for mark in marks_in(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    )


def problems(rows: Checklist, found: Sequence[tuple[str, str]], deep: Collection[str] = ()) -> list[str]:
    """Rows without a condition and without a test in `make test`, and marks of unknown rows."""
    proven = {id for id, _ in found}
    quick = {id for id, test in found if test not in deep}
    wrong = [
        f"{row.id} has {'deep tests only, which `make test` leaves out' if row.id in proven else 'no test'}: {row.text}"
        for row in rows.rows.values()
        if not (row.waits or row.differs or row.id in quick)
    ]
    return wrong + [f"{test}: there is no row {id}" for id, test in found if id not in rows.rows]


def render(rows: Checklist, found: Sequence[tuple[str, str]]) -> str:
    """The page."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for id, test in found:
        tests[id].append(test)
    waits = any(row.waits for row in rows.rows.values())
    so_far = " A row that waits may have tests already, for its finished part." if waits else ""
    lines = [
        "# Features",
        "",
        "This page lists all promised features of greenroom, and for each the tests that prove it. A row is done when a test carries its id.",
        f"`python tests/features/features.py` writes this page from the tests.{so_far}",
        "",
        _sum(rows, tests),
        "",
        "| Area | Rows | Done | Differs |" + " Waiting |" * waits,
        "| --- | ---: | ---: | ---: |" + " ---: |" * waits,
    ]
    for area in rows.areas:
        waiting = sum(bool(row.waits) for row in area.rows)
        done = sum(_is_done(row, tests) for row in area.rows)
        differ = sum(bool(row.differs) for row in area.rows)
        counts = f"{len(area.rows)} | {done} | {differ} |"
        lines.append(f"| [{area.title}](#{area.id.lower()}) | {counts}" + f" {waiting} |" * waits)
    for area in rows.areas:
        lines += [
            "",
            f"({area.id.lower()})=",
            f"## {area.title}",
            "",
            "| Row | Promise | Tests |",
            "| --- | --- | --- |",
        ]
        for row in area.rows:
            where = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[row.id]) or "none"
            if row.waits:
                reason = f"waits for {rows.waits[row.waits]}"
                where = reason if where == "none" else f"{reason}; so far<br>{where}"
            if row.differs:
                where = f"differs: {row.differs}" + f"<br>{where}" * (where != "none")
            lines.append(f"| {row.id} | {row.text} | {where} |")
    return "\n".join(lines) + "\n"


def _is_done(row: Row, tests: Mapping[str, Sequence[str]]) -> bool:
    return bool(tests.get(row.id)) and not row.waits and not row.differs


def _sum(rows: Checklist, tests: Mapping[str, Sequence[str]]) -> str:
    """The sentence with the numbers of promised, finished and additional rows."""
    counted = [row for area in rows.areas if not area.apart for row in area.rows]
    promised = [row for row in counted if not row.beyond]
    more = [row for row in counted if row.beyond]
    done, extra = (sum(_is_done(row, tests) for row in some) for some in (promised, more))
    differ = [row.id for row in promised if row.differs]
    missing = [row.id for row in promised if not _is_done(row, tests) and not row.differs]
    said = f"**{len(promised)} rows are promised, and {done if missing or differ else 'all'} of them are done**"
    if missing:
        said += f" (not {', '.join(missing)})"
    if differ:
        said += f"; deliberately different: {', '.join(differ)}"
    said += f". Done of {len(more)} further rows: {'all' if extra == len(more) else extra}."
    for area in rows.areas:
        if area.apart:
            finished = sum(_is_done(row, tests) for row in area.rows)
            said += f" {area.title} has {len(area.rows)} rows of its own, and {finished} of them are done."
    return said


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description=f"Write {PAGE}.")
    parser.add_argument("--check", action="store_true", help="only report whether the page is up to date")
    check: bool = parser.parse_args(arguments).check
    page = root / PAGE
    text = render(checklist(), marks(root))
    if not check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{PAGE} is out of date: run `python tests/features/features.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
