"""The testing kit: virtual time, a seeded order of delivery, probes, supervised processes, faults, histories, a leak check.

For the tests of any project, not only greenroom's: nothing in here needs pytest or Hypothesis to be installed. The pytest
plugin (`greenroom.pytest_plugin`) is made of these parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.lazy import passed_on

from .faults import FaultKind as FaultKind
from .faults import InjectedFault as InjectedFault
from .faults import Moment as Moment
from .faults import fault_kind as fault_kind
from .faults import fault_kinds as fault_kinds
from .histories import CallRecord as CallRecord
from .histories import Finding as Finding
from .histories import History as History
from .histories import Occurrence as Occurrence
from .histories import assert_clean as assert_clean
from .histories import check as check
from .injection import FaultInjected as FaultInjected
from .injection import FaultMissed as FaultMissed
from .injection import Injection as Injection
from .injection import inject as inject
from .leaks import LeakError as LeakError
from .leaks import no_leaks as no_leaks
from .plans import Fault as Fault
from .plans import FaultPlan as FaultPlan
from .probes import Asked as Asked
from .probes import Called as Called
from .probes import Probe as Probe
from .probes import ProbeCrash as ProbeCrash
from .probes import Received as Received
from .probes import Told as Told
from .recorder import Collected as Collected
from .recorder import Recorder as Recorder
from .recorder import record as record
from .replay import Played as Played
from .replay import command_line as command_line
from .replay import play as play
from .replay import shrink as shrink
from .replay import shrink_async as shrink_async
from .seeds import Seed as Seed
from .stage import Stage as Stage
from .stage import run as run
from .strategies import fault_plans as fault_plans
from .strategies import seeds as seeds
from .supervised import kill as kill
from .supervised import own_supervisor as own_supervisor
from .supervised import restart_of as restart_of
from .supervised import start_supervised as start_supervised
from .supervised import stop_supervised as stop_supervised
from .virtual_time import Deadlock as Deadlock
from .virtual_time import Endless as Endless
from .virtual_time import VirtualLoop as VirtualLoop
from .virtual_time import advance as advance

if not TYPE_CHECKING:  # a checker takes all that is imported here
    __all__ = passed_on(__name__)  # noqa: PLE0605
