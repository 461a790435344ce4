"""`python -m tests.halves`: the whole suite with coverage, in two halves that run side by side where there are two processors.

Which half a file of tests belongs to depends on its name alone, so a failure is found again by running that file. What a half has printed is
shown when it has ended, whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final
from zlib import crc32

HALVES: Final = (1, 2)


def half_of(path: str) -> int:
    """Which half a file belongs to, by its path from the repository's root."""
    return HALVES[crc32(path.encode()) % len(HALVES)]


def _begin(half: int, arguments: list[str], into: IO[bytes]) -> subprocess.Popen[bytes]:
    beside = Path(sys.executable).parent
    command = [str(beside / "coverage"), "run", str(beside / "pytest"), f"--half={half}", *arguments]
    return subprocess.Popen(command, stdout=into, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Returns the exit code of the half that went worse."""
    worst = 0
    together = (os.cpu_count() or 1) > 1
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"half-{half}.log" for half in HALVES]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for half, log in zip(HALVES, logs, strict=True):
                with log.open("wb") as into:
                    running.append(_begin(half, arguments, into))
                if not together:
                    running[-1].wait()
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
