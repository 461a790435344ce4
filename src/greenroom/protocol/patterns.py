r"""Regular expressions from strangers, matched in time that grows with the text and not with anybody's malice.

A pattern is read in JSON Schema's dialect (ECMA-262): `$` is the end of the text, and `\d` is 0 to 9. Where Python's `re`
cannot backtrack for long it does the work; elsewhere the pattern runs as an automaton, all of its states at once. What no automaton
can do (looking around, back-references) is taken only from patterns that are harmless in `re`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from greenroom.errors import GreenroomError

from .pattern_syntax import BadPattern, Chain, Choice, Edge, Group, Look, Node, OneOf, Repeat, Same, parse, to_python

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BadPattern", "Pattern", "TooLong", "compiled"]

LONGEST: Final = 2_000
MOST_STATES: Final = 2_000
PATIENCE: Final = 1_000_000
"""How many steps one search may cost: those of `re` are estimated before it starts, those of the automaton are counted."""


class TooLong(GreenroomError):
    """The text is too long for the pattern."""


class Pattern:
    """A pattern that anybody may have written. Raises `BadPattern` for one that is wrong or cannot be bounded."""

    def __init__(self, source: str) -> None:
        """Read it, and decide how it is matched."""
        if len(source) > LONGEST:
            raise BadPattern(f"a pattern of {len(source)} characters is too long: {LONGEST} are allowed")
        self.source = source
        self._tree = parse(source)
        powers = _powers(self._tree)
        python = None if powers is None else to_python(self._tree)
        self._re = None if python is None else re.compile(python)
        self._degree = (powers or 0) + (not _is_anchored(self._tree))  # a search may start anywhere
        self._automaton = _Automaton(self._tree) if self._re is None else None

    def search(self, text: str) -> bool:
        """Whether it matches anywhere in the text. Raises `TooLong` when that would take too long to find out."""
        if self._re is not None and max(len(text), 1) ** self._degree <= PATIENCE:
            return self._re.search(text) is not None
        if self._automaton is None:
            try:
                self._automaton = _Automaton(self._tree)
            except BadPattern:
                raise TooLong(f"{len(text)} characters are too many for the pattern {self.source!r}") from None
        return self._automaton.search(text)


@lru_cache(maxsize=1024)
def compiled(source: str) -> Pattern:
    """The pattern, made once."""
    return Pattern(source)


def may_explode(source: str) -> bool:
    """Whether `re` may take for ever over it; what cannot be read here is in Python's own dialect, and nobody knows."""
    try:
        return _powers(parse(source)) is None
    except BadPattern:
        return False


def _powers(node: Node) -> int | None:
    """With which power of the text's length `re` may take longer; None when it may be worse than that.

    Each repetition of unknown length is one, as the next one starts over at each of its ends. A repetition of what is not always
    the same length, or has branches, may be taken apart in exponentially many ways.
    """
    match node:
        case Chain(parts):  # nobody comes back to a look that has succeeded, so only the worst one counts
            looks = [_powers(part) for part in parts if isinstance(part, Look)]
            steps = _sum(_powers(part) for part in parts if not isinstance(part, Look))
            return None if steps is None or None in looks else steps + max((one or 0 for one in looks), default=0)
        case Choice(branches):
            return _sum(_powers(branch) for branch in branches)
        case Repeat(body, least, most):
            return None if _is_loose(body) else int(least != most)
        case Group(body) | Look(body):
            return _powers(body)
        case _:
            return 0


def _sum(powers: Iterable[int | None]) -> int | None:
    total = 0
    for power in powers:
        if power is None:
            return None
        total += power
    return total


def _is_anchored(node: Node) -> bool:
    """Whether it can only match from the text's beginning."""
    return isinstance(node, Chain) and node.parts[:1] == (Edge("^"),)


def _is_loose(node: Node) -> bool:
    """Whether it may match in more than one way."""
    match node:
        case Chain(parts):
            return any(_is_loose(part) for part in parts)
        case Choice() | Look() | Same():
            return True
        case Repeat(body, least, most):
            return least != most or _is_loose(body)
        case Group(body):
            return _is_loose(body)
        case _:
            return False


class _Automaton:
    """A pattern's states, stepped all at once. What came of a set of states and a character is remembered for the next time."""

    def __init__(self, tree: Node) -> None:
        self._consumes: list[OneOf | None] = []
        self._edge: list[Edge | None] = []
        self._after: list[list[int]] = []
        self._minds_words = False
        self._end = self._state()
        self._start = self._build(tree, self._end)
        self._known: dict[tuple[frozenset[int], str, str], tuple[frozenset[int], bool]] = {}

    def _state(self, after: Iterable[int] = (), consumes: OneOf | None = None, edge: Edge | None = None) -> int:
        if len(self._after) >= MOST_STATES:
            raise BadPattern("the pattern is too large: its repetitions come to too many states")
        self._consumes.append(consumes)
        self._edge.append(edge)
        self._after.append(list(after))
        return len(self._after) - 1

    def _build(self, node: Node, after: int) -> int:
        """The state that matches the node and goes on to `after`."""
        match node:
            case OneOf():
                return self._state([after], consumes=node)
            case Edge(kind):
                self._minds_words |= kind in "bB"
                return self._state([after], edge=node)
            case Chain(parts):
                for part in reversed(parts):
                    after = self._build(part, after)
                return after
            case Choice(branches):
                return self._state([self._build(branch, after) for branch in branches])
            case Group(body):
                return self._build(body, after)
            case Repeat(body, least, most):
                return self._repeated(body, least, most, after)
            case Look() | Same():
                raise BadPattern(
                    "a pattern that looks around or refers back has to be simpler, or it may take for ever"
                )

    def _repeated(self, body: Node, least: int, most: int | None, after: int) -> int:
        if max(least, most or 0) > MOST_STATES:
            raise BadPattern(f"a repetition of {max(least, most or 0)} times is too large")
        if most is None:
            loop = self._state()
            self._after[loop] = [self._build(body, loop), after]
            after = loop
        else:
            out = after
            for _ in range(most - least):
                after = self._state([self._build(body, after), out])
        for _ in range(least):
            after = self._build(body, after)
        return after

    def search(self, text: str) -> bool:
        """Whether it matches anywhere."""
        states: frozenset[int] = frozenset()
        before = ""
        spent = len(text)
        if spent > PATIENCE:  # however well it is known
            raise TooLong(f"{spent} characters are too many for this pattern")
        for here in (*text, ""):
            key = (states, before if self._minds_words or not before else "-", here)
            found = self._known.get(key)
            if found is None:
                spent += len(self._after)
                if spent > PATIENCE:
                    raise TooLong(f"{len(text)} characters are too many for this pattern")
                if len(self._known) > MOST_STATES:
                    self._known.clear()
                found = self._known[key] = self._step(states, before, here)
            states, done = found
            if done:
                return True
            before = here
        return False

    def _step(self, states: frozenset[int], before: str, here: str) -> tuple[frozenset[int], bool]:
        """Where a character leads from the states, or from the start, and whether the end was reached before it."""
        reached: set[int] = set()
        waiting = [self._start, *states]
        while waiting:
            state = waiting.pop()
            edge = self._edge[state]
            if state in reached or (edge is not None and not edge.holds(before, here)):
                continue
            reached.add(state)
            if self._consumes[state] is None:
                waiting += self._after[state]
        if self._end in reached or not here:
            return frozenset(), self._end in reached
        moved = (state for state in reached if (one := self._consumes[state]) is not None and one.has(here))
        return frozenset(after for state in moved for after in self._after[state]), False
