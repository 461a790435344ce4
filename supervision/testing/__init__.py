"""The testing kit: virtual time, a seeded order of delivery, probes, supervised processes and a leak check.

For everybody's tests, not only for greenroom's: nothing in here needs pytest or Hypothesis to be installed. The pytest
plugin (`greenroom.pytest_plugin`) is made of these parts.
"""

from __future__ import annotations

from .collected import Collected
from .leaks import LeakError, no_leaks
from .probes import Asked, Called, Probe, ProbeCrash, Received, Told
from .seeds import Seed, seeds
from .stage import Stage, run
from .supervised import kill, own_supervisor, restart_of, start_supervised, stop_supervised
from .virtual_time import Deadlock, Endless, VirtualLoop, advance

__all__ = [
    "Asked",
    "Called",
    "Collected",
    "Deadlock",
    "Endless",
    "LeakError",
    "Probe",
    "ProbeCrash",
    "Received",
    "Seed",
    "Stage",
    "Told",
    "VirtualLoop",
    "advance",
    "kill",
    "no_leaks",
    "own_supervisor",
    "restart_of",
    "run",
    "seeds",
    "start_supervised",
    "stop_supervised",
]
