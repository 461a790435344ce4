"""The testing kit: virtual time, a seeded order of delivery, probes, supervised fixtures and a leak check.

For everybody's tests, not only for greenroom's: nothing in here needs pytest or Hypothesis to be installed. The pytest
plugin (`greenroom.pytest_plugin`) is made of these parts.
"""

from __future__ import annotations

from .stage import run
from .virtual_time import Deadlock, Endless, VirtualLoop, advance

__all__ = ["Deadlock", "Endless", "VirtualLoop", "advance", "run"]
