"""``greenroom serve --watch``: the server in a process of its own, which ends in order and begins anew when one of its files changes.

A file that does not even compile is told and changes nothing: the server that runs goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .door import echo, styled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EVERY: Final = 0.3
_GRACE: Final = 10.0
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages"})
_MOST: Final = 5000


def files(folder: Path) -> Mapping[Path, int]:
    """The Python files below a folder, each with when it was changed; environments and what is hidden are passed over."""
    found: dict[Path, int] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _PASSED_OVER
            and not (Path(place) / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".py") and len(found) < _MOST:
                path = Path(place) / name
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:
                    continue  # it was there a moment ago
    return found


def changed(before: Mapping[Path, int], after: Mapping[Path, int]) -> list[Path]:
    """Which have changed, came or went."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def wrong(paths: Sequence[Path]) -> str | None:
    """The first of them that is no Python, and why."""
    for path in paths:
        try:
            compile(path.read_bytes(), str(path), "exec")
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            return f"{path}: {error}"
    return None


class Renewed:
    """The process that serves."""

    def __init__(self, words: Sequence[str]) -> None:
        """It is started at once."""
        self._words = list(words)
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, stdin=subprocess.DEVNULL)  # noqa: S603 - ourselves

    def renew(self) -> None:
        """Another one in its place."""
        self.end()
        self.process = self._started()

    def end(self) -> None:
        """In order; and if that takes too long, at once."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def serve_again(words: Sequence[str], folder: Path) -> int:
    """Serve, and look at the files, until a signal comes."""

    def told(signum: int, _frame: object) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, told)
    seen = files(folder)
    served = Renewed([sys.executable, "-P", "-m", "greenroom.cli", "serve", *words])
    ended = False
    try:
        while True:
            time.sleep(_EVERY)
            now = files(folder)
            if different := changed(seen, now):
                seen = now
                broken = wrong(different)
                if broken is not None:
                    echo(styled(f"greenroom: {broken}: the server goes on as it was", "bad"), error=True)
                    continue
                echo(
                    styled(
                        f"greenroom: {', '.join(path.name for path in different[:3])} changed: beginning anew", "dim"
                    ),
                    error=True,
                )
                served.renew()
                ended = False
            elif not ended and served.process.poll() is not None:
                ended = True
                echo(
                    styled(
                        f"greenroom: the server has ended with {served.process.returncode}: it begins anew when a file changes",
                        "bad",
                    ),
                    error=True,
                )
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
        served.end()
