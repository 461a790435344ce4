"""Helpers of the session tests: a company whose workers run scripted tools, and a client that stands in for the transport."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from greenroom.actors.company import Company
from greenroom.actors.worker_interfaces import Job, JobError, JobReply
from greenroom.protocol.errors import McpError
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, encode_result
from greenroom.protocol.versions import LATEST
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import EncodedReply, Feed, Peer, SessionHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.transports.interfaces import FeedEvent

    Tool = Callable[[Job], Awaitable[Any]]

CAPABILITIES = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}
CLIENT = {"name": "player", "version": "1"}


def initialize_request(version: str = LATEST, id: str | int = 0, **changes: Any) -> JsonRpcRequest:
    """An `initialize` request."""
    params = {"protocolVersion": version, "capabilities": CAPABILITIES, "clientInfo": CLIENT}
    return JsonRpcRequest(id, "initialize", params | changes)


class ScriptedTools:
    """The tools of a company's workers: a function for each name."""

    def __init__(self, **tools: Tool) -> None:
        self.tools = tools
        self.gate = asyncio.Event()
        self.jobs: list[Job] = []

    async def work(self, job: Job) -> None:
        """Run the tool of that name, and reply as the real worker would."""
        self.jobs.append(job)
        try:
            value = await self.tools[job.params["name"]](job)
        except McpError as error:
            job.session.send(JobError(job.key, error))
        else:
            job.session.send(JobReply(job.key, encode_result(job.request_id, value)))


async def echo(job: Job) -> Any:
    """Answer with the arguments."""
    return {"echo": job.params.get("arguments")}


class SessionClient:
    """A client of one session, including the transport."""

    def __init__(self, company: Company, session: SessionHandle) -> None:
        self.company = company
        self.session = session
        self._ids = 0

    async def reply(self, method: str, /, *, id: str | int | None = None, **params: Any) -> Any:
        """Send a request; returns the `SessionReply` of the transport interface."""
        if id is None:
            self._ids += 1
            id = self._ids
        return await self.session.request(JsonRpcRequest(id, method, params))

    async def ask(self, method: str, /, *, id: str | int | None = None, **params: Any) -> dict[str, Any]:
        """Send a request; returns the message that answers it."""
        reply = await self.reply(method, id=id, **params)
        assert isinstance(reply, EncodedReply), reply
        return message(reply.body)

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; returns the message that answers it."""
        return await self.ask("tools/call", name=name, arguments=arguments)

    def later(self, name: str, id: str | int | None = None, **arguments: Any) -> asyncio.Task[Any]:
        """Start a call of a tool, without waiting for its reply."""
        return asyncio.create_task(self.reply("tools/call", id=id, name=name, arguments=arguments))

    async def tell(self, method: str, /, **params: Any) -> None:
        """Send a notification."""
        await self.session.notify(JsonRpcNotification(method, params))

    async def cancel(self, id: str | int) -> None:
        """Cancel a request."""
        await self.tell("notifications/cancelled", requestId=id, reason="changed my mind")


def message(body: bytes) -> dict[str, Any]:
    """Decode a message."""
    assert b"\n" not in body
    found: dict[str, Any] = json.loads(body)
    assert found["jsonrpc"] == "2.0"
    return found


async def read(feed: Feed, timeout: float = 1.0) -> list[FeedEvent]:
    """All events of a feed until it ends, or is silent for so long."""
    found: list[FeedEvent] = []
    while events := await feed.next(timeout):
        found.extend(events)
    return found


def messages_in(events: list[FeedEvent]) -> list[dict[str, Any]]:
    """The messages among the events."""
    return [message(event.data) for event in events if event.data]


async def open_company(tools: ScriptedTools | None = None, **options: Any) -> Company:
    """Start a company under the test's supervisor."""
    company = Company(work=(tools or ScriptedTools(echo=echo)).work, **options)
    await start_supervised(company.child_spec())
    return company


async def join(company: Company, peer: Peer | None = None, version: str = LATEST, **changes: Any) -> SessionClient:
    """Begin a session, to the end of the handshake."""
    peer = Peer("test") if peer is None else peer
    entered = await company.start_session(peer, initialize_request(version, **changes))
    assert entered.session is not None, entered.answer
    player = SessionClient(company, entered.session)
    await player.tell("notifications/initialized")
    return player


async def turns(count: int = 20) -> None:
    """Let all other tasks run for some turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)
