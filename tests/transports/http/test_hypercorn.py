"""With Hypercorn serving, its parser gets only input that our own parser accepts, since h11 rescans an invalid head again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypercorn.events import RawData

from greenroom.transports.hypercorn_connection import HypercornHttp1

from .raw_http import message, request, running_listener

if TYPE_CHECKING:
    from hypercorn.events import Event

BAD = b"x:" + b" " * 1000 + b"\0\r\n"


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> bytearray:
    """The input that Hypercorn was given."""
    data, handle = bytearray(), HypercornHttp1.handle

    async def noted(protocol: HypercornHttp1, event: Event) -> None:
        if isinstance(event, RawData):
            data.extend(event.data)
        await handle(protocol, event)

    monkeypatch.setattr(HypercornHttp1, "handle", noted)
    return data


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nhost: localhost\r\n" + BAD + b"\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + BAD + b"\r\n",
    ],
    ids=["a header", "a trailer"],
)
async def test_an_invalid_head_is_refused_before_hypercorn(passed: bytearray, sent: bytes) -> None:
    async with running_listener(hypercorn=True) as opened:
        client = await opened.client()
        await client.send(sent)
        assert (await client.reply()).status == 400
        assert await client.rest() == b""
    assert b"\0" not in passed


async def test_valid_input_reaches_hypercorn_byte_for_byte(passed: bytearray) -> None:
    sent = b"".join(
        request("POST", body=message("echo", n, text="x" * n * 700), mcp_session_id="s1") for n in range(20)
    )
    async with running_listener(hypercorn=True) as opened:
        client = await opened.entered()
        del passed[:]
        await client.send(sent)
        assert [(await client.reply()).json["id"] for _ in range(20)] == list(range(20))
    assert bytes(passed) == sent
