"""The rules for tests: each test asserts something, waits for events instead of time, and is credited only for the rows that it shows.

A rule takes a tree and returns its violations, as in `rules`. Exceptions are in tables, each with its reason; an entry that is not needed is a violation.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .tree import Tree

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

SKIPS = ("importorskip", "skip", "skipif", "xfail")

SLEEPERS = ("anyio.sleep", "asyncio.sleep", "time.sleep")

POLL = 0.1
"""The most seconds that a `while` loop may pause when it polls another program, which sends no event."""

MAY_SLEEP: dict[str, str] = {
    "tests/transports/client_command/test_orphans.py::killed": "a host is killed at random moments of its start, which have no event",
    "tests/supervision/cluster/core/test_connecting.py::test_a_node_whose_own_loop_hung_gives_up_no_other": "the blocked loop is what is tested",
    "tests/supervision/cluster/test_engine_deaths.py::test_an_application_that_stands_still_loses_no_node": "the blocked loop is what is tested",
    "tests/greenroom/config/test_host.py::test_a_tools_time_is_its_servers_whatever_the_transport": "a tool takes longer than its limit, behind a real socket",
    "tests/transports/hostile/test_abandoned.py::_once_gone": "each poll leaves a timer in the server for a minute, so it polls seldom",
    "tests/transports/hostile/test_abandoned.py::_settled": "as above: each poll leaves a timer behind",
    "tests/supervision/testing/test_virtual_time.py::test_an_answer_from_a_thread_of_ones_own_is_waited_for": "the virtual clock waits for a thread that takes real time",
}
"""Functions that pause in real time, by file and name, each with the reason why it does not wait for an event."""


def _tests(tree: Tree) -> Iterator[tuple[str, ast.Module]]:
    for path, module in tree.modules.items():
        if path.startswith("tests/") and PurePosixPath(path).name.startswith("test_"):
            yield path, module


def _functions(within: ast.AST) -> Iterator[Function]:
    """The outermost functions of a module, its classes' methods included."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, Function):
            yield node
        elif not isinstance(node, ast.Lambda):
            yield from _functions(node)


def silent_returns(tree: Tree) -> list[str]:
    """No test can return before its first assertion: parametrise it so that it does not exist where it does not apply."""
    return [
        f"{path}:{found.lineno}: {test.name} returns before it has asserted anything"
        for path, module in _tests(tree)
        for test in _functions(module)
        if test.name.startswith("test")
        for found in _silent(test.body, asserted=False)
    ]


def _silent(body: Sequence[ast.stmt], *, asserted: bool) -> Iterator[ast.Return]:
    """The returns of these statements before which nothing was asserted."""
    for statement in body:
        if isinstance(statement, _SCOPES):
            continue
        if isinstance(statement, ast.Return) and not asserted:
            yield statement
        within = asserted or (isinstance(statement, ast.With | ast.AsyncWith) and _raises(statement))
        for name in ("body", "orelse", "finalbody"):
            yield from _silent(getattr(statement, name, ()), asserted=within)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _silent(part.body, asserted=within)
        asserted = asserted or _asserts(statement)


def _asserts(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.With | ast.AsyncWith) and _raises(node))
        for node in ast.walk(statement)
    )


def _raises(block: ast.With | ast.AsyncWith) -> bool:
    return any("raises" in ast.unparse(item.context_expr) for item in block.items)


def skips(tree: Tree) -> list[str]:
    """No test is skipped, or expected to fail."""
    return [
        f"{path}:{node.lineno}: pytest's {node.attr} is not allowed: leave out parameters that do not apply, and install packages that are needed"
        for path, module in _tests(tree)
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and node.attr in SKIPS
        and ast.unparse(node.value) in ("pytest", "pytest.mark")
    ]


def sleeps(tree: Tree, allowed: Mapping[str, str] = MAY_SLEEP) -> list[str]:
    """No test waits for real time to pass: it awaits an event, uses virtual time, or polls another program in a `while` loop."""
    wrong: list[str] = []
    used: set[str] = set()
    for path, module in _tests(tree):
        everywhere = any(_is_real(node) for node in module.body if _assigns_marks(node))
        for function in _functions(module):
            real = everywhere or any(_is_real(mark) for mark in function.decorator_list)
            for call in _pauses(function.body, real=real, polls=False):
                name = f"{path}::{function.name}"
                used.add(name)
                if len(allowed.get(name, "").split()) < 5:
                    wrong.append(
                        f"{path}:{call.lineno}: {function.name} sleeps: await an event, or poll in a `while` loop"
                    )
    return wrong + [f"{name}: listed in MAY_SLEEP, and does not sleep" for name in sorted(set(allowed) - used)]


def _assigns_marks(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(to, ast.Name) and to.id == "pytestmark" for to in node.targets
    )


def _is_real(mark: ast.AST) -> bool:
    return any(
        isinstance(node, ast.keyword) and node.arg == "clock" and ast.unparse(node.value) == "'real'"
        for node in ast.walk(mark)
    )


def _pauses(body: Sequence[ast.AST], *, real: bool, polls: bool) -> Iterator[ast.Call]:
    """The calls that wait for real time, without the short pauses of a polling loop."""
    for node in body:
        if (
            isinstance(node, ast.Call)
            and isinstance(
                node.func, ast.Attribute
            )  # cheap check first: unparsing all calls took nine tenths of the time
            and ast.unparse(node.func) in SLEEPERS
            and _takes_time(node, real=real, polls=polls)
        ):
            yield node
        yield from _pauses(list(ast.iter_child_nodes(node)), real=real, polls=polls or isinstance(node, ast.While))


def _takes_time(call: ast.Call, *, real: bool, polls: bool) -> bool:
    if not real and ast.unparse(call.func) != "time.sleep":
        return False  # on virtual time
    given = call.args[0] if call.args else None
    seconds = given.value if isinstance(given, ast.Constant) and isinstance(given.value, int | float) else None
    return seconds is None or seconds > (POLL if polls else 0)


def row_marks(tree: Tree) -> list[str]:
    """A row is credited to single tests: a mark of a whole module would credit all tests in it."""
    return [
        f"{path}:{node.lineno}: marks every test of the file with a row: mark the tests that show it"
        for path, module in _tests(tree)
        for node in module.body
        if _assigns_marks(node)
        for mark in ast.walk(node)
        if isinstance(mark, ast.Attribute) and mark.attr in ("otp", "row") and ast.unparse(mark.value) == "pytest.mark"
    ]


_ROW = re.compile(r"^\| (.+?) \| (.*`tests/.+) \|$", re.MULTILINE)


def folders(tree: Tree) -> list[str]:
    """The table in CONTRIBUTING names the tests of each package, and every folder of tests once."""
    section = tree.files.get("CONTRIBUTING.md", "").partition("| package | tests |")[2].partition("\n## ")[0]
    table = _ROW.findall(section)
    listed = {package for packages, _ in table for package in re.findall(r"`([\w/]+)`", packages)}
    named = [folder for _, tests in table for folder in re.findall(r"`tests/([\w/]+)`", tests)]
    packages = {str(PurePosixPath(source.path).parent) for source in tree.sources}
    there = {str(PurePosixPath(path).parent.relative_to("tests")) for path, _ in _tests(tree)}
    wrong = [f"CONTRIBUTING.md: no row lists the tests of {package}" for package in sorted(packages - listed)]
    wrong += [f"CONTRIBUTING.md: tests/{folder} has no tests" for folder in sorted(set(named) - there)]
    wrong += [f"CONTRIBUTING.md: tests/{folder} is in no row" for folder in sorted(there - set(named))]
    wrong += [
        f"CONTRIBUTING.md: tests/{folder} is listed twice" for folder in sorted(set(named)) if named.count(folder) > 1
    ]
    return wrong


RULES = (silent_returns, skips, sleeps, row_marks, folders)
