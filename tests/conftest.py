"""What all tests share: where the repository is, how examples are searched for, and that Ctrl-C means something."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A slow machine is no failure, and a failure prints what replays it; pytest-randomly prints the seed of the order.
settings.register_profile("greenroom", deadline=None, print_blob=True)
settings.load_profile("greenroom")

# A suite that runs in the background of a script has SIGINT ignored, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository, which tests look at and never write to."""
    return Path(__file__).parents[1]
