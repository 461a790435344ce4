"""A clone of the repository for mutants: its environment, the coverage of its tests, and test runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTINGS: Final = """\
[run]
branch = false
parallel = true
source =
    actors
    auth
    src
    supervision
    transports
concurrency = thread
patch =
    subprocess
    _exit
context = ${PYTEST_CURRENT_TEST-}
"""
_PHASE: Final = re.compile(r" \((?:setup|call|teardown)\)$")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)


@dataclass
class Reach:
    """The tests that reach each line, and their durations."""

    data: coverage.CoverageData
    root: Path
    times: dict[str, float]
    _lines: dict[str, dict[int, list[str]]] = field(default_factory=dict[str, dict[int, list[str]]])

    def tests(self, file: str, line: int) -> list[str]:
        """The tests that reach a line, the shortest first."""
        if file not in self._lines:
            self._lines[file] = self.data.contexts_by_lineno(str(self.root / file))
        lines = self._lines[file]
        # Code that runs at import belongs to no test: any test of the file may depend on it.
        found = self._of(lines.get(line, ())) or self._of(each for contexts in lines.values() for each in contexts)
        return sorted(found, key=lambda name: (self.times[name], name))

    def _of(self, contexts: Iterable[str]) -> set[str]:
        names = {_PHASE.sub("", part) for context in contexts for part in context.split("|")}
        return names & self.times.keys()


class Tree:
    """A clone with its own environment."""

    def __init__(self, folder: Path) -> None:
        """`make` creates the clone."""
        self.folder = folder
        self._bin = folder / ".venv" / "bin"

    def make(self, source: Path, commit: str) -> None:
        """Clone a commit and install it, unless that was done before."""
        if not (self.folder / ".git").exists():
            subprocess.run(["git", "clone", "--quiet", str(source), str(self.folder)], check=True)
        subprocess.run(["git", "fetch", "--quiet", str(source), commit], cwd=self.folder, check=True)
        subprocess.run(["git", "checkout", "--quiet", "--force", "--detach", commit], cwd=self.folder, check=True)
        subprocess.run(["make", "--silent", "venv"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def reach(self, folders: list[str]) -> Reach:
        """Run the tests of these folders once with coverage."""
        data, times = self.folder / ".coverage", self.folder / ".coverage.times"
        if not times.exists():
            settings = self.folder / ".coverage.settings"
            settings.write_text(SETTINGS, "utf-8")
            environment = {**os.environ, "MUTATE_TIMES": str(times)}
            run = [str(self._bin / "coverage"), "run", f"--rcfile={settings}"]
            ran = subprocess.run(
                [*run, str(self._bin / "pytest"), "-p", "tests.mutate.contexts", "-p", "no:randomly", "-q", *folders],
                cwd=self.folder,
                env={**environment, "PYTHONPATH": str(self.folder)},
                check=False,
            )
            if ran.returncode not in (0, 1):  # failing tests are left out if they fail again without a mutation
                message = f"the run that finds out what tests reach ended with {ran.returncode}"
                raise RuntimeError(message)
            subprocess.run([*run[:1], "combine", "--quiet", f"--rcfile={settings}"], cwd=self.folder, check=True)
        loaded = coverage.CoverageData(str(data))
        loaded.read()
        return Reach(loaded, self.folder, json.loads(times.read_text("utf-8")))

    def failing(self, tests: list[str], seconds: float) -> str | None:
        """The first failing test, `hangs` if they do not end in time, None if all pass."""
        names = self.folder / ".coverage.tests"
        names.write_text("\n".join(tests), "utf-8")
        command = [str(self._bin / "pytest"), "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"@{names}"]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                output = None
            finally:
                self._end(process)
        if output is None:
            return "hangs"
        if process.returncode == 0:
            return None
        found = _FAILED.search(output)
        return found[1] if found else "all: " + output.strip()[-300:]

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Kill the run and its children, which have the clone as working directory."""
        with contextlib.suppress(ProcessLookupError):  # the whole process group has ended
            os.killpg(process.pid, signal.SIGKILL)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "cwd").readlink().is_relative_to(self.folder):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:  # already ended, or another user's process
                continue
