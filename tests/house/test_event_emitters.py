"""An emitter looks for the listener once: another thread may unsubscribe between two looks, and calling None would end the code that emits."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .tree import Source, current_tree

CALL = re.compile(r"(?:\w+\.)*bus\.(?:detail_)?listener")


def late_calls(source: Source) -> list[str]:
    """The calls of `bus.listener` that do not come right after the look for it. A call of anything in between lets other threads run."""
    direct: set[ast.expr] = set()
    for node in source.nodes:
        if (
            isinstance(node, ast.If)
            and isinstance(first := node.body[0], ast.Expr)
            and isinstance(first.value, ast.Call)
        ):
            last = node.test.values[-1] if isinstance(node.test, ast.BoolOp) else node.test
            if ast.unparse(last) == f"{ast.unparse(first.value.func)} is not None":
                direct.add(first.value)
    return [
        f"{source.path}:{node.lineno}"
        for node in source.nodes
        if isinstance(node, ast.Call) and CALL.fullmatch(ast.unparse(node.func)) and node not in direct
    ]


def test_a_listener_is_called_right_after_the_look_for_it_or_is_kept_in_a_variable() -> None:
    sources = [each for each in current_tree(Path(__file__).parents[2]).sources if "bus." in each.text]
    assert sum(len(CALL.findall(each.text)) for each in sources) > 20
    assert [call for each in sources for call in late_calls(each)] == []


@pytest.mark.parametrize(
    "bad",
    [
        "if bus.listener is not None:\n    name = text()\n    bus.listener(name)",
        "if bus.listener is None:\n    return\nbus.listener(1)",
        "if bus.listener is not None and is_over():\n    bus.listener(1)",
        "if bus.listener is not None:\n    bus.detail_listener(1)",
        "bus.listener(1)",
    ],
)
def test_a_late_call_is_found(bad: str) -> None:
    assert len(late_calls(Source("a.py", "a", bad))) == 1


@pytest.mark.parametrize(
    "fine",
    [
        "if bus.listener is not None:\n    bus.listener(event())",
        "if is_on() and self.bus.detail_listener is not None:\n    self.bus.detail_listener(1)",
        "listener = bus.listener\nif listener is not None:\n    name = text()\n    listener(name)",
    ],
)
def test_a_call_that_cannot_be_late_is_allowed(fine: str) -> None:
    assert late_calls(Source("a.py", "a", fine)) == []
