"""`python -m tests.halves`: the whole suite with coverage, by two runners side by side where there are two processors.

Which of them runs a file of tests is decided when its turn comes: whoever comes first. So both are busy to the end, and a failure is found again by
running its file. What a runner has printed is shown when it has ended, whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

RUNNERS: Final = (1, 2)


class Turns:
    """What one runner does of a suite that it shares with others, who look into the same folder."""

    def __init__(self, folder: Path) -> None:
        """An empty one, in the beginning."""
        self._folder = folder

    def claim(self, file: Path) -> bool:
        """Whether that file's tests are ours; nobody else's then."""
        try:
            (self._folder / f"{crc32(str(file).encode()):08x}-{file.name}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def items(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        """Those of the files that were not claimed by others when it was their turn."""
        for file, group in groupby(items, key=lambda item: item.path):
            ours = list(group)
            if self.claim(file):
                yield from ours


def _begin(folder: Path, arguments: list[str], into: IO[bytes]) -> subprocess.Popen[bytes]:
    beside = Path(sys.executable).parent
    command = [str(beside / "coverage"), "run", str(beside / "pytest"), f"--turns={folder}", *arguments]
    return subprocess.Popen(command, stdout=into, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Returns the exit code of the runner that went worse."""
    worst = 0
    runners = RUNNERS if (os.cpu_count() or 1) > 1 else RUNNERS[:1]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "turns"
        folder.mkdir()
        logs = [Path(place) / f"runner-{number}.log" for number in runners]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for log in logs:
                with log.open("wb") as into:
                    running.append(_begin(folder, arguments, into))
            for process, log in zip(running, logs, strict=True):
                worst = max(worst, abs(process.wait()))
                sys.stdout.buffer.write(log.read_bytes())
                sys.stdout.buffer.flush()
        finally:
            for process in running:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
