"""Every example runs and prints the output in its docstring."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests.example_counts import one_in

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", one_in(4, EXAMPLES), ids=lambda path: path.stem)
def test_the_example_prints_what_it_says(example: Path, tmp_path: Path) -> None:
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))
    assert text is not None
    _, _, promised = text.partition(f"Run it: `python examples/{example.name}`. It prints\n\n")
    assert promised, "its docstring does not say what it prints"
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == dedent(promised).strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
