"""The gate: each call of a tool passes it, and so does each question that a server has for the user.

What is denied is denied. What is to be asked is looked up in what was decided before, and else somebody is asked: one question at a time, for
so long and no longer. Where nobody can be asked the answer is no, and the error says what to write so that it is yes. A tool that is not
what was pinned is asked about, whatever the rules allow. Servers take turns in asking: one that asks much keeps no other waiting for long.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

from greenroom.actors.hooks import takes
from greenroom.errors import ConfigError
from greenroom.protocol.pins import tool_hash

from .errors import ConsentDenied
from .memory import Key, Memory
from .rules import Decided, Permissions
from .turns import Crowded, Turns

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.protocol.pins import Finding

    from .rules import Verdict

PATIENCE: Final = 300.0
_MOST: Final = 32
"""So many questions about one server may wait for their turn,"""
_TURNS: Final = 2
"""and for so many times the patience of whoever is asked."""
_log: Final = logging.getLogger("greenroom.consent")


@dataclass(frozen=True, slots=True)
class ConsentAnswer:
    """What somebody said. `remember` is for this once, for so many seconds, or for good (`"always"`)."""

    allow: bool
    remember: float | Literal["once", "always"] = "once"

    def __post_init__(self) -> None:
        given: object = self.remember
        lasts = isinstance(given, int | float) and not isinstance(given, bool) and given > 0
        if given not in ("once", "always") and not lasts:
            raise ConfigError(f"remember is 'once', 'always', or more than 0 seconds, not {given!r}")


@dataclass(frozen=True, slots=True)
class ConsentQuestion:
    """What somebody is asked: may this be done?"""

    server: str
    tool: str
    """Empty when it is the server that wants to ask the user something."""
    decided: Decided
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    definition: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    finding: Finding | None = None
    """How it differs from what was pinned, where that is why."""

    @property
    def name(self) -> str:
        """What it is about, in a word."""
        return f"{self.server}:{self.tool}" if self.tool else f"Elicit({self.server})"

    @property
    def why(self) -> str:
        """Why it is asked."""
        return str(self.finding) if self.finding is not None else str(self.decided)


Said: TypeAlias = "ConsentAnswer | bool | None"
Ask: TypeAlias = "Callable[[ConsentQuestion], Said | Awaitable[Said]]"


class Consent:
    """One for a host.

    `ask` is whoever can be asked: a function, or a coroutine, that gets a `ConsentQuestion` and says `ConsentAnswer(…)`, True or False. `hook` is the
    program's own say: it comes before that, for whatever is not denied, and None leaves it to the rules.
    """

    def __init__(
        self,
        permissions: Permissions | None = None,
        *,
        ask: Ask | None = None,
        hook: Ask | None = None,
        remembers: str | os.PathLike[str] | None = None,
        patience: float | None = PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`remembers` is the file of what was decided for good; `patience` is how long somebody may think before it is a no."""
        if patience is not None and not patience > 0:
            raise ConfigError(f"patience is more than 0 seconds, or None for ever, not {patience!r}")
        for name, function in (("ask", ask), ("hook", hook)):
            if function is not None and not takes(function, 1):
                raise ConfigError(f"{name} is a function of 1 (question), not {function!r}")
        if permissions is not None and not isinstance(cast("object", permissions), Permissions):
            raise ConfigError(
                f'permissions are Permissions, as in Consent(Permissions([Rule("deny", "git:push")])), not {permissions!r}'
            )
        self.permissions = Permissions() if permissions is None else permissions
        self.memory = Memory(clock, remembers)
        self._ask = ask
        self._hook = hook
        self._patience = patience
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()
        self.origin: Callable[[str], str] = _unknown
        """Where a server comes from, by its id: what is decided about it does not hold for another of that name. The host says it."""

    def __repr__(self) -> str:
        return f"<Consent: {self.permissions!r}, {'somebody' if self.interactive else 'nobody'} can be asked>"

    @property
    def interactive(self) -> bool:
        """Whether somebody can be asked."""
        return self._ask is not None

    async def tool(
        self,
        server: str,
        tool: str,
        definition: Mapping[str, Any],
        arguments: Mapping[str, Any],
        finding: Finding | None = None,
    ) -> None:
        """Go on, or raise `ConsentDenied`."""
        decided = self._decide(server, tool)
        if finding is not None and finding.kind == "same":
            finding = None
        question = ConsentQuestion(server, tool, decided, arguments, definition, finding)
        await self._pass(question, Key(server, "tool", tool), self._seen(server, definition))

    async def elicitation(self, server: str) -> None:
        """A server may ask the user something, or raise `ConsentDenied`."""
        await self._pass(
            ConsentQuestion(server, "", self._decide(server, "")), Key(server, "elicit"), self._seen(server)
        )

    def denies_elicitation(self, server: str) -> bool:
        """Whether that server may ask nobody at all: not even users who answer for themselves."""
        return self._decide(server, "").verdict == "deny"

    def denies(self, server: str, tool: str) -> bool:
        """Whether the rules deny this tool, whatever it is called with."""
        return self._decide(server, tool).verdict == "deny"

    def verdict(self, server: str, tool: str, definition: Mapping[str, Any]) -> tuple[Verdict, str]:
        """What would happen to a call now, and why, without asking anybody."""
        decided = self.permissions.of_tool(server, tool)
        if decided.verdict == "ask":
            before = self.memory.of(Key(server, "tool", tool), self._seen(server, definition))
            if before is not None:
                return ("allow" if before else "deny"), "decided before"
        return decided.verdict, str(decided)

    async def _pass(self, question: ConsentQuestion, key: Key, seen: str) -> None:
        verdict: Verdict = question.decided.verdict
        if verdict == "deny":
            raise ConsentDenied(question.name, str(question.decided))
        if self._hook is not None:
            said = await self._hooked(self._hook, question)
            if said is not None:
                self._heed(question, key, seen, said, no="the program said no")
                return
        if verdict == "allow" and question.finding is None:
            return
        if self._decided_before(question, key, seen):
            return
        if self._ask is None:
            raise ConsentDenied(question.name, f"{question.why}, and nobody is there to be asked: {_remedy(question)}")
        turns = self._turns.setdefault(asyncio.get_running_loop(), Turns(_MOST))
        seconds = None if self._patience is None else self._patience * _TURNS
        try:
            async with turns.take(question.server, seconds):
                if self._decided_before(question, key, seen):  # the question before this one was the same
                    return
                self._heed(question, key, seen, await self._asked(self._ask, question), no="the answer was no")
        except Crowded:
            why = f"{_MOST} questions about {question.server} wait to be asked already"
            raise ConsentDenied(question.name, why) from None
        except TimeoutError:
            raise ConsentDenied(
                question.name, f"its turn has not come within {seconds} s: others are asked about"
            ) from None

    def _seen(self, server: str, definition: Mapping[str, Any] | None = None) -> str:
        """What a decision is about: the tool as it is, of the server that comes from there."""
        tool, origin = "" if definition is None else tool_hash(definition), self.origin(server)
        return f"{tool}@{sha256(origin.encode()).hexdigest()}" if origin else tool

    async def _hooked(self, hook: Ask, question: ConsentQuestion) -> Said:
        try:
            return await _said(hook, question)
        except ConsentDenied:
            raise
        except Exception as error:
            raise ConsentDenied(
                question.name, f"the program's hook failed ({type(error).__name__}: {error})"
            ) from error

    def _decided_before(self, question: ConsentQuestion, key: Key, seen: str) -> bool:
        before = self.memory.of(key, seen)
        if before is False:
            raise ConsentDenied(question.name, "that was decided before")
        return before is True

    async def _asked(self, ask: Ask, question: ConsentQuestion) -> Said:
        limit = asyncio.timeout(self._patience)
        try:
            async with limit:
                return await _said(ask, question)
        except Exception as error:
            if self._patience is not None and limit.expired() and isinstance(error, TimeoutError):
                raise ConsentDenied(question.name, f"nobody answered within {self._patience:g} s") from None
            raise ConsentDenied(question.name, f"whoever was asked failed ({type(error).__name__}: {error})") from error

    def _heed(self, question: ConsentQuestion, key: Key, seen: str, said: Said, *, no: str) -> None:
        answer = said if isinstance(said, ConsentAnswer) else ConsentAnswer(allow=said is True)
        if answer.remember != "once":
            seconds = None if answer.remember == "always" else answer.remember
            try:
                self.memory.keep(key, seen, allow=answer.allow, seconds=seconds)
            except OSError as error:  # what was said holds, until this program ends
                _log.warning("what was decided about %s cannot be kept for good: %s", question.name, error)
        if not answer.allow:
            raise ConsentDenied(question.name, no)
        now = self._decide(question.server, question.tool)
        if now.verdict == "deny":  # the rules are others than when it was asked
            raise ConsentDenied(question.name, str(now))

    def _decide(self, server: str, tool: str) -> Decided:
        return self.permissions.of_tool(server, tool) if tool else self.permissions.of_elicitation(server)


def _unknown(_: str) -> str:
    return ""


async def _said(who: Ask, question: ConsentQuestion) -> Said:
    said: Any = who(question)
    answer: Said = await said if inspect.isawaitable(said) else said
    return answer


def _remedy(question: ConsentQuestion) -> str:
    if question.finding is not None:
        return "look at it, and pin it again"
    word = question.tool or "Elicit"
    return f'write allow = ["{word}"] in [server.{question.server}.permissions], or give the host somebody to ask'
