"""Another principal's session, task or old stream looks unknown on every node: same status, headers and body as for an id that was never given out."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.transports.http.engine_driver import RecordedResponse, parse_events

from .several_nodes import Town, town

if TYPE_CHECKING:
    from collections.abc import Generator

    from .several_nodes import House

pytestmark = pytest.mark.greenroom(clock="real")
UNKNOWN = "mcp_" + "0" * 40
UNKNOWN_TASK = "task_" + "0" * 40


class Try(NamedTuple):
    """One request with a session id."""

    verb: str
    body: Any = b""
    headers: dict[str, str | None] = {}  # noqa: RUF012 - no test changes it


def message(method: str, id: Any = None, **params: Any) -> bytes:
    """A request, or without an id a notification."""
    said = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(said if id is None else {**said, "id": id}).encode()


TRIES = {
    "a request": Try("POST", message("tools/list", 7)),
    "a call": Try("POST", message("tools/call", "seven", name="where", arguments={})),
    "initialize": Try("POST", message("initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo={})),
    "a notification": Try("POST", message("notifications/roots/list_changed")),
    "an answer": Try("POST", b'{"jsonrpc": "2.0", "id": "s1", "result": {}}'),
    "a broken answer": Try("POST", b'{"jsonrpc": "2.0", "id": "s1", "result": 5}'),
    "no JSON": Try("POST", b"{"),
    "a stream": Try("GET"),
    "a replay of the common stream": Try("GET", headers={"last-event-id": "g0:0"}),
    "a replay of a call": Try("GET", headers={"last-event-id": "p1:0"}),
    "a replay of nothing": Try("GET", headers={"last-event-id": "no such event"}),
    "an end": Try("DELETE"),
}
OLD_TRIES = {
    "a request": message("tools/list", 7),
    "a notification": message("notifications/roots/list_changed"),
    "an answer": b'{"jsonrpc": "2.0", "id": "s1", "result": {}}',
    "a broken answer": b'{"jsonrpc": "2.0", "id": "s1", "result": 5}',
    "no JSON": b"{",
}


@pytest.fixture(name="two", params=[2, 1], ids=["workers", "alone"])
def _two(request: pytest.FixtureRequest) -> Generator[Town]:
    with town(request.param, old_sse=True) as made:
        yield made


def seen(paper: RecordedResponse) -> tuple[int, dict[str, str], bytes, list[bytes]]:
    """Everything in an answer that a peer can see."""
    return paper.status, paper.headers, paper.body, paper.chunks


async def _ask(house: House, badge: str | None, session: str, what: Try) -> Any:
    headers = {"mcp-session-id": session, "x-badge": badge, "content-type": "application/json", **what.headers}
    return seen(await house.engine.ask(what.verb, "/mcp", headers, what.body))


@pytest.mark.parametrize("stranger", ["eve", None], ids=["another principal", "no principal"])
@pytest.mark.parametrize("name", TRIES)
def test_a_session_of_another_principal_looks_unknown_to_every_verb(two: Town, name: str, stranger: str | None) -> None:
    alice = two.client(0, "alice")
    for place, house in enumerate(two.houses):
        foreign = two.at(place, _ask, house, stranger, alice.session, TRIES[name])
        unknown = two.at(place, _ask, house, stranger, UNKNOWN, TRIES[name])
        assert foreign == unknown
        assert foreign[0] in (404, 400 if name in ("a broken answer", "no JSON") else 404)
    assert alice.tool(0, "where") == "0"


@pytest.mark.parametrize("name", TRIES)
def test_a_session_that_has_ended_looks_unknown_to_its_own_principal(two: Town, name: str) -> None:
    alice = two.client(0, "alice")
    assert two.at(0, _ask, two.houses[0], "alice", alice.session, TRIES["an end"])[0] == 204
    for place, house in enumerate(two.houses):
        ended = two.at(place, _ask, house, "alice", alice.session, TRIES[name])
        assert ended == two.at(place, _ask, house, "alice", UNKNOWN, TRIES[name])


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_a_task_of_another_principal_looks_unknown_on_every_node(two: Town, method: str) -> None:
    alice, eve = two.client(0, "alice"), two.client(0, "eve")
    task = alice.ask(0, "tools/call", name="later", arguments={}, task={})["result"]["task"]["taskId"]
    for place in range(len(two.houses)):
        foreign, unknown = (_error(eve.ask(place, method, taskId=each)) for each in (task, UNKNOWN_TASK))
        assert foreign == unknown
        assert eve.ask(place, "tasks/list")["result"]["tasks"] == []
    assert alice.ask(0, "tasks/get", taskId=task)["result"]["taskId"] == task


def _error(answer: Any) -> Any:
    return answer["error"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_a_session_of_another_principal_looks_unknown_to_a_question_about_a_task_of_ones_own(
    two: Town, method: str
) -> None:
    """Such a request is answered by the node of the task, and not by that of the session."""
    alice, eve = two.client(0, "alice"), two.client(len(two.houses) - 1, "eve")
    task = eve.ask(0, "tools/call", name="later", arguments={}, task={})["result"]["task"]["taskId"]
    asked = Try("POST", message(method, 7, taskId=task))
    for place, house in enumerate(two.houses):
        foreign = two.at(place, _ask, house, "eve", alice.session, asked)
        assert foreign == two.at(place, _ask, house, "eve", UNKNOWN, asked)
        assert foreign[0] == 404


@pytest.mark.parametrize("name", OLD_TRIES)
def test_an_old_stream_of_another_principal_looks_unknown_on_every_node(two: Town, name: str) -> None:
    async def begin() -> Any:
        paper, work = await _listen(two.houses[0], "alice")
        return parse_events(await paper.until(1))[0]["data"].partition("=")[2], work

    async def end(work: asyncio.Task[None]) -> None:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    async def post(house: House, session: str) -> Any:
        headers = {"x-badge": "eve", "content-type": "application/json"}
        return seen(await house.engine.ask("POST", f"/messages?session_id={session}", headers, OLD_TRIES[name]))

    session, work = two.at(0, begin)
    for place, house in enumerate(two.houses):
        foreign = two.at(place, post, house, session)
        assert foreign == two.at(place, post, house, UNKNOWN)
        assert foreign[0] in (404, 400 if name in ("a broken answer", "no JSON") else 404)
    two.at(0, end, work)


async def _listen(house: House, badge: str) -> Any:
    paper = RecordedResponse()
    return paper, asyncio.create_task(house.engine.begin(paper, "GET", "/sse", {"x-badge": badge}, b""))
