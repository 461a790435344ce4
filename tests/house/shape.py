"""Figures about the code, measured in its text. Ratios and imports are gates; `make shape` reports files, lines and names."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .tree import Source, Tree

SMALL: Final = 110
"""A module with fewer lines and with one importer should be a part of that importer."""
MOST_SMALL: Final = 3
"""The allowed number of such modules, which is only ever lowered."""
MOST_HEADERS: Final = 0.0885
"""The allowed share of module docstrings and imports in all lines, which is only ever lowered."""

_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: Source) -> int:
    """Lines without blanks, comments and docstrings."""
    texts = {
        line
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - texts)


def header_lines(source: Source) -> int:
    """Lines of the module's docstring and of its imports."""
    body = source.syntax.body
    headers = [node for node in ast.walk(source.syntax) if isinstance(node, ast.Import | ast.ImportFrom)]
    described = body[:1] if ast.get_docstring(source.syntax) is not None else []
    lines = {
        line for node in (*headers, *described) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return len(lines)


def importers(tree: Tree) -> dict[str, set[str]]:
    """By module: the modules of the product that import it, also for type checkers only."""
    modules = {source.module for source in tree.sources}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for source in tree.sources:
        for each in source.imports:
            for target in {each.target, each.whole} & modules:
                if target != source.module:
                    found[target].add(source.module)
    return found


def small_modules(tree: Tree) -> list[str]:
    """Modules of fewer than `SMALL` lines with one importer, without `__init__` and `__main__`."""
    by = importers(tree)
    return sorted(
        source.path
        for source in tree.sources
        if not source.path.endswith(("/__init__.py", "/__main__.py"))
        and len(source.text.splitlines()) < SMALL
        and len(by[source.module]) == 1
    )


def header_share(tree: Tree) -> float:
    """The share of module docstrings and imports in all lines."""
    return sum(map(header_lines, tree.sources)) / sum(len(source.text.splitlines()) for source in tree.sources)


def proportions(tree: Tree) -> list[str]:
    """The share of headers, and the number of small modules with one importer, keep their limits."""
    share, small = header_share(tree), small_modules(tree)
    wrong = [f"{share:.1%} of all lines are headers, and may be {MOST_HEADERS:.1%}"] if share > MOST_HEADERS else []
    if len(small) > MOST_SMALL:
        wrong += [f"{path}: shorter than {SMALL} lines, with one importer: make it a part of that" for path in small]
    return wrong
