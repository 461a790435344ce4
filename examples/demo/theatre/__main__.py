"""`python -m examples.demo.theatre`: the command line of the theatre demonstration."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import signal
import sys
import textwrap
from typing import TYPE_CHECKING

from .simulation import Simulation
from .terminal_screen import screen_for

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulation. Returns the exit code; an interrupt ends this program as an interrupt."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo.theatre", description=_WHAT)
    parser.add_argument("--seconds", type=_seconds, default=30.0, help="the duration (30)")
    parser.add_argument("--seed", type=int, default=None, help="the random seed")
    given = parser.parse_args(arguments)
    seed: int = random.SystemRandom().randrange(10_000) if given.seed is None else given.seed
    show = Simulation(screen_for(sys.stdout), given.seconds, seed)
    try:
        asyncio.run(show.play())
    except KeyboardInterrupt:
        # The signal is raised again with its default action, so that the parent (a shell, make) sees an interrupt and not only an exit code.
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BrokenPipeError:
        # The reader of stdout has closed the pipe. Buffered output must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _seconds(text: str) -> float:
    """A number of seconds for argparse."""
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


_WHAT = textwrap.dedent(
    """\
    A tree of workers in the terminal. They are killed at random, and their supervisors restart them.
    Ctrl-C closes it in order; a second one exits at once.
    """
)

if __name__ == "__main__":
    sys.exit(main())
