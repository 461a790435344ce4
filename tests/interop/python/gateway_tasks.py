"""FastMCP's client of the tasks extension at a gateway, with upstreams of both eras behind it: `gateway_tasks.py MODE URL`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import play
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp_tasks import call_tool_task
from fastmcp_tasks.client_models import CancelTaskRequest, GetTaskRequest, UpdateTaskRequest
from play import same

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

UPSTREAMS = ("old", "new")


class GatewayClient:
    """The client under test."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.client: Client[Any]

    async def elicits(self, message: str, _form: Any, _params: Any, _context: Any) -> Any:
        self.asked.append(message)
        return ElicitResult(action="accept", content={"yes": True})


async def asks(player: GatewayClient, up: str) -> None:
    player.asked.clear()
    task = await call_tool_task(player.client, f"{up}__research", {"topic": "tea"})
    waiting = await task.wait(state="input_required", timeout=play.SECONDS / 2)
    ((_, asked),) = (waiting.input_requests or {}).items()
    same("the question", asked["params"]["message"], "Really tea?")
    same("answered", (await task.result()).content[0].text, "tea: True")
    same("asked once", player.asked, ["Really tea?"])


async def cancelled(player: GatewayClient, up: str) -> None:
    task = await call_tool_task(player.client, f"{up}__endless")
    same("at work", (await task.status()).status, "working")
    await task.cancel()
    same("cancelled", (await task.wait(timeout=play.SECONDS / 2)).status, "cancelled")
    ended = await player.client.call_tool_mcp(f"{up}__ended", {})
    same("ended there", ended.content[0].text, "true")


def at(up: str, step: Callable[[GatewayClient, str], Awaitable[None]]) -> Callable[[GatewayClient], Awaitable[None]]:
    """The step at that upstream, under a name of its own."""

    async def here(player: GatewayClient) -> None:
        await step(player, up)

    here.__name__ = f"{step.__name__}_{up}"
    return here


STEPS = [at(up, step) for step in (asks, cancelled) for up in UPSTREAMS]


async def main(arguments: list[str]) -> bool:
    """`MODE URL`."""
    mode, url = arguments
    for request in (GetTaskRequest, UpdateTaskRequest, CancelTaskRequest):
        request.name_param = "taskId"
    player = GatewayClient()
    async with Client(url, mode=mode, elicitation_handler=player.elicits) as player.client:
        await player.client.list_tools_mcp()
        return await play.perform(player, STEPS)


if __name__ == "__main__":
    sys.exit(play.run(main))
