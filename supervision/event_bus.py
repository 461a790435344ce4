"""The bus of a program's events: code that does something emits, and any number of listeners hear it.

There is one bus in a program, whatever number of nodes runs there; `greenroom.event_types` lists what is emitted. Emitters check for a listener first::

    if bus.listener is not None:
        bus.listener(CallEnded(…))

so that without listeners an event costs one comparison, and is not made at all.
"""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from .kernel.tracebacks import log_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.event_types import Event

    Listener: TypeAlias = Callable[[Event], object]

_log: Final = logging.getLogger("greenroom.supervision")


class CallTracer(Protocol):
    """Follows calls from one program to the next. `call` is the number in the events of the call. No method raises."""

    @property
    def home(self) -> str:
        """The module whose `enter_carried(carried)` does the same as `enter` in another process of the operating system, with what `carrier` returned here."""
        ...

    @property
    def fields(self) -> Sequence[str]:
        """The keys that a carrier may have."""
        ...

    @property
    def is_of_environment(self) -> bool:
        """Whether each worker process of the program has one of its own, which `WorkerTelemetry(name)` of `home` makes."""
        ...

    def enter(self, call: int) -> None:
        """Make the call the current one, in the context of the code that runs for it, unless that is within a span of its own."""
        ...

    def carrier(self, call: int) -> Mapping[str, str]:
        """What a request or a job carries to the next program: `traceparent`, `tracestate`, `baggage`. Empty for a call without a trace.

        For 0 it is the trace of the code that runs now.
        """
        ...

    def ids_of(self, call: int) -> tuple[str, str] | None:
        """The ids of the trace and the span of a call that has not ended, in hexadecimal digits, for logs. For 0 those of the code that runs now."""
        ...


class EventBus:
    """The bus. `listener` and `detail_listener` are None while there is no subscription for them."""

    __slots__ = ("_lock", "_subscriptions", "detail_listener", "listener", "tracer")

    def __init__(self) -> None:
        self.listener: Listener | None = None
        """Takes every event, but the details."""
        self.detail_listener: Listener | None = None
        """Takes the details: each step of a call, each message of the protocol, and each line that a server's command writes."""
        self.tracer: CallTracer | None = None
        self._subscriptions: tuple[tuple[Listener, bool], ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, listener: Listener, *, details: bool = False) -> Callable[[], None]:
        """Call `listener` with each event from now on, with `details` also with `CallStep`, `FramePassed` and `ServerWrote`. The returned function unsubscribes.

        It is called where the event happens, in the thread and often in the middle of the work that it is about: it has to be quick, it must not wait, and must
        be ready for several threads where several nodes run. An error of it is logged and affects nothing.
        """
        subscription = (listener, details)
        self._set(lambda present: (*present, subscription))

        def unsubscribe() -> None:
            self._set(lambda present: tuple(each for each in present if each is not subscription))

        return unsubscribe

    def _set(self, change: Callable[[Any], tuple[tuple[Listener, bool], ...]]) -> None:
        with self._lock:
            self._subscriptions = change(self._subscriptions)
            self.listener = _combined([listener for listener, _ in self._subscriptions])
            self.detail_listener = _combined([listener for listener, details in self._subscriptions if details])


def _combined(listeners: list[Listener]) -> Listener | None:
    if not listeners:
        return None
    fixed = tuple(listeners)

    def emit(event: Event) -> None:
        for listener in fixed:
            try:
                listener(event)
            except (Exception, CancelledError):  # noqa: BLE001 - it is logged, and must not affect the code that emits, which a cancellation would end
                log_error(_log, "a listener of events raised on %r", type(event).__name__)

    return emit


bus: Final = EventBus()
"""The bus of this program."""

TRACE_FIELDS: Final = ("traceparent", "tracestate", "baggage")
"""The keys of a trace context in `params._meta` and in the headers of HTTP (W3C Trace Context and Baggage)."""
_LONGEST_FIELD: Final = 8192
"""The longest value, of baggage; a longer one is left out, so that a peer decides little about what this program keeps and sends on."""


def trace_context(carrier: Mapping[str, Any]) -> dict[str, str] | None:
    """The trace context in the `_meta` of a request, or among its headers in small letters; None where there is none."""
    found: dict[str, str] = {}
    for field in TRACE_FIELDS if bus.tracer is None else bus.tracer.fields:
        value = carrier.get(field)
        if type(value) is str and len(value) <= _LONGEST_FIELD:
            found[field] = value
    return found or None


def continue_trace(home: str, carried: Mapping[str, str]) -> None:
    """Continue a call's trace in another process of the operating system: `home` and `carried` are of the tracer in the call's own."""
    try:
        import_module(home).enter_carried(carried)
    except Exception:  # noqa: BLE001 - it is logged, and the call goes on without a trace
        log_error(_log, "the trace of a call cannot be continued by %s", home)


next_call: Final = count(1).__next__
"""Numbers for calls, unique in this program."""
next_question: Final = next_call
"""Numbers for questions, unique in this program."""
