"""A thousand random edits of a host's file while fifty callers work, with the fate of every call.

Some servers are never touched by an edit, and their calls have to be as if there were none. The calls of the others end in one result, of some version that
the file has had, or in one typed error. One of those is at a URL, and the others are programs. Edits are of what a server is, of what is looked up at each call
(limits, rules), of whether it is disabled, of the order; and some are mistakes. At the end no child is left: processes with the run's mark in their environment
are looked for.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.transports.client_command.process_tree import MARK, PATIENCE, child_processes, marked_processes

from greenroom import Server
from greenroom.actors.client.errors import ClientError
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.federation.federation_errors import FederationError
from greenroom.config.mistakes import BadConfig
from greenroom.host import Host
from greenroom.supervision import ActorError, kill, whereis

from .config_files import block

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

CALLERS = 50
SPARED = ("kept-1", "kept-2")
WEB = "web"
TOUCHED = (*(f"s{number}" for number in range(6)), WEB)
KINDS = (
    *("change", "change", "change", "add", "remove", "reorder", "break", "half"),
    *("limits", "limits", "rules", "rules", "disabled"),
)


@dataclass
class Trial:
    """The results of a trial."""

    edits: int = 0
    steps: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    spared: int = 0
    wrong: list[str] = field(default_factory=list[str])
    pids: set[int] = field(default_factory=set[int])
    kinds: Counter[str] = field(default_factory=Counter[str])
    left: dict[int, str] = field(default_factory=dict[int, str])
    """Processes that still run at the end."""


@dataclass
class Entry:
    """A server's table in the file."""

    which: str = "0"
    tokens: int = 25_000
    denied: bool = False
    disabled: bool = False


class Editor:
    """Edits the file at random."""

    def __init__(self, path: Path, source: random.Random, url: str) -> None:
        self._path = path
        self._source = source
        self._url = url
        self._count = 0
        self.mark = f"{path} {uuid4()}"
        self.now = {name: Entry() for name in (*TOUCHED[:3], WEB)}
        self.versions: dict[str, set[str]] = {name: {"0"} for name in TOUCHED}
        self.write()

    @property
    def enabled(self) -> dict[str, Entry]:
        """The servers that should run."""
        return {name: one for name, one in self.now.items() if not one.disabled}

    def text(self) -> str:
        """The servers in random order."""
        blocks = [self._block(name, Entry("kept")) for name in SPARED]
        blocks += [self._block(name, one) for name, one in self.now.items()]
        self._source.shuffle(blocks)
        return "\n".join(blocks)

    def _block(self, name: str, one: Entry) -> str:
        more = f"limits = {{ output_tokens = {one.tokens} }}\n" + ("disabled = true\n" if one.disabled else "")
        rules = f"[server.{name}.permissions]\nallow = ['*']\n" + ("deny = ['slow']\n" if one.denied else "")
        if name == WEB:
            return f"[server.{name}]\ntransport = 'http'\nurl = '{self._url}?{one.which}'\n{more}{rules}"
        return block(name, one.which, more + rules, **{MARK: self.mark})

    def write(self, text: str | None = None) -> None:
        """Write the file in place, like careless editors, or by a rename."""
        text = self.text() if text is None else text
        if self._source.random() < 0.5:
            self._path.write_text(text, encoding="utf-8")
        else:
            fresh = self._path.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self._path)

    def edit(self) -> tuple[str, bool]:
        """Make a random edit; returns its name, and whether the file is valid."""
        self._count += 1
        name, kind = self._source.choice(TOUCHED), self._source.choice(KINDS)
        match kind:
            case "remove":
                self.now.pop(name, None)
            case "reorder":
                pass
            case "break":
                self.write(self.text() + "[server.s9]\ncomand = 'x'\n")
                return kind, False
            case "half":
                self.write(self.text() + "[server.s9]\nargs = [")
                return kind, False
            case "change" | "add":
                self.now[name] = Entry(str(self._count))
                self.versions[name].add(str(self._count))
            case _ if name in self.now:
                one = self.now[name]
                one.tokens += kind == "limits"
                one.denied ^= kind == "rules"
                one.disabled ^= kind == "disabled"
            case _:
                pass
        self.write()
        return kind, True


@asynccontextmanager
async def _web() -> AsyncGenerator[str]:
    """An HTTP server that reports the name in its URL."""
    server = Server("web")

    @server.tool
    async def which() -> str:
        return "web"

    @server.tool
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "web 0"

    async with server.started():
        yield await server.listen(port=0)


async def trial(path: Path, edits: int, seed: int, *, watch: bool, deaths: bool = False) -> Trial:
    """Run a trial. With `deaths`, the processes that apply the edits are killed from time to time."""
    async with _web() as url:
        source = random.Random(seed)
        editor, found = Editor(path, source, url), Trial()
        before = set(child_processes())
        await _edited(path, editor, found, source, edits, seed, watch=watch, deaths=deaths)
        found.left = await _left(editor.mark, before)
    return found


async def _edited(  # noqa: PLR0913 - all that there is
    path: Path, editor: Editor, found: Trial, source: random.Random, edits: int, seed: int, *, watch: bool, deaths: bool
) -> None:
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
                kind, good = editor.edit()
                found.kinds[kind] += 1
                if watch:
                    await asyncio.sleep(source.random() * 0.1)
                    continue
                try:
                    found.steps.update(step.kind for step in await host.reload())
                    assert good
                except BadConfig:
                    assert not good
                    found.refused += 1
                except ActorError:
                    assert deaths
        editor.write()
        await _at_rest(host, editor)
        reports = await host.started()
        states = {name: "disabled" if one.disabled else "connected" for name, one in editor.now.items()}
        assert {name: one.state for name, one in reports.items()} == {**dict.fromkeys(SPARED, "connected"), **states}
        expected = {name: "web" if name == WEB else one.which for name, one in editor.enabled.items()}
        assert {name: await host.call(f"{name}:which") for name in editor.enabled} == expected
        assert {name: int(await host.call(f"{name}:pid")) for name in SPARED} == before
        assert host.limiter is not None
        assert host.consent is not None
        for name, one in editor.enabled.items():
            assert host.limiter.limits.of(name, "which").tokens == one.tokens
            assert host.consent.permissions.of_tool(name, "slow").verdict == ("deny" if one.denied else "allow")


async def _left(mark: str, before: set[int]) -> dict[int, str]:
    """Processes that still exist after enough time, zombies included."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while _now(mark, before):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
    return _now(mark, before)


def _now(mark: str, before: set[int]) -> dict[int, str]:
    mine = {pid: what for pid, what in child_processes().items() if pid not in before}
    return {**mine, **marked_processes(mark)}


class Deaths:
    """Kills processes while edits are applied, but never so many that a supervisor gives up."""

    def __init__(self, host: Host, seed: int) -> None:
        sync = host._config_sync
        assert sync is not None
        self._source = random.Random(seed)
        mine = [sync.name(role) for role in ("reconciler", "jobs", "sync_tree", "watcher")]
        self._left = 2 * [*mine, host.federation.name("manager"), host.federation.name("jobs")]
        self._source.shuffle(self._left)

    def one(self) -> None:
        """Kill a process with some probability."""
        if self._left and self._source.random() < 0.4:
            victim = whereis(self._left.pop())
            if victim is not None:
                kill(victim)


async def _at_rest(host: Host, editor: Editor) -> None:
    """Wait until the servers are as in the file. A process that applied an edit may just have died; its successor retries after a second."""
    sync = host._config_sync
    assert sync is not None
    wanted = {*SPARED, *editor.enabled}
    try:
        async with asyncio.timeout(60):
            while True:
                with suppress(ActorError):
                    await host.reload()
                    if set(host.status()) == wanted and not sync.failures:
                        return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError((host.status(), wanted, sync.running, sync.failures)) from None


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
            async with asyncio.timeout(60):
                while found.spared <= found.edits:  # noqa: ASYNC110 - a busy machine makes the edits faster than the calls
                    await asyncio.sleep(0.01)
        finally:
            over.set()


async def _call(host: Host, editor: Editor, found: Trial, name: str, seconds: float) -> None:
    try:
        async with asyncio.timeout(40):
            which, pid = str(await host.call(f"{name}:slow", seconds=seconds)).rsplit(" ", 1)
    except (ClientError, FederationError, ConsentDenied) as error:
        found.ends[type(error).__name__] += 1
        if name in SPARED:
            found.wrong.append(f"{name}: {error!r}")
        with suppress(TimeoutError):
            await asyncio.sleep(0.001)
        return
    except BaseException as error:
        found.wrong.append(f"{name}: {error!r}")
        raise
    if name != WEB:
        found.pids.add(int(pid))
    found.ends["answer"] += 1
    if name in SPARED:
        found.spared += 1
        if which != "kept":
            found.wrong.append(f"{name} says {which}")
    elif which not in ({"web"} if name == WEB else editor.versions[name]):
        found.wrong.append(f"{name} says {which}, which it never was")
