"""The table of failures: each row names tests, and those tests exist."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/reference/failures.md"


def defined(root: Path) -> dict[str, set[str]]:
    """The tests and acts of each file, by the file's name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (*root.glob("tests/**/test_*.py"), root / "tests/hosts/scenarios.py"):
        found[path.stem] |= set(re.findall(r"^(?:async )?def (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def rows(root: Path) -> list[list[str]]:
    """The cells of each row below a head."""
    lines = (root / PAGE).read_text(encoding="utf-8").splitlines()
    tables = [
        line.strip("|").split("|") for line in lines if line.startswith("| ") and not line.startswith("| what happens")
    ]
    return [[cell.strip() for cell in cells] for cells in tables]


def test_each_row_names_tests_that_exist(root: Path) -> None:
    there = defined(root)
    missing: list[str] = []
    for cells in rows(root):
        named = re.findall(r"`(\w+)::(\w+)`", cells[-1])
        assert named, f"no test shows that {cells[0]!r} is so"
        missing += [f"{file}::{name}" for file, name in named if name not in there.get(file, set())]
    assert not missing


def test_every_act_on_two_hosts_is_in_a_row(root: Path) -> None:
    acts = set(
        re.findall(
            r"^@act\nasync def (\w+)", (root / "tests/hosts/scenarios.py").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    named = {
        name for cells in rows(root) for file, name in re.findall(r"`(\w+)::(\w+)`", cells[-1]) if file == "scenarios"
    }
    assert len(acts) >= 17
    assert acts - named == {
        "a_machine_joins_and_takes_a_node_by_its_capability",
        "no_process_listens_on_all_addresses",
    }  # nothing fails
