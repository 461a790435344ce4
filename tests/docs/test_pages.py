"""Every program in the README and the documentation runs and prints the output on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import BadPage, play, programs_of

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)})


@pytest.mark.row("OP-03")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    play(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"), tmp_path)


def md(*lines: str) -> str:
    return "\n".join(lines)


GOOD = md(
    "# A page",
    "```python",
    "from dataclasses import dataclass",
    "@dataclass",
    "class Point:",
    "    x: int",
    "```",
    "and, in the same namespace,",
    "```python",
    "print(Point(1))",
    "```",
    "```text output",
    "Point(x=1)",
    "```",
    "```python no-run: needs a terminal",
    "raise SystemExit(1)",
    "```",
    "````text",
    "```python",
    "shown, not meant",
    "```",
    "````",
)


def test_a_good_page_is_played_from_top_to_bottom(tmp_path: Path) -> None:
    assert [program.line for program in programs_of(GOOD)] == [2, 9]
    play("good.md", GOOD, tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (md("", "```python", "x = 1", "1 / 0", "```"), 'File "bad.md", line 4'),
        (md("```python", "raise SystemExit(3)", "```"), "does not run"),
        (md("```python", "import warnings", "warnings.warn('old')", "```"), "UserWarning"),
        (md("```python", "import actors", "```"), "No module named 'actors'"),
        (md("```python", "print(1)", "```", "```text output", "2", "```"), "and it printed\n1"),
        (md("```text output", "2", "```"), "no Python block"),
        (md("```python no-run", "x", "```"), "a reason in words"),
        (md("```python no-run:", "x", "```"), "a reason in words"),
        (md("```pycon", ">>> 1", "1", "```"), "neither"),
        (md("```python3", "x", "```"), "neither"),
        (md("```python", "x = 1"), "never closed"),
    ],
)
def test_a_bad_page_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadPage) as refused:
        play("bad.md", text, tmp_path)
    assert complaint in str(refused.value)


def test_the_beginning_of_a_sessions_id_is_compared_by_its_shape(tmp_path: Path) -> None:
    page = "```python\nprint('session/0123abcd…')\n```\n\n```text output\nsession/{}…\n```\n"
    play("page.md", page.replace("{}", "fedc9876"), tmp_path)
    with pytest.raises(BadPage, match="the page shows"):
        play("page.md", page.replace("{}", "9876"), tmp_path)
