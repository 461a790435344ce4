"""What a server says of its own crash: what it was at, for whom, and in what state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision.kernel import describe, stacks
from greenroom.supervision.kernel.messages import ASK, CALL
from greenroom.supervision.kernel.reports import CrashReport

from .calls import CALL_CODE

if TYPE_CHECKING:
    from greenroom.supervision.kernel.messages import Entry
    from greenroom.supervision.kernel.reasons import ExitReason

    from .caller import Caller
    from .server import Server


def crash_report(server: Server, reason: ExitReason, entry: Entry | None, during: str) -> CrashReport:
    """The report; `entry` is what was being handled, None when a task of the server crashed."""
    process = server._otp_process
    try:
        state = server._otp_summary()
    except BaseException as broken:  # noqa: BLE001 - a report must come out whatever a user's summary does
        state = f"(report_state raised {type(broken).__name__}: {broken})"
    caller: Caller[Any] | None = entry[-1] if entry is not None and entry[0] in (CALL, ASK) else None
    return CrashReport(
        pid=process.pid,
        label=process.label,
        reason=reason,
        last_message=None if entry is None else describe.message(entry),
        state=state,
        ancestors=tuple(str(ancestor) for ancestor in process.ancestors()),
        during=during,
        client=None if caller is None or caller.process is None else str(caller.process),
        client_stack="" if caller is None else stacks.of_awaiter(caller._future, CALL_CODE),
    )
