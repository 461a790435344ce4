"""The consent check of each tool call, and of each question that a server has for the user.

The rules deny, allow or ask. For `ask`, an earlier decision is used if one is stored; otherwise the user is asked, one question at a time and with a timeout.
If no user can be asked, the answer is no, and the error says which rule to write. A tool that differs from its pin is asked about even if the rules allow it.
Servers take turns with questions, so one with many questions does not delay the others.
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
from greenroom.supervision import visible
from greenroom.supervision.fair_queue import FairQueue, QueuedTurn, QueueFull
from greenroom.supervision.private_files import read_regular, write_private

from .call_text import arguments_text, call_text
from .rules import ConsentDenied, Permissions, RuleDecision

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping

    from greenroom.actors.client.client_handler import AskingCall
    from greenroom.protocol.tool_pins import PinComparison

    from .rules import Verdict

PATIENCE: Final = 300.0
_MOST_QUEUED: Final = 32
"""The number of questions about one server that may wait for their turn,"""
_QUEUE_PATIENCE: Final = 2
"""and how long they may wait, as a multiple of the patience for one question."""
_LONGEST_NAME: Final = 60
_LONGEST_MESSAGE: Final = 200
_LONGEST_URI: Final = 500
_log: Final = logging.getLogger("greenroom.consent")


@dataclass(frozen=True, slots=True)
class ConsentAnswer:
    """The user's answer. `remember` is `"once"`, a number of seconds, or `"always"`."""

    allow: bool
    remember: float | Literal["once", "always"] = "once"

    def __post_init__(self) -> None:
        given: object = self.remember
        lasts = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
        if given not in ("once", "always") and not lasts:
            raise ConfigError(f"remember is 'once', 'always', or more than 0 seconds, not {given!r}")


@dataclass(frozen=True, slots=True)
class ConsentQuestion:
    """A question to the user: may this call be made?"""

    server: str
    tool: str
    """The tool; empty if the server wants to ask the user something, or a skill is to be loaded."""
    decided: RuleDecision
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    definition: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    finding: PinComparison | None = None
    """The difference from the pinned tool, if that is the reason for the question."""
    message: str = field(default="", repr=False)
    """The server's own words to the user."""
    call: AskingCall | None = field(default=None, repr=False)
    """The call in whose reply the server asks; None where that is not certain."""
    skill: str = ""
    """The URI of the skill that is to be loaded; its frontmatter is the `definition`."""

    @property
    def name(self) -> str:
        """The subject of the question: `server:tool`, `Elicit(server)` or `Skill(server) URI`."""
        return _subject(self.server, self.tool, self.skill)

    @property
    def text(self) -> str:
        """The question's subject in one line for the user: the call with its arguments, or what the server asks for and in which call.

        Long values are cut, secrets hidden, and invisible characters escaped.
        """
        server = visible(self.server, _LONGEST_NAME)
        if self.tool:
            return f"{server}:{arguments_text(self.tool, self.arguments)}"
        if self.skill:
            description = repr(str(self.definition.get("description", ""))[:_LONGEST_MESSAGE])
            return f"the skill {visible(self.skill, _LONGEST_MESSAGE)} of {server}: {visible(description)}"
        # Quoted before it is escaped: a quotation mark of the server's must not end the quotation.
        quoted = repr(self.message[:_LONGEST_MESSAGE] + ("…" if len(self.message) > _LONGEST_MESSAGE else ""))
        asks = f"{server} asks the user {visible(quoted)}"
        return f"{asks} during {call_text(self.call)}" if self.call is not None else asks

    @property
    def why(self) -> str:
        """The reason for the question."""
        return str(self.finding) if self.finding is not None else str(self.decided)


def _subject(server: str, tool: str, skill: str = "") -> str:
    if skill:  # cut and escaped, as the decision's fingerprint is of the whole URI
        return f"Skill({server}) {visible(skill, _LONGEST_URI)}"
    return f"{server}:{tool}" if tool else f"Elicit({server})"


ConsentReply: TypeAlias = "ConsentAnswer | bool | None"
ConsentCallback: TypeAlias = "Callable[[ConsentQuestion], ConsentReply | Awaitable[ConsentReply]]"


class Consent:
    """The consent check of a host.

    `ask` asks the user: a function or coroutine function that gets a `ConsentQuestion` and returns `ConsentAnswer(…)`, True or False. `hook` decides for
    the program: it is called first, for everything that is not denied, and returns None to leave the decision to the rules.
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
        """`remembers` is the file for permanent decisions; `patience` is the time for an answer, after which the answer is no."""
        if patience is not None and not patience > 0:
            raise ConfigError(f"patience has to be more than 0 seconds, or None for no limit, not {patience!r}")
        for name, function in (("ask", ask), ("hook", hook)):
            if function is not None and not accepts_arguments(function, 1):
                raise ConfigError(f"{name} has to be a function of one argument (question), not {function!r}")
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
        """Gives a server's origin by its id, so that a decision does not apply to another server of the same name. Set by the host."""

    def __repr__(self) -> str:
        return f"<Consent: {self.permissions!r}, {'a user' if self.interactive else 'no user'} can be asked>"

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
        """Check a call. Raises `ConsentDenied` if it is not allowed."""
        decided = self._decide(server, tool)
        if finding is not None and finding.kind == "same":
            finding = None
        question = ConsentQuestion(server, tool, decided, arguments, definition, finding)
        await self._check(question, self._fingerprint(server, definition))

    async def elicitation(self, server: str, message: str = "", call: AskingCall | None = None) -> None:
        """Check a server's question to the user, which came during `call`. Raises `ConsentDenied` if it is not allowed."""
        question = ConsentQuestion(server, "", self._decide(server, ""), message=message, call=call)
        await self._check(question, self._fingerprint(server))

    async def skill(self, server: str, uri: str, frontmatter: Mapping[str, Any], content: str | None) -> None:
        """Check the loading of a skill. Raises `ConsentDenied` if it is not allowed.

        A decision that is kept is for this `content`, the fingerprint of all files: any other is asked about again. None is never remembered.
        """
        decided = self._decide(server, "", skill=True)
        question = ConsentQuestion(server, "", decided, definition=frontmatter, skill=uri)
        await self._check(question, None if content is None else f"{content}{self._fingerprint(server)}")

    def denies_elicitation(self, server: str) -> bool:
        """Whether the rules deny the server's questions to any user, including users of a gateway who answer their own questions."""
        return self._decide(server, "").verdict == "deny"

    def denies(self, server: str, tool: str) -> bool:
        """Whether the rules deny this tool for all arguments."""
        return self._decide(server, tool).verdict == "deny"

    def verdict(self, server: str, tool: str, definition: Mapping[str, Any]) -> tuple[Verdict, str]:
        """The verdict for a call and its reason, without asking the user."""
        decided = self.permissions.of_tool(server, tool)
        if decided.verdict == "ask":
            before = self.memory.of(_subject(server, tool), self._fingerprint(server, definition))
            if before is not None:
                return ("allow" if before else "deny"), "decided before"
        return decided.verdict, str(decided)

    async def _check(self, question: ConsentQuestion, fingerprint: str | None) -> None:
        """`fingerprint` is what a decision holds for; with None none is stored or looked up."""
        verdict: Verdict = question.decided.verdict
        if verdict == "deny":
            raise ConsentDenied(question.name, str(question.decided))
        if self._hook is not None:
            reply = await self._ask_hook(self._hook, question)
            if reply is not None:
                self._apply_answer(question, fingerprint, reply, no="the program said no")
                return
        if verdict == "allow" and question.finding is None:
            return
        if self._decided_before(question, fingerprint):
            return
        if self._ask is None:
            raise ConsentDenied(question.name, f"{question.why}, and no user can be asked: {_how_to_allow(question)}")
        turns = self._queues.setdefault(asyncio.get_running_loop(), QuestionQueue(_MOST_QUEUED))
        seconds = None if self._patience is None else self._patience * _QUEUE_PATIENCE
        try:
            async with turns.take(question.server, seconds):
                if self._decided_before(question, fingerprint):  # an earlier question in the queue was the same
                    return
                self._apply_answer(
                    question, fingerprint, await self._ask_user(self._ask, question), no="the answer was no"
                )
        except QueueFull:
            why = f"{_MOST_QUEUED} questions about {question.server} are waiting already"
            raise ConsentDenied(question.name, why) from None
        except TimeoutError:
            raise ConsentDenied(
                question.name, f"the question had no turn within {seconds} s, because of other questions"
            ) from None

    def _fingerprint(self, server: str, definition: Mapping[str, Any] | None = None) -> str:
        """The hash of the tool's definition and the server's origin, for which a decision holds."""
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

    def _decided_before(self, question: ConsentQuestion, fingerprint: str | None) -> bool:
        before = None if fingerprint is None else self.memory.of(question.name, fingerprint)
        if before is False:
            raise ConsentDenied(question.name, "it was denied before")
        return before is True

    async def _ask_user(self, ask: ConsentCallback, question: ConsentQuestion) -> ConsentReply:
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                return await _call(ask, question)
        except Exception as error:
            if self._patience is not None and limit.expired() and isinstance(error, TimeoutError):
                raise ConsentDenied(question.name, f"no answer within {self._patience:g} s") from None
            raise ConsentDenied(question.name, f"the ask function failed ({type(error).__name__}: {error})") from error

    def _apply_answer(
        self, question: ConsentQuestion, fingerprint: str | None, reply: ConsentReply, *, no: str
    ) -> None:
        answer = reply if isinstance(reply, ConsentAnswer) else ConsentAnswer(allow=reply is True)
        if answer.remember != "once" and fingerprint is not None:
            seconds = None if answer.remember == "always" else answer.remember
            try:
                self.memory.keep(question.name, fingerprint, allow=answer.allow, seconds=seconds)
            except OSError as error:  # the decision holds in this program, without being stored
                _log.warning("the decision about %s cannot be stored: %s", question.name, error)
        if not answer.allow:
            raise ConsentDenied(question.name, no)
        now = self._decide(question.server, question.tool, skill=bool(question.skill))
        if now.verdict == "deny":  # the rules have changed since the question
            raise ConsentDenied(question.name, str(now))

    def _decide(self, server: str, tool: str, *, skill: bool = False) -> RuleDecision:
        if skill:
            return self.permissions.of_skill(server)
        return self.permissions.of_tool(server, tool) if tool else self.permissions.of_elicitation(server)


def _no_origin(_: str) -> str:
    return ""


async def _call(callback: ConsentCallback, question: ConsentQuestion) -> ConsentReply:
    reply: Any = callback(question)
    answer: ConsentReply = await reply if inspect.isawaitable(reply) else reply
    return answer


def _how_to_allow(question: ConsentQuestion) -> str:
    if question.finding is not None:
        return "check the tool, and pin it again"
    word = f"Skill({question.server})" if question.skill else question.tool or "Elicit"
    return f'write allow = ["{word}"] in [server.{question.server}.permissions], or give the host an ask function'


# --- The queue of questions: one question at a time, servers take turns, and the number of waiting questions per server is bounded.
# Waiting tasks belong to an event loop, so each loop has its own queue.


class QuestionQueue:
    """The queue of questions of one event loop."""

    def __init__(self, most: int) -> None:
        """`most` is the number of questions of one server that may wait."""
        self._most = most
        self._last: Hashable = None
        """The server of the current or last question; None before the first one."""
        self._taken = False
        self._waiting: FairQueue[QueuedTurn] = FairQueue()

    @asynccontextmanager
    async def take(self, server: str, seconds: float | None) -> AsyncGenerator[None]:
        """Wait up to `seconds` for the turn, and hold it during the block. Raises `QueueFull`, or `TimeoutError`."""
        await self._wait(server, seconds)
        try:
            self._last = server
            yield
        finally:
            self._start_next()

    async def _wait(self, server: str, seconds: float | None) -> None:
        if not self._taken:
            self._taken = True
            return
        if self._waiting.count(server) >= self._most:
            raise QueueFull
        mine = QueuedTurn(server, asyncio.get_running_loop().create_future())
        self._waiting.add(server, mine)
        try:
            async with asyncio.timeout(seconds):
                await mine.begins
        except BaseException:
            if (
                mine.begins.done() and not mine.begins.cancelled()
            ):  # the turn arrived at the same moment as the cancellation
                self._start_next()
            else:
                self._waiting.remove(mine)
            raise

    def _start_next(self) -> None:
        """Give the turn to the next question, of another server if one waits."""
        while (mine := self._waiting.take(lambda turn: turn.owner != self._last) or self._waiting.take()) is not None:
            if (
                not mine.begins.done()
            ):  # a waiter cancelled in this turn of the loop is still queued, and must not get the turn
                self._last = mine.owner
                mine.begins.set_result(None)
                return
        self._taken = False


# --- Stored decisions: for a while in memory, permanent ones in a file with mode 0600, which is replaced atomically.
# A decision is stored with the hash of the tool's definition; a changed tool is asked about again. Hosts may share the file: each reloads it before a lookup
# or a write if it has changed. There is no lock: of two writes at the same moment one decision may be lost, and is asked for again.

if TYPE_CHECKING:
    _FileStat: TypeAlias = tuple[int, int, int, int] | None
    """Times, inode number and size of a file; None if it does not exist."""

_MOST_DECISIONS: Final = 10_000
"""The number of stored decisions; the oldest are dropped first."""
_LARGEST: Final = 16 * 1024 * 1024
"""A size that the largest possible file stays below."""


class StoredDecision(msgspec.Struct, frozen=True):
    """A decision. `until` is wall-clock time; None is permanent."""

    allow: bool
    hash: str
    until: float | None = None


class DecisionMemory:
    """Decisions by subject (`ConsentQuestion.name`)."""

    def __init__(self, clock: Callable[[], float], path: str | os.PathLike[str] | None = None) -> None:
        """`clock` gives wall-clock time. Without `path`, decisions end with the program. Raises `ConfigError` for an unreadable file."""
        self._clock = clock
        self._path = None if path is None else Path(path)
        self._decisions: dict[str, StoredDecision] = {}
        self._fingerprint: _FileStat = None
        self._catch_up()

    def __len__(self) -> int:
        self._catch_up()
        return len(self._decisions)

    def of(self, about: str, fingerprint: str) -> bool | None:
        """The stored decision; None if there is none, it has expired, or the tool has changed."""
        self._catch_up()
        kept = self._decisions.get(about)
        if kept is None or kept.hash != fingerprint:
            return None
        if kept.until is not None and kept.until <= self._clock():
            del self._decisions[about]
            return None
        return kept.allow

    def keep(self, about: str, fingerprint: str, *, allow: bool, seconds: float | None) -> None:
        """Store a decision for some seconds, or permanently for None. Raises `OSError` if the file cannot be written; the decision holds in memory."""
        self._catch_up()
        until = None if seconds is None else self._clock() + seconds
        self._decisions.pop(about, None)
        self._decisions[about] = StoredDecision(allow, fingerprint, until)
        while len(self._decisions) > _MOST_DECISIONS:
            del self._decisions[next(iter(self._decisions))]
        if seconds is None:
            self._write()

    def forget(self, about: str | None = None) -> int:
        """Delete the decision about a subject, or all decisions; returns how many were deleted."""
        self._catch_up()
        gone = list(self._decisions) if about is None else [about] if about in self._decisions else []
        for each in gone:
            del self._decisions[each]
        if gone:
            self._write()
        return len(gone)

    def _catch_up(self) -> None:
        """Reload the permanent decisions if the file has changed. Raises `ConfigError`."""
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
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


def _read(path: Path) -> dict[str, StoredDecision]:
    try:
        return _decode(read_regular(path, _LARGEST, _check_ownership))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: the stored decisions cannot be read ({error}): correct the file, or remove it"
        ) from error


def _check_ownership(found: os.stat_result) -> None:
    """Reject a file that other users can write: each line of it answers yes in the user's name."""
    if hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0):
        raise ValueError("it belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError("other users can write to it: chmod go-w")


_decode: Final = msgspec.json.Decoder(dict[str, StoredDecision]).decode
