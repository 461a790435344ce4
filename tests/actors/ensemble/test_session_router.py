"""The routing of tasks in a company on several nodes: which node a request goes to, and the answer for unknown tasks. The other nodes are played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.ensemble import session_router as doors
from greenroom.actors.ensemble.routed_ids import RoutedIds
from greenroom.actors.ensemble.session_router import EnsembleRouter
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    encode_error,
    encode_result,
    parse,
)
from greenroom.supervision import NO_CONNECTION, ProcessExited
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = b"k" * 32
VERSION = "2025-11-25"
ALICE = Peer("http", principal="alice")
ANONYMOUS = Peer("http")


class Store:
    """A task store that contains the tasks in `known`."""

    def __init__(self, *known: str, durable: bool) -> None:
        self.known = known
        self.durable = durable

    def get(self, id: str) -> object:
        return id if id in self.known else None


class Session:
    """A session that records what it is asked."""

    id = "mcp_x"
    version: str | None = VERSION

    def __init__(self, channel: object = None) -> None:
        self.channel = channel
        self.told: list[Any] = []

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> Any:
        return ("by the session", request.method)

    async def notify(self, notification: JsonRpcNotification) -> None:
        self.told.append(notification)

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        self.told.append(answer)

    async def listen(self, last_event_id: str | None = None) -> Any:
        return ("a feed", last_event_id)

    async def end(self) -> None:
        self.told.append("end")


class Scene:
    """Node 0 of three, and the answer of each of them about a task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store | None = None) -> None:
        self.asked: list[int] = []
        self.confirmed: list[str] = []
        self.says: dict[int, Callable[[JsonRpcRequest], bytes]] = dict.fromkeys((0, 1, 2), self._unknown)
        self.session: Session | None = None
        self.own: dict[str, Any] = {}
        monkeypatch.setattr(doors, "RemoteSession", self._elsewhere)
        company: Any = SimpleNamespace(
            tasks=SimpleNamespace(store=store or Store(durable=False)),
            method_handlers=self.own,
            once=self._once,
            find=lambda id, peer: self.session,  # pyright: ignore[reportUnknownLambdaType]
        )
        session_servers: Any = {1: 1, 2: 2}
        self.door = EnsembleRouter(company, RoutedIds(KEY, 0), session_servers)

    @staticmethod
    def _unknown(request: JsonRpcRequest) -> bytes:
        return encode_error(request.id, McpError(ErrorCode.INVALID_PARAMS, "Task not found"))

    async def _once(
        self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None
    ) -> EncodedReply:
        self.asked.append(0)
        return EncodedReply(self.says[0](request))

    def _elsewhere(self, id: str, session_server: int, peer: Peer, *, channel: bool) -> Any:
        async def once(request: JsonRpcRequest, version: str, quiet: float | None = None) -> EncodedReply:
            assert (id, channel, version) == ("", False, VERSION)
            self.asked.append(session_server)
            return EncodedReply(self.says[session_server](request))

        async def confirm() -> None:
            self.confirmed.append(id)

        return SimpleNamespace(once=once, confirm=confirm, id=id, channel=None, version=None)

    async def get(self, task: object, method: str = "tasks/get", peer: Peer = ALICE) -> Any:
        """What is answered without a session."""
        answer = await self.door.once(peer, asking(task, method), VERSION)
        assert isinstance(answer, EncodedReply)
        return parse(answer.body)


def asking(task: object, method: str = "tasks/get") -> JsonRpcRequest:
    return JsonRpcRequest(7, method, {"taskId": task})


def working(request: JsonRpcRequest) -> bytes:
    return encode_result(request.id, {"status": "working"})


def lost(request: JsonRpcRequest) -> bytes:
    raise ProcessExited(NO_CONNECTION, "a session server")


def task_of(place: int) -> str:
    return RoutedIds(KEY, place).new("task")


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_task_is_asked_for_where_it_is_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    scene = Scene(monkeypatch)
    scene.says[place] = working
    assert await scene.get(task_of(place)) == JsonRpcResponse(7, {"status": "working"})
    assert scene.asked == [place]


async def test_a_task_whose_process_is_gone_is_told_in_the_words_for_one_that_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    scene.says[1] = lost
    answer = await scene.get(task_of(1))
    assert isinstance(answer, JsonRpcError)
    assert (answer.error.code, answer.error.message) == (
        ErrorCode.INVALID_PARAMS,
        "Task not found: there is none with that id, it has expired, or the process that had it is gone",
    )


@pytest.mark.parametrize("task", ["made up", 5, None, task_of(40)], ids=["made up", "a number", "none", "no such node"])
async def test_a_request_for_an_unknown_task_is_answered_on_this_node(
    monkeypatch: pytest.MonkeyPatch, task: object
) -> None:
    scene = Scene(monkeypatch)
    assert isinstance(await scene.get(task), JsonRpcError)
    assert scene.asked == [0]


async def test_requests_without_a_task_are_answered_on_this_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    scene.own["tasks/get"] = object()
    for method in ("tasks/get", "tasks/list"):
        await scene.get(task_of(1), method)
    assert scene.asked == [0, 0]


async def test_a_task_from_before_is_searched_on_all_nodes_until_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, Store(durable=True))
    scene.says[1], scene.says[2] = lost, working
    assert await scene.get("an old one") == JsonRpcResponse(7, {"status": "working"})
    assert scene.asked == [1, 2]


async def test_a_task_from_before_that_no_node_has_is_answered_on_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Store(durable=True))
    assert isinstance(await scene.get("an old one"), JsonRpcError)
    assert scene.asked == [1, 2, 0]


async def test_a_task_from_before_that_is_here_is_asked_for_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Store("an old one", durable=True))
    scene.says[0] = working
    assert await scene.get("an old one") == JsonRpcResponse(7, {"status": "working"})
    assert scene.asked == [0]


async def test_a_peer_with_a_session_on_another_node_finds_a_task_on_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.says[0] = working
    name = RoutedIds(KEY, 1).new("mcp")
    session = scene.door.find(name, ALICE)
    assert session is not None
    answer: Any = await session.request(asking(task_of(0)))
    assert parse(answer.body) == JsonRpcResponse(7, {"status": "working"})
    assert (scene.asked, scene.confirmed) == ([0], [name])


@pytest.mark.parametrize(
    ("peer", "durable", "wraps"), [(ANONYMOUS, False, False), (ALICE, False, True), (ANONYMOUS, True, True)]
)
async def test_a_session_of_one_who_may_have_tasks_elsewhere_is_that_session_in_all_else(
    monkeypatch: pytest.MonkeyPatch,
    peer: Peer,
    durable: bool,  # noqa: FBT001
    wraps: bool,  # noqa: FBT001
) -> None:
    scene = Scene(monkeypatch, Store(durable=durable))
    scene.session = Session()
    scene.says[1] = working
    session: Any = scene.door.find("mcp_x", peer)
    assert (session is not scene.session) == wraps
    assert (session.id, session.version, session.channel) == ("mcp_x", VERSION, None)
    assert await session.request(JsonRpcRequest(1, "tools/list", {})) == ("by the session", "tools/list")
    answer: Any = await session.request(asking(task_of(1)))
    assert isinstance(answer, EncodedReply) == wraps
    assert await session.listen("e-1") == ("a feed", "e-1")
    told = [JsonRpcNotification("notifications/initialized", {}), JsonRpcResponse(1, {})]
    await session.notify(told[0])
    await session.respond(told[1])
    await session.end()
    assert scene.session.told == [*told, "end"]


async def test_requests_by_a_channel_are_answered_by_their_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.session = Session(channel=object())
    session = scene.door.find("mcp_x", ALICE)
    assert session is not None
    answer: Any = await session.request(asking(task_of(1)))
    assert answer == ("by the session", "tasks/get")


@pytest.mark.parametrize(
    "id",
    ["made up", RoutedIds(KEY, 40).new("mcp"), RoutedIds(b"x" * 32, 1).new("mcp")],
    ids=["made up", "no such node", "another key"],
)
async def test_an_unknown_session_id_is_found_on_no_node(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    assert Scene(monkeypatch).door.find(id, ALICE) is None
