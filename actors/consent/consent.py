"""The gate: each call of a tool passes it, and so does each question that a server has for the user.

What is denied is denied. What is to be asked is looked up in what was decided before, and else the user is asked: one question at a time, for
so long and no longer. Where no user can be asked the answer is no, and the error says what to write so that it is yes. A tool that is not
what was pinned is asked about, whatever the rules allow. Servers take turns in asking: one that asks much keeps no other waiting for long.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import stat
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

import msgspec

from greenroom.actors.worker_interfaces import accepts_arguments
from greenroom.errors import ConfigError
from greenroom.protocol.tool_pins import tool_hash
from greenroom.supervision.fair_queue import FairQueue, QueuedTurn, QueueFull
from greenroom.supervision.private_files import read_regular, write_private

from .rules import ConsentDenied, Permissions, RuleDecision

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping

    from greenroom.protocol.tool_pins import PinComparison

    from .rules import Verdict

PATIENCE: Final = 300.0
_MOST_QUEUED: Final = 32
"""So many questions about one server may wait for their turn,"""
_QUEUE_PATIENCE: Final = 2
"""and for so many times the patience that one question has."""
_log: Final = logging.getLogger("greenroom.consent")


@dataclass(frozen=True, slots=True)
class ConsentAnswer:
    """What the user said. `remember` is for this once, for so many seconds, or for good (`"always"`)."""

    allow: bool
    remember: float | Literal["once", "always"] = "once"

    def __post_init__(self) -> None:
        given: object = self.remember
        lasts = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
        if given not in ("once", "always") and not lasts:
            raise ConfigError(f"remember is 'once', 'always', or more than 0 seconds, not {given!r}")


@dataclass(frozen=True, slots=True)
class ConsentQuestion:
    """What the user is asked: may this be done?"""

    server: str
    tool: str
    """Empty when it is the server that wants to ask the user something."""
    decided: RuleDecision
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    definition: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    finding: PinComparison | None = None
    """How it differs from what was pinned, where that is why."""

    @property
    def name(self) -> str:
        """What it is about, in a word."""
        return _subject(self.server, self.tool)

    @property
    def why(self) -> str:
        """Why it is asked."""
        return str(self.finding) if self.finding is not None else str(self.decided)


def _subject(server: str, tool: str) -> str:
    return f"{server}:{tool}" if tool else f"Elicit({server})"


ConsentReply: TypeAlias = "ConsentAnswer | bool | None"
ConsentCallback: TypeAlias = "Callable[[ConsentQuestion], ConsentReply | Awaitable[ConsentReply]]"


class Consent:
    """One for a host.

    `ask` asks the user: a function, or a coroutine, that gets a `ConsentQuestion` and says `ConsentAnswer(…)`, True or False. `hook` is the
    program's own say: it comes before that, for whatever is not denied, and None leaves it to the rules.
    """

    def __init__(
        self,
        permissions: Permissions | None = None,
        *,
        ask: ConsentCallback | None = None,
        hook: ConsentCallback | None = None,
        remembers: str | os.PathLike[str] | None = None,
        patience: float | None = PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`remembers` is the file of what was decided for good; `patience` is how long the user may think before it is a no."""
        if patience is not None and not patience > 0:
            raise ConfigError(f"patience is more than 0 seconds, or None for ever, not {patience!r}")
        for name, function in (("ask", ask), ("hook", hook)):
            if function is not None and not accepts_arguments(function, 1):
                raise ConfigError(f"{name} is a function of 1 (question), not {function!r}")
        if permissions is not None and not isinstance(cast("object", permissions), Permissions):
            raise ConfigError(
                f'permissions are Permissions, as in Consent(Permissions([Rule("deny", "git:push")])), not {permissions!r}'
            )
        self.permissions = Permissions() if permissions is None else permissions
        self.memory = DecisionMemory(clock, remembers)
        self._ask = ask
        self._hook = hook
        self._patience = patience
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, QuestionQueue] = WeakKeyDictionary()
        self.origin: Callable[[str], str] = _no_origin
        """Where a server comes from, by its id: what is decided about it does not hold for another of that name. The host says it."""

    def __repr__(self) -> str:
        return f"<Consent: {self.permissions!r}, {'somebody' if self.interactive else 'nobody'} can be asked>"

    @property
    def interactive(self) -> bool:
        """Whether a user can be asked."""
        return self._ask is not None

    async def tool(
        self,
        server: str,
        tool: str,
        definition: Mapping[str, Any],
        arguments: Mapping[str, Any],
        finding: PinComparison | None = None,
    ) -> None:
        """Go on, or raise `ConsentDenied`."""
        decided = self._decide(server, tool)
        if finding is not None and finding.kind == "same":
            finding = None
        question = ConsentQuestion(server, tool, decided, arguments, definition, finding)
        await self._check(question, self._fingerprint(server, definition))

    async def elicitation(self, server: str) -> None:
        """A server may ask the user something, or raise `ConsentDenied`."""
        await self._check(ConsentQuestion(server, "", self._decide(server, "")), self._fingerprint(server))

    def denies_elicitation(self, server: str) -> bool:
        """Whether that server may ask no user at all: not even users who answer for themselves."""
        return self._decide(server, "").verdict == "deny"

    def denies(self, server: str, tool: str) -> bool:
        """Whether the rules deny this tool, whatever it is called with."""
        return self._decide(server, tool).verdict == "deny"

    def verdict(self, server: str, tool: str, definition: Mapping[str, Any]) -> tuple[Verdict, str]:
        """What would happen to a call now, and why, without asking the user."""
        decided = self.permissions.of_tool(server, tool)
        if decided.verdict == "ask":
            before = self.memory.of(_subject(server, tool), self._fingerprint(server, definition))
            if before is not None:
                return ("allow" if before else "deny"), "decided before"
        return decided.verdict, str(decided)

    async def _check(self, question: ConsentQuestion, seen: str) -> None:
        verdict: Verdict = question.decided.verdict
        if verdict == "deny":
            raise ConsentDenied(question.name, str(question.decided))
        if self._hook is not None:
            said = await self._ask_hook(self._hook, question)
            if said is not None:
                self._apply_answer(question, seen, said, no="the program said no")
                return
        if verdict == "allow" and question.finding is None:
            return
        if self._decided_before(question, seen):
            return
        if self._ask is None:
            raise ConsentDenied(
                question.name, f"{question.why}, and nobody is there to be asked: {_how_to_allow(question)}"
            )
        turns = self._queues.setdefault(asyncio.get_running_loop(), QuestionQueue(_MOST_QUEUED))
        seconds = None if self._patience is None else self._patience * _QUEUE_PATIENCE
        try:
            async with turns.take(question.server, seconds):
                if self._decided_before(question, seen):  # the question before this one was the same
                    return
                self._apply_answer(question, seen, await self._ask_user(self._ask, question), no="the answer was no")
        except QueueFull:
            why = f"{_MOST_QUEUED} questions about {question.server} wait to be asked already"
            raise ConsentDenied(question.name, why) from None
        except TimeoutError:
            raise ConsentDenied(
                question.name, f"its turn has not come within {seconds} s: others are asked about"
            ) from None

    def _fingerprint(self, server: str, definition: Mapping[str, Any] | None = None) -> str:
        """What a decision is about: the tool as it is, of the server that comes from there."""
        tool, origin = "" if definition is None else tool_hash(definition), self.origin(server)
        return f"{tool}@{sha256(origin.encode()).hexdigest()}" if origin else tool

    async def _ask_hook(self, hook: ConsentCallback, question: ConsentQuestion) -> ConsentReply:
        try:
            return await _call(hook, question)
        except ConsentDenied:
            raise
        except Exception as error:
            raise ConsentDenied(
                question.name, f"the program's hook failed ({type(error).__name__}: {error})"
            ) from error

    def _decided_before(self, question: ConsentQuestion, seen: str) -> bool:
        before = self.memory.of(question.name, seen)
        if before is False:
            raise ConsentDenied(question.name, "that was decided before")
        return before is True

    async def _ask_user(self, ask: ConsentCallback, question: ConsentQuestion) -> ConsentReply:
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                return await _call(ask, question)
        except Exception as error:
            if self._patience is not None and limit.expired() and isinstance(error, TimeoutError):
                raise ConsentDenied(question.name, f"nobody answered within {self._patience:g} s") from None
            raise ConsentDenied(question.name, f"whoever was asked failed ({type(error).__name__}: {error})") from error

    def _apply_answer(self, question: ConsentQuestion, seen: str, said: ConsentReply, *, no: str) -> None:
        answer = said if isinstance(said, ConsentAnswer) else ConsentAnswer(allow=said is True)
        if answer.remember != "once":
            seconds = None if answer.remember == "always" else answer.remember
            try:
                self.memory.keep(question.name, seen, allow=answer.allow, seconds=seconds)
            except OSError as error:  # what was said holds, until this program ends
                _log.warning("what was decided about %s cannot be kept for good: %s", question.name, error)
        if not answer.allow:
            raise ConsentDenied(question.name, no)
        now = self._decide(question.server, question.tool)
        if now.verdict == "deny":  # the rules are others than when it was asked
            raise ConsentDenied(question.name, str(now))

    def _decide(self, server: str, tool: str) -> RuleDecision:
        return self.permissions.of_tool(server, tool) if tool else self.permissions.of_elicitation(server)


def _no_origin(_: str) -> str:
    return ""


async def _call(who: ConsentCallback, question: ConsentQuestion) -> ConsentReply:
    said: Any = who(question)
    answer: ConsentReply = await said if inspect.isawaitable(said) else said
    return answer


def _how_to_allow(question: ConsentQuestion) -> str:
    if question.finding is not None:
        return "look at it, and pin it again"
    word = question.tool or "Elicit"
    return f'write allow = ["{word}"] in [server.{question.server}.permissions], or give the host somebody to ask'


# --- The order of questions: one at a time, and no server keeps the others waiting by asking much.
# Servers take turns, and of each no more than so many questions wait. An asking task belongs to one loop: each loop has its own queue.


class QuestionQueue:
    """The queue of one loop."""

    def __init__(self, most: int) -> None:
        """`most` is how many of one server's may wait."""
        self._most = most
        self._last: Hashable = None
        """The server whose turn it is, or was last; None before the first question."""
        self._taken = False
        self._waiting: FairQueue[QueuedTurn] = FairQueue()

    @asynccontextmanager
    async def take(self, who: str, seconds: float | None) -> AsyncGenerator[None]:
        """Wait for the turn, for so long, and have it. Raises `QueueFull`, or `TimeoutError`."""
        await self._wait(who, seconds)
        try:
            self._last = who
            yield
        finally:
            self._start_next()

    async def _wait(self, who: str, seconds: float | None) -> None:
        if not self._taken:
            self._taken = True
            return
        if self._waiting.count(who) >= self._most:
            raise QueueFull
        mine = QueuedTurn(who, asyncio.get_running_loop().create_future())
        self._waiting.add(who, mine)
        try:
            async with asyncio.timeout(seconds):
                await mine.begins
        except BaseException:
            if (
                mine.begins.done() and not mine.begins.cancelled()
            ):  # it came in the very moment in which it was given up
                self._start_next()
            else:
                self._waiting.remove(mine)
            raise

    def _start_next(self) -> None:
        """The next is another server, if any other waits."""
        while (mine := self._waiting.take(lambda turn: turn.owner != self._last) or self._waiting.take()) is not None:
            if (
                not mine.begins.done()
            ):  # one that was cancelled in this very turn of the loop still waits, and takes nothing
                self._last = mine.owner
                mine.begins.set_result(None)
                return
        self._taken = False


# --- What was decided before: once for a while, or for good. For good is a file of our own, 0600, written whole or not at all.
# A decision is about a tool as it was: its hash is kept with it, and a tool that has become another asks anew. Hosts may share a file: each
# takes what the others have decided, and what they have forgotten, before it looks something up or writes. Two that write in the very same
# moment may lose one decision, which is then asked for again.

if TYPE_CHECKING:
    _FileStat: TypeAlias = tuple[int, int, int, int] | None
    """How a file was: its times, its number and its size; None when it was not there."""

_MOST_DECISIONS: Final = 10_000
"""How many decisions are kept; the oldest go first."""
_LARGEST: Final = 16 * 1024 * 1024
"""No file of as many is as large."""


class StoredDecision(msgspec.Struct, frozen=True):
    """One decision. `until` is on the wall's clock; None is for good."""

    allow: bool
    hash: str
    until: float | None = None


class DecisionMemory:
    """Decisions by what they are about: a `ConsentQuestion.name`."""

    def __init__(self, clock: Callable[[], float], path: str | os.PathLike[str] | None = None) -> None:
        """`clock` is the wall's. Without `path` nothing outlives the program. Raises `ConfigError` for a file that is not readable."""
        self._clock = clock
        self._path = None if path is None else Path(path)
        self._decisions: dict[str, StoredDecision] = {}
        self._fingerprint: _FileStat = None
        self._catch_up()

    def __len__(self) -> int:
        self._catch_up()
        return len(self._decisions)

    def of(self, about: str, seen: str) -> bool | None:
        """Whether it was allowed; None when it was not decided, the decision has run out, or the tool is not what it was."""
        self._catch_up()
        kept = self._decisions.get(about)
        if kept is None or kept.hash != seen:
            return None
        if kept.until is not None and kept.until <= self._clock():
            del self._decisions[about]
            return None
        return kept.allow

    def keep(self, about: str, seen: str, *, allow: bool, seconds: float | None) -> None:
        """Remember it for so long; None is for good. Raises `OSError` when the file cannot be written: the decision holds, but not for long."""
        self._catch_up()
        until = None if seconds is None else self._clock() + seconds
        self._decisions.pop(about, None)
        self._decisions[about] = StoredDecision(allow, seen, until)
        while len(self._decisions) > _MOST_DECISIONS:
            del self._decisions[next(iter(self._decisions))]
        if seconds is None:
            self._write()

    def forget(self, about: str | None = None) -> int:
        """Forget one, or all; how many there were."""
        self._catch_up()
        gone = list(self._decisions) if about is None else [about] if about in self._decisions else []
        for each in gone:
            del self._decisions[each]
        if gone:
            self._write()
        return len(gone)

    def _catch_up(self) -> None:
        """Have what is in the file now: what was decided for good is what stands there. Raises `ConfigError`."""
        path = self._path
        if path is None:
            return
        look = _file_stat(path)
        if look != self._fingerprint:
            lasting = _read(path)
            self._decisions = {key: kept for key, kept in self._decisions.items() if kept.until is not None} | lasting
            self._fingerprint = look

    def _write(self) -> None:
        path = self._path
        if path is None:
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lasting = {key: kept for key, kept in self._decisions.items() if kept.until is None}
        write_private(path, msgspec.json.format(msgspec.json.encode(lasting)))
        self._fingerprint = _file_stat(path)


def _file_stat(path: Path) -> _FileStat:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_size


def _read(path: Path) -> dict[str, StoredDecision]:
    try:
        return _decode(read_regular(path, _LARGEST, _check_ownership))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: the decisions that were kept cannot be read ({error}): mend the file, or remove it"
        ) from error


def _check_ownership(told: os.stat_result) -> None:
    """What others may have written is not believed: each line of it says yes for the user."""
    if hasattr(os, "geteuid") and told.st_uid not in (os.geteuid(), 0):
        raise ValueError("it is somebody else's")
    if told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError("others may write to it: chmod go-w")


_decode: Final = msgspec.json.Decoder(dict[str, StoredDecision]).decode
