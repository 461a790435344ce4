"""A thousand random edits of a host's file while fifty callers work: what became of every call.

Some servers are never touched by an edit, and their calls have to be as if there were none. The calls of the others end in one result, of some version that
the file has had, or in one typed error. At the end no child is left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom.actors.client.errors import ClientError
from greenroom.actors.federation.agent_errors import FederationError
from greenroom.config.mistakes import BadConfig
from greenroom.host import Host
from greenroom.supervision import ActorError, kill, whereis

from .files import block

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

CALLERS = 50
SPARED = ("kept-1", "kept-2")
TOUCHED = tuple(f"s{number}" for number in range(6))


@dataclass
class Trial:
    """What happened."""

    edits: int = 0
    steps: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    spared: int = 0
    wrong: list[str] = field(default_factory=list[str])
    pids: set[int] = field(default_factory=set[int])


class Editor:
    """Somebody at the file."""

    def __init__(self, path: Path, source: random.Random) -> None:
        self._path = path
        self._source = source
        self._count = 0
        self.now = dict.fromkeys(TOUCHED[:3], "0")
        self.versions: dict[str, set[str]] = {name: {"0"} for name in TOUCHED}
        self.write()

    def text(self) -> str:
        """All servers, in any order."""
        blocks = [block(name, "kept") for name in SPARED]
        blocks += [block(name, which) for name, which in self.now.items()]
        self._source.shuffle(blocks)
        return "\n".join(blocks)

    def write(self, text: str | None = None) -> None:
        """In place, as the worst editors do, or by a rename."""
        text = self.text() if text is None else text
        if self._source.random() < 0.5:
            self._path.write_text(text, encoding="utf-8")
        else:
            fresh = self._path.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self._path)

    def edit(self) -> bool:
        """Something else; returns whether the file is good."""
        self._count += 1
        name = self._source.choice(TOUCHED)
        match self._source.choice(["change", "change", "change", "add", "remove", "reorder", "break", "half"]):
            case "remove":
                self.now.pop(name, None)
            case "reorder":
                pass
            case "break":
                self.write(self.text() + "[server.s9]\ncomand = 'x'\n")
                return False
            case "half":
                self.write(self.text() + "[server.s9]\nargs = [")
                return False
            case _:
                self.now[name] = str(self._count)
                self.versions[name].add(str(self._count))
        self.write()
        return True


async def trial(path: Path, edits: int, seed: int, *, watch: bool, deaths: bool = False) -> Trial:
    """All of it. With `deaths`, those who carry the edits out are killed now and then."""
    source = random.Random(seed)
    editor, found = Editor(path, source), Trial()
    options: dict[str, Any] = {"watch": 0.01} if watch else {}
    async with Host.from_config(path, environment={}, project=path.parent, **options) as host:
        await host.started()
        dying = Deaths(host, seed) if deaths else None
        before = {name: int(await host.call(f"{name}:pid")) for name in SPARED}
        async with _callers(host, editor, found, source):
            for _ in range(edits):
                found.edits += 1
                if dying is not None:
                    dying.one()
                good = editor.edit()
                if watch:
                    await asyncio.sleep(source.random() * 0.1)
                    continue
                try:
                    found.steps.update(step.doing for step in await host.reload())
                    assert good
                except BadConfig:
                    assert not good
                    found.refused += 1
                except ActorError:
                    assert deaths
        editor.write()
        await _at_rest(host, editor)
        reports = await host.started()
        assert {name: one.state for name, one in reports.items()} == dict.fromkeys((*SPARED, *editor.now), "connected")
        assert {name: await host.call(f"{name}:which") for name in editor.now} == editor.now
        assert {name: int(await host.call(f"{name}:pid")) for name in SPARED} == before
    return found


class Deaths:
    """Who dies while the edits are carried out, and never so many that a supervisor gives up."""

    def __init__(self, host: Host, seed: int) -> None:
        household = host._household
        assert household is not None
        self._source = random.Random(seed)
        mine = [household.name(role) for role in ("reconciler", "jobs", "works", "watcher")]
        self._left = 2 * [*mine, host.federation.name("steward"), host.federation.name("errands")]
        self._source.shuffle(self._left)

    def one(self) -> None:
        """Perhaps somebody, now."""
        if self._left and self._source.random() < 0.4:
            victim = whereis(self._left.pop())
            if victim is not None:
                kill(victim)


async def _at_rest(host: Host, editor: Editor) -> None:
    """Until all is as the file says; somebody may have died over it just now."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ActorError):
                await host.reload()
                if set(host.status()) == {*SPARED, *editor.now}:
                    return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _callers(host: Host, editor: Editor, found: Trial, source: random.Random) -> AsyncGenerator[None]:
    over = asyncio.Event()

    async def one(number: int) -> None:
        while not over.is_set():
            name = SPARED[number % 2] if number % 5 == 0 else source.choice(TOUCHED)
            await _call(host, editor, found, name, source.choice([0.0, 0.0, 0.02, 0.1]))

    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(one(number))
        try:
            yield
        finally:
            over.set()


async def _call(host: Host, editor: Editor, found: Trial, name: str, seconds: float) -> None:
    try:
        async with asyncio.timeout(40):
            which, pid = str(await host.call(f"{name}:slow", seconds=seconds)).rsplit(" ", 1)
    except (ClientError, FederationError) as error:
        found.ends[type(error).__name__] += 1
        if name in SPARED:
            found.wrong.append(f"{name}: {error!r}")
        with suppress(TimeoutError):
            await asyncio.sleep(0.001)
        return
    except BaseException as error:
        found.wrong.append(f"{name}: {error!r}")
        raise
    found.pids.add(int(pid))
    found.ends["answer"] += 1
    if name in SPARED:
        found.spared += 1
        if which != "kept":
            found.wrong.append(f"{name} says {which}")
    elif which not in editor.versions[name]:
        found.wrong.append(f"{name} says {which}, which it never was")
