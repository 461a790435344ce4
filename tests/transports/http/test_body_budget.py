"""The memory budget for bodies: bounded over all connections, shared among callers, and returned once, however a body ends."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import ConfigError
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_request import BodyBudget, BodyShare
from greenroom.transports.interfaces import Peer

from .raw_http import RawClient, message, request, running_listener
from .test_listener import until

if TYPE_CHECKING:
    from .raw_http import RunningListener

MIB = 1024 * 1024
BODY = 100_000
SETTINGS: dict[str, Any] = {"max_body": BODY, "max_bodies": 4 * BODY}


def peer(name: str) -> Peer:
    return Peer("http", "192.0.2.1:1", principal=name)


def test_a_single_caller_gets_half_and_leaves_as_much_for_the_next() -> None:
    budget = BodyBudget(1000)
    one, two, three = (budget.body(peer(name)) for name in "abc")
    assert one.take(500)
    assert not one.take(1)
    assert two.take(250)
    assert not two.take(1)
    assert three.take(125)
    with one:
        pass
    assert (budget.used, one.size) == (375, 0)
    with one:
        pass
    assert budget.used == 375


def test_bodies_of_one_caller_are_counted_together() -> None:
    budget = BodyBudget(1000)
    assert [budget.body(peer("a")).take(200) for _ in range(4)] == [True, True, False, False]
    assert budget.body(peer("b")).take(300)
    assert not budget.body(peer("b")).take(1)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (Peer("http", "192.0.2.1:1"), Peer("http", "192.0.2.1:2"), True),
        (Peer("http", "192.0.2.1:1"), Peer("http", "192.0.2.2:1"), False),
        (Peer("http", "[2001:db8::1]:1"), Peer("http", "[2001:db8::2]:1"), True),
        (Peer("http", "[2001:db8::1]:1"), Peer("http", "[2001:db8:0:1::1]:1"), False),
        (Peer("http", "192.0.2.1:1", principal="a"), Peer("http", "192.0.2.1:1", principal="b"), False),
        (Peer("http", "192.0.2.1:1", principal="a"), Peer("http", "192.0.2.2:1", principal="a"), True),
        (Peer("http", "a:1"), Peer("http", "192.0.2.1:1", principal=("address", "a")), False),
    ],
)
def test_a_caller_is_a_principal_or_an_address(one: Peer, other: Peer, *, together: bool) -> None:
    budget = BodyBudget(1000)
    assert budget.body(one).take(500)
    assert budget.body(other).take(1) is not together


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.booleans())))
def test_held_memory_is_what_was_taken_and_not_returned(moves: list[tuple[str, int, bool]]) -> None:
    budget, shares = BodyBudget(1000), list[tuple[str, BodyShare]]()
    for name, size, ends in moves:
        share = budget.body(peer(name))
        share.take(size)
        shares.append((name, share))
        if ends:
            with shares.pop(0)[1]:
                pass
        assert budget.used == sum(share.size for _, share in shares) <= budget.size
        assert sum(budget.held.values()) == budget.used
    for _, share in shares:
        with share:
            pass
    assert (budget.used, budget.held) == (0, {})


def test_the_budget_is_a_setting() -> None:
    assert HttpConfig().bodies == 256 * MIB
    assert HttpConfig(max_body=100 * MIB).bodies == 800 * MIB
    assert HttpConfig(max_bodies=8 * MIB).bodies == 8 * MIB
    for wrong in (8 * MIB - 1, 0, -1, 1e9, True, "1"):
        with pytest.raises(ConfigError, match=f"max_bodies must be .* at least twice max_body \\({8 * MIB}\\)"):
            HttpConfig(max_bodies=wrong)  # type: ignore[arg-type]


# --- over HTTP


def beginning(size: int = BODY) -> bytes:
    """A call without its last byte."""
    return request("POST", mcp_session_id="s1", content_type="application/json", content_length=size) + b" " * (
        size - 1
    )


def _holds(opened: RunningListener, size: int) -> bool:
    return opened.engine.bodies.used == size


async def held(opened: RunningListener, count: int) -> list[RawClient]:
    """Connections that have each sent a body but for its last byte."""
    clients = [await opened.client() for _ in range(count)]
    for number, client in enumerate(clients, 1):
        await client.send(beginning())
        await until(partial(_holds, opened, number * (BODY - 1)))
    return clients


async def test_bodies_over_the_budget_are_refused_and_accepted_later() -> None:
    async with running_listener(**SETTINGS) as opened:
        client = await opened.entered()
        first, _ = await held(opened, 2)
        refused = await client.ask("POST", body=b" " * BODY, mcp_session_id="s1")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "try again" in refused.json["error"]["message"]
        assert (await client.call("echo")).status == 503  # the whole share of its address is taken
        first.abort()
        await until(lambda: opened.engine.bodies.used == BODY - 1)
        assert (await client.call("echo")).status == 200


async def test_another_address_still_has_its_share() -> None:
    async with running_listener(**SETTINGS) as opened:
        await opened.entered()
        await held(opened, 2)
        raw = socket.socket()
        raw.settimeout(0)
        raw.bind(("127.0.0.2", 0))
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", opened.port))
        other = RawClient(*await asyncio.open_connection(sock=raw))
        opened.clients.append(other)
        assert (await other.call("echo")).status == 200


@pytest.mark.parametrize("how", ["complete", "reset", "fin", "slow", "too large", "stopped"])
async def test_the_whole_budget_is_returned(how: str) -> None:
    settings: dict[str, Any] = {**SETTINGS, "body_timeout": 0.05 if how == "slow" else 30.0}
    async with running_listener(**settings) as opened:
        await opened.entered()
        if how == "too large":
            client = await opened.client()
            chunk = b"%x\r\n%b\r\n" % (BODY, b" " * BODY)
            sent = request("POST", mcp_session_id="s1", content_type="application/json", transfer_encoding="chunked")
            await client.send(sent + chunk + chunk)
            assert (await client.reply()).status == 413
        elif how == "slow":
            client = await opened.client()
            await client.send(beginning())
            assert (await client.reply()).status == 408
        else:
            (client,) = await held(opened, 1)
            if how == "complete":
                await client.send(b"x")
                assert (await client.reply()).status == 400
            elif how == "reset":
                client.abort()
            elif how == "fin":
                client.writer.write_eof()
            else:
                await opened.stop()
        await until(lambda: opened.engine.bodies.used == 0)
        assert opened.engine.bodies.held == {}


async def test_a_running_call_holds_no_memory_of_the_budget() -> None:
    async with running_listener(**SETTINGS) as opened:
        client = await opened.entered()
        await client.send(request("POST", body=message("wait").ljust(BODY), mcp_session_id="s1"))
        await until(lambda: opened.router.sessions["s1"].waiting)
        assert opened.engine.bodies.used == 0
