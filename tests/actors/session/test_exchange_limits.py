"""Requests without a session are bounded: for each caller, and in all."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Server, Settings
from greenroom.actors.listen_process import ListenProcess
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.company import Company

HOLD: dict[str, Any] = {"name": "hold", "arguments": {}}


@asynccontextmanager
async def holding(**settings: Any) -> AsyncGenerator[tuple[Company, asyncio.Event]]:
    """A server whose tool returns when the event is set."""
    server, released = Server("holding", settings=Settings(**settings)), asyncio.Event()

    @server.tool
    async def hold() -> str:
        await released.wait()
        return "done"

    async with server.started() as company:
        yield company, released


def begin(client: StatelessClient) -> asyncio.Future[Any]:
    """Begin a call."""
    return asyncio.ensure_future(client.company.exchange(client.peer, client.request("tools/call", HOLD)))


async def refusal(client: StatelessClient) -> tuple[int, str, Any]:
    """The status, message and data of a call that is refused."""
    reply = await client.reply("tools/call", **HOLD)
    error = json.loads(reply.body)["error"]
    return reply.status, error["message"], error["data"]


async def test_one_caller_cannot_use_the_share_of_another() -> None:
    async with holding(max_exchanges_per_principal=2) as (company, released):
        ada, eve = (StatelessClient(company, Peer("test", principal=name)) for name in ("ada", "eve"))
        begun = [begin(ada), begin(ada)]
        await asyncio.sleep(0.1)
        assert await refusal(ada) == (
            503,
            "Too many requests at once: one caller may have 2",
            {"reason": "too_many_requests", "maybe_done": False},
        )
        begun.append(begin(eve))
        await asyncio.sleep(0.1)
        assert company.exchanges.open == 3

        released.set()
        replies = await asyncio.gather(*begun)
        assert all(isinstance(each, EncodedReply) and each.status == 200 for each in replies)
        assert company.exchanges.open == 0
        assert (await ada.result("tools/call", **HOLD))["resultType"] == "complete"


async def test_all_callers_together_are_bounded() -> None:
    async with holding(max_exchanges=2) as (company, released):
        clients = [StatelessClient(company, Peer("test", principal=name)) for name in ("ada", "eve", "bob")]
        begun = [begin(each) for each in clients[:2]]
        await asyncio.sleep(0.1)
        status, message, _ = await refusal(clients[2])
        assert (status, message) == (503, "Too many requests at once: at most 2 may be worked on")
        assert (await clients[2].result("tools/list"))["tools"]

        begun[0].cancel()
        await asyncio.sleep(1)
        assert company.exchanges.open == 1
        released.set()
        assert (await clients[2].result("tools/call", **HOLD))["resultType"] == "complete"
        await begun[1]


async def test_a_refused_request_gives_no_place_back_however_late() -> None:
    async with holding(max_exchanges_per_principal=1, call_timeout=3.0) as (company, released):
        ada = StatelessClient(company, Peer("test", principal="ada"))
        begun = begin(ada)
        await asyncio.sleep(2)
        assert (await refusal(ada))[0] == 503
        released.set()
        await begun
        await asyncio.sleep(10)
        assert company.exchanges.open == 0


LISTEN: dict[str, Any] = {"notifications": {"toolsListChanged": True}}


def break_process(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Make the process of each listen crash in this step."""

    def crash(self: ListenProcess) -> None:
        raise RuntimeError(step)

    monkeypatch.setattr(ListenProcess, step, crash)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("step", ["init", "open_feed"])
async def test_a_listen_whose_process_crashes_at_its_start_gives_its_place_back_once(
    step: str, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    async with holding(max_exchanges_per_principal=1) as (company, _):
        ada = StatelessClient(company, Peer("test", principal="ada"))
        break_process(monkeypatch, step)
        listen = ada.request("subscriptions/listen", LISTEN)
        opening = asyncio.ensure_future(company.exchange(ada.peer, listen, quiet=60.0))
        if waits:
            reply = await opening
            assert isinstance(reply, EncodedReply)
            assert (reply.status, json.loads(reply.body)["error"]["data"]["reason"]) == (503, "busy")
        else:
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            assert opening.cancelled()
        await asyncio.sleep(1)
        assert company.exchanges.open == 0
