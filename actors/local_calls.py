"""Local calls: the program calls what it has registered, without session or wire, and gets the function's own return value.

The function runs in a process of its own all the same: if it exits, its caller does not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.handler_results import CallToolResult
from greenroom.protocol.validation_errors import Mismatch
from greenroom.supervision import CallTimeout, Shutdown, current_node, start_task_alone
from greenroom.supervision.event_bus import bus
from greenroom.transports.interfaces import Peer

from .catalogue import NotFound
from .context import Context
from .worker import call_handler
from .worker_interfaces import Cancellation, SessionFacts, end_worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.event_types import Outcome

    from .call_events import ObservedCall
    from .catalogue import Kind
    from .worker_interfaces import WorkerServices


class _NoPeerChannel:
    """The peer channel of a local call, which has no peer."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:  # noqa: ARG002 - there is no peer
        """Send nothing: there is no peer."""
        return False

    def log(self, level: str, data: Any, logger: str | None) -> bool:  # noqa: ARG002 - same
        """Send nothing: there is no peer."""
        return False

    def touch(self, ahead: float = 0.0) -> None:
        """No-op: a local call may be silent."""

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],  # noqa: ARG002 - there is no peer
        timeout: float | None,  # noqa: ARG002 - same
        key: str | None = None,  # noqa: ARG002 - same
    ) -> dict[str, Any]:
        """Refuse: there is no peer to ask."""
        raise McpError(ErrorCode.METHOD_NOT_FOUND, f"There is no client to ask for {method}: this is a local call")

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no stream
        """False: there is no stream."""
        return False


NO_PEER: Final = _NoPeerChannel()
"""The peer channel of a context that is that of no peer's call."""
_CALLER_STOPPED_WAITING: Final = Shutdown("the caller has given up")
_LOCAL_FACTS: Final = SessionFacts("", LATEST_DIALECT.version, Peer("local"), {}, {})


async def call_locally(services: WorkerServices, kind: Kind, name: str, arguments: Mapping[str, Any] | None) -> Any:
    """The function's return value.

    Raises `NotFound`, `Mismatch`, `CallTimeout` after the handler's own timeout, or what it raises.
    """
    observed = _observe(services, kind, name) if bus.listener is not None else None
    entry: Any = services.catalogue_ref.current.find(kind, name)
    if entry is None:
        if observed is not None:
            observed.end("error", is_logged=False)
        raise NotFound(kind, name)
    task = start_task_alone(_run_locally, services, entry, dict(arguments or {}), observed)
    try:
        outcome = await task.wait(entry.handler.timeout)
    except BaseException as error:
        if observed is not None:
            observed.end(_outcome_of_wait(error), is_logged=False)
        if isinstance(error, asyncio.CancelledError | CallTimeout):
            end_worker(task.pid, _CALLER_STOPPED_WAITING, services.settings.cancel_grace)
        raise
    if observed is not None:
        observed.end(*_ending_of(kind, outcome), is_logged=False)
    if isinstance(outcome, _Raised):
        raise outcome.error
    return outcome


_METHODS: Final[Mapping[Kind, str]] = {
    "tool": "tools/call",
    "prompt": "prompts/get",
    "resource": "resources/read",
}


def _observe(services: WorkerServices, kind: Kind, name: str) -> ObservedCall:
    from .call_events import ObservedCall  # noqa: PLC0415 - only a program with a listener loads the events

    call = ObservedCall(current_node(), services, "local", _METHODS[kind], {"name": name}, _LOCAL_FACTS.peer, "")
    call.wait()
    return call


def _outcome_of_wait(error: BaseException) -> Outcome:
    """The outcome of a call whose process has returned nothing."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "deadline" if isinstance(error, CallTimeout) else "worker_crashed"


def _ending_of(kind: Kind, value: Any) -> tuple[Outcome, McpError | None]:
    """The outcome that a request would have had."""
    if isinstance(value, _Raised):
        value = value.error
        if isinstance(value, Mismatch):
            return ("tool_error" if kind == "tool" else "error"), None
        if not isinstance(value, ToolError | McpError):
            return "worker_crashed", None
    if isinstance(value, McpError):
        return "error", value
    is_failure = isinstance(value, ToolError) or (isinstance(value, CallToolResult) and value.is_error)
    return ("tool_error" if is_failure else "result"), None


class _Raised:
    """An error on its way to the caller, as a value: raised in the task, it would be reported as a crash."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _run_locally(
    services: WorkerServices, entry: Any, arguments: dict[str, Any], observed: ObservedCall | None
) -> Any:
    cancelled = Cancellation()
    ctx = Context(_LOCAL_FACTS, NO_PEER, cancelled, None, {"arguments": arguments})
    ctx.name = entry.name
    if observed is not None:
        ctx.observed = observed
        if bus.tracer is not None:
            bus.tracer.enter(observed.number)
    try:
        return await _call_entry(services, entry, arguments, ctx)
    except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
        return _Raised(error)
    finally:
        cancelled.set("the caller is gone")
        ctx.close()


async def _call_entry(services: WorkerServices, entry: Any, arguments: dict[str, Any], ctx: Context) -> Any:
    if entry.kind == "resource":
        ctx.uri = entry.uri
        named = {} if entry.whole is None else {entry.whole: arguments}
    else:
        named = entry.binder.bind(arguments)
    value = await call_handler(entry.handler, ctx, named, services.bulkheads, (entry.kind, entry.name), None)
    ctx.check_questions_awaited()
    return value
