"""A bar on stderr for a call that takes its time; only where somebody sees it, and gone before anything else is written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

_WIDTH: Final = 30


class Progress:
    """One line that is written over and over."""

    def __init__(self) -> None:
        """Nothing is shown before the first step."""
        self._shown = sys.stderr.isatty()
        self._written = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()

    def step(self, step: Any) -> None:
        """How far it is."""
        if not self._shown:
            return
        message = f" {step.message}" if step.message else ""
        sys.stderr.write(f"\r\x1b[K{bar(step.progress, step.total)}{' '.join(message.split())[:200]}")
        sys.stderr.flush()
        self._written = True

    def pause(self) -> None:
        """Take it away."""
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False


def bar(done: float, total: float | None) -> str:
    """`███░░░  50 %`, or how much where nobody knows of how much."""
    if not total or total <= 0:
        return f"… {done:g} "
    share = max(0.0, min(1.0, done / total))
    full = round(share * _WIDTH)
    return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%} "
