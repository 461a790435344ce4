"""Runs both type checkers over files, and compares their errors with the expectations in the files.

`# expect-error: call-arg, reportCallIssue` at the end of a line names everything that mypy (`call-arg`) and pyright
(`reportCallIssue`) say of it, and both have to say something. Any other line has to pass both.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Said = dict[tuple[str, int], set[str]]
"""File name and line -> the reported, or expected, error codes."""

_MARK = re.compile(r"#\s*expect-error:\s*(.*)$")


def expected(files: Iterable[Path]) -> Said:
    """The expectations in the files."""
    found: Said = {}
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if mark := _MARK.search(line):
                codes = {code.strip() for code in mark[1].split(",")}
                by_pyright = {code for code in codes if code.startswith("report")}
                assert by_pyright, f"{file.name}:{number} expects nothing of pyright"
                assert codes - by_pyright, f"{file.name}:{number} expects nothing of mypy"
                found[file.name, number] = codes
    return found


def said(files: Sequence[Path], root: Path, folder: Path) -> Said:
    """The errors of the checkers with the project's settings. The settings exclude the files' folder, so they are copied."""
    copies = [folder / file.name for file in files]
    for file, copy in zip(files, copies, strict=True):
        copy.write_bytes(file.read_bytes())
    found: Said = defaultdict(set)
    for path, line, code in (*_mypy(copies, root), *_pyright(copies, root)):
        # errors in imported modules are reported by `make check`
        if path in copies:
            found[path.name, line].add(code)
    return dict(found)


def _mypy(files: list[Path], root: Path) -> Iterator[tuple[Path, int, str]]:
    # without a cache, which would report the path of the last copy
    output = _run(["-m", "mypy", "--cache-dir", os.devnull, "--output", "json", *map(str, files)], root)
    for line in output.splitlines():
        error: dict[str, Any] = json.loads(line)
        yield root / error["file"], error["line"], error["code"]


def _pyright(files: list[Path], root: Path) -> Iterator[tuple[Path, int, str]]:
    output = _run(["-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *map(str, files)], root)
    report: dict[str, Any] = json.loads(output)
    assert report["summary"]["filesAnalyzed"] == len(files)
    for error in report["generalDiagnostics"]:
        yield root / error["file"], error["range"]["start"]["line"] + 1, error["rule"]


def _run(arguments: list[str], root: Path) -> str:
    done = subprocess.run([sys.executable, "-P", *arguments], cwd=root, capture_output=True, check=False, text=True)
    # 1 means errors; any other code means that the checker failed
    assert done.returncode in {0, 1}, done.stderr or done.stdout
    return done.stdout
