"""FastMCP's client of the tasks extension: `task_extension.py MODE URL`, or `task_extension.py MODE COMMAND ARGUMENT…`.

Over HTTP the extension wants the id of a task in a header, too, which this client leaves out: its requests are told to send it.
"""

from __future__ import annotations

import sys
from typing import Any

import play
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp_tasks import call_tool_task
from fastmcp_tasks.client_models import CancelTaskRequest, GetTaskRequest, UpdateTaskRequest
from mcp import Client as SdkClient
from mcp import MCPError
from mcp.client.stdio import StdioServerParameters
from play import refused, same, words


class TaskClient:
    """The client under test, and where it connects to."""

    def __init__(self, mode: str, where: list[str]) -> None:
        self.mode = mode
        self.where = where
        self.asked: list[str] = []
        self.client: Client[Any]

    def server(self) -> Any:
        """The URL, or a program of its own."""
        where = self.where
        return where[0] if where[0].startswith("http") else StdioTransport(command=where[0], args=where[1:])

    async def elicits(self, message: str, _form: Any, _params: Any, _context: Any) -> Any:
        self.asked.append(message)
        return ElicitResult(action="accept", content={"name": "Ada"})


async def followed(player: TaskClient) -> None:
    """A call that the server has made a task is a call like any other to its caller."""
    result = await player.client.call_tool_mcp("rehearse", {"lines": 3})
    same("its result", words(result.model_dump(by_alias=True, mode="json")), "rehearsed 3")


async def handle(player: TaskClient) -> None:
    task = await call_tool_task(player.client, "rehearse", {"lines": 3})
    begun = task.create_result
    same("begun", (begun.status, begun.task_id != "", begun.poll_interval_ms is not None), ("working", True, True))
    done = await task.wait(timeout=play.SECONDS / 2)
    same("completed", (done.status, (done.result or {})["content"][0]["text"]), ("completed", "rehearsed 3"))


async def cancelled(player: TaskClient) -> None:
    task = await call_tool_task(player.client, "rehearse", {"lines": 0})
    same("at work", (await task.status()).status, "working")
    await task.cancel()
    same("cancelled", (await task.wait(timeout=play.SECONDS / 2)).status, "cancelled")
    await task.cancel()  # again, which changes nothing
    same("still", (await task.status()).status, "cancelled")


async def question(player: TaskClient) -> None:
    task = await call_tool_task(player.client, "cast_part")
    waiting = await task.wait(state="input_required", timeout=play.SECONDS / 2)
    ((_, asked),) = (waiting.input_requests or {}).items()
    same("the question", (asked["method"], asked["params"]["message"]), ("elicitation/create", "Who plays?"))
    same("answered", (await task.result()).content[0].text, "Ada plays")
    same("asked once", player.asked, ["Who plays?"])


async def failed(player: TaskClient) -> None:
    """A tool that fails has completed: only errors of the protocol are failures."""
    task = await call_tool_task(player.client, "forget", raise_on_error=False)
    done = await task.wait(timeout=play.SECONDS / 2)
    same("completed", (done.status, (done.result or {})["isError"]), ("completed", True))
    same("its words", (await task.result()).content[0].text, "What was it?")


async def at_once(player: TaskClient) -> None:
    try:
        await call_tool_task(player.client, "add", {"a": 1, "b": 2})
    except ToolError as error:
        same("no task", "did not run as a task" in str(error), True)
    else:
        raise play.Wrong("a short call has become a task")


async def unknown(player: TaskClient) -> None:
    task = await call_tool_task(player.client, "rehearse", {"lines": 1})
    task._create_result = task.create_result.model_copy(update={"task_id": "task_missing"})
    await refused("a task that is not there", _in_plays_words(task.status()), -32602)


async def undeclared(player: TaskClient) -> None:
    """A client that does not declare the extension gets results, and an error where a tool can only be a task."""
    where = player.where
    url = where[0].startswith("http")
    server: Any = where[0] if url else StdioServerParameters(command=where[0], args=where[1:])
    async with SdkClient(server, mode=player.mode) as plain:
        result = await plain.call_tool("rehearse", {"lines": 2})
        same("its result", words(result.model_dump(by_alias=True, mode="json")), "rehearsed 2")
        error = await refused("a task alone", _in_plays_words(plain.call_tool("cast_part", {})), -32021)
        same("needs", error.data, {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}})


async def _in_plays_words(asking: Any) -> Any:
    try:
        return await asking
    except MCPError as error:
        raise play.Refused(error.error.code, error.error.message, error.error.data) from error


STEPS = (followed, handle, cancelled, question, failed, at_once, unknown, undeclared)


async def main(arguments: list[str]) -> bool:
    """`MODE URL` or `MODE COMMAND ARGUMENT…`."""
    mode, *where = arguments
    for request in (GetTaskRequest, UpdateTaskRequest, CancelTaskRequest):
        request.name_param = "taskId"
    player = TaskClient(mode, where)
    async with Client(player.server(), mode=mode, elicitation_handler=player.elicits) as player.client:
        return await play.perform(player, STEPS)


if __name__ == "__main__":
    sys.exit(play.run(main))
