"""Permission rules for tool calls, and the choice of the rule that decides. Pure: no clock, no file, no question to a user.

A rule has a verdict (allow, ask or deny) and a pattern. It applies to all servers (global), or stands in a server's block. Rules are examined in this order,
independent of the order in the files, and the first that matches decides:

    1. global deny    2. server deny    3. server ask    4. server allow    5. global ask    6. global allow    7. ask

so a server's block cannot allow what is denied globally. In a server's block a pattern matches the names of its own tools. A global pattern is
`server:tool`, or a tool's name alone for any server; Claude Code's `mcp__server__tool` and `mcp__server` are accepted. `Elicit(server)` is about a server's
questions to the user, and `Skill(server)` about loading its skills; patterns of tools do not apply to either.

Claude Code's name of a tool can be ambiguous: it has `_` for other characters, and an id may contain `__`. Deny and ask rules apply to all tools that the name
could mean; allow rules to tools of one server, whose id has to be written in full if it contains `__`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, cast

from greenroom.errors import ConfigError, GreenroomError
from greenroom.protocol.provider_rules import claude_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Verdict: TypeAlias = Literal["allow", "ask", "deny"]

ORDER: Final[tuple[tuple[str, Verdict], ...]] = (
    ("global", "deny"),
    ("server", "deny"),
    ("server", "ask"),
    ("server", "allow"),
    ("global", "ask"),
    ("global", "allow"),
)
VERDICTS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")
_SUBJECT: Final = re.compile(r"(?P<about>Elicit|Skill)(?:\((?P<server>[^()]*)\))?")
_CALL: Final = re.compile(r"\w+\(")
_LONGEST: Final = 300


class BadRule(ConfigError):
    """A rule whose verdict or pattern is invalid."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A permission rule, as written."""

    verdict: Verdict
    pattern: str
    server: str | None = None
    """The server whose block it stands in; None for a global rule."""
    where: str = ""
    """The file and line of the rule."""
    only: frozenset[str] | None = None
    """The servers to which the rule is restricted, in addition to its pattern; None for no restriction."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise _bad(self, f"a rule's verdict is allow, ask or deny, not {self.verdict!r}")
        if not self.pattern.strip() or self.pattern != self.pattern.strip() or len(self.pattern) > _LONGEST:
            raise _bad(self, f"{self.pattern[:_LONGEST]!r} is not a pattern: write a tool's name, or '*' for all")
        _parse(self)

    @property
    def step(self) -> str:
        """The rule's step in `ORDER`: `server deny`, for example."""
        return f"{'global' if self.server is None else 'server'} {self.verdict}"

    def __str__(self) -> str:
        block = "" if self.server is None else f" of server {self.server}"
        return f"{self.verdict} {self.pattern!r}{block}{f' ({self.where})' if self.where else ''}"


def _bad(rule: Rule, why: str) -> BadRule:
    return BadRule(f"{rule.where or 'a rule'}: {why}")


class _ParsedPattern(NamedTuple):
    server: str
    tool: str = ""
    about: Literal["", "Elicit", "Skill"] = ""
    """Its subject other than tools: questions to the user, or skills."""
    claude: str = ""
    """The whole pattern, if it is a name of Claude Code's."""


def _parse(rule: Rule) -> _ParsedPattern:
    """The patterns for server and tool in a rule's pattern."""
    pattern, block = rule.pattern, rule.server
    found = _SUBJECT.fullmatch(pattern)
    if found is not None and pattern != "Skill":  # which is the name of a tool
        about: Any = found["about"]
        server = block if found["server"] is None else found["server"]
        if server is None:
            raise _bad(rule, "name the server: Elicit(server), or Elicit(*) for all")
        if block is not None and server != block:
            own = "Elicit" if about == "Elicit" else f"Skill({block})"
            raise _bad(rule, f"{pattern} in the block of {block!r} names another server: write {own}")
        return _ParsedPattern(server, about=about)
    if pattern.startswith(("Elicit(", "Skill(")):
        raise _bad(rule, f"{pattern!r} is not closed: write {pattern.partition('(')[0]}(server)")
    if _CALL.match(pattern):
        # `elicit(git)`, or another host's `Bash(rm:*)`, looks like a rule and would match no tool, so it would deny nothing.
        raise _bad(
            rule,
            f"{pattern!a} is not a tool: only Elicit(server) and Skill(server) have brackets; write ? for a bracket in a tool's name",
        )
    if block is not None:
        return _ParsedPattern(block, pattern)
    if pattern.startswith("mcp__"):
        server, _, tool = pattern.removeprefix("mcp__").partition("__")
        return _ParsedPattern(server, tool or "*", claude=pattern)
    server, colon, tool = pattern.partition(":")
    return _ParsedPattern(server, tool) if colon else _ParsedPattern("*", pattern)


class RuleDecision(NamedTuple):
    """A verdict and the rule that decided; `rule` is None if no rule matches."""

    verdict: Verdict
    rule: Rule | None = None
    among_rules: bool = False
    """Whether there are rules, of which none matches."""

    @property
    def step(self) -> str:
        """The deciding rule's step: `global deny`, …, or `default`."""
        return "default" if self.rule is None else self.rule.step

    def __str__(self) -> str:
        if self.rule is None:
            others = "rule matches" if self.among_rules else "file has rules"
            return f"{self.verdict}: no {'rule matches' if self.verdict == 'ask' else others}"
        return f"{self.verdict}: {self.rule}"


class DeadRule(NamedTuple):
    """A rule that can never decide, and the reason."""

    rule: Rule
    why: str

    def __str__(self) -> str:
        return f"{self.rule} can never match: {self.why}"


class Permissions:
    """The permission rules of a host."""

    def __init__(self, rules: Iterable[Rule] = (), *, otherwise: Verdict = "ask") -> None:
        """Rules in any order: `ORDER` counts, and within a step the order given. `otherwise` is the verdict without a matching rule."""
        written = cast("Any", rules)
        given: tuple[Any, ...] = tuple(written) if hasattr(written, "__iter__") else (written,)
        if isinstance(written, Mapping) or not all(isinstance(one, Rule) for one in given):
            raise BadRule(f'permissions are rules, as in Permissions([Rule("deny", "git:push")]), not {written!r}')
        self.rules: Sequence[Rule] = given
        self._otherwise = RuleDecision(otherwise, None, bool(self.rules))
        steps: dict[str, list[tuple[Rule, _ParsedPattern]]] = {f"{scope} {verdict}": [] for scope, verdict in ORDER}
        for rule in self.rules:
            steps[rule.step].append((rule, _parse(rule)))
        self._steps = [(rule, meaning) for step in steps.values() for rule, meaning in step]

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __repr__(self) -> str:
        return f"<Permissions: {len(self.rules)} rules>"

    def of_tool(self, server: str, tool: str) -> RuleDecision:
        """The decision for a call of this tool."""
        return self._first("", server, tool)

    def of_elicitation(self, server: str) -> RuleDecision:
        """The decision for a question of this server to the user."""
        return self._first("Elicit", server, "")

    def of_skill(self, server: str) -> RuleDecision:
        """The decision for loading a skill of this server."""
        return self._first("Skill", server, "")

    def _first(self, about: str, server: str, tool: str) -> RuleDecision:
        for rule, meaning in self._steps:
            if meaning.about == about and _fits(rule, meaning, server, tool):
                return RuleDecision(rule.verdict, rule)
        return self._otherwise

    def dead(self, servers: Iterable[str]) -> list[DeadRule]:
        """The rules that can never decide: no known server matches, the pattern names another server than the block, or an earlier rule matches the same tools."""
        known = list(servers)
        found: list[DeadRule] = []
        for place, (rule, meaning) in enumerate(self._steps):
            about = [each for each in known if _is_about(rule, meaning, each)]
            if not about:
                found.append(DeadRule(rule, f"there is no server called {meaning.server!a}"))
                continue
            if rule.only is not None and rule.only.isdisjoint(about):
                found.append(DeadRule(rule, "a project's file cannot allow tools of servers in other files"))
                continue
            if rule.server is not None and (whose := _named_server(rule.pattern)) in known:
                why = f"in the block of {rule.server!a} it is a tool's name alone, and {whose!a} is a server"
                found.append(DeadRule(rule, why))
                continue
            before = next(
                (other for other, wide in self._steps[:place] if _decides_all_of(other, wide, rule, meaning)), None
            )
            if before is not None:
                found.append(DeadRule(rule, f"{before} comes first"))
        return found


def _named_server(pattern: str) -> str | None:
    """The server that a pattern names; None if it names none, as in a server's block."""
    if pattern.startswith("mcp__"):
        return pattern.removeprefix("mcp__").partition("__")[0]
    head, colon, _ = pattern.partition(":")
    return head if colon else None


def _fits(rule: Rule, meaning: _ParsedPattern, server: str, tool: str) -> bool:
    if rule.only is not None and server not in rule.only:
        return False
    if not meaning.claude:
        return _is_about(rule, meaning, server) and matches(meaning.tool, tool)
    whole = claude_name(server, tool)
    own = whole[-len(tool) :] if tool else ""
    if rule.verdict == "allow":
        return any(
            _names(whose, server) and (matches(what, tool) or matches(what, own)) for whose, what in _readings(meaning)
        )
    named = (whole, f"mcp__{server}__{tool}", f"mcp__{server}", _claude_server_name(server))
    return any(matches(meaning.claude, each) for each in named)


def _is_about(rule: Rule, meaning: _ParsedPattern, server: str) -> bool:
    """Whether the rule may match a tool of this server."""
    if rule.server is not None:
        return meaning.server == server
    if not meaning.claude:
        return matches(meaning.server, server)
    if rule.verdict == "allow":
        return any(_names(whose, server) for whose, _ in _readings(meaning))
    return any(
        matches(meaning.claude, each) or may_begin(meaning.claude, f"{each}__")
        for each in (f"mcp__{server}", _claude_server_name(server))
    )


def _claude_server_name(server: str) -> str:
    return claude_name(server, "").removesuffix("__")


def _names(whose: str, server: str) -> bool:
    return matches(whose, server) or matches(whose, _claude_server_name(server).removeprefix("mcp__"))


def _readings(meaning: _ParsedPattern) -> Iterator[tuple[str, str]]:
    """Each server and tool that the pattern may mean: any `__` may separate them."""
    yield meaning.server, meaning.tool
    parts = meaning.claude.removeprefix("mcp__").split("__")
    for length in range(2, len(parts)):
        server = "__".join(parts[:length])
        if not set("*?") & set(server):
            yield server, "__".join(parts[length:])


def _decides_all_of(other: Rule, wide: _ParsedPattern, rule: Rule, narrow: _ParsedPattern) -> bool:
    """Whether `other` matches everything that `rule` matches, as far as the patterns show it plainly."""
    if wide.about != narrow.about or not (other.only is None or (rule.only is not None and rule.only <= other.only)):
        return False
    if not narrow.claude:
        return covers(wide.server, narrow.server) and covers(wide.tool, narrow.tool)
    if wide.claude:
        return wide.claude == narrow.claude or (other.verdict != "allow" and covers(wide.claude, narrow.claude))
    return wide.server == wide.tool == "*"


# --- Patterns of names: `*` matches any characters, `?` one character, everything else itself. Matching takes at most the product of both lengths, so it is
# linear in the name, which a server chooses: the regular expression that `fnmatch` makes of `*` uses atomic groups and does not backtrack.


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern matches the whole name."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))  # brackets are literal: sets of characters are not supported


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` plainly matches everything that `narrow` matches: it is equal, `*`, or a prefix of it with `*`."""
    return wide in (narrow, "*") or (
        wide.endswith("*") and not set("*?") & set(wide[:-1]) and narrow.startswith(wide[:-1])
    )


def may_begin(pattern: str, beginning: str) -> bool:
    """Whether the pattern matches any name with this beginning."""
    places = {0}
    for each in beginning:
        following: set[int] = set()
        for place in _positions_after_stars(pattern, places):
            if place < len(pattern) and pattern[place] in (each, "?", "*"):
                following.add(place if pattern[place] == "*" else place + 1)
        places = following
    return bool(places)


def _positions_after_stars(pattern: str, places: set[int]) -> set[int]:
    """These positions and those behind following `*`, which may match nothing."""
    found = set(places)
    for place in places:
        while place < len(pattern) and pattern[place] == "*":
            place += 1  # noqa: PLW2901 - as far as the stars go
            found.add(place)
    return found


# --- The error of a call that is not allowed.


class ConsentDenied(GreenroomError):
    """The call was not allowed, and nothing was sent. `what` is the tool, `Elicit(server)` or the skill, `why` the reason."""

    reason: ClassVar[str] = "consent_denied"

    def __init__(self, what: str, why: str) -> None:
        """Both texts are for people and models that read the error."""
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what} is not allowed: {self.why}"
