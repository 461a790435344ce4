"""The documentation builds without a warning, and the built pages fetch nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep  # Sphinx is installed for `make deep` and `make docs` alone

_FETCHED = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["'](?:https?:)?//|url\(["']?(?:https?:)?//|@import"""
)


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--nitpicky", "-b", "html", "-d", str(target / "trees")]
    command = [sys.executable, "-P", "-m", "sphinx", *options, str(source), str(target / "html")]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def test_the_documentation_builds_without_a_warning_and_fetches_nothing(root: Path, tmp_path: Path) -> None:
    done = build(root / "docs", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = [path for path in (tmp_path / "html").rglob("*") if path.suffix in {".html", ".css"}]
    assert tmp_path / "html" / "index.html" in pages
    assert [path for path in pages if _FETCHED.search(path.read_text(encoding="utf-8"))] == []


def test_a_dangling_link_and_a_lost_page_fail_the_build(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(root / "docs" / "conf.py", source)
    (source / "index.md").write_text("# Here\n\nSee [there](there.md).\n", encoding="utf-8")
    (source / "lost.md").write_text("# Lost\n", encoding="utf-8")
    done = build(source, tmp_path)
    assert done.returncode != 0
    assert "there.md" in done.stderr
    assert "lost.md: WARNING: document isn't included in any toctree" in done.stderr
