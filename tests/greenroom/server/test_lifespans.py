"""Lifespans of a server: opened in order before any client is served, in one task, and always closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, ConfigError, RegistrationError, Server
from greenroom.supervision import StartFailed, whereis, which_children
from greenroom.supervision.testing import kill

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Shelf:
    """A resource that records each step, and its task."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.tasks: set[Any] = set()

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncGenerator[None]:
        self.said.append(f"open {name}")
        self.tasks.add(asyncio.current_task())
        try:
            async with asyncio.timeout(None):  # it refuses to be left in another task
                yield
        finally:
            self.tasks.add(asyncio.current_task())
            self.said.append(f"close {name}")


def library() -> tuple[Server, Shelf]:
    server, shelf = Server("library"), Shelf()

    @server.lifespan
    async def catalogue() -> AsyncGenerator[None]:
        async with shelf.opened("catalogue"):
            yield

    server.lifespan(lambda: shelf.opened("reading room"))

    @server.tool
    async def find() -> str:
        shelf.said.append("find")
        return "here"

    return server, shelf


async def test_lifespans_open_in_order_before_the_first_call_and_close_in_reverse() -> None:
    server, shelf = library()
    async with Client(server) as client:
        assert await client.call("find") == "here"
        assert shelf.said == ["open catalogue", "open reading room", "find"]
    assert shelf.said[3:] == ["close reading room", "close catalogue"]
    assert len(shelf.tasks) == 2


async def test_each_run_opens_its_own() -> None:
    server, shelf = library()
    for _ in range(2):
        async with server.started():
            pass
    assert shelf.said == ["open catalogue", "open reading room", "close reading room", "close catalogue"] * 2


async def test_a_lifespan_that_fails_keeps_the_server_from_starting_and_closes_the_others() -> None:
    server, shelf = library()

    @server.lifespan
    async def database() -> AsyncGenerator[None]:
        if shelf.said:
            raise OSError("no database")
        yield

    with pytest.raises(StartFailed, match="no database"):
        async with server.started():
            pytest.fail("no client is let in")
    assert shelf.said == ["open catalogue", "open reading room", "close reading room", "close catalogue"]


async def test_a_killed_lifespan_process_is_opened_again_unnoticed() -> None:
    server, shelf = library()
    async with Client(server) as client:
        company = whereis(server.company.name("company"))
        assert company is not None
        found = next(each for each in await which_children(company) if each.id == "lifespan 1")
        await kill(found.ref, successor=True)
        assert await client.call("find") == "here"
        assert shelf.said.count("open catalogue") == 2
    assert shelf.said.count("close catalogue") == 2


async def test_a_lifespan_that_fails_later_is_opened_again_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    server, shelf = Server("x"), Shelf()

    async def fail() -> None:
        await asyncio.sleep(5)
        raise OSError("the worker is gone")

    @server.lifespan
    async def works() -> AsyncGenerator[None]:
        async with shelf.opened("works"), asyncio.TaskGroup() as group:
            if len(shelf.said) == 1:
                group.create_task(fail())
            yield

    @server.tool
    async def said() -> str:
        return ", ".join(shelf.said)

    async with Client(server) as client:
        await asyncio.sleep(10)
        assert await client.call("said") == "open works, close works, open works"
    assert shelf.said[3:] == ["close works"]
    assert "OSError: the worker is gone" in caplog.text


async def test_a_lifespan_that_ends_without_an_error_is_opened_again_too(caplog: pytest.LogCaptureFixture) -> None:
    server, shelf = Server("x"), Shelf()

    @server.lifespan
    @asynccontextmanager
    async def brief() -> AsyncGenerator[None]:
        async with shelf.opened("brief"):
            if len(shelf.said) == 1:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_later(5, task.cancel)
            with suppress(asyncio.CancelledError):
                yield

    async with server.started():
        await asyncio.sleep(10)
        assert shelf.said == ["open brief", "close brief", "open brief"]
    assert "has ended before the server" in caplog.text


async def test_a_lifespan_that_died_just_before_the_stop_reports_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("x")
    over = asyncio.Event()

    @server.lifespan
    async def works() -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield

    async def fail() -> None:
        await over.wait()
        raise OSError("the worker is gone")

    async with server.started():
        over.set()
    assert caplog.text.count("OSError: the worker is gone\n") == 1


def wants_a_server(server: Server) -> None:
    """A caller."""


REFUSED: list[tuple[Any, str]] = [
    (wants_a_server, "is called without arguments, but requires server"),
    (asyncio.sleep, "must be an `async def` with one `yield`"),
    ("nothing", "must be an `async def` with one `yield`"),
]


@pytest.mark.parametrize(("function", "complaint"), REFUSED)
def test_an_invalid_lifespan_is_refused(function: Any, complaint: str) -> None:
    with pytest.raises(RegistrationError, match=complaint):
        Server("x").lifespan(function)


async def test_a_running_server_takes_no_further_lifespan() -> None:
    server, shelf = library()
    async with server.started():
        with pytest.raises(ConfigError, match="before the server runs"):
            server.lifespan(lambda: shelf.opened("too late"))


PROGRAM = """
import sys
from greenroom import Server

server = Server("x")

@server.lifespan
async def opened():
    print("open", file=sys.stderr)
    match sys.argv[1:]:
        case ["fail"]:
            raise OSError("no database")
        case ["leave"]:
            return
        case ["exit"]:
            sys.exit(4)
    yield
    print("closed", file=sys.stderr)

server.run()
"""


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 0, "open\nclosed\n"),
        (("fail",), 1, "OSError: no database"),
        (("leave",), 1, "the lifespan opened (<string>, line 7) must `yield` once, but did not"),
        (("exit",), 1, "the lifespan opened (<string>, line 7) has ended with sys.exit(4)"),
    ],
)
def test_a_program_closes_when_its_peer_hangs_up_and_does_not_serve_what_it_could_not_open(
    words: tuple[str, ...], code: int, told: str
) -> None:
    done = subprocess.run(
        (sys.executable, "-P", "-c", PROGRAM, *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
