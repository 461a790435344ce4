"""Clients come and go: from any task, in any order, under a supervisor or in a loop that had no node; and nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from typing import Any

import pytest

from greenroom import Client, ClientClosed, Context, NotReady, Server
from greenroom.supervision import Supervisor, kill, start, stop, wait_down, whereis
from greenroom.supervision.kernel.process import abandon
from greenroom.supervision.kernel.process_lookup import node_of


def make_server() -> Server:
    server = Server("here")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def waits(ctx: Context) -> None:
        await ctx.cancelled.wait()

    return server


@pytest.mark.parametrize("seed", range(3))
def test_fifty_clients_come_and_go_in_any_order_from_any_task(seed: int) -> None:
    chance = random.Random(seed)
    server = make_server()
    threads = set(threading.enumerate())

    async def play() -> None:
        clients = [Client(server) for _ in range(25)] + [Client(make_server()) for _ in range(25)]
        loop = asyncio.get_running_loop()
        # Each client is opened, used and closed by three different tasks.
        turns = [asyncio.Semaphore(0) for _ in clients]

        async def opens(number: int) -> None:
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            await clients[number].open()
            turns[number].release()

        async def uses(number: int) -> None:
            await turns[number].acquire()
            assert await clients[number].call("echo", text=str(number)) == str(number)
            turns[number].release()

        async def closes(number: int) -> None:
            await done[number]
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            await clients[number].close()

        numbers = list(range(len(clients)))
        chance.shuffle(numbers)
        opening = [asyncio.ensure_future(opens(number)) for number in numbers]
        chance.shuffle(numbers)
        done = {number: asyncio.ensure_future(uses(number)) for number in numbers}
        chance.shuffle(numbers)
        closing = [asyncio.ensure_future(closes(number)) for number in numbers]
        await asyncio.wait_for(asyncio.gather(*opening, *done.values(), *closing), 60)
        assert node_of(loop) is None
        assert asyncio.all_tasks() == {asyncio.current_task()}
        timers: Any = vars(loop)["_scheduled"]
        # The kernel checks a second later whether a killed process has ended; that check keeps no loop open.
        left = [handle for handle in timers if not handle.cancelled() and handle._callback is not abandon]
        assert left == []

    asyncio.run(play(), debug=False)
    assert {thread for thread in set(threading.enumerate()) - threads if not thread.daemon} == set()


async def test_a_client_can_be_opened_again_and_more_than_once() -> None:
    client = Client(make_server())
    for _ in range(2):
        async with client, client:
            assert await client.call("echo", text="x") == "x"
        with pytest.raises((ClientClosed, NotReady)):
            await client.call("echo", text="x")


async def test_a_client_that_is_closed_once_too_often_still_ends_with_its_last_user() -> None:
    server = make_server()
    client = Client(server)
    async with client:
        await client.close()
    await client.close()
    async with client:
        assert await client.call("echo", text="x") == "x"
    with pytest.raises(ClientClosed):
        await client.call("echo", text="x")
    assert whereis(server.company.name("company")) is None


async def test_the_first_of_two_to_leave_takes_nothing_of_the_others() -> None:
    server = make_server()
    one, two = Client(server), Client(server)
    await one.open()
    await two.open()
    await one.close()
    assert await two.call("echo", text="still here") == "still here"
    async with server.started():
        await two.close()
        async with one:
            assert await one.call("echo", text="again") == "again"


async def test_a_server_that_another_owner_runs_is_used_and_left_running() -> None:
    server = make_server()
    top = await start(Supervisor, [server.child_spec()])
    async with Client(server) as client:
        assert await client.call("echo", text="x") == "x"
    assert whereis(server.company.name("company")) is not None
    await stop(top)


@pytest.mark.row("CL-03")
async def test_a_client_may_be_a_child_among_others() -> None:
    server = make_server()
    client = Client(server, name="echo")
    top = await start(Supervisor, [server.child_spec(), client.child_spec()])
    assert await client.call("echo", text="x") == "x"
    pid = client.line.pid
    assert pid is not None
    kill(pid)
    await wait_down(pid)
    assert await client.call("echo", text="y") == "y"
    assert "echo" in repr(client)
    await stop(top)


async def test_a_cancelled_open_leaves_nothing_running() -> None:
    server = make_server()
    for turns in range(30):
        opening = asyncio.ensure_future(Client(server).open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
            break
    async with Client(server) as client:
        assert await client.call("echo", text="x") == "x"


async def test_requests_under_way_fail_with_client_closed() -> None:
    client = Client(make_server())
    await client.open()
    waiting = asyncio.ensure_future(client.call("waits"))
    await client.ping()
    await client.close()
    with pytest.raises(ClientClosed):
        await waiting


async def test_a_caller_that_is_cancelled_takes_its_call_back() -> None:
    server = Server("patient")
    given_up = asyncio.Event()

    @server.tool
    async def waits(ctx: Context) -> None:
        await ctx.progress(1)
        try:
            await ctx.cancelled.wait()
        finally:
            given_up.set()

    begun = asyncio.Event()
    async with Client(server, on_progress=lambda step: begun.set()) as client:
        calling = asyncio.ensure_future(client.call("waits"))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await asyncio.wait_for(given_up.wait(), 5)
