"""All text that the product writes to a terminal goes through `visible`, or is listed below with the reason."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import pytest

from .tree import Source, current_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ESCAPING: Final = {"visible", "escaped_for_terminal"}
WRITERS: Final = {
    *("print", "pprint", "input"),
    *("sys.stdout.write", "sys.stderr.write", "sys.stdout.writelines", "sys.stderr.writelines"),
    *("sys.__stdout__.write", "sys.__stderr__.write", "sys.stdout.buffer.write", "sys.stderr.buffer.write"),
    *("traceback.print_exc", "traceback.print_exception", "traceback.print_stack", "traceback.print_tb"),
    *("click.echo", "click.secho", "click.prompt", "click.confirm", "logging.StreamHandler", "logging.basicConfig"),
    *("getpass.getpass", "faulthandler.enable"),
}
ALLOWED: Final = {
    ("supervision/kernel/loop_hooks.py", "os.write"): "a constant",
    ("supervision/cluster/crash_output.py", "faulthandler.enable"): "into memory",
    ("supervision/cluster/member.py", "logging.StreamHandler"): "its formatter is Lines",
    ("supervision/cluster/member.py", "logging.basicConfig"): "the same handler",
    ("supervision/testing/scenario_replay.py", "sys.stderr.write"): "a developer's own scenario",
    ("supervision/testing/scenario_replay.py", "sys.stdout.write"): "a developer's own scenario",
    ("auth/testing/__main__.py", "print"): "its own URL",
    (
        "src/greenroom/cli/call_command.py",
        "sys.stderr.write",
    ): "its line is visible; the rest moves the cursor on purpose",
    ("src/greenroom/cli/target_client.py", "logging.StreamHandler"): "its formatter is Lines",
    ("src/greenroom/cli/target_client.py", "logging.basicConfig"): "the same handler",
    ("src/greenroom/cli/call_command.py", "sys.stdout.buffer.write"): "bytes, where stdout is no terminal",
}
NOT_CHECKED: Final = ("src/greenroom/testing/",)
"""Folders with programs that misbehave for tests."""


def written(source: Source) -> Iterator[tuple[int, str]]:
    """The calls in a module that write unescaped text to a terminal: each call has to escape its text itself."""
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        to_terminal = name == "os.write" and ast.unparse(node.args[0]) in ("1", "2")
        if name in WRITERS or to_terminal:
            inside = {
                each.func.id
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            }
            if not inside & ESCAPING:
                yield node.lineno, name


def test_text_for_a_terminal_is_made_visible(root: Path) -> None:
    found = {
        (source.path, name): line
        for source in current_tree(root).sources
        if not source.path.startswith(NOT_CHECKED)
        for line, name in written(source)
    }
    assert {f"{path}:{line}: {name}" for (path, name), line in found.items() if (path, name) not in ALLOWED} == set()
    assert set(ALLOWED) - set(found) == set(), "take these out of ALLOWED: they are not needed any more"


@pytest.mark.parametrize(
    ("line", "complaints"),
    [
        ("print(error)", ["print"]),
        ("print(f'x {error}', file=sys.stderr)", ["print"]),
        ("sys.stderr.write(text)", ["sys.stderr.write"]),
        ("os.write(2, data)", ["os.write"]),
        ("os.write(pipe, data)", []),
        ("print(visible(error))", []),
        ("os.write(2, f'{visible(text)}'.encode())", []),
    ],
)
def test_unescaped_output_is_found(line: str, complaints: list[str]) -> None:
    assert [name for _, name in written(Source("auth/a.py", "greenroom.auth.a", line))] == complaints
