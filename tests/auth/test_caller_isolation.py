"""Clients of many principals use the same ids, and no client ever gets the data of another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from greenroom import Context, Server
from greenroom.auth.shared_secrets import CustomAuth

from .auth_test_server import Reception, bearer

PRINCIPALS = 50


@pytest.mark.row("SA-21", "SA-23")
@pytest.mark.parametrize("clients", [100, pytest.param(1000, marks=pytest.mark.soak)])
async def test_no_client_receives_the_canary_of_another(clients: int) -> None:
    server = Server("aviary", auth=CustomAuth(lambda token: {"subject": token.partition("-")[0], "scopes": []}))

    @server.tool(task_support="optional")
    async def sing(ctx: Context, canary: str) -> str:
        await ctx.progress(1, message=canary)
        await ctx.info(canary)
        await asyncio.sleep(0.01)
        return f"{ctx.auth.subject}: {canary}"

    async with server.started():
        desk = Reception(server)
        principals = min(PRINCIPALS, clients // 2)

        def who(number: int) -> dict[str, str | None]:
            return bearer(f"p{number % principals}-{number}")

        async def one(number: int) -> tuple[str, bytes]:
            """All data that a client received, and what it may receive."""
            shown, canary = who(number), f"canary.{number % principals}.{number}."
            session = await desk.enter(shown)
            heard: list[Any] = []
            for id in range(3):
                arguments: dict[str, Any] = {"name": "sing", "arguments": {"canary": canary}}
                if id == 1:
                    arguments["task"] = {}
                else:
                    arguments["_meta"] = {"progressToken": id}
                message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": arguments}
                paper = await desk.ask("POST", shown, message, mcp_session_id=session)
                heard.append(paper)
                while paper.said[-1] not in ("reply", "end"):
                    paper.news.clear()
                    await paper.news.wait()
            listed: dict[str, Any] = {"jsonrpc": "2.0", "id": 4, "method": "tasks/list", "params": {}}
            mine = await desk.ask("POST", shown, listed, mcp_session_id=session)
            for task in mine.json["result"]["tasks"]:
                asked = {"jsonrpc": "2.0", "id": 5, "method": "tasks/result", "params": {"taskId": task["taskId"]}}
                heard.append(await desk.ask("POST", shown, asked, mcp_session_id=session))
            general = await desk.ask("GET", shown, mcp_session_id=session)
            back = await desk.ask("GET", shown, mcp_session_id=session, last_event_id="p1:0")
            await desk.ask("DELETE", shown, mcp_session_id=session)
            heard += [mine, general, back]
            return f"canary.{number % principals}.", b"".join(each.body + b"".join(each.chunks) for each in heard)

        told = await asyncio.gather(*(one(number) for number in range(clients)))
        for own, heard in told:
            text = heard.decode()
            assert text.count(own) >= 3
            assert text.count("canary.") == text.count(own)
        await desk.close()
    assert json.dumps(len(told)) == str(clients)
