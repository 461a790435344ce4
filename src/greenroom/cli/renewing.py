"""``greenroom serve --watch``: the server in a process of its own, which ends in order and begins anew when one of its files changes.

A file that does not even compile is told and changes nothing: the server that runs goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from .door import echo, styled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

_EVERY: Final = 0.3
_GRACE: Final = 10.0
"""Seconds that the server may take to stop, and as many beyond its own grace where that is set."""
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

    def __init__(self, words: Sequence[str], process: Process, grace: float = 0.0) -> None:
        """Made by `started`."""
        self._words = words
        self.process = process
        self._grace = grace

    @classmethod
    async def started(cls, words: Sequence[str], grace: float = 0.0) -> Renewed:
        """Start it, with the terminal for what it says. `grace` is what it takes to stop itself."""
        return cls(words, await _started(words), grace)

    async def renew(self) -> None:
        """End it, and start another one in its place."""
        await self.end()
        self.process = await _started(self._words)

    async def end(self) -> None:
        """In order; and if that takes too long, at once. Not to be cancelled."""
        with anyio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.terminate()
                with anyio.move_on_after(self._grace + _GRACE):
                    await self.process.wait()
                if self.process.returncode is None:
                    self.process.kill()
            await self.process.wait()


async def _started(words: Sequence[str]) -> Process:
    return await anyio.open_process(words, stdin=subprocess.DEVNULL, stdout=None, stderr=None)


def serve_again(words: Sequence[str], folder: Path, grace: float = 0.0) -> int:
    """Serve, and look at the files, until a signal comes."""
    return anyio.run(_until_told, words, folder, grace)


async def _until_told(words: Sequence[str], folder: Path, grace: float) -> int:
    """Ctrl-C, SIGTERM, or the SIGHUP of a terminal that closes, ends the server in order. One that was ignored (nohup) still is."""
    wanted = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
    heard = [each for each in wanted if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(
        *heard
    ) as signals:  # open until the server has ended: a second signal changes nothing
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve, words, folder, grace)
            await anext(aiter(signals))
            tasks.cancel_scope.cancel()
    return 0  # as the server itself does when it is told to stop


async def _serve(words: Sequence[str], folder: Path, grace: float) -> None:
    seen = files(folder)
    served = await Renewed.started([sys.executable, "-P", "-m", "greenroom.cli", "serve", *words], grace)
    ended = False
    try:
        while True:
            await anyio.sleep(_EVERY)
            now = await anyio.to_thread.run_sync(files, folder)
            if different := changed(seen, now):
                seen = now
                broken = wrong(different)
                if broken is not None:
                    echo(styled(f"greenroom: {broken}: the server goes on as it was", "bad"), error=True)
                    continue
                names = ", ".join(path.name for path in different[:3])
                echo(styled(f"greenroom: {names} changed: beginning anew", "dim"), error=True)
                await served.renew()
                ended = False
            elif not ended and served.process.returncode is not None:
                ended = True
                code = served.process.returncode
                echo(
                    styled(f"greenroom: the server has ended with {code}: it begins anew when a file changes", "bad"),
                    error=True,
                )
    finally:
        await served.end()
