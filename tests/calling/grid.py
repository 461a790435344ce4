"""The grid: every step that there is, what a server has to have declared for it, and how one server gets through all of them.

A step that a server has not declared is not applicable, and the client refuses it by itself, which is looked at. One that is declared and is
not in the row's steps makes the row wrong, unless the row says why the server never does it. What no capability declares (progress, and
what a server asks of its client) the row says, and it is wrong as well when the server does it all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .scene import Ears, Scene, WrongError, ends, same
from .stage import SAID

if TYPE_CHECKING:
    from greenroom import Client

Step: TypeAlias = Callable[[Scene], Awaitable[None]]
Opener: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Any]]
Need: TypeAlias = Callable[[Mapping[str, Any], "list[Any]"], bool]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
STATELESS = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
BOTH_ERAS = (STATELESS, *HANDSHAKE)
SECONDS = 40.0
"""For one step; none needs half of it."""


class Mark(Enum):
    """The outcome of a step."""

    RIGHT = "yes"
    NOT_DECLARED = "n/a"
    NEVER = "never"
    """It is declared, and there is a reason why the server does not do it."""
    WRONG = "WRONG"


def _always(_capabilities: Mapping[str, Any], _tools: list[Any]) -> bool:
    return True


def _declared(*path: str) -> Need:
    def need(capabilities: Mapping[str, Any], _tools: list[Any]) -> bool:
        found: Any = capabilities
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return found is not None and found is not False

    return need


def _tasks(capabilities: Mapping[str, Any], tools: list[Any]) -> bool:
    return any(
        _declared(*path)(capabilities, tools)
        for path in (("tasks", "requests", "tools", "call"), ("extensions", TASKS_EXTENSION))
    )


def _structured(_capabilities: Mapping[str, Any], tools: list[Any]) -> bool:
    return any(tool.output_schema is not None for tool in tools)


def _templates(capabilities: Mapping[str, Any], _tools: list[Any]) -> bool:
    return "resources" in capabilities


def _changes(capabilities: Mapping[str, Any], _tools: list[Any]) -> bool:
    return any(_declared(part, "listChanged")(capabilities, []) for part in ("tools", "resources", "prompts"))


@dataclass(frozen=True)
class Rule:
    """A step: when it is to be gone through, and what is refused, unsent, when it is not. No `need`: nothing declares it, the row says."""

    need: Need | None
    refused: tuple[str, Mapping[str, Any]] | None = None
    sign: Callable[[Ears], int] | None = None
    """The number of times that the server did it."""


STEPS: Mapping[str, Rule] = {
    "open": Rule(_always),
    "revisions": Rule(_always),
    "list": Rule(_declared("tools"), ("tools/list", {})),
    "call": Rule(_declared("tools"), ("tools/call", {"name": "x"})),
    "structure": Rule(_structured),
    "failure": Rule(_declared("tools")),
    "progress": Rule(None, sign=lambda ears: len(ears.steps)),
    "cancel": Rule(_declared("tools")),
    "logging": Rule(_declared("logging"), ("logging/setLevel", {"level": "info"})),
    "read": Rule(_templates, ("resources/list", {})),
    "subscribe": Rule(_declared("resources", "subscribe"), ("resources/subscribe", {"uri": "x:y"})),
    "prompt": Rule(_declared("prompts"), ("prompts/list", {})),
    "complete": Rule(
        _declared("completions"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "x", "value": ""}}),
    ),
    "changes": Rule(_changes),
    "sampling": Rule(None, sign=lambda ears: ears.asked["sampling"]),
    "elicitation": Rule(None, sign=lambda ears: ears.asked["elicitation"]),
    "url": Rule(None, sign=lambda ears: ears.asked["url"]),
    "roots": Rule(None, sign=lambda ears: ears.asked["roots"]),
    "rounds": Rule(None),
    "headers": Rule(None),
    "tasks": Rule(_tasks, ("tasks/get", {"taskId": "x"})),
    "close": Rule(_always),
}
OWN = frozenset({"open", "revisions", "close"})
"""The steps that are the same for every server, and done here."""


@dataclass(frozen=True)
class Row:
    """A server on one transport."""

    server: str
    transport: str
    open: Opener
    """Given a folder, the target for a client, for as long as it is there."""
    steps: Mapping[str, Step]
    speaks: tuple[str, ...] = HANDSHAKE
    """The revisions of the server, newest first. A client that finds the revision by itself must find the first one."""
    mode: str = "auto"
    """The way in which the client finds the revision."""
    never: Mapping[str, str] = field(default_factory=dict[str, str])
    """Features that are declared, or work elsewhere, and never happen here; and why. A step of that name shows that they do not."""
    differs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the server is not as the specification wants it: the steps see to it that it is so."""
    farewell: str = ""
    """The server's log line when a client deletes its session: once for each client that made a handshake."""
    prepare: Callable[[Path], Mapping[str, Any] | None] | None = None
    """Files to put in the folder, and the values that the steps need."""

    @property
    def name(self) -> str:
        """Which it is."""
        return f"{self.server}, {self.transport}"

    @property
    def revision(self) -> str:
        """The revision that the client and the server must come to."""
        return HANDSHAKE[0] if self.mode == "legacy" else self.speaks[0]

    @property
    def name_in_notes(self) -> str:
        """Which it is, where only one of a server's transports is meant."""
        return self.name if set(self.never) - set(self.steps) - {"changes"} else self.server

    @property
    def id(self) -> str:
        """The server's id in a host."""
        return f"{self.server}/{self.transport}"


@dataclass
class Outcome:
    """The outcome of a row."""

    row: Row
    marks: dict[str, Mark] = field(default_factory=dict[str, Mark])
    wrong: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    tools: int = 0

    def __str__(self) -> str:
        verdict = (
            "right" if not self.wrong else "WRONG " + "; ".join(f"{step}: {why}" for step, why in self.wrong.items())
        )
        count = sum(1 for mark in self.marks.values() if mark is Mark.RIGHT)
        return f"{self.row.name:<40} {count:>2} steps {self.tools:>3} tools {self.seconds:5.1f} s  {verdict}"

    def fails(self, step: str, why: str) -> None:
        """This step is wrong."""
        self.marks[step] = Mark.WRONG
        self.wrong.setdefault(step, why)


async def play(row: Row, folder: Path) -> Outcome:
    """Go through all steps."""
    outcome = Outcome(row)
    began = time.monotonic()
    step = "open"
    try:
        aside = dict((row.prepare(folder) if row.prepare is not None else None) or {})
        async with row.open(folder) as target:
            ears = Ears(roots=[folder])
            client = ears.client(target, row.name, row.mode)
            async with asyncio.timeout(SECONDS):
                await client.open()
            try:
                await _steps(Scene(client, ears, folder, aside), outcome, target)
            finally:
                step = "close"
                async with asyncio.timeout(SECONDS):
                    await client.close()
            same("the phase", client.status.phase.value, "closed")
            if row.farewell:
                said = await asyncio.to_thread(folder.joinpath(SAID).read_text, errors="replace")
                handshakes = [version for version in (row.revision, *row.speaks) if version in HANDSHAKE]
                same("sessions that were given back", said.count(row.farewell), len(handshakes))
        outcome.marks.setdefault("close", Mark.RIGHT)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is what the verdict is about
        outcome.fails(step, f"{type(error).__name__}: {error}")
    outcome.marks = {name: outcome.marks.get(name, Mark.WRONG) for name in STEPS}
    outcome.seconds = time.monotonic() - began
    return outcome


async def _steps(scene: Scene, outcome: Outcome, target: Any) -> None:
    capabilities = scene.client.server_capabilities
    tools: list[Any] = []
    for name, rule in STEPS.items():
        if name == "close":
            continue
        try:
            async with asyncio.timeout(SECONDS):
                if name == "open":
                    await _opened(scene.client, outcome.row.revision)
                    tools = await scene.client.list_tools() if "tools" in capabilities else []
                    outcome.tools = len(tools)
                elif name == "revisions":
                    await _revisions(scene, outcome.row, target, [tool.name for tool in tools])
                outcome.marks[name] = await _step(scene, outcome.row, name, rule, tools)
        except Exception as error:  # noqa: BLE001 - the same
            outcome.fails(name, f"{type(error).__name__}: {error}")
    await scene.client.ping()
    for name, mark in outcome.marks.items():
        sign = STEPS[name].sign
        if sign is not None and (sign(scene.ears) > 0) != (mark is Mark.RIGHT) and mark is not Mark.WRONG:
            outcome.fails(name, f"it is said to be {mark.value}, and happened {sign(scene.ears)} times")


async def _step(scene: Scene, row: Row, name: str, rule: Rule, tools: list[Any]) -> Mark:
    function = row.steps.get(name)
    declared = name in row.steps if rule.need is None else rule.need(scene.client.server_capabilities, tools)
    if name in row.never:
        if rule.need is not None and not declared:
            raise WrongError("there is a reason why the server never does it, and it does not even declare it")
        if function is not None:
            await function(scene)
        return Mark.NEVER
    if declared:
        if function is not None:
            await function(scene)
        elif name not in OWN:
            raise WrongError("the server declares it, and there is no step for it")
        return Mark.RIGHT
    if function is not None:
        raise WrongError("there is a step for it, and the server does not declare it")
    if rule.refused is not None:
        method, params = rule.refused
        await ends(f"{method}, which is not declared", scene.client.request(method, params), "Unsupported")
    return Mark.NOT_DECLARED


async def _opened(client: Client, revision: str) -> None:
    same("the phase", client.status.phase.value, "ready")
    same("the revision", client.protocol_version, revision)
    if not client.server_info.get("name"):
        raise WrongError(f"it does not say who it is: {client.server_info!r}")
    if await client.ping() > 5:
        raise WrongError("a ping takes its time")


async def _revisions(scene: Scene, row: Row, target: Any, tools: list[str]) -> None:
    """Clients that want one revision of the server get it, and the same tools; all of them at once, and beside the client that is there already."""

    async def asked(version: str) -> None:
        async with scene.ears.client(target, f"{row.name}, {version}", version) as client:
            same("the revision", client.protocol_version, version)
            found = [tool.name for tool in await client.list_tools()]
            same(f"the tools in {version}", [name for name in found if name in tools], found)

    await asyncio.gather(*map(asked, row.speaks))
