"""Where the picture goes: redrawn in place on a terminal, a line for each event anywhere else."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Protocol, TextIO

from greenroom.supervision import draw

from .tree_picture import clipped, picture, sums, uncoloured

if TYPE_CHECKING:
    from .tree_picture import Scene


class Screen(Protocol):
    """Something to show the company on."""

    def open(self, scene: Scene) -> None:
        """The house is open."""

    def show(self, scene: Scene) -> None:
        """Show how things are now."""

    def close(self, scene: Scene) -> None:
        """It is over."""


class Terminal:
    """Redraws from the upper left corner. It changes no mode of the terminal, so there is nothing to put back."""

    def __init__(self, out: TextIO) -> None:
        """`out` is a terminal."""
        self._out = out
        self._colours = not os.environ.get("NO_COLOR")
        self._begun = False

    def open(self, scene: Scene) -> None:
        """It shows in the picture."""
        self.show(scene)

    def show(self, scene: Scene) -> None:
        """Draw over what was drawn before, in one write."""
        width, height = shutil.get_terminal_size()
        lines = [clipped(line, width) for line in picture(scene)][: height - 1]
        if not self._colours:
            lines = [uncoloured(line) for line in lines]
        clear = "" if self._begun else "\n" * (height - 1)  # what was there scrolls away, and is not lost
        self._begun = True
        self._out.write(clear + "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()

    def close(self, scene: Scene) -> None:
        """Leave the last picture standing."""
        self.show(scene)


class Log:
    """Writes each event once, as plain text."""

    def __init__(self, out: TextIO) -> None:
        """`out` is a file or a pipe."""
        self._out = out
        self._told = 0

    def open(self, scene: Scene) -> None:
        """Draw the tree, once."""
        assert scene.house is not None
        self._out.write(f"seed {scene.seed}, {scene.seconds:g} s\n{draw(scene.house)}\n")
        self._out.flush()

    def show(self, scene: Scene) -> None:
        """Write what was not written yet."""
        for entry in scene.book.since(self._told):
            self._out.write(f"{entry.at:5.1f} s  {entry.text}\n")
        self._told = scene.book.told
        self._out.flush()

    def close(self, scene: Scene) -> None:
        """Add it up."""
        self.show(scene)
        self._out.write(f"{uncoloured(sums(scene.book))}\n")
        self._out.flush()


def screen_for(out: TextIO) -> Screen:
    """What suits this stream."""
    plain = not out.isatty() or os.environ.get("TERM", "dumb") == "dumb"
    return Log(out) if plain else Terminal(out)
