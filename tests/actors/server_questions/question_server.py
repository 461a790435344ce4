"""Helpers of the question tests: a server with real workers, and clients on a channel or on streams."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.actors.session.session_client import join

from greenroom import Server
from greenroom.protocol.versions import LATEST
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from tests.actors.session.session_client import SessionClient

    from greenroom import Settings
    from greenroom.actors.company import Company

EVERYTHING: dict[str, Any] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}


class QuestionServer:
    """A running server, with clients."""

    def __init__(self, server: Server, company: Company, entered: AsyncExitStack) -> None:
        self.server = server
        self.company = company
        self._entered = entered

    async def probe(
        self,
        answers: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None,
        *,
        capabilities: Mapping[str, Any] = EVERYTHING,
        version: str = LATEST,
    ) -> WireProbe:
        """A client on a channel. Questions without an answer function stay open."""
        probe = WireProbe(self.company, capabilities=capabilities, answers=answers, version=version)
        return await self._entered.enter_async_context(probe)

    async def player(self, *, capabilities: Mapping[str, Any] = EVERYTHING, version: str = LATEST) -> SessionClient:
        """A client on streams."""
        return await join(self.company, version=version, capabilities=capabilities)

    async def questions(self) -> list[str]:
        """The open questions of all sessions."""
        cards = await self.server.peers.all()
        return [id for card in cards for id in (await self.server.peers.snapshot(card.id))["questions"]]


@asynccontextmanager
async def running_question_server(
    *tools: Callable[..., Any], settings: Settings | None = None
) -> AsyncGenerator[QuestionServer]:
    """A server with these tools, for as long as the block lasts."""
    server = Server("stage", settings=settings)
    for tool in tools:
        server.tool(tool)
    async with server.started() as company, AsyncExitStack() as stack:
        yield QuestionServer(server, company, stack)


def result_text(result: Mapping[str, Any]) -> str:
    """The text of a tool's result."""
    return "".join(block["text"] for block in result["content"])
