"""Handlers without a stream: over a channel, and in a request without a session."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from greenroom import Server
from greenroom.actors.peer_channels import NoStream
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.protocol.versions import LATEST
from greenroom.supervision import which_children
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

CALL: dict[str, Any] = {"name": "talks", "arguments": {}, "_meta": {"progressToken": "p"}}


def talking() -> tuple[Server, list[str]]:
    server, said = Server("talks"), list[str]()

    @server.tool
    async def talks(ctx: Any) -> str:
        ctx.progress(1, 2)
        ctx.interrupt_stream(0.5)
        ctx.info("on it goes")
        try:
            await ctx.request("ping", {})
        except NoStream as error:
            said.append(str(error))
        return "done"

    return server, said


async def test_a_channel_that_cannot_be_interrupted_goes_on() -> None:
    server, _ = talking()
    async with WireProbe(server, answers={"ping": lambda _: {}}) as probe:
        result = await probe.request("tools/call", CALL)
        assert result["content"][0]["text"] == "done"
        assert len(probe.notifications("notifications/progress")) == 1
        assert len(probe.notifications("notifications/message")) == 1


async def test_a_request_without_a_session_gets_its_reply_and_cannot_ask_the_client() -> None:
    server, said = talking()
    async with server.started() as company:
        answer = await company.once(Peer("http"), JsonRpcRequest(1, "tools/call", CALL), LATEST)
        assert json.loads(answer.body)["result"]["content"][0]["text"] == "done"
        assert said == ["ping: the client has no open stream"]
        await asyncio.sleep(1.0)
        assert await which_children(company.sessions) == []
