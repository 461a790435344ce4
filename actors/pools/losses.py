"""In words: why a call that ran in a worker has no result, as its caller is told it.

A clause that follows "Tool execution failed:". It names signals, codes and limits, which say what to look for, and nothing of what was in the
process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.supervision import ActorError, Crash, NoConnection, NoProcess, ProcessExited, Shutdown, StartFailed
from greenroom.supervision.cluster.endings import EXIT_MEMORY, Ending, NodeFailed, NodeLost
from greenroom.supervision.cluster.values import RemoteError

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


def why_not_started(error: BaseException) -> str:
    """Of a worker that did not come up."""
    match error:
        case NodeLost(ending=ending):
            return f"its process could not be started: it {_told(ending)}"
        case NodeFailed(why=why):
            said = why.partition("; its last words:")[0].strip().splitlines()
            return f"its process could not be started: {said[-1] if said else why}"
        case StartFailed(reason=Crash(error=cause)) | ProcessExited(reason=Crash(error=cause)):
            return why_not_started(cause)
        case StartFailed(reason=reason) | ProcessExited(reason=reason):
            return f"its process could not be started: {reason}"
        case RemoteError(text=text):
            return f"its process could not be started: {text}"
        case _:
            return f"its process could not be started: {error}"


def is_cut_off(error: BaseException) -> bool:
    """Whether that is all it says: somebody could not be reached any more."""
    return isinstance(getattr(error, "reason", None), NoConnection | NoProcess)


def loss_of(job: Job, why: str) -> ToolError | McpError:
    """What to raise for it."""
    if job.method != "tools/call":
        return McpError(ErrorCode.INTERNAL_ERROR, f"Internal error: {why}")
    text = f"Tool execution failed: {why}"
    return ToolError(text) if job.house.settings.crashes == "tool" else McpError(ErrorCode.TOOL_ERROR, text)
