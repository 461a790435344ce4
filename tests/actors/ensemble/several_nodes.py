"""A company on several nodes, each in a thread of this process, with an HTTP engine each and links between them as between programs."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tests.transports.http.engine_driver import EngineDriver, RecordedResponse, parse_events

from greenroom import Context, Question, Server, Settings
from greenroom.actors.ensemble.session_router import EnsembleMember, NodeSlot
from greenroom.supervision import Supervisor, child, start
from greenroom.supervision.background_node import BackgroundNode
from greenroom.supervision.cluster.peers import Peering, Peers
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.interfaces import HttpRefusal, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Generator, Mapping

    from greenroom.supervision import Ref

R = TypeVar("R")

PATIENCE = 10.0


class Badge:
    """A gatekeeper that believes every caller."""

    headers = ("x-badge",)

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:
        """The principal is the name in the header."""
        return Peer(peer.transport, peer.address, headers.get("x-badge"), None)

    async def challenge_for_scopes(
        self,
        scopes: Collection[str],
        method: str,
        path: str,
        headers: Mapping[str, str],
        peer: Peer,
    ) -> HttpRefusal:
        """They have no scopes."""
        return HttpRefusal(403)


def make_server(place: int, settings: Settings | None = None) -> Server:
    """What runs on each node."""
    server = Server("town", settings=settings)

    @server.tool
    async def where() -> int:
        return place

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        for step in range(count):
            await ctx.progress(step, count)
        return f"done at {place}"

    @server.tool
    async def held(ctx: Context) -> str:
        """Send a message, and continue when told to."""
        server.gates.append(asyncio.Event())  # type: ignore[attr-defined]
        await ctx.progress(0, 2)
        await server.gates[-1].wait()  # type: ignore[attr-defined]
        await ctx.progress(1, 2)
        return f"done at {place}"

    @server.tool
    async def forever() -> str:
        server.begun.set()  # type: ignore[attr-defined]
        try:
            await asyncio.Event().wait()
        finally:
            server.ended.set()  # type: ignore[attr-defined]
        return "never"

    @server.tool(task_support="optional")
    async def later() -> str:
        return "later"

    @server.tool
    async def asks(ctx: Context) -> str:
        return str(await ctx.roots())

    @server.tool
    async def asks_and_ends(ctx: Context) -> str:
        return f"{ctx.answers.require(Question.roots(key='roots'))} at {place}"

    @server.resource("town://news")
    async def news() -> str:
        return f"news of {place}"

    server.gates = []  # type: ignore[attr-defined]
    return server


class House:
    """One node with a server, and its HTTP engine."""

    def __init__(
        self, node: BackgroundNode, place: NodeSlot, settings: Settings | None, config: Mapping[str, Any]
    ) -> None:
        self.node = node
        self.place = place
        self.server = make_server(place.number, settings)
        self.renewed = 0
        self.peers: Peers
        self.top: Ref[Supervisor]
        self.config = config

    async def open(self) -> None:
        """Begin."""
        self.server.begun, self.server.ended = asyncio.Event(), asyncio.Event()  # type: ignore[attr-defined]
        self.peers = Peers(self.node.node, self.place.key)
        member = EnsembleMember(self.server.company, self.place, self._renew)
        children = [child(Peering, self.peers), member.child, self.server.child_spec()]
        self.top = await start(Supervisor, children)
        self.engine = EngineDriver.before(member.router, **self.config)
        self.engine.engine = HttpEngine(member.router, self.engine.config, Badge())

    def _renew(self) -> None:
        self.renewed += 1


class Town:
    """All of them."""

    def __init__(self, houses: list[House]) -> None:
        self.houses = houses

    def at(self, place: int, function: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """Run something on a node, and wait for what it returns."""

        async def bounded() -> R:
            async with asyncio.timeout(PATIENCE):
                return await function(*args)

        return self.houses[place].node.run(bounded)

    def client(self, home: int, badge: str | None = None) -> Client:
        """A peer with a session begun at that node."""
        client = Client(self, badge)
        self.at(home, client.enter, self.houses[home])
        return client


class Client:
    """A peer that may send each request to another node."""

    def __init__(self, town: Town, badge: str | None = None) -> None:
        self.town = town
        self.badge = badge
        self.session = ""
        self.last = 0

    def headers(self, **more: str | None) -> dict[str, str | None]:
        """The headers of every request."""
        return {"mcp-session-id": self.session, "x-badge": self.badge, "content-type": "application/json", **more}

    async def enter(self, house: House) -> None:
        """Begin."""
        params: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "t", "version": "1"},
        }
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        hello = await house.engine.post(body, {"x-badge": self.badge})
        assert hello.status == 200, hello.body
        self.session = hello.headers["mcp-session-id"]
        told = await house.engine.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.headers())
        assert told.status == 202

    def begin(self, house: House, method: str, **params: Any) -> tuple[RecordedResponse, asyncio.Task[None]]:
        """Send a request; returns the exchange that is being written. Runs on the node's own thread."""
        self.last += 1
        body = {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}
        paper = RecordedResponse()
        work = house.engine.begin(paper, "POST", "/mcp", self.headers(), json.dumps(body).encode())
        return paper, asyncio.create_task(work)

    def call(self, house: House, name: str, **arguments: Any) -> tuple[RecordedResponse, asyncio.Task[None]]:
        """Call a tool."""
        return self.begin(house, "tools/call", name=name, arguments=arguments, _meta={"progressToken": "t"})

    def ask(self, place: int, method: str, **params: Any) -> Any:
        """Send a request to a node, and wait for its response."""
        return self.town.at(place, self._ask, place, method, params)

    async def _ask(self, place: int, method: str, params: dict[str, Any]) -> Any:
        paper, work = self.begin(self.town.houses[place], method, **params)
        await work
        return answer_of(paper)

    def say(self, place: int, message: Any) -> int:
        """Send a notification or response; returns the status."""
        return self.town.at(place, self.town.houses[place].engine.post, message, self.headers()).status

    def tool(self, place: int, name: str, **arguments: Any) -> Any:
        """Call a tool at a node; its text."""
        said = self.ask(place, "tools/call", name=name, arguments=arguments, _meta={"progressToken": "t"})
        return said["result"]["content"][0]["text"]

    def listen(self, house: House, last: str | None = None) -> tuple[RecordedResponse, asyncio.Task[None]]:
        """Open a stream. Runs on the house's node."""
        paper = RecordedResponse()
        work = house.engine.begin(paper, "GET", "/mcp", self.headers(**{"last-event-id": last}), b"")
        return paper, asyncio.create_task(work)


def answer_of(paper: RecordedResponse) -> Any:
    """The response, on a stream or not."""
    if paper.chunks:
        return json.loads(parse_events(b"".join(paper.chunks))[-1]["data"])
    return json.loads(paper.body)


async def heard(paper: RecordedResponse, word: str) -> list[dict[str, str]]:
    """Wait for an event with this word in it; returns all events."""
    while True:
        events = parse_events(b"".join(paper.chunks))
        if any(word in event.get("data", "") for event in events):
            return events
        paper.news.clear()
        await paper.news.wait()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that has no event, between threads."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


@contextmanager
def town(size: int = 2, settings: Settings | None = None, **config: Any) -> Generator[Town]:
    """So many nodes that are connected to each other."""
    names, key = tuple(f"town-{number}" for number in range(size)), secrets.token_bytes(32)
    with ExitStack() as stack:
        houses = [
            House(stack.enter_context(BackgroundNode(name=name)), NodeSlot(number, names, key), settings, config)
            for number, name in enumerate(names)
        ]
        made = Town(houses)
        for number, house in enumerate(houses):
            made.at(number, house.open)
        for house in houses:
            for other in houses:
                if other is not house:
                    house.node.run(_introduced, house, other.node.node.name, other.peers.addresses)
        yield made


async def _introduced(house: House, name: str, addresses: tuple[str, ...]) -> None:
    house.peers.introduce(name, addresses)
