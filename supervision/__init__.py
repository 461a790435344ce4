"""OTP's processes, behaviours and supervisors, in one event loop.

It is independent of MCP. All public names are exported here, except those of `greenroom.supervision.statem` and of the
tools for tests in `greenroom.supervision.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.errors import GreenroomError as GreenroomError
from greenroom.lazy_names import exported_names

from . import logs as logs
from . import report_events as report_events
from .background_node import BackgroundNode as BackgroundNode
from .behaviours.gen_server import BadReturn as BadReturn
from .behaviours.gen_server import GenServer as GenServer
from .behaviours.process_start import Options as Options
from .behaviours.process_start import acknowledge as acknowledge
from .behaviours.process_start import become as become
from .behaviours.process_start import start as start
from .behaviours.process_start import start_link as start_link
from .behaviours.process_start import start_monitor as start_monitor
from .behaviours.process_start import start_routine as start_routine
from .behaviours.process_start import start_routine_link as start_routine_link
from .behaviours.refs import MultiCallResult as MultiCallResult
from .behaviours.refs import Ref as Ref
from .behaviours.refs import Request as Request
from .behaviours.refs import Requests as Requests
from .behaviours.refs import abcast as abcast
from .behaviours.refs import ask_later as ask_later
from .behaviours.refs import multi_call as multi_call
from .behaviours.refs import request as request
from .behaviours.refs import stop as stop
from .behaviours.replies import IGNORE as IGNORE
from .behaviours.replies import Caller as Caller
from .behaviours.replies import Continue as Continue
from .behaviours.replies import EventTimeout as EventTimeout
from .behaviours.replies import Ignore as Ignore
from .behaviours.replies import NoReply as NoReply
from .behaviours.replies import Reject as Reject
from .behaviours.replies import Reply as Reply
from .behaviours.replies import Stop as Stop
from .behaviours.replies import later as later
from .behaviours.replies import replying as replying
from .behaviours.replies import stopping as stopping
from .behaviours.task import Completed as Completed
from .behaviours.task import Exited as Exited
from .behaviours.task import Inbox as Inbox
from .behaviours.task import Outcome as Outcome
from .behaviours.task import Task as Task
from .behaviours.task import callers as callers
from .behaviours.task import inbox as inbox
from .behaviours.task import receive as receive
from .behaviours.task import spawn as spawn
from .behaviours.task import spawn_link as spawn_link
from .behaviours.task import spawn_monitor as spawn_monitor
from .behaviours.task import start_task as start_task
from .behaviours.task import start_task_alone as start_task_alone
from .behaviours.task import start_thread_task as start_thread_task
from .behaviours.task import stream as stream
from .behaviours.task import wait_all as wait_all
from .behaviours.threads import Threads as Threads
from .behaviours.threads import in_thread as in_thread
from .groups import Groups as Groups
from .introspect import Snapshot as Snapshot
from .introspect import Statistics as Statistics
from .introspect import Trace as Trace
from .introspect import Watch as Watch
from .introspect import snapshot as snapshot
from .introspect import watch as watch
from .kernel import clock as clock
from .kernel import safe_repr as safe_repr
from .kernel import tracebacks as tracebacks
from .kernel import visible_text as visible_text
from .kernel.api import Timer as Timer
from .kernel.api import demonitor as demonitor
from .kernel.api import exit as exit
from .kernel.api import is_alive as is_alive
from .kernel.api import kill as kill
from .kernel.api import link as link
from .kernel.api import monitor as monitor
from .kernel.api import send as send
from .kernel.api import send_after as send_after
from .kernel.api import trap_exit as trap_exit
from .kernel.api import unlink as unlink
from .kernel.api import wait_down as wait_down
from .kernel.clock import DirectWakeup as DirectWakeup
from .kernel.clock import Wakeup as Wakeup
from .kernel.errors import ActorError as ActorError
from .kernel.errors import AlreadyRegistered as AlreadyRegistered
from .kernel.errors import CallCycle as CallCycle
from .kernel.errors import CallTimeout as CallTimeout
from .kernel.errors import InternalError as InternalError
from .kernel.errors import MailboxFull as MailboxFull
from .kernel.errors import NoNode as NoNode
from .kernel.errors import NotAnActor as NotAnActor
from .kernel.errors import NotRegistered as NotRegistered
from .kernel.errors import ProcessExited as ProcessExited
from .kernel.errors import Quit as Quit
from .kernel.errors import StartFailed as StartFailed
from .kernel.errors import StartIgnored as StartIgnored
from .kernel.errors import StartTimeout as StartTimeout
from .kernel.links import Monitor as Monitor
from .kernel.node import ExitFuture as ExitFuture
from .kernel.node import Node as Node
from .kernel.node import run as run
from .kernel.process import Process as Process
from .kernel.process_lookup import On as On
from .kernel.process_lookup import Via as Via
from .kernel.process_lookup import current_node as current_node
from .kernel.process_lookup import current_process as current_process
from .kernel.process_lookup import detached_task as detached_task
from .kernel.process_lookup import node_of as node_of
from .kernel.process_lookup import register as register
from .kernel.process_lookup import registered as registered
from .kernel.process_lookup import running_process as running_process
from .kernel.process_lookup import self_pid as self_pid
from .kernel.process_lookup import unregister as unregister
from .kernel.process_lookup import whereis as whereis
from .kernel.process_messages import KILLED as KILLED
from .kernel.process_messages import NO_CONNECTION as NO_CONNECTION
from .kernel.process_messages import NO_PROCESS as NO_PROCESS
from .kernel.process_messages import NORMAL as NORMAL
from .kernel.process_messages import SHUTDOWN as SHUTDOWN
from .kernel.process_messages import Crash as Crash
from .kernel.process_messages import Down as Down
from .kernel.process_messages import Exit as Exit
from .kernel.process_messages import ExitReason as ExitReason
from .kernel.process_messages import Killed as Killed
from .kernel.process_messages import NoConnection as NoConnection
from .kernel.process_messages import NoProcess as NoProcess
from .kernel.process_messages import Normal as Normal
from .kernel.process_messages import Pid as Pid
from .kernel.process_messages import Shutdown as Shutdown
from .kernel.process_messages import Timeout as Timeout
from .kernel.process_messages import is_orderly as is_orderly
from .kernel.reports import CrashReport as CrashReport
from .kernel.reports import Leaked as Leaked
from .kernel.reports import LoopBlocked as LoopBlocked
from .kernel.reports import Report as Report
from .kernel.reports import Unexpected as Unexpected
from .kernel.visible_text import visible as visible
from .limiters import Busy as Busy
from .limiters import RateLimiter as RateLimiter
from .limiters import Semaphore as Semaphore
from .limiters import permit as permit
from .registry import Registry as Registry
from .registry import via as via
from .supervisors.child_spec import ALL_SIGNIFICANT as ALL_SIGNIFICANT
from .supervisors.child_spec import ANY_SIGNIFICANT as ANY_SIGNIFICANT
from .supervisors.child_spec import BRUTAL_KILL as BRUTAL_KILL
from .supervisors.child_spec import INFINITY as INFINITY
from .supervisors.child_spec import NEVER as NEVER
from .supervisors.child_spec import ONE_FOR_ALL as ONE_FOR_ALL
from .supervisors.child_spec import ONE_FOR_ONE as ONE_FOR_ONE
from .supervisors.child_spec import PERMANENT as PERMANENT
from .supervisors.child_spec import REST_FOR_ONE as REST_FOR_ONE
from .supervisors.child_spec import SUPERVISOR as SUPERVISOR
from .supervisors.child_spec import TEMPORARY as TEMPORARY
from .supervisors.child_spec import TRANSIENT as TRANSIENT
from .supervisors.child_spec import WORKER as WORKER
from .supervisors.child_spec import AlreadyPresent as AlreadyPresent
from .supervisors.child_spec import AlreadyStarted as AlreadyStarted
from .supervisors.child_spec import AutoShutdown as AutoShutdown
from .supervisors.child_spec import Backoff as Backoff
from .supervisors.child_spec import BadSpec as BadSpec
from .supervisors.child_spec import ChildNotFound as ChildNotFound
from .supervisors.child_spec import ChildRestarting as ChildRestarting
from .supervisors.child_spec import ChildRunning as ChildRunning
from .supervisors.child_spec import ChildSpec as ChildSpec
from .supervisors.child_spec import Flags as Flags
from .supervisors.child_spec import MaxChildren as MaxChildren
from .supervisors.child_spec import Patience as Patience
from .supervisors.child_spec import Restart as Restart
from .supervisors.child_spec import StartLink as StartLink
from .supervisors.child_spec import StartRaised as StartRaised
from .supervisors.child_spec import Strategy as Strategy
from .supervisors.child_spec import check_children as check_children
from .supervisors.child_spec import child as child
from .supervisors.child_spec import template as template
from .supervisors.dynamic_supervisor import DynamicSupervisor as DynamicSupervisor
from .supervisors.partition_supervisor import Partition as Partition
from .supervisors.partition_supervisor import PartitionSupervisor as PartitionSupervisor
from .supervisors.partition_supervisor import count_partitions as count_partitions
from .supervisors.partition_supervisor import partition as partition
from .supervisors.supervision_tree import Branch as Branch
from .supervisors.supervision_tree import count_children as count_children
from .supervisors.supervision_tree import delete_child as delete_child
from .supervisors.supervision_tree import draw as draw
from .supervisors.supervision_tree import get_childspec as get_childspec
from .supervisors.supervision_tree import resize_partitions as resize_partitions
from .supervisors.supervision_tree import restart_child as restart_child
from .supervisors.supervision_tree import start_child as start_child
from .supervisors.supervision_tree import terminate_child as terminate_child
from .supervisors.supervision_tree import tree as tree
from .supervisors.supervision_tree import which_child as which_child
from .supervisors.supervision_tree import which_children as which_children
from .supervisors.supervisor import FailedToStartChild as FailedToStartChild
from .supervisors.supervisor import Supervisor as Supervisor
from .supervisors.supervisor_base import GAVE_UP as GAVE_UP
from .supervisors.supervisor_base import ChildInfo as ChildInfo
from .supervisors.supervisor_base import Counts as Counts
from .supervisors.supervisor_base import RestartWindow as RestartWindow
from .supervisors.supervisor_reports import ChildTerminated as ChildTerminated
from .supervisors.supervisor_reports import Offender as Offender
from .supervisors.supervisor_reports import ProgressReport as ProgressReport
from .supervisors.supervisor_reports import ReachedMaxRestartIntensity as ReachedMaxRestartIntensity
from .supervisors.supervisor_reports import ShutdownError as ShutdownError
from .supervisors.supervisor_reports import StartError as StartError
from .supervisors.supervisor_reports import SupervisorReport as SupervisorReport
from .task_supervisor import TaskSupervisor as TaskSupervisor
from .task_supervisor import supervise_job as supervise_job
from .task_supervisor import supervise_task as supervise_task
from .task_supervisor import supervise_task_alone as supervise_task_alone

__all__ = exported_names(__name__, "logs")  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - what is imported here


if not TYPE_CHECKING:  # type checkers that saw this function would accept all names

    def __getattr__(name: str) -> object:
        """Load a name that had another one in the version before."""
        from greenroom.moved import moved_name  # noqa: PLC0415 - only needed for names that have moved

        return moved_name(__name__, name)
