"""The public types: mypy and pyright accept and refuse the same lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .checkers import expected, said

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.deep
def test_both_checkers_say_of_the_examples_what_the_examples_expect(root: Path, tmp_path: Path) -> None:
    files = sorted((root / "tests/typing/examples").glob("*.py"))
    assert files
    assert said(files, root, tmp_path) == expected(files)


def test_an_unexpected_error_of_a_checker_is_reported(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "def untyped(x):\n    return x\n\nnumber: int = 'two'  # expect-error: assignment, reportAssignmentType\n"
    )
    folder = tmp_path / "copies"
    folder.mkdir()
    found = said([file], root, folder)
    assert found["sample.py", 4] == {"assignment", "reportAssignmentType"} == expected([file])["sample.py", 4]
    # both are strict, as configured
    assert {"no-untyped-def", "reportMissingParameterType"} <= found["sample.py", 1]


@pytest.mark.parametrize("codes", ["arg-type", "reportArgumentType"])
def test_an_expectation_is_of_both_checkers(codes: str, tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(f"x = 1  # expect-error: {codes}\n")
    with pytest.raises(AssertionError, match="expects nothing of"):
        expected([file])
