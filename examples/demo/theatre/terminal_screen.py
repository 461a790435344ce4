"""Output of the picture: redrawn in place on a terminal, otherwise a line for each event."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Protocol, TextIO

from greenroom.supervision import draw

from .tree_picture import clipped, picture, sums, uncoloured

if TYPE_CHECKING:
    from .tree_picture import Scene


class Screen(Protocol):
    """An output for the simulation."""

    def open(self, scene: Scene) -> None:
        """The tree has started."""

    def show(self, scene: Scene) -> None:
        """Simulation how things are now."""

    def close(self, scene: Scene) -> None:
        """The simulation has ended."""


class Terminal:
    """Redraws from the upper left corner. It changes no terminal mode, so nothing has to be restored."""

    def __init__(self, out: TextIO) -> None:
        """`out` is a terminal."""
        self._out = out
        self._colours = not os.environ.get("NO_COLOR")
        self._begun = False

    def open(self, scene: Scene) -> None:
        """The picture shows the start by itself."""
        self.show(scene)

    def show(self, scene: Scene) -> None:
        """Draw over the previous picture, in one write."""
        width, height = shutil.get_terminal_size()
        lines = [clipped(line, width) for line in picture(scene)][: height - 1]
        if not self._colours:
            lines = [uncoloured(line) for line in lines]
        clear = "" if self._begun else "\n" * (height - 1)  # earlier output scrolls up and is not lost
        self._begun = True
        self._out.write(clear + "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()

    def close(self, scene: Scene) -> None:
        """Leave the last picture on the screen."""
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
        """Write new events."""
        for entry in scene.book.since(self._told):
            self._out.write(f"{entry.at:5.1f} s  {entry.text}\n")
        self._told = scene.book.told
        self._out.flush()

    def close(self, scene: Scene) -> None:
        """Write the totals."""
        self.show(scene)
        self._out.write(f"{uncoloured(sums(scene.book))}\n")
        self._out.flush()


def screen_for(out: TextIO) -> Screen:
    """The output for this stream."""
    plain = not out.isatty() or os.environ.get("TERM", "dumb") == "dumb"
    return Log(out) if plain else Terminal(out)
