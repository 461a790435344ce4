"""In words: why a call that ran in a worker has no result, as its caller is told it.

A clause that follows "Tool execution failed:". It names signals, codes and limits, which say what to look for, and nothing of what was in the
process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.supervision import (
    ActorError,
    Crash,
    Killed,
    NoConnection,
    NoProcess,
    ProcessExited,
    Shutdown,
    StartFailed,
)
from greenroom.supervision.cluster.endings import EXIT_MEMORY, Ending, NodeFailed, NodeLost
from greenroom.supervision.cluster.placement import NothingFits
from greenroom.supervision.cluster.values import RemoteError

from .pool import MIB

if TYPE_CHECKING:
    from greenroom.actors.jobs import Job
    from greenroom.supervision import ExitReason

    from .pool import Pool


class WorkerLost(ActorError):
    """A worker has ended with a call in it, or before it could take one; says why."""

    def __init__(self, why: str) -> None:
        """A clause."""
        super().__init__(why)
        self.why = why


def why_lost(reason: ExitReason, pool: Pool | None = None) -> str:
    """Of a worker that ended for this reason."""
    match reason:
        case Shutdown(detail=WorkerLost(why=why)) | Crash(error=WorkerLost(why=why)):
            return why
        case Crash(error=NodeLost(ending=ending)) | Shutdown(detail=NodeLost(ending=ending)):
            return f"its process {_told(ending, pool)}"
        case Crash(error=error):
            return f"whoever minds its process has crashed ({type(error).__name__})"
        case NoConnection():
            return "its process cannot be reached any more"
        case _:
            return f"its process was stopped ({reason})"


def _told(ending: Ending, pool: Pool | None = None) -> str:
    """Without its last words, which are for whoever reads the reports; and with a limit only where that can have had to do with it."""
    narrow = pool is not None and pool.memory != "half"
    limit = ending.memory if narrow or ending.code == EXIT_MEMORY else None
    return str(replace(ending, memory=limit, words=""))


NOT_STARTED: Final = "its process could not be started"


def why_not_begun(reason: ExitReason, pool: Pool) -> str:
    """Of a worker that ended for this reason before it could take a call."""
    text = f"{why_lost(reason, pool)} when it was to begin"
    match reason:
        # An import in C that gets no memory may end its process so, as OpenBLAS does. A handler that ends with 1 does not come here.
        case Crash(error=NodeLost(ending=Ending(code=1))) if isinstance(pool.memory, int):
            return f"{text}; its memory limit is {pool.memory // MIB} MiB, which may be too little for what it imports"
        case _:
            return text


_SHORT_OF_MEMORY: Final = ("MemoryError", "failed to map segment", "Cannot allocate memory")
"""What an import says that gets no memory: Python's own code, the system's loader, and the system."""


def why_not_started(error: BaseException, pool: Pool | None = None) -> str:
    """Of a worker that did not come up, for the log: with what an import has raised, word for word, and the limit if that can be why."""
    return _why_not_started(error, pool) + _limit_of(error, pool)


def _limit_of(error: BaseException, pool: Pool | None) -> str:
    """The limit of memory that the worker had, if what it ended of speaks of memory."""
    limit = None if pool is None else pool.memory_limit
    if limit is None or not any(each in _why_not_started(error) for each in _SHORT_OF_MEMORY):
        return ""
    return f"; its memory limit is {limit // MIB} MiB, which is too little for what it imports"


def _why_not_started(error: BaseException, pool: Pool | None = None) -> str:
    match error:
        case NodeLost(ending=ending):
            return f"{NOT_STARTED}: it {_told(ending, pool)}"
        case NodeFailed(why=why):
            said = why.partition("; its last words:")[0].strip().splitlines()
            return f"{NOT_STARTED}: {said[-1] if said else why}"
        case StartFailed(reason=Crash(error=cause)) | ProcessExited(reason=Crash(error=cause)):
            return _why_not_started(cause, pool)
        case StartFailed(reason=reason) | ProcessExited(reason=reason):
            return f"{NOT_STARTED}: {reason}"
        case RemoteError(text=text):
            return f"{NOT_STARTED}: {text}"
        case _:
            return f"{NOT_STARTED}: {error}"


def told_of_start(error: BaseException, pool: Pool | None = None) -> str:
    """The same for callers: how the process ended or that no machine takes it, and nothing of what any code has raised there."""
    match error:
        case NodeLost():
            return why_not_started(error, pool)
        case StartFailed(reason=Crash(error=cause)) | ProcessExited(reason=Crash(error=cause)):
            return told_of_start(cause, pool)
        case NothingFits(full=full):  # its own text names each machine and what it has
            return f"{NOT_STARTED}: {'every machine that fits is full' if full else 'no machine of the cluster fits'}"
        case (
            StartFailed(reason=Killed() | NoConnection() | NoProcess())
            | ProcessExited(reason=Killed() | NoConnection() | NoProcess())
        ):
            return why_not_started(error, pool)
        case _:
            return NOT_STARTED + _limit_of(error, pool)


def is_cut_off(error: BaseException) -> bool:
    """Whether that is all it says: somebody could not be reached any more."""
    return isinstance(getattr(error, "reason", None), NoConnection | NoProcess)


def loss_of(job: Job, why: str) -> ToolError | McpError:
    """What to raise for it."""
    if job.method != "tools/call":
        return McpError(ErrorCode.INTERNAL_ERROR, f"Internal error: {why}")
    text = f"Tool execution failed: {why}"
    return ToolError(text) if job.house.settings.crashes == "tool" else McpError(ErrorCode.TOOL_ERROR, text)
