"""The testing kit: virtual time, a seeded order of delivery, probes, supervised processes, faults, histories, a leak check.

For the tests of any project, not only greenroom's: nothing in here needs pytest or Hypothesis to be installed. The pytest
plugin (`greenroom.pytest_plugin`) is made of these parts.
"""

from __future__ import annotations

from .faults import FaultKind, InjectedFault, Moment, fault_kind, fault_kinds
from .histories import CallRecord, Finding, History, Occurrence, assert_clean, check
from .injection import FaultInjected, FaultMissed, Injection, inject
from .leaks import LeakError, no_leaks
from .plans import Fault, FaultPlan
from .probes import Asked, Called, Probe, ProbeCrash, Received, Told
from .recorder import Collected, Recorder, record
from .replay import Played, play, shrink, shrink_async
from .replay import main as command_line
from .seeds import Seed
from .stage import Stage, run
from .strategies import fault_plans, seeds
from .supervised import kill, own_supervisor, restart_of, start_supervised, stop_supervised
from .virtual_time import Deadlock, Endless, VirtualLoop, advance

__all__ = [
    "Asked",
    "CallRecord",
    "Called",
    "Collected",
    "Deadlock",
    "Endless",
    "Fault",
    "FaultInjected",
    "FaultKind",
    "FaultMissed",
    "FaultPlan",
    "Finding",
    "History",
    "InjectedFault",
    "Injection",
    "LeakError",
    "Moment",
    "Occurrence",
    "Played",
    "Probe",
    "ProbeCrash",
    "Received",
    "Recorder",
    "Seed",
    "Stage",
    "Told",
    "VirtualLoop",
    "advance",
    "assert_clean",
    "check",
    "command_line",
    "fault_kind",
    "fault_kinds",
    "fault_plans",
    "inject",
    "kill",
    "no_leaks",
    "own_supervisor",
    "play",
    "record",
    "restart_of",
    "run",
    "seeds",
    "shrink",
    "shrink_async",
    "start_supervised",
    "stop_supervised",
]
