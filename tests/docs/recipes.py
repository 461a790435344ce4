"""Follows the recipes in CONTRIBUTING: makes their changes in a copy of the repository, and runs their programs."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
PRODUCT = ("actors", "auth", "src", "supervision", "transports")

_SECTION = re.compile(r"^### (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```(?:python|text) no-run: (.+?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EDIT = re.compile(r"(?:add to|replace in) (\S+) (below|above|the line) `(.+)`")


class BadRecipe(Exception):
    """A recipe that cannot be followed."""


@dataclass
class Recipe:
    """One section of the page."""

    title: str
    steps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The purpose of each block, and the block."""
    program: str = ""
    printed: str = ""


def recipes(text: str) -> list[Recipe]:
    """The recipes of the page."""
    found: list[Recipe] = []
    _, *parts = _SECTION.split(text.partition("\n## What a change has to show")[0])
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        recipe = Recipe(title)
        for purpose, block in _BLOCK.findall(body):
            if purpose == "see it":
                recipe.program = block
            elif purpose == "printed":
                recipe.printed = block
            else:
                recipe.steps.append((purpose, block))
        found.append(recipe)
    return found


def copy_product(folder: Path) -> None:
    """Copy what is installed, with the links that lead to the packages at the root."""
    for name in PRODUCT:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )


def follow(recipe: Recipe, folder: Path) -> list[Path]:
    """Make the recipe's changes in a copy; return the files that it has touched."""
    touched: list[Path] = []
    for purpose, block in recipe.steps:
        if purpose.startswith("new file "):
            file = folder / purpose.removeprefix("new file ")
            if file.exists():
                raise BadRecipe(f"{recipe.title}: {file.name} exists")
            file.write_text(block, encoding="utf-8")
        elif (edit := _EDIT.fullmatch(purpose)) is not None:
            path, where, anchor = edit.groups()
            file = folder / path
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            places = [number for number, line in enumerate(lines) if line.strip().startswith(anchor)]
            if len(places) != 1:
                raise BadRecipe(f"{recipe.title}: {path} has {len(places)} lines that begin with {anchor}")
            (line,) = places
            begin, end = {"above": (line, line), "below": (line + 1, line + 1), "the line": (line, line + 1)}[where]
            lines[begin:end] = [block]
            file.write_text("".join(lines), encoding="utf-8")
        else:
            raise BadRecipe(f"{recipe.title}: {purpose!r} is not a step")
        touched.append(file)
    return touched
