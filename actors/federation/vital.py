"""Tasks without which a process is of no use: whatever one of them raises is the process's crash, which its supervisor hears of.

Left to itself a task that has failed is a line in asyncio's log, and the process that it worked for stays, and does nothing any more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.supervision.kernel.current import current_process

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from greenroom.supervision.kernel.process import Process


def vital(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Have the calling process do it beside its messages."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_done, current_process("begin a vital task")))
    return task


def _done(process: Process, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        process.crash(error)
