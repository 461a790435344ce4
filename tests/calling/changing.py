"""One client, and a server that is another program by now: at the same URL, or behind the same command, in the other era, while a call is under way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.free_ports import free_port

from greenroom import Command, RequestLost

from .grid import BOTH_ERAS, HANDSHAKE, STATELESS
from .rows import HERE, MODULES, NODE, REFEREES
from .scene import Ears, WrongError, same
from .stage import SAID, WORD, gone, living, there

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from greenroom import Client

LAUNCHER = "import json, os, sys; words = json.load(open(sys.argv[1])); os.execv(words[0], words)"
WITHIN = 30.0
"""Seconds for one change; none needs half of it."""


@dataclass(frozen=True)
class Program:
    """A server: its words before those that name the transport, and after them, and the revisions that it speaks."""

    name: str
    words: tuple[str, ...]
    speaks: tuple[str, ...]
    last: tuple[str, ...] = ()

    def command(self, *transport: str) -> list[str]:
        """The words of the command that serves so."""
        return [*self.words, *transport, *self.last]


def _python(name: str, place: str, script: str, *speaks: str) -> Program:
    return Program(name, (str(REFEREES / place / "bin" / "python"), str(HERE / "python" / f"{script}.py")), speaks)


_NODE = (NODE, str(HERE / "node" / "server2.cjs"))
OLDER = _python("mcp 1.30.0", "mcp-1", "sdk1", *HANDSHAKE)
ALONE = Program("TypeScript 2.4.0 without sessions", _NODE, (STATELESS,), ("alone",))
OTHERS = (
    ALONE,
    _python("mcp 2.3.0", "mcp-2", "sdk2", *BOTH_ERAS),
    _python("FastMCP 4.1.2", "fastmcp", "fastmcp4", *BOTH_ERAS),
    Program("TypeScript 2.4.0", _NODE, BOTH_ERAS),
)
PAIRS = [pair for other in OTHERS for pair in ((OLDER, other), (other, OLDER))]
CHANGES: Mapping[str, tuple[Program, Program]] = {
    f"{before.name} to {after.name}": (before, after) for before, after in PAIRS
}
TRANSPORTS = ("Streamable HTTP", "stdio")


class Address:
    """Where one of the programs serves at a time. Each carries the folder in its environment, by which it is found and ended."""

    def __init__(self, folder: Path, transport: str) -> None:
        self.folder, self.transport = folder, transport
        self._port = free_port()
        self._file = folder / "words"
        self._server: asyncio.subprocess.Process | None = None

    @property
    def target(self) -> Any:
        """The same for all programs."""
        if self.transport == "stdio":
            return Command(sys.executable, "-c", LAUNCHER, str(self._file), env=self._marks, cwd=self.folder)
        return f"http://127.0.0.1:{self._port}/mcp"

    @property
    def _marks(self) -> dict[str, str]:
        return {WORD: str(self.folder), "NODE_PATH": str(MODULES), "PYTHONDONTWRITEBYTECODE": "1"}

    async def becomes(self, program: Program) -> None:
        """End what serves there, at once, and let this program serve."""
        self._file.write_text(json.dumps(program.command("stdio")), encoding="utf-8")
        for pid in living(str(self.folder)):
            os.kill(pid, signal.SIGKILL)
        if self._server is not None:
            await self._server.wait()
        if self.transport != "stdio":
            with self.folder.joinpath(SAID).open("wb") as said:
                self._server = await asyncio.create_subprocess_exec(
                    *program.command("http", str(self._port)), env={**os.environ, **self._marks}, cwd=self.folder,
                    stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
                )  # fmt: skip
            await there(self._server, self._port, self.folder / SAID)

    async def close(self) -> None:
        """Nothing is left there."""
        if self._server is not None and self._server.returncode is None:
            self._server.kill()
            await self._server.wait()
        await gone(str(self.folder))


@asynccontextmanager
async def _serving(folder: Path, transport: str) -> AsyncGenerator[Address]:
    address = Address(folder, transport)
    try:
        yield address
    finally:
        await address.close()


async def changed(name: str, transport: str, folder: Path) -> str:
    """What went wrong with that change; nothing if all was right."""
    before, after = CHANGES[name]
    try:
        async with asyncio.timeout(WITHIN), _serving(folder, transport) as address:
            await address.becomes(before)
            async with Ears().client(address.target, name, "auto") as client:
                await _answers(client, before, before.speaks[0])
                call = client.start_tool("wait", {"key": "k"})
                async for step in call.progress():
                    same("the call under way", step.message, "waiting")
                    break
                await address.becomes(after)
                try:
                    raise WrongError(f"a call that was under way has a result: {await call.result()}")
                except RequestLost as lost:
                    same("the call under way may be done", lost.maybe_done, True)
                await _answers(client, after, revision_after(before, after))
    except Exception as error:  # noqa: BLE001 - whatever it was, it is what the verdict is about
        return f"{type(error).__name__}: {error}"
    return ""


def revision_after(before: Program, after: Program) -> str:
    """The revision in which the client goes on: the one that it speaks, if the new server has it, too; there is no reason to ask then."""
    spoken = before.speaks[0]
    return spoken if spoken in after.speaks and spoken in HANDSHAKE else after.speaks[0]


async def _answers(client: Client, program: Program, revision: str) -> None:
    same(f"a sum of {program.name}", await client.call("add", a=2, b=3), 5)
    same("the revision", client.protocol_version, revision)
    same(
        "sums, side by side", await asyncio.gather(*(client.call("add", a=n, b=1) for n in range(8))), list(range(1, 9))
    )
