"""A running program, seen: its events, metrics, traces, and the listener that shows them.

`subscribe` delivers events to a listener of the program's own; the rest of the package are listeners that this project ships. Nothing here is loaded before it
is used, and each third party is imported by the one module that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy_names import load_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.event_types import EVENT_TYPES as EVENT_TYPES
    from greenroom.event_types import ActDone as ActDone
    from greenroom.event_types import BreakerChanged as BreakerChanged
    from greenroom.event_types import CallEnded as CallEnded
    from greenroom.event_types import CallStarted as CallStarted
    from greenroom.event_types import CallStep as CallStep
    from greenroom.event_types import ChildEnded as ChildEnded
    from greenroom.event_types import ChildStarted as ChildStarted
    from greenroom.event_types import Event as Event
    from greenroom.event_types import FramePassed as FramePassed
    from greenroom.event_types import LoopBlocked as LoopBlocked
    from greenroom.event_types import LoopLagged as LoopLagged
    from greenroom.event_types import PoolWorkerEnded as PoolWorkerEnded
    from greenroom.event_types import PoolWorkerStarted as PoolWorkerStarted
    from greenroom.event_types import ProcessCrashed as ProcessCrashed
    from greenroom.event_types import ProcessLeaked as ProcessLeaked
    from greenroom.event_types import QuestionAsked as QuestionAsked
    from greenroom.event_types import QuestionEnded as QuestionEnded
    from greenroom.event_types import RequestRefused as RequestRefused
    from greenroom.event_types import ServerWrote as ServerWrote
    from greenroom.event_types import SessionClosed as SessionClosed
    from greenroom.event_types import SessionOpened as SessionOpened
    from greenroom.event_types import SignInEnded as SignInEnded
    from greenroom.event_types import StreamClosed as StreamClosed
    from greenroom.event_types import StreamOpened as StreamOpened
    from greenroom.event_types import SupervisorGaveUp as SupervisorGaveUp
    from greenroom.event_types import TaskCreated as TaskCreated
    from greenroom.event_types import TaskEnded as TaskEnded
    from greenroom.event_types import UpstreamChanged as UpstreamChanged

    from .admin_listener import new_links as new_links
    from .admin_settings import Admin as Admin
    from .audit_log import AuditLog as AuditLog
    from .open_telemetry import OpenTelemetry as OpenTelemetry
    from .prometheus_metrics import PrometheusMetrics as PrometheusMetrics
    from .prometheus_metrics import WorkerMetrics as WorkerMetrics

# Each module, and the names that the package exports from it: `python -m tests.house --write` makes the table from the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.event_types": "ActDone BreakerChanged CallEnded CallStarted CallStep ChildEnded "
    "ChildStarted EVENT_TYPES Event FramePassed LoopBlocked LoopLagged "
    "PoolWorkerEnded PoolWorkerStarted ProcessCrashed ProcessLeaked "
    "QuestionAsked QuestionEnded RequestRefused ServerWrote SessionClosed "
    "SessionOpened SignInEnded StreamClosed StreamOpened SupervisorGaveUp "
    "TaskCreated TaskEnded UpstreamChanged",
    "greenroom.observe.admin_listener": "new_links",
    "greenroom.observe.admin_settings": "Admin",
    "greenroom.observe.audit_log": "AuditLog",
    "greenroom.observe.open_telemetry": "OpenTelemetry",
    "greenroom.observe.prometheus_metrics": "PrometheusMetrics WorkerMetrics",
}

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name
    __all__ = [*" ".join(_HOMES.values()).split(), "subscribe"]  # noqa: PLE0604 - the table says which

    def __getattr__(name: str) -> object:
        """Load a name when it is first used: most of them need a third party."""
        return load_name(__name__, _HOMES, name)


def subscribe(listener: Callable[[Event], object], *, details: bool = False) -> Callable[[], None]:
    """Call `listener` with each event of this program from now on, until the returned function is called.

    With `details` it hears `CallStep`, `FramePassed` and `ServerWrote` as well. It is called where the event happens, in that thread and in the middle of the
    work that it is about: it has to be quick and must not wait. Its errors are logged and affect nothing.
    """
    from greenroom.supervision.event_bus import bus  # noqa: PLC0415 - events alone need no processes

    return bus.subscribe(listener, details=details)
