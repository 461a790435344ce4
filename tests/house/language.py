"""The language of the code: names that mean one thing, and sentences that name their subject. `make shape LIST=1` prints every finding."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .tree import Tree

SHARED_CLASS_NAMES: Final[dict[str, str]] = {
    "LoopBlocked": "the report of a node, and the event that is made of it for the whole program",
    "EventTimeout": "OTP has the same action, a timeout until the next message, in gen_server and in gen_statem",
    "Request": "a message of greenroom.thespian, whose class names are in the method names of users' actors (`receiveMsg_Request`)",
    "ToolResult": "the same: `receiveMsg_ToolResult`; at the front door it is a block of a conversation",
    "Reply": "OTP has the same action in gen_server and in gen_statem, with another value each",
}
"""Public class names that two modules use, each with the reason. At most ten."""
MOST_SHARED_CLASS_NAMES: Final = 10

COMMON_FILES: Final = {"__init__", "errors", "interfaces", "settings"}
"""File names that every package may have."""
MOST_SHARED_FILES: Final = 15
"""Modules whose file name another module has as well, besides the common ones."""

MOST_PRONOUNS: Final = 0.1
"""In a thousand lines of Python and Markdown; what is left is quoted, in recorded messages and in the tests of this rule. The number only falls."""
_PRONOUN = re.compile(
    r"(?<![A-Za-z])(whoever|whomever|nobody|no[ _]one|somebody|someone|anybody|anyone|everybody|everyone|the[ _]one[ _]who|those[ _]who)(?![A-Za-z])",
    re.IGNORECASE,
)
_WHO = re.compile(r"(?:^|[.!:] |\"\"\"|# )(Who|What|Whoever|Whatever|Nobody)\b[^.?\n]*(?=[.\n])")


def classes(tree: Tree) -> dict[str, list[str]]:
    """By name: the modules that define a public class of that name."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in tree.sources:
        for node in _top(source.syntax.body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(source.path)
    return found


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _top(node.body)


def class_names(tree: Tree, shared: Mapping[str, str] = SHARED_CLASS_NAMES) -> list[str]:
    """A public class name is used once, except for the pairs in `shared`; each entry there is needed."""
    twice = {name: paths for name, paths in classes(tree).items() if len(paths) > 1}
    wrong = [
        f"{name} is a class of {' and of '.join(paths)}: give one of them a more specific name"
        for name, paths in sorted(twice.items())
        if name not in shared or len(paths) > 2
    ]
    wrong += [f"{name} is listed as shared, and is the name of one class" for name in shared.keys() - twice.keys()]
    if len(shared) > MOST_SHARED_CLASS_NAMES:
        wrong.append(f"{len(shared)} class names are shared, and {MOST_SHARED_CLASS_NAMES} may be")
    return wrong


def shared_files(tree: Tree) -> list[str]:
    """Modules whose file name another module has as well."""
    found: dict[str, list[str]] = defaultdict(list)
    for source in tree.sources:
        found[PurePosixPath(source.path).stem].append(source.path)
    return sorted(
        path for name, paths in found.items() if len(paths) > 1 and name not in COMMON_FILES for path in paths
    )


def module_names(tree: Tree) -> list[str]:
    """A file name identifies a module without its folder."""
    shared = shared_files(tree)
    return [f"{path}: another module has this file name" for path in shared] if len(shared) > MOST_SHARED_FILES else []


def pronouns(tree: Tree) -> list[str]:
    """Lines with a pronoun that hides the subject, in texts and in names."""
    return [
        f"{path}:{number}: {found[0]}: name the subject"
        for path, number, line in _lines(tree)
        if (found := _PRONOUN.search(line))
    ]


def pronoun_rate(tree: Tree) -> float:
    """Pronouns in a thousand lines."""
    lines = list(_lines(tree))
    return sum(len(_PRONOUN.findall(line)) for *_, line in lines) / max(1, len(lines)) * 1000


def subjects(tree: Tree) -> list[str]:
    """Pronouns are rare: sentences name the session, the upstream, the file."""
    return pronouns(tree) if pronoun_rate(tree) > MOST_PRONOUNS else []


def who_sentences(tree: Tree) -> list[str]:
    """Sentences that begin with Who, What or Nobody and are no question. This is reported, and not a rule."""
    return [
        f"{path}:{number}: {line.strip()[:120]}"
        for path, number, line in _lines(tree)
        if not line.startswith("#") and _WHO.search(line) and "?" not in line
    ]


def method_docstrings(tree: Tree) -> list[str]:
    """A public method says what its caller needs to know, unless it overrides one that does: of a base class or of a Protocol."""
    found = {
        (source.path, node.name): node
        for source in tree.sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    }
    by_name: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for node in found.values():
        by_name[node.name].append(node)
    protocols = {name for node in found.values() if "Protocol" in _bases(node) for name in _methods(node)}

    def overrides(node: ast.ClassDef, name: str) -> bool:
        bases = _bases(node) - {"Generic", "Protocol"}
        known = [base for each in bases for base in by_name.get(each, ()) if base is not node]
        return any(each not in by_name for each in bases) or any(
            name in _methods(base) or overrides(base, name) for base in known
        )

    return [
        f"{path}:{method.lineno}: {name}.{method.name} has no docstring, and overrides nothing"
        for (path, name), node in found.items()
        if not name.startswith("_") and "Protocol" not in _bases(node)
        for method in _methods(node).values()
        if not method.name.startswith("_") and ast.get_docstring(method) is None and not _is_overload(method)
        if method.name not in protocols and not overrides(node, method.name)
    ]


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def _is_overload(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(each).endswith(("overload", ".setter")) for each in method.decorator_list)


def _lines(tree: Tree) -> Iterator[tuple[str, int, str]]:
    for path, text in tree.files.items():
        if not path.endswith((".py", ".md")) or path == "tests/house/language.py":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            yield path, number, line


RULES = (class_names, module_names, subjects, method_docstrings)
