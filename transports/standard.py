"""The standard streams, taken away from everybody else in the program.

Under stdio, what goes to descriptor 1 is the protocol, and one `print` in a tool, in a C library or in a child process would be a
broken message. So the two descriptors are moved to where nobody looks: 1 then leads to stderr and 0 to the null device. What
Python has not flushed by then goes to stderr, too. It stays like that when the peer has gone, since what is printed then is no
protocol either.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

STDIN, STDOUT, STDERR = 0, 1, 2


class StandardStreams:
    """What they were: two descriptors that nobody else knows, and that no child inherits."""

    def __init__(self) -> None:
        """Take both away."""
        self.input = _moved(STDIN)
        self.output = _moved(STDOUT)
        _lead(STDIN, os.devnull, os.O_RDONLY)
        _lead_to_stderr()
        _flush(sys.stdout)
        out: Any = sys.stdout
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(line_buffering=True)  # a message for people is to be seen when it is printed

    def close(self) -> None:
        """The peer is gone, or is to see that we are. A thread that is still at it must not find another file under that number."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self.input, inheritable=False)
        os.dup2(nothing, self.output, inheritable=False)
        os.close(nothing)

    def give_back(self) -> None:
        """As before, for who knows that nobody reads the output as protocol."""
        _flush(sys.stdout)
        os.dup2(self.input, STDIN)
        os.dup2(self.output, STDOUT)
        os.close(self.input)
        os.close(self.output)


def _moved(descriptor: int) -> int:
    """Another number for what it leads to; the null device where it leads nowhere."""
    low: list[int] = []
    try:
        moved = _another(descriptor)
        while moved <= STDERR:  # a program that was started without one of them gets its number here
            low.append(moved)
            moved = _another(descriptor)
        return moved
    finally:
        for each in low:
            os.close(each)


def _another(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


def _lead(descriptor: int, path: str, flags: int) -> None:
    there = os.open(path, flags)
    if there != descriptor:  # a program that was started without it gets that very number
        os.dup2(there, descriptor)
        os.close(there)


def _lead_to_stderr() -> None:
    try:
        os.dup2(STDERR, STDOUT)
    except OSError:
        _lead(STDOUT, os.devnull, os.O_WRONLY)


def _flush(stream: Any) -> None:
    with contextlib.suppress(
        AttributeError, OSError, ValueError
    ):  # None, broken or closed: then nothing is lost that we could save
        stream.flush()
