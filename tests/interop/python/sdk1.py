"""The Python SDK 1.x as a player."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import play
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def wire(model: Any) -> dict[str, Any]:
    """The model as it was on the wire."""
    return model.model_dump(by_alias=True, exclude_none=True, mode="json")


async def answer(asking: Awaitable[Any]) -> dict[str, Any]:
    """The result, or the server's refusal in the play's words."""
    try:
        return wire(await asking)
    except McpError as error:
        raise play.Refused(error.error.code, error.error.message, error.error.data) from error


class Sdk1:
    """The client under test, with the methods that the play calls."""

    def __init__(self) -> None:
        self.ears = play.Ears()
        self.revision = "2025-11-25"
        self.session: ClientSession
        self.initialized: types.InitializeResult

    async def hears(self, message: Any) -> None:
        match message:
            case types.ServerNotification(root=types.ResourceUpdatedNotification(params=params)):
                self.ears.updates.append(str(params.uri))
            case types.ServerNotification(root=types.ToolListChangedNotification()):
                self.ears.changes.append("tools")
            case types.ServerNotification(root=types.ElicitCompleteNotification(params=params)):
                self.ears.done.append(params.elicitationId)
            case Exception():
                self.ears.troubles.append(message)
            case _:
                pass

    async def hears_log(self, params: Any) -> None:
        self.ears.logs.append((params.level, params.logger, params.data))

    async def samples(self, _context: Any, params: Any) -> Any:
        said = self.ears.sampled(wire(params))
        kind = types.CreateMessageResultWithTools if params.tools else types.CreateMessageResult
        return kind.model_validate(said)

    async def elicits(self, _context: Any, params: Any) -> Any:
        return types.ElicitResult.model_validate(self.ears.elicited(wire(params)))

    async def roots(self, _context: Any) -> Any:
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///stage", "name": "stage"}]})

    async def hello(self) -> play.Hello:
        said = self.initialized
        capabilities = wire(said.capabilities)
        return play.Hello(
            said.serverInfo.name,
            said.serverInfo.version,
            said.instructions or "",
            str(said.protocolVersion),
            capabilities,
        )

    async def ping(self) -> None:
        await self.session.send_ping()

    async def tools(self, cursor: str | None) -> dict[str, Any]:
        return await answer(self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor)))

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Callable[[Any, Any, Any], None] | None = None
    ) -> dict[str, Any]:
        async def heard(done: float, total: float | None, message: str | None) -> None:
            progress(done, total, message)

        return await answer(self.session.call_tool(name, arguments, progress_callback=heard if progress else None))

    async def abandon(self, name: str, arguments: dict[str, Any], begun: asyncio.Event) -> None:
        async def heard(*_: Any) -> None:
            begun.set()

        # this client has no word for cancelling: its users send the notification themselves
        request = self.session._request_id
        call = asyncio.create_task(self.session.call_tool(name, arguments, progress_callback=heard))
        await begun.wait()
        params = types.CancelledNotificationParams(requestId=request, reason="enough")
        await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        call.cancel()
        await asyncio.wait([call])

    async def resources(self) -> dict[str, Any]:
        return await answer(self.session.list_resources())

    async def templates(self) -> dict[str, Any]:
        return await answer(self.session.list_resource_templates())

    async def read(self, uri: str) -> dict[str, Any]:
        return await answer(self.session.read_resource(AnyUrl(uri)))

    async def subscribe(self, uri: str) -> None:
        await answer(self.session.subscribe_resource(AnyUrl(uri)))

    async def unsubscribe(self, uri: str) -> None:
        await answer(self.session.unsubscribe_resource(AnyUrl(uri)))

    async def prompts(self) -> dict[str, Any]:
        return await answer(self.session.list_prompts())

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return await answer(self.session.get_prompt(name, arguments))

    async def complete(self, prompt: str, argument: str, value: str) -> dict[str, Any]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return await answer(self.session.complete(reference, {"name": argument, "value": value}))

    async def level(self, level: Any) -> None:
        # a level that is none cannot be said through the typed method
        params = types.SetLevelRequestParams.model_construct(level=level)
        request = types.SetLevelRequest.model_construct(method="logging/setLevel", params=params)
        await answer(self.session.send_request(types.ClientRequest.model_construct(root=request), types.EmptyResult))


async def main(arguments: list[str]) -> bool:
    """`MODE URL` or `MODE COMMAND ARGUMENT…`; the mode is the revision that it asks for."""
    mode, *where = arguments
    player = Sdk1()
    # it would always ask for its newest, though it speaks them all
    player.revision = types.LATEST_PROTOCOL_VERSION = mode
    async with AsyncExitStack() as stack:
        if where[0].endswith("/sse"):
            read, write = await stack.enter_async_context(sse_client(where[0]))
        elif where[0].startswith("http"):
            read, write, _ = await stack.enter_async_context(streamable_http_client(where[0]))
        else:
            server = StdioServerParameters(command=where[0], args=where[1:])
            read, write = await stack.enter_async_context(stdio_client(server))
        player.session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                sampling_callback=player.samples,
                sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
                elicitation_callback=player.elicits,
                list_roots_callback=player.roots,
                logging_callback=player.hears_log,
                message_handler=player.hears,
            )
        )
        player.initialized = await player.session.initialize()
        return await play.perform(player)


if __name__ == "__main__":
    sys.exit(play.run(main))
