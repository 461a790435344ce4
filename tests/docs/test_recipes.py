"""Each recipe in CONTRIBUTING is followed in a copy of the repository, and does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .recipes import PAGE, ROOT, BadRecipe, Recipe, copy_product, follow, recipes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

FOUND = recipes(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("recipe", FOUND, ids=lambda recipe: recipe.title)
def test_the_recipe_does_what_it_says(recipe: Recipe, tmp_path: Path) -> None:
    copy_product(tmp_path)
    touched = follow(recipe, tmp_path)
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    program = f"import greenroom; assert greenroom.__file__.startswith({str(tmp_path)!r})\n{recipe.program}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.stdout.strip() == recipe.printed.strip(), done.stderr
    assert touched
    for file in touched:
        compile(file.read_text(encoding="utf-8"), file, "exec")


@pytest.mark.parametrize("word", ["method", "header", "provider", "transport", "metric", "command"])
def test_there_is_a_recipe_for_each_thing_that_is_added_often(word: str) -> None:
    (recipe,) = [each for each in FOUND if word in each.title]
    assert recipe.steps
    assert recipe.printed


def test_every_file_that_the_table_names_exists() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| I want to add or change |")[2].partition("\n\n")[0]
    paths = re.findall(r"`((?:actors|auth|src|supervision|tests|transports)/[\w./]*)`", table)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_recipe_whose_place_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\ny = 2\n")
    for anchor in ("x = 1", "z"):
        with pytest.raises(BadRecipe, match="lines that begin with"):
            follow(Recipe("it", [(f"add to a.py below `{anchor}`", "z = 3\n")]), tmp_path)
    follow(Recipe("it", [("replace in a.py the line `y =`", "z = 3\n")]), tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\nx = 1\nz = 3\n"
