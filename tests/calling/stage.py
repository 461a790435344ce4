"""Starts the servers of a row, and checks that they are gone after it.

Every program carries the name of its row's folder in its environment. A process that still has it when the row is over has been left behind, which is
wrong, and is ended by its id.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.free_ports import free_port

from greenroom import Command

from .scene import WrongError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from .grid import Opener

WORD = "GREENROOM_ROW"
STARTS_WITHIN = 40.0
GONE_WITHIN = 8.0
ASKED_WITHIN = 3.0
"""How long a server may take to end in order; some wait for calls that never end."""
PORT = "PORT"
SAID = "said"


def living(word: str) -> list[int]:
    """The ids of all programs that carry this word and do anything yet."""
    wanted = f"{WORD}={word}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                carries = wanted in entry.joinpath("environ").read_bytes().split(b"\0")
                if carries and entry.joinpath("stat").read_text().rpartition(")")[2].split()[0] not in {"X", "Z"}:
                    found.append(int(entry.name))
    return found


async def gone(word: str) -> None:
    """Wait until no process carries it any more. Raises `WrongError`, after it has ended those that do."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GONE_WITHIN):
            while living(word):  # noqa: ASYNC110 - others' children: there is no event to wait for
                await asyncio.sleep(0.02)
            return
    left = living(word)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        raise WrongError(f"{len(left)} of its programs were still there {GONE_WITHIN:g} s after it")


def on_stdio(
    *words: str,
    more: Callable[[Path], Sequence[str]] | None = None,
    env: Callable[[Path], Mapping[str, str]] | None = None,
) -> Opener:
    """A program that the client starts itself; `more` and `env` are what it is told of the row's folder."""

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncGenerator[Any]:
        word = str(folder)
        given = {WORD: word, **(env(folder) if env is not None else {})}
        yield Command(*words, *(more(folder) if more is not None else ()), env=given, cwd=folder)
        await gone(word)

    return opened


def on_http(*words: str, path: str = "/mcp", env: Mapping[str, str] | None = None) -> Opener:
    """A program that serves at a port, which it is given for the word `PORT`, and in the variable of that name.

    What it says goes into the file `SAID` in its folder.
    """

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncGenerator[Any]:
        word, port = str(folder), free_port()
        given = {**os.environ, **(env or {}), WORD: word, PORT: str(port), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(port) if each == PORT else each for each in words]
        with folder.joinpath(SAID).open("wb") as said:
            server = await asyncio.create_subprocess_exec(
                *command, env=given, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said
            )
        try:
            await there(server, port, folder / SAID)
            yield f"http://127.0.0.1:{port}{path}"
            if server.returncode is not None:
                raise WrongError(f"the server ended by itself with {server.returncode}")
        finally:
            await _ended(server)
        await gone(word)

    return opened


async def there(server: asyncio.subprocess.Process, port: int, said: Path) -> None:
    """Wait until the program accepts connections. Raises `WrongError` with what it said."""
    try:
        async with asyncio.timeout(STARTS_WITHIN):
            while server.returncode is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.02)  # a foreign program: there is no event to wait for
                else:
                    writer.close()
                    await writer.wait_closed()
                    return
    except TimeoutError:
        pass
    words = await asyncio.to_thread(said.read_text, errors="replace")
    raise WrongError(f"the server was not there: {words[-2000:]}")


async def _ended(server: asyncio.subprocess.Process) -> None:
    for ask in (server.terminate, server.kill):
        if server.returncode is None:
            with suppress(ProcessLookupError):
                ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(ASKED_WITHIN):
                    await server.wait()
