"""The translation of requests, results, errors and list entries between a client of one era and an upstream of another: pure functions.

Nothing is changed between a client and an upstream of the handshake era. A request that stands alone says much about its sender in `_meta`, which the
gateway replaces; its results say for how long they may be kept; and each era has errors and structured results that the other does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from greenroom.actors.catalogue_entries import may_run_again
from greenroom.actors.client.task_only_tools import is_task_only
from greenroom.protocol.cache_hints import CACHEABLE
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.envelope import LOG_LEVEL_KEY
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.extension_ids import is_extension_declared, is_reserved_prefix
from greenroom.protocol.handler_results import schema_under_result
from greenroom.protocol.methods import TASKS_EXTENSION, PeerSide, find_method, is_declared, unsupported_error
from greenroom.protocol.serialization import UnderResult, is_object
from greenroom.protocol.wire_shapes import LOG_LEVELS
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.client.interfaces import ServerWelcome
    from greenroom.actors.handler_options import TaskSupport
    from greenroom.protocol.dialect import Dialect
    from greenroom.protocol.mirrored_headers import HeaderPlan

Tasks: TypeAlias = Literal["none", "session", "extension"]
"""How an upstream has tasks: not at all, as a handshake revision has them, or by the extension of the stateless era."""


class UpstreamTraits(NamedTuple):
    """The way in which an upstream's calls are bridged, by its revision and capabilities."""

    is_stateless: bool = False
    tasks: Tasks = "none"

    @classmethod
    def of(cls, welcome: ServerWelcome | None) -> UpstreamTraits:
        """The traits of an upstream; those of a plain handshake server while it was never reached."""
        if welcome is None:
            return cls()
        if dialect_of(welcome.version).is_stateless:
            has_extension = is_extension_declared(welcome.capabilities, TASKS_EXTENSION)
            return cls(is_stateless=True, tasks="extension" if has_extension else "none")
        has_tasks = find_method("tasks/get", welcome.version, PeerSide.SERVER) is not None
        return cls(
            tasks="session" if has_tasks and is_declared(welcome.capabilities, "tasks.requests.tools.call") else "none"
        )


PLAIN: Final = UpstreamTraits()


# --- Requests.

_CAPABILITY_CODES: Final = frozenset({ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY})
_ENVELOPE_CODES: Final = frozenset({ErrorCode.HEADER_MISMATCH, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION})


def forwarded_meta(
    meta: Mapping[str, Any], front: Dialect, traits: UpstreamTraits, level: str | None
) -> dict[str, Any]:
    """The `_meta` of the upstream's request: the client's, without its progress token and what the protocol keeps to itself.

    Trace context (`traceparent`, `tracestate`, `baggage`) and keys of other parties pass; where this program traces its calls, the upstream's request gets
    the span of its own in place of the client's. `level` is the lowest level of log messages that the
    client wants, None for none; a handshake server is told it otherwise.
    """
    replaced = bus.tracer.fields if bus.tracer is not None and bus.listener is not None else ()
    kept = {key: value for key, value in meta.items() if key != "progressToken" and key not in replaced}
    if front.is_stateless or traits.is_stateless:
        kept = {key: value for key, value in kept.items() if not _is_reserved(key)}
    if traits.is_stateless and level is not None:
        kept[LOG_LEVEL_KEY] = level
    return kept


def _is_reserved(key: str) -> bool:
    prefix, slash, _ = key.partition("/")
    return bool(slash) and is_reserved_prefix(prefix)


def wanted_level(meta: Mapping[str, Any]) -> str | None:
    """The level of log messages that a request of the stateless era asks for."""
    level = meta.get(LOG_LEVEL_KEY)
    return level if level in LOG_LEVELS else None


# --- Results.


def bridged_result(
    method: str, result: dict[str, Any], front: Dialect, traits: UpstreamTraits, *, wraps: bool = False
) -> dict[str, Any]:
    """The upstream's result in a form that the client's revision can be given.

    `wraps`: the tool's structured results stand under `result` in handshake revisions.
    """
    if not front.is_stateless and not traits.is_stateless:
        return result
    bridged = {name: value for name, value in result.items() if name != "resultType"}
    meta: Any = bridged.pop("_meta", None)
    if is_object(meta):
        kept = {name: value for name, value in meta.items() if name != "progressToken" and not _is_reserved(name)}
        if kept:
            bridged["_meta"] = kept
    if not traits.is_stateless:
        return bridged
    if not front.is_stateless and method in CACHEABLE:
        bridged.pop("ttlMs", None)
        bridged.pop("cacheScope", None)
    data = bridged.get("structuredContent")
    if data is not None and ((wraps and bridged.get("isError") is not True) or not is_object(data)):
        bridged["structuredContent"] = UnderResult(result=data)
    return bridged


def bridged_error(error: McpError, method: str, front: Dialect, traits: UpstreamTraits) -> McpError:
    """The upstream's error with a code that the client's revision has."""
    if not traits.is_stateless:
        return error  # what a request that stands alone may not be sent is replaced where it is answered
    if error.code in _ENVELOPE_CODES:  # a mistake of this gateway, which its client cannot correct
        return McpError(ErrorCode.INTERNAL_ERROR, error.message)
    if front.is_stateless:
        return error
    if error.code in _CAPABILITY_CODES:
        return unsupported_error(error.message)
    missing = method == "resources/read" and error.code == ErrorCode.INVALID_PARAMS and is_object(error.data)
    if missing and isinstance(error.data.get("uri"), str):
        return McpError(ErrorCode.RESOURCE_NOT_FOUND, error.message, error.data)
    return error


# --- Tools.


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    """The `CallableTool` of an upstream."""

    name: str
    as_task: TaskSupport
    defer_task: bool
    header_plan: HeaderPlan | None
    wraps_result: bool
    may_run_again: bool

    @property
    def long_running(self) -> bool:
        """False: only a client that asks for a task gets one."""
        return False

    @property
    def task_timeout(self) -> float | None:
        """None: the server's own limit for tasks holds."""
        return None

    @classmethod
    def unknown(cls, name: str) -> UpstreamTool:
        """A tool of a server whose list is not known yet: its running call decides whether it is a task."""
        return cls(name, "optional", defer_task=True, header_plan=None, wraps_result=False, may_run_again=False)

    @classmethod
    def of(
        cls, name: str, definition: Mapping[str, Any], traits: UpstreamTraits, plan: HeaderPlan | None
    ) -> UpstreamTool:
        """The tool with this definition, which clients call by `name`. `plan` are the headers that its clients have to send."""
        return cls(
            name,
            as_task="optional" if may_be_task(definition, traits) else "forbidden",
            defer_task=traits.tasks == "extension",
            header_plan=plan,
            wraps_result=wraps_result(definition, traits),
            may_run_again=may_run_again(definition),
        )


def may_be_task(definition: Mapping[str, Any], traits: UpstreamTraits) -> bool:
    """Whether a call of the tool may become a task at the upstream.

    For the gateway's clients it is never required, since the gateway can wait for the task itself.
    """
    if traits.tasks == "extension":
        return True
    execution: Any = definition.get("execution")
    support = execution.get("taskSupport") if is_object(execution) else None
    return traits.tasks == "session" and support in ("optional", "required")


def needs_task(definition: Mapping[str, Any], traits: UpstreamTraits) -> bool:
    """Whether the upstream refuses calls of the tool that are no task calls."""
    return not traits.is_stateless and is_task_only(definition)


def wraps_result(definition: Mapping[str, Any], traits: UpstreamTraits) -> bool:
    """Whether the tool's results may be no objects, so that handshake revisions have them under `result`."""
    schema: Any = definition.get("outputSchema")
    return traits.is_stateless and is_object(schema) and schema.get("type") != "object"


def listed_tool(
    shown: Mapping[str, Any], definition: Mapping[str, Any], front: Dialect, traits: UpstreamTraits
) -> Mapping[str, Any]:
    """The tool as clients of that revision are shown it. `shown` is made of its `definition`, and offers no tasks."""
    if front.is_stateless or traits == PLAIN:
        return shown
    listed = dict(shown)
    if may_be_task(definition, traits):
        listed["execution"] = {"taskSupport": "optional"}
    if wraps_result(definition, traits) and is_object(schema := listed.get("outputSchema")):
        listed["outputSchema"] = schema_under_result(dict(schema))
    return listed
