"""Calls tools that accept only task calls (`execution.taskSupport` is `required`), for callers that want the result instead of a task.

Only lists of the handshake era say so. In the stateless era the server decides, and the connection follows the task of any call (`followed_tasks`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.serialization import is_object

from .errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .interfaces import Line

_CANCEL_TIMEOUT: Final = 5.0
"""The timeout of `tasks/cancel`; the caller does not wait for it."""


def is_task_only(tool: Mapping[str, Any] | None) -> bool:
    """Whether the server refuses calls of this tool that are not task calls."""
    execution: Any = None if tool is None else tool.get("execution")
    return is_object(execution) and execution.get("taskSupport") == "required"


async def call_as_task(line: Line, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Call the tool as a task, and wait for its result. One deadline holds for both, and a task whose caller leaves is cancelled.

    `options` are those of `Line.begin`. Raises what a call raises.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    pending = line.begin("tools/call", {"task": {}, **params}, as_task=True, **options)
    # A future filled by a callback, not a shielded task: asyncio would log the error of a request whose caller has left.
    answered: asyncio.Future[dict[str, Any]] = loop.create_future()
    pending.when_settled(partial(_settle, answered))
    try:
        begun = await answered
    except asyncio.CancelledError:
        pending.when_settled(
            lambda result, _: _cancel(line, result)
        )  # the task may have been created meanwhile: cancel it when its id is known
        raise
    if _task_id(begun) is None:
        return begun  # the server has answered at once
    seconds: float | None = options.get("timeout")
    if seconds is not None:
        seconds = max(0.001, seconds - (loop.time() - began))
    try:
        return await line.begin("tasks/result", {"taskId": _task_id(begun)}, timeout=seconds).result()
    except (asyncio.CancelledError, RequestTimeout):
        _cancel(line, begun)
        raise


def _settle(
    answered: asyncio.Future[dict[str, Any]], result: dict[str, Any] | None, error: BaseException | None
) -> None:
    if answered.done():
        return
    if error is None:
        answered.set_result({} if result is None else result)
    else:
        answered.set_exception(error)


def _task_id(begun: Mapping[str, Any] | None) -> str | None:
    """The id of a task in the reply: in an object of its own, or in the stateless era in the result itself."""
    if begun is None:
        return None
    task: Any = begun if begun.get("resultType") == "task" else begun.get("task")
    id: Any = task.get("taskId") if is_object(task) else None
    return id if isinstance(id, str) else None


def _cancel(line: Line, begun: Mapping[str, Any] | None) -> None:
    """Cancel the task, without waiting for the reply."""
    if (id := _task_id(begun)) is not None:
        _ = line.begin("tasks/cancel", {"taskId": id}, timeout=_CANCEL_TIMEOUT, wait=False)
