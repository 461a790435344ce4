"""The answers to a guest's requests: a reason for programs, and a text. The servers are played."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.actors.client.errors import RequestLost
from greenroom.actors.thespian_guests.guest_session import GuestRequestRefused, GuestServices, answer_request
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import ErrorCode, PeerError, RequestCancelled
from greenroom.supervision import NO_PROCESS, ProcessExited
from greenroom.transports.client.errors import ConnectionLost

READ = {"server": "weather", "uri": "sky://now"}


class Servers:
    """Two played servers, which answer or raise what the test says."""

    def __init__(self, **says: Any) -> None:
        self.says = says
        self.kept: list[str] = []

    def ids(self) -> list[str]:
        return list(self.says)

    def line(self, server: str, who: object = None) -> Any:
        async def request(*_: Any, **__: Any) -> Any:
            return await self.answer(server)

        return SimpleNamespace(request=request) if server in self.says else None

    def keep(self, part: str) -> None:
        self.kept.append(part)

    async def offering(self, server: str, **_: Any) -> Any:
        offered = await self.answer(server)

        def part(_: str) -> dict[str, Any]:
            return {each["name"]: each for each in offered}

        return SimpleNamespace(part=part)

    async def answer(self, server: str) -> Any:
        says = self.says[server]
        if says is None:
            await asyncio.Event().wait()
        if isinstance(says, BaseException):
            raise says
        return says


async def said(kind: str, fields: dict[str, Any], seconds: float = 5, **says: Any) -> tuple[str, Any]:
    servers: Any = Servers(**says)
    return await answer_request(GuestServices(servers), kind, fields, seconds)


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (PeerError(ErrorCode.RESOURCE_NOT_FOUND, "no such sky"), "peer_error", "no such sky"),
        (RequestLost("resources/read", ConnectionLost("it broke")), "lost", "it may have been done or not"),
        (RequestCancelled("enough of that"), "cancelled", "the request was cancelled: enough of that"),
        (RequestCancelled(), "cancelled", "the request was cancelled"),
        (ProcessExited(NO_PROCESS, "some actor"), "failed", "some actor"),
        (GuestRequestRefused("bad_request", "uri is a text"), "bad_request", "uri is a text"),
        (GreenroomError("whatever"), "failed", "whatever"),
        (TimeoutError("its own patience was over"), "timeout", "its own patience was over"),
        (None, "timeout", "no answer within 5 s"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
async def test_an_error_is_a_word_and_a_text(error: BaseException | None, reason: str, text: str) -> None:
    kind, told = await said("ReadResource", READ, weather=error)
    assert (kind, told["reason"]) == ("Failed", reason)
    assert text in told["text"]


async def test_the_data_of_a_servers_error_comes_with_it() -> None:
    error = PeerError(ErrorCode.RESOURCE_NOT_FOUND, "no such sky", {"uri": "sky://now"})
    assert (await said("ReadResource", READ, weather=error))[1]["data"] == {
        "code": ErrorCode.RESOURCE_NOT_FOUND,
        "data": {"uri": "sky://now"},
    }


async def test_an_error_of_ours_is_not_said_to_be_theirs() -> None:
    for kind, fields in (("ReadResource", READ), ("ListTools", {})):
        with pytest.raises(ZeroDivisionError):
            await said(kind, fields, weather=ZeroDivisionError())


async def test_an_unknown_server_is_an_error_that_lists_the_servers() -> None:
    for fields in ({"server": "unknown"}, {"server": 5}):
        kind, told = await said("ListTools", fields, weather=[], news=[])
        assert (kind, told["reason"]) == ("Failed", "unknown_server")
        assert "there is weather, news" in told["text"]
    assert "there is none" in (await said("ReadResource", READ))[1]["text"]


async def test_a_silent_server_is_listed_as_away_unless_it_alone_was_asked() -> None:
    tool = {"name": "forecast"}
    broken = GreenroomError("it is parked")
    assert await said("ListTools", {}, weather=[tool], news=broken) == (
        "Listed",
        {"items": {"weather": [tool]}, "away": {"news": "it is parked"}},
    )
    kind, told = await said("ListTools", {"server": "news"}, weather=[tool], news=broken)
    assert (kind, told["text"]) == ("Failed", "it is parked")


async def test_invalid_content_of_a_server_is_left_out() -> None:
    contents = [{"uri": "sky://now", "text": "blue"}, "nonsense", 5]
    assert await said("ReadResource", READ, weather={"contents": contents}) == (
        "ResourceContents",
        {"contents": contents[:1]},
    )
    assert await said("ReadResource", READ, weather={"contents": "nonsense"}) == ("ResourceContents", {"contents": []})
