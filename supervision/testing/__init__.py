"""The testing kit: virtual time, seeded delivery order, probes, supervised processes, fault injection, histories and a leak check.

It serves the tests of any project and needs neither pytest nor Hypothesis. The pytest plugin (`greenroom.pytest_plugin`) is built on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.lazy_names import exported_names

from .delivery_seeds import Seed as Seed
from .fault_actions import FaultContext as FaultContext
from .fault_actions import FaultKind as FaultKind
from .fault_actions import InjectedFault as InjectedFault
from .fault_actions import fault_kind as fault_kind
from .fault_actions import fault_kinds as fault_kinds
from .fault_injection import FaultInjected as FaultInjected
from .fault_injection import FaultMissed as FaultMissed
from .fault_injection import Injection as Injection
from .fault_injection import inject as inject
from .fault_plan import Fault as Fault
from .fault_plan import FaultPlan as FaultPlan
from .histories import CallRecord as CallRecord
from .histories import History as History
from .histories import HistoryEvent as HistoryEvent
from .histories import HistoryViolation as HistoryViolation
from .histories import assert_clean as assert_clean
from .histories import check as check
from .history_recorder import CollectedReports as CollectedReports
from .history_recorder import Recorder as Recorder
from .history_recorder import record as record
from .hypothesis_strategies import fault_plans as fault_plans
from .hypothesis_strategies import seeds as seeds
from .isolated_run import IsolatedRun as IsolatedRun
from .isolated_run import run as run
from .leak_check import LeakError as LeakError
from .leak_check import no_leaks as no_leaks
from .mailbox_probe import Probe as Probe
from .mailbox_probe import ProbeCrash as ProbeCrash
from .mailbox_probe import ReceivedAsk as ReceivedAsk
from .mailbox_probe import ReceivedCall as ReceivedCall
from .mailbox_probe import ReceivedMessage as ReceivedMessage
from .mailbox_probe import ReceivedTell as ReceivedTell
from .scenario_replay import ReplayResult as ReplayResult
from .scenario_replay import command_line as command_line
from .scenario_replay import play as play
from .scenario_replay import shrink as shrink
from .scenario_replay import shrink_async as shrink_async
from .supervised_processes import kill as kill
from .supervised_processes import own_supervisor as own_supervisor
from .supervised_processes import restart_of as restart_of
from .supervised_processes import start_supervised as start_supervised
from .supervised_processes import stop_supervised as stop_supervised
from .virtual_time import Deadlock as Deadlock
from .virtual_time import Livelock as Livelock
from .virtual_time import VirtualLoop as VirtualLoop
from .virtual_time import advance as advance

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = exported_names(__name__)  # noqa: PLE0605
