"""The tables of lazily loaded names of packages, generated from their imports for type checkers: `python -m tests.house --write`."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from .tree import for_checkers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .tree import Source, Tree

TABLE: Final = re.compile(r"^_HOMES: Final\[dict\[str, str\]\] = (\{.*?\})$", re.MULTILINE | re.DOTALL)
WIDTH: Final = 120


def imported(source: Source) -> dict[str, str]:
    """Each module that a package imports for type checkers, with the names that the package exports: those imported `as` themselves."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for node in source.nodes:
        for statement in for_checkers(node):
            if isinstance(statement, ast.ImportFrom):
                (found, *_) = source.imports_of(statement)
                homes[found.target] += [each.name for each in statement.names if each.asname == each.name]
    return {home: " ".join(sorted(names)) for home, names in sorted(homes.items()) if names}


def table(homes: dict[str, str]) -> str:
    """The source text of a table."""
    return "\n".join(["{", *(_row(home, names) for home, names in homes.items()), "}"])


def _row(home: str, names: str) -> str:
    whole = f'    "{home}": "{names}",'
    if len(whole) <= WIDTH:  # the formatter's layout
        return whole
    *most, last = textwrap.wrap(names, WIDTH - 50)
    return f'    "{home}": ' + "\n    ".join(f'"{line}"' for line in (*(f"{each} " for each in most), last)) + ","


def tables(tree: Tree) -> Iterator[tuple[Source, re.Match[str]]]:
    """Each package that has a table, and its position in the file."""
    for source in tree.sources:
        if source.path.endswith("/__init__.py") and (found := TABLE.search(source.text)):
            yield source, found


def drifted(tree: Tree) -> list[str]:
    """Tables that differ from the imports above them."""
    return [
        f"{source.path}: its table of names is out of date: python -m tests.house --write"
        for source, found in tables(tree)
        if ast.literal_eval(found[1]) != imported(source)
    ]


def write(root: Path, tree: Tree) -> None:
    """Write every table into its file."""
    for source, found in tables(tree):
        text = source.text[: found.start(1)] + table(imported(source)) + source.text[found.end(1) :]
        (root / source.path).write_text(text, encoding="utf-8")
