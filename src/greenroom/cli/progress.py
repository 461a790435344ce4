"""A bar on stderr for a call that takes its time; only where somebody sees it, and gone before anything else is written."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from .spelling import visible

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

_WIDTH: Final = 30
_LONGEST: Final = 200


class Progress:
    """One line that is written over and over."""

    def __init__(self) -> None:
        """Nothing is shown before the first step."""
        self._shown = sys.stderr.isatty()
        self._written = False
        self._aside = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()

    def step(self, step: Any) -> None:
        """How far it is."""
        if not self._shown or self._aside:
            return
        line = f"{bar(step.progress, step.total)} {visible(str(step.message or ''), _LONGEST)}".rstrip()
        line = line[: shutil.get_terminal_size((80, 24)).columns - 1]  # of a second row nothing would be taken away
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._written = True

    @contextmanager
    def aside(self) -> Generator[None]:
        """Somebody else has the screen: it is taken away, and does not come back before they are done."""
        self.pause()
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1

    def pause(self) -> None:
        """Take it away."""
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False


def bar(done: float, total: float | None) -> str:
    """`███░░░  50 %`, or how much where nobody knows of how much."""
    if not total or total <= 0:
        return f"… {done:g}"
    share = max(0.0, min(1.0, done / total))
    full = round(share * _WIDTH)
    return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}"
