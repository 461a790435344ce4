"""Credentials that sign requests: they are told of each attempt to send one, and of the nonces of all responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom import Client, Unauthorized
from greenroom.actors.client.errors import RequestLost
from greenroom.transports import HttpRoute
from greenroom.transports.client.interfaces import FixedHeaders

from .request_signer import RequestSigner
from .scripted_server import event, scripted_server

if TYPE_CHECKING:
    from .scripted_server import Handler, ReceivedRequest

WANTS_NONCE = 'DPoP error="use_dpop_nonce"'


def wanting(nonce: str, then: Handler | None = None) -> Handler:
    """A handler that wants that nonce in the signature."""

    async def handle(received: ReceivedRequest) -> None:
        if received.headers["dpop"].endswith(f" {nonce}"):
            await (then(received) if then is not None else received.result({"content": []}))
        else:
            await received.reply(401, b"", www_authenticate=WANTS_NONCE, dpop_nonce=nonce)

    return handle


@pytest.mark.row("26-A12")
async def test_each_attempt_to_send_a_request_is_signed_anew() -> None:
    signer = RequestSigner()
    async with scripted_server(call=wanting("n1")) as server:
        async with Client(HttpRoute(f"{server.url}?key=1", credentials=signer), mode="legacy") as client:
            await client.call_tool("any", {})
        assert [each.headers["dpop"].split()[1] for each in server.requests] == [
            each.method for each in server.requests
        ]
        assert {each.method for each in server.requests} >= {"POST", "GET", "DELETE"}
        first, second = (each.headers["dpop"].split() for each in server.seen("tools/call"))
        assert (first[3], second[3]) == ("none", "n1")
        assert first[2] == second[2] == f"{server.url}?key=1"
        assert len({each.headers["dpop"] for each in server.requests}) == len(server.requests)
        assert signer.refusals == 1


async def test_a_nonce_is_taken_from_any_response() -> None:
    async def call(received: ReceivedRequest) -> None:
        await received.result({"content": []}, dpop_nonce=f"n{len(signer.nonces)}")

    signer = RequestSigner()
    async with (
        scripted_server(call=call) as server,
        Client(HttpRoute(server.url, credentials=signer), mode="legacy") as client,
    ):
        for _ in range(3):
            await client.call_tool("any", {})
        assert [each.headers["dpop"].split()[3] for each in server.seen("tools/call")] == ["none", "n0", "n1"]
        assert signer.nonces == [(server.url, f"n{number}") for number in range(3)]
        assert signer.refusals == 0


async def test_a_stream_that_is_resumed_and_an_old_one_are_signed_too() -> None:
    async def cut(received: ReceivedRequest) -> None:
        await received.stream(event(None, id="a1", retry=0))
        received.close()

    async def resumed(received: ReceivedRequest) -> None:
        if "last-event-id" not in received.headers:
            await received.reply(405)
            return
        await received.stream(
            event({"jsonrpc": "2.0", "id": server.seen("tools/call")[0].id, "result": {"content": []}})
        )

    signer = RequestSigner()
    async with scripted_server(call=cut, GET=resumed) as server:
        async with Client(HttpRoute(server.url, credentials=signer), mode="legacy") as client:
            await client.call_tool("any", {})
        [again] = [each for each in server.requests if "last-event-id" in each.headers]
        assert again.headers["dpop"].split()[1] == "GET"


async def test_a_server_that_wants_a_nonce_for_ever_is_asked_twice() -> None:
    async def never(received: ReceivedRequest) -> None:
        await received.reply(401, b"", www_authenticate=WANTS_NONCE, dpop_nonce="n")

    signer = RequestSigner()
    async with (
        scripted_server(call=never) as server,
        Client(HttpRoute(server.url, credentials=signer), mode="legacy") as client,
    ):
        with pytest.raises(RequestLost) as caught:
            await client.call_tool("any", {})
        assert isinstance(caught.value.cause, Unauthorized)
        asked = len(server.seen("tools/call"))
        assert asked % 2 == 0, "each time that the connection sends the call, it is asked twice"
        assert asked <= 8


async def test_fixed_headers_are_the_same_whatever_a_response_says() -> None:
    async def call(received: ReceivedRequest) -> None:
        await received.result({"content": []}, dpop_nonce="n")

    async with (
        scripted_server(call=call) as server,
        Client(HttpRoute(server.url, credentials=FixedHeaders({"x-key": "k"})), mode="legacy") as client,
    ):
        await client.call_tool("any", {})
        assert {each.headers["x-key"] for each in server.requests} == {"k"}
        assert not any("dpop" in each.headers for each in server.requests)
