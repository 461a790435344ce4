"""The Python SDK 2.x as a player. Its default mode, `auto`, asks whether the server has the revision without a handshake; a revision as mode asks for nothing."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import play
import stateless
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated, listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence


def wire(model: Any) -> dict[str, Any]:
    """The model as it was on the wire."""
    return model.model_dump(by_alias=True, exclude_none=True, mode="json")


async def answer(asking: Awaitable[Any]) -> dict[str, Any]:
    """The result, or the server's refusal in the play's words."""
    try:
        return wire(await asking)
    except MCPError as error:
        raise play.Refused(error.error.code, error.error.message, error.error.data) from error


class Sdk2:
    """The client under test, with the methods that the play calls."""

    talkative = False

    def __init__(self, revision: str = "2025-11-25") -> None:
        self.ears = play.Ears()
        self.revision = revision
        self.client: Client

    async def hears(self, message: Any) -> None:
        match message:
            case types.ResourceUpdatedNotification():
                self.ears.updates.append(str(message.params.uri))
            case types.ToolListChangedNotification():
                self.ears.changes.append("tools")
            case types.ElicitCompleteNotification():
                self.ears.done.append(message.params.elicitation_id)
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
        if self.revision == stateless.REVISION and self.client.server_info is None:
            # the client was told its revision, and has asked for nothing
            said = wire(types.DiscoverResult.model_validate(await self.client.session.send_discover(self.revision)))
            info, capabilities = said["_meta"]["io.modelcontextprotocol/serverInfo"], said["capabilities"]
            return play.Hello(
                info["name"], info["version"], said["instructions"], self.client.protocol_version, capabilities
            )
        info = self.client.server_info
        capabilities = wire(self.client.server_capabilities)
        return play.Hello(
            info.name, info.version, self.client.instructions or "", self.client.protocol_version, capabilities
        )

    async def ping(self) -> None:
        await self.client.send_ping()

    async def tools(self, cursor: str | None) -> dict[str, Any]:
        return await answer(self.client.list_tools(cursor=cursor))

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        progress: Callable[[Any, Any, Any], None] | None = None,
        level: str | None = None,
    ) -> dict[str, Any]:
        async def heard(done: float, total: float | None, message: str | None) -> None:
            progress(done, total, message)

        meta = {types.LOG_LEVEL_META_KEY: level} if level else None
        return await answer(
            self.client.call_tool(name, arguments, progress_callback=heard if progress else None, meta=meta)
        )

    async def abandon(self, name: str, arguments: dict[str, Any], begun: asyncio.Event) -> None:
        async def heard(*_: Any) -> None:
            begun.set()

        call = asyncio.create_task(self.client.call_tool(name, arguments, progress_callback=heard))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])

    async def resources(self) -> dict[str, Any]:
        return await answer(self.client.list_resources())

    async def templates(self) -> dict[str, Any]:
        return await answer(self.client.list_resource_templates())

    async def read(self, uri: str) -> dict[str, Any]:
        return await answer(self.client.read_resource(uri))

    async def subscribe(self, uri: str) -> None:
        await answer(self.client.subscribe_resource(uri))

    async def unsubscribe(self, uri: str) -> None:
        await answer(self.client.unsubscribe_resource(uri))

    async def prompts(self) -> dict[str, Any]:
        return await answer(self.client.list_prompts())

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return await answer(self.client.get_prompt(name, arguments))

    async def complete(self, prompt: str, argument: str, value: str) -> dict[str, Any]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return await answer(self.client.complete(reference, {"name": argument, "value": value}))

    async def level(self, level: Any) -> None:
        # a level that is none cannot be said through the typed method
        params = types.SetLevelRequestParams.model_construct(level=level)
        request = types.SetLevelRequest.model_construct(method="logging/setLevel", params=params)
        await answer(self.client.session.send_request(request, types.EmptyResult))

    @asynccontextmanager
    async def listen(self, *, tools: bool = False, uris: Sequence[str] = ()) -> AsyncIterator[stateless.Listening]:
        async with listen(self.client.session, tools_list_changed=tools, resource_subscriptions=uris) as subscription:
            listening = stateless.Listening(wire(subscription.honored))

            async def hear() -> None:
                async for event in subscription:
                    listening.heard.append(event.uri if isinstance(event, ResourceUpdated) else "tools")

            hearing = asyncio.create_task(hear())
            try:
                yield listening
            finally:
                hearing.cancel()


def client(player: Sdk2, mode: str, server: Any) -> Client:
    """A client that hears with the player's ears; `server` is a URL, a command, or a transport."""
    return Client(
        server,
        mode=mode,
        sampling_callback=player.samples,
        sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
        elicitation_callback=player.elicits,
        list_roots_callback=player.roots,
        logging_callback=player.hears_log,
        message_handler=player.hears,
    )


async def main(arguments: list[str]) -> bool:
    """`MODE URL` or `MODE COMMAND ARGUMENT…`."""
    mode, *where = arguments
    server: Any = where[0] if where[0].startswith("http") else StdioServerParameters(command=where[0], args=where[1:])
    player = Sdk2() if mode == "legacy" else Sdk2(stateless.REVISION)
    async with client(player, mode, server) as player.client:
        return await (play if mode == "legacy" else stateless).perform(player)


if __name__ == "__main__":
    sys.exit(play.run(main))
