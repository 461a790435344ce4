"""Prints a seeded sample of mutants, one JSON object a line: `mutants.py SEED COUNT FILE…`, in the environment that has cosmic-ray.

The sample is spread by lines: a line is drawn, then one of the mutations that begin on it, so that a file counts by its length and a line by
itself. A mutation that changes only annotations, docstrings or blocks for type checkers is equivalent, and another is drawn instead.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATORS = {
    name: operator
    for name, operator in ((name, OperatorProvider()[name]) for name in OperatorProvider())
    if not operator.arguments()
}


class _Meaning(ast.NodeTransformer):
    """Removes code without effect at run time."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._without_docstring(self.generic_visit(node))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(self.generic_visit(node))

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if any(isinstance(name, ast.Name) and name.id == "TYPE_CHECKING" for name in ast.walk(node.test)):
            return None  # imports of such a block are used in annotations only
        return self.generic_visit(node)

    def _without_docstring(self, node: ast.AST) -> ast.AST:
        if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        return node


def meaning(code: str) -> str | None:
    """The program's syntax tree without ineffective code; None for malformed code."""
    try:
        return ast.dump(_Meaning().visit(ast.parse(code)))
    except SyntaxError:
        return None


def positions(path: Path) -> Iterator[tuple[int, str, int]]:
    """The places where mutation operators apply: (line, operator's name, occurrence)."""
    tree = get_ast(path.read_text("utf-8"))
    nodes = list(ast_nodes(tree))
    for name, operator in OPERATORS.items():
        found = (start for node in nodes for start, _ in operator().mutation_positions(node))
        for occurrence, (line, _column) in enumerate(found):
            yield line, name, occurrence


def main(seed: int, count: int, files: list[str]) -> None:
    """Print the sample."""
    by_line = defaultdict(list)
    for file in files:
        for line, name, occurrence in positions(Path(file)):
            by_line[file, line].append((name, occurrence))
    lines = sorted(by_line)
    draw = random.Random(seed)
    draw.shuffle(lines)
    left = count
    for file, line in lines:
        if not left:
            break
        source = Path(file).read_text("utf-8")
        before = meaning(source)
        choices = by_line[file, line]
        draw.shuffle(choices)
        for name, occurrence in choices:
            mutated = mutate_code(source, OPERATORS[name](), occurrence)
            if mutated is not None and meaning(mutated) not in (None, before):
                print(json.dumps({"file": file, "line": line, "operator": name, "source": mutated}), flush=True)
                left -= 1
                break


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
