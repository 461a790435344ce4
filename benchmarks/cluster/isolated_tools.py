"""The tools of the isolation benchmark: plain functions at the top of a module, which any process can import."""

from __future__ import annotations

import os
import time


def echo(text: str) -> str:
    """Echo the argument."""
    return text


async def echo_in_loop(text: str) -> str:
    """The same, in the loop."""
    return text


def compute(rounds: int) -> int:
    """Keep a CPU busy: about ten milliseconds for 200,000 rounds."""
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def stay(seconds: float) -> int:
    """The id of the process, after a while."""
    time.sleep(seconds)
    return os.getpid()
