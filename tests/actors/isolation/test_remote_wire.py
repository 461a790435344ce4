"""A wire on another node, as its owner sees it: what differs from a local one, and what must not."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.client_command.process_tree import marked_processes
from tests.transports.client_command.wire_owner import misbehaving_server, open_wire
from tests.transports.client_http.request_signer import RequestSigner
from tests.transports.client_http.scripted_server import scripted_server
from tests.transports.client_http.wire_owner import open_wire as open_http_wire

from greenroom import ConfigError
from greenroom.protocol.jsonrpc import JsonRpcResponse
from greenroom.supervision import KILLED, Shutdown, current_node, exit, kill, wait_down
from greenroom.transports.client.errors import ConnectFailed, NodeEnded, Unauthorized, WireFull
from greenroom.transports.client.http_route import HttpRoute, SseRoute
from greenroom.transports.client.http_settings import Trust
from greenroom.transports.client.interfaces import UnansweredRequest, check_portable, portable_route
from greenroom.transports.client.remote_wire import UNACKED_MAILS, UNREAD, NodeLease, RemoteRoute
from greenroom.transports.client.server_command import Command, CommandLimits

from .isolated_hosts import all_gone
from .thread_node import neighbour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.client.remote_wire import NodeProvider

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.usefixtures("mark")]
BRIEF = CommandLimits(grace=0.2)
MIB = 1024 * 1024


def far(route: Any, place: NodeProvider) -> Any:
    """A route whose wires are on another node."""
    return RemoteRoute(route, place)


async def test_an_owner_that_does_not_read_is_not_flooded() -> None:
    line = '{"jsonrpc":"2.0","method":"notifications/x","params":{}}\n'
    async with neighbour() as place, open_wire(far(misbehaving_server(limits=BRIEF), place)) as owner:
        await owner.call("echo")
        owner.ask("flood", text=line)
        seen = -1
        while len(owner.me.pending()) != seen or seen < 10:
            seen = len(owner.me.pending())
            await asyncio.sleep(0.1)
        assert seen <= UNREAD + UNACKED_MAILS


async def test_a_sender_of_too_large_items_gets_an_error() -> None:
    async with neighbour() as place, open_wire(far(misbehaving_server(limits=BRIEF), place)) as owner:
        await owner.call("deaf")
        for _ in range(80):
            with contextlib.suppress(WireFull):
                owner.ask("echo", text="x" * MIB)
        told = await owner.hear()
        assert isinstance(told, UnansweredRequest)
        assert isinstance(told.error, WireFull)
        assert told.resend
        with pytest.raises(WireFull):  # noqa: PT012 - one of them, before the node there has a turn
            for _ in range(80):
                owner.ask("echo", text="x" * MIB)
        kill(owner.wire.pid)


async def test_a_wire_that_is_killed_takes_the_child_along(mark: str) -> None:
    async with (
        neighbour() as place,
        open_wire(far(misbehaving_server(env={"GREENROOM_TEST_MARK": mark}), place)) as owner,
    ):
        await owner.call("stubborn", ignored=[15], deaf=True)
        assert marked_processes(mark)
        kill(owner.wire.pid)
        await owner.rest_of_it()
        assert owner.ended == KILLED
        await all_gone(mark)


async def test_a_killed_wire_ends_its_child_that_writes_more_than_is_read(mark: str) -> None:
    line = '{"jsonrpc":"2.0","method":"notifications/x","params":{}}\n'
    env = {"GREENROOM_TEST_MARK": mark}
    async with neighbour() as place, open_wire(far(misbehaving_server(limits=BRIEF, env=env), place)) as owner:
        await owner.call("echo")
        owner.ask("flood", text=line)
        seen = -1
        while len(owner.me.pending()) != seen or seen < 10:
            seen = len(owner.me.pending())
            await asyncio.sleep(0.1)
        assert marked_processes(mark)
        kill(owner.wire.pid)
        await all_gone(mark)  # not because its node ends: that is still there
        while owner.ended is None:
            await owner.rest_of_it()


async def test_a_route_that_cannot_be_opened_there_is_an_attempt_in_vain_whatever_was_said_meanwhile() -> None:
    route = HttpRoute("http://far.invalid/mcp", proxy="ftp://user:hush@proxy.invalid")
    async with neighbour() as place, open_http_wire(far(route, place)) as owner:
        for _ in range(3):
            id = owner.ask("initialize", {})
            owner.wire.forget(id)
            owner.wire.on_negotiated("2025-11-25")
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert "this proxy cannot be used" in str(error)
        assert "hush" not in str(error)


async def test_a_session_is_given_back_from_there_when_home_ends_in_order() -> None:
    async with scripted_server() as server, neighbour() as place:
        async with open_http_wire(far(HttpRoute(server.url), place)) as owner:
            await owner.greet()
        await asyncio.wait_for(server.until("DELETE"), 25)


@pytest.mark.parametrize("size", [1, 17 * MIB, 40 * MIB])
async def test_answers_of_any_size_and_numbers_of_any_length(size: int) -> None:
    limits = CommandLimits(line=64 * MIB)
    async with neighbour() as place, open_wire(far(misbehaving_server(limits=limits), place)) as owner:
        said = {"text": "x" * size, "long": 1 << 200, "rows": [[1, 2.5, None, True, {"ü": "☃"}]] * 10}
        id = owner.ask("echo", **said)
        assert await owner.hear() == JsonRpcResponse(id, said)


async def test_stderr_of_a_program_reaches_the_host() -> None:
    heard: list[str] = []
    told = asyncio.Event()

    def sink(line: str) -> None:
        heard.append(line)
        if len(heard) == 2:
            told.set()

    command = Command("/bin/sh", "-c", "echo one >&2; echo two >&2; exec cat", stderr=sink)
    async with neighbour() as place, open_wire(far(command, place)):
        await asyncio.wait_for(told.wait(), 20)
    assert heard == ["one", "two"]


async def test_a_program_sees_the_environment_and_the_folder_of_home(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_HERE", "yes")
    command = Command("/bin/sh", "-c", 'echo "$LC_HERE $OWN $PWD" > there; exec cat', env={"OWN": "too"})
    async with neighbour() as place, open_wire(far(command, place)) as owner:
        while not (tmp_path / "there").exists() or not (tmp_path / "there").read_text():  # noqa: ASYNC110 - another program
            await asyncio.sleep(0.01)
        await owner.close()
    assert (tmp_path / "there").read_text() == f"yes too {tmp_path}\n"


async def test_a_program_that_is_not_there_is_an_attempt_in_vain() -> None:
    async with neighbour() as place, open_wire(far(Command("no-such-program"), place)) as owner:
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert "there is no program named no-such-program" in str(error)


async def test_a_place_where_there_is_no_room_is_an_attempt_in_vain() -> None:
    class Nowhere:
        async def acquire(self) -> NodeLease:
            raise OSError("no room at the inn")

    async with open_wire(far(misbehaving_server(), Nowhere())) as owner:
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert "OSError: no room at the inn" in str(error)


async def test_a_sender_that_leaves_before_there_is_room_leaves_at_once() -> None:
    class Somewhere:
        async def acquire(self) -> NodeLease:
            await asyncio.Event().wait()
            raise AssertionError

    async with open_wire(far(misbehaving_server(), Somewhere())) as owner:
        owner.ask("echo")
        exit(owner.wire.pid, Shutdown("closed"))
        await owner.rest_of_it()
        assert owner.ended == Shutdown("closed")


async def test_a_node_that_is_lost_is_the_wires_end() -> None:
    async with neighbour() as place, open_wire(far(misbehaving_server(), place)) as owner:
        await owner.call("echo")
        exit(place.keeper, Shutdown("it was stopped"))
        await wait_down(place.keeper)
        peers: Any = current_node().remote_nodes
        peers.disconnect(place.name)
        error = await owner.end()
        assert isinstance(error, NodeEnded)
        assert "was stopped" in str(error)


class Keeper:
    """A credential that returns another header each time."""

    def __init__(self) -> None:
        self.asked = 0
        self.refusals: list[tuple[int, str, dict[str, str]]] = []
        self.secret = "a secret"

    async def headers(self) -> Mapping[str, str]:
        self.asked += 1
        return {"authorization": f"Bearer token-{self.asked}"}

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        self.refusals.append((status, challenge, dict(sent)))
        return len(self.refusals) == 1


class Hidden(str):
    """A text with a repr that hides it, as in a library that keeps secrets."""

    __slots__ = ()

    def __str__(self) -> str:
        return "***"


class Odd:
    """Credentials that return something else than text, or text that is not Unicode."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def headers(self) -> Mapping[str, str]:
        return {Hidden("authorization"): self.value}

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        return not (status or challenge or sent)


async def test_credentials_of_a_class_of_their_own_arrive_as_what_they_are() -> None:
    async with scripted_server() as server, neighbour() as place:
        route = HttpRoute(server.url, credentials=Odd(Hidden("Bearer token")))
        async with open_http_wire(far(route, place)) as owner, asyncio.timeout(20):
            await owner.greet()
        sent = [each.headers["authorization"] for each in server.requests if "authorization" in each.headers]
        assert set(sent) == {"Bearer token"}


@pytest.mark.parametrize("value", [object(), ["secret"], "secret \ud800"], ids=["object", "list", "surrogate"])
async def test_credentials_that_cannot_travel_are_an_answer(value: Any) -> None:
    async with scripted_server() as server, neighbour() as place:
        async with (
            open_http_wire(far(HttpRoute(server.url, credentials=Odd(value)), place)) as owner,
            asyncio.timeout(20),
        ):
            owner.ask("initialize", {})
            told = await owner.hear()
        assert isinstance(told, UnansweredRequest)
        assert "the credentials" in str(told.error)
        assert "secret" not in str(told.error)


@pytest.mark.parametrize("old", [False, True])
async def test_the_caller_is_identified_at_home_for_each_request(old: bool) -> None:  # noqa: FBT001 - a table
    keeper = Keeper()
    async with scripted_server() as server, neighbour() as place:
        if old:
            route: HttpRoute = SseRoute(server.url, credentials=keeper)
        else:
            route = HttpRoute(server.url, credentials=keeper)
        async with open_http_wire(far(route, place)) as owner:
            if old:
                await server.until("GET")
            else:
                await owner.greet()
                await owner.answer(owner.call("any"))
        sent = [each.headers["authorization"] for each in server.requests if "authorization" in each.headers]
        assert sorted(sent) == [f"Bearer token-{number + 1}" for number in range(keeper.asked)]
        assert sent


async def test_a_refusal_is_looked_at_at_home_and_the_challenge_comes_with_the_error() -> None:
    async def refuses(attempt: Any) -> None:
        await attempt.reply(401, b"", **{"www-authenticate": 'Bearer scope="more"'})

    keeper = Keeper()
    async with scripted_server(initialize=refuses) as server, neighbour() as place:
        async with open_http_wire(far(HttpRoute(server.url, credentials=keeper), place)) as owner:
            owner.ask("initialize", {})
            told = await owner.hear()
        assert isinstance(told, UnansweredRequest)
        assert isinstance(told.error, Unauthorized)
        assert told.error.challenge == 'Bearer scope="more"'
        assert [each[:2] for each in keeper.refusals] == [(401, 'Bearer scope="more"')]
        assert keeper.refusals[0][2] == {"authorization": "Bearer token-1"}


async def test_requests_are_signed_at_home_with_the_nonces_of_their_responses() -> None:
    async def call(received: Any) -> None:
        if received.headers["dpop"].endswith(" none"):
            challenge = 'DPoP error="use_dpop_nonce"'
            await received.reply(401, b"", **{"www-authenticate": challenge, "dpop-nonce": "n1"})
        else:
            await received.result({"content": []}, **{"dpop-nonce": "n2"})

    signer = RequestSigner()
    async with scripted_server(call=call) as server, neighbour() as place:
        async with open_http_wire(far(HttpRoute(server.url, credentials=signer), place)) as owner:
            await owner.greet()
            assert await owner.answer(owner.ask("tools/call", {"name": "any"})) == {"content": []}
        shown = [each.headers["dpop"].split()[1:] for each in server.seen("tools/call")]
        assert shown == [["POST", server.url, "none"], ["POST", server.url, "n1"]]
        assert signer.nonces[:2] == [(server.url, "n1"), (server.url, "n2")]
        assert len({each.headers["dpop"] for each in server.requests}) == len(server.requests)


def test_packed_arguments_show_no_secret_and_contain_none_that_is_kept() -> None:
    keeper = Keeper()
    route = HttpRoute("https://me:cret@a.example/mcp?key=hidden", headers={"X-Key": "hush"}, credentials=keeper)
    ticket: Any = portable_route(route)
    assert not any(each in repr(ticket) for each in ("cret", "hidden", "hush"))
    assert keeper.secret not in repr(asdict(ticket))
    command: Any = portable_route(Command("x", env={"TOKEN": "hush"}))
    assert "hush" not in repr(command)


def test_values_of_this_process_alone_are_refused() -> None:
    check_portable(HttpRoute("https://a.example/mcp", trust=Trust()))
    with pytest.raises(ConfigError, match="give it a Trust"):
        check_portable(HttpRoute("https://a.example/mcp", trust=Trust().context()))
    with pytest.raises(ConfigError, match="a transport of this process"):
        check_portable(HttpRoute("https://a.example/mcp", transport=_client()))

    class Own:
        description = "own"

        def open(self, owner: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(ConfigError, match="cannot be opened in another process"):
        check_portable(Own())


def _client() -> Any:
    import httpx  # noqa: PLC0415 - for this alone

    return httpx.MockTransport(lambda _: httpx.Response(200))
