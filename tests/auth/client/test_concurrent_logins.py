"""Ten programs with one login, each refused a hundred times at once: one refresh per round, and every request succeeds."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.auth import FileStore, OAuth
from greenroom.auth.testing import AuthorizationServer
from greenroom.supervision import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = 10
URL = "http://127.0.0.1:9/mcp"
CROWD = Path(__file__).with_name("concurrent_login_program.py")


class Program:
    """One of them."""

    def __init__(self, folder: Path, issuer: str) -> None:
        self.words = (sys.executable, str(CROWD), str(folder), issuer, URL)
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*self.words, stdin=pipe, stdout=pipe)
        assert await self.read() == "ready"

    async def read(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    def go(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def die(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            await self.process.wait()


def refreshes(idp: AuthorizationServer) -> int:
    return sum(each.form.get("grant_type") == "refresh_token" for each in idp.requests if each.path == "/token")


async def rounds(folder: Path, times: int, *, crashes: bool) -> None:
    chance = random.Random(7)
    async with AuthorizationServer() as idp, AsyncExitStack() as stack:
        idp.add_client("crowd", redirect_uris=["http://127.0.0.1/callback"])
        idp.faults.reused_refresh = crashes  # or a program that dies between answer and disk has lost it, as any would
        await sign_in(idp, folder)
        programs = [Program(folder, idp.issuer) for _ in range(PROGRAMS)]
        for each in programs:
            stack.push_async_callback(each.stop)
        for part in (programs[:5], programs[5:]):
            await asyncio.gather(*(each.start() for each in part))
        for _ in range(times):
            before = refreshes(idp)
            for each in programs:
                each.go()
            dying = chance.sample(programs, 2) if crashes else []
            for each in dying:
                await asyncio.sleep(chance.random() / 20)
                await each.die()
            told = await told_by([each for each in programs if each not in dying])
            assert len(told) == 1, "all hold the same token"
            assert told <= idp.issued_tokens.keys()
            assert 1 <= refreshes(idp) - before <= 1 + len(dying)
            await asyncio.gather(*(each.start() for each in dying))


async def told_by(programs: Sequence[Program]) -> set[str]:
    async with asyncio.timeout(60):
        return set(await asyncio.gather(*(each.read() for each in programs)))


async def sign_in(idp: AuthorizationServer, folder: Path) -> None:
    auth = OAuth(
        client_id="crowd",
        issuer=idp.issuer,
        authorization_endpoint=idp.url("authorize"),
        token_endpoint=idp.url("token"),
        browser=idp.browse,
        store=FileStore(folder),
    )
    async with Node():
        assert await auth.credentials(URL).refused(401, "Bearer", {})


@pytest.mark.row("CA-03")
def test_ten_programs_with_one_login(tmp_path: Path) -> None:
    asyncio.run(rounds(tmp_path, 5, crashes=False))


@pytest.mark.soak
def test_ten_programs_of_which_some_die(tmp_path: Path) -> None:
    asyncio.run(rounds(tmp_path, 100, crashes=True))
