r"""Regular expressions from untrusted authors, matched in linear time and at a cost known in advance.

Patterns use JSON Schema's dialect (ECMA-262): `$` is the end of the text, and `\d` is 0 to 9. A pattern runs as an automaton with all its
states at once, and every state that a character passes through is charged. The transition from a set of states by a character is cached, so an
ordinary pattern takes 40 ns per character. Python's `re` is as fast on short texts, but the bound on its worst case is far above what ordinary
patterns cost. `re` is used only for what an automaton cannot do (lookaround, back-references), if the pattern is harmless there, and for texts
so short that the worst case is bounded.
"""

from __future__ import annotations

import re
import unicodedata
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from greenroom.errors import GreenroomError

from .validation_errors import StepMeter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["BadPattern", "Pattern", "TextTooLong", "compile_pattern"]

LONGEST: Final = 2_000
MOST_STATES: Final = 2_000
STEP_LIMIT: Final = 1_000_000
"""The worst-case cost of one search with `re`, in its steps: it blocks the interpreter for as long, which is some milliseconds."""
_QUICK: Final = 50
"""The steps of `re` in one step of the meter."""
_KEPT: Final = 1_024
_MOST_STATES_KEPT: Final = 50_000
_MOST_KNOWN: Final = 4_000
"""The states and transitions that an automaton caches: some hundred kilobytes. Ordinary patterns have a few hundred."""


class TextTooLong(GreenroomError):
    """The text is too long for a pattern that needs `re`."""


class Pattern:
    """A compiled pattern from any author. Raises `BadPattern` if it is malformed or its cost cannot be bounded."""

    def __init__(self, source: str, meter: StepMeter | None = None) -> None:
        """Parse the pattern and choose how to match it. Raises `StepsExceeded` when the meter has no steps for that."""
        if len(source) > LONGEST:
            raise BadPattern(f"a pattern of {len(source)} characters is too long: {LONGEST} are allowed")
        meter = StepMeter() if meter is None else meter
        meter.spend(3 * len(source))
        self.source = source
        self._tree = tree = parse_pattern(source)
        self._automaton: _Automaton | None = None
        if any(isinstance(one, Lookaround | BackReference) for one in _nodes_in(tree)):  # which an automaton cannot do
            python = None if _work(tree, 1) is None else to_python(tree)
            if python is None:
                raise BadPattern(
                    f"the pattern {source!r} uses lookaround or back-references and may take exponential time; simplify it"
                )
            meter.spend(len(python) + _characters_beyond_latin1(tree) // 16)
            self._re = _compile_re(source, python)
            self._anchored = _is_anchored(tree)
        else:
            self._automaton = _Automaton(tree)
            meter.spend(4 * len(self._automaton))

    def __len__(self) -> int:
        """The number of states."""
        return 1 if self._automaton is None else len(self._automaton)

    def search(self, text: str, meter: StepMeter | None = None) -> bool:
        """Whether it matches anywhere in the text. Raises `StepsExceeded`, or `TextTooLong` if that takes too long to find out."""
        meter = StepMeter() if meter is None else meter
        if self._automaton is not None:
            return self._automaton.search(text, meter)
        meter.spend(1 + len(self.source))
        length = len(text) + 1
        work = _work(self._tree, length)
        worst = STEP_LIMIT + 1 if work is None else work * (1 if self._anchored else length)
        if worst > STEP_LIMIT:
            raise TextTooLong(f"{len(text)} characters are too many for the pattern {self.source!r}")
        meter.spend(worst // _QUICK)
        return self._re.search(text) is not None


class _PatternCache:
    """A cache of patterns for all threads, bounded in number and in states."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        self.kept: dict[str, Pattern] = {}
        self._states = 0

    def get(self, source: str) -> Pattern | None:
        with self._lock:
            found = self.kept.pop(source, None)
            if found is not None:  # moved to the end: the patterns of one schema do not displace those in use
                self.kept[source] = found
        return found

    def put(self, pattern: Pattern) -> None:
        with self._lock:
            before = self.kept.pop(pattern.source, None)
            self.kept[pattern.source] = pattern
            self._states += len(pattern) - (0 if before is None else len(before))
            while len(self.kept) > _KEPT or self._states > _MOST_STATES_KEPT:
                self._states -= len(self.kept.pop(next(iter(self.kept))))


_patterns: Final = _PatternCache()


def compile_pattern(source: str, meter: StepMeter | None = None) -> Pattern:
    """The compiled pattern, from the cache if it is still there. Raises `BadPattern`, and `StepsExceeded`."""
    found = _patterns.get(source)
    if found is None:
        found = Pattern(source, meter)
        _patterns.put(found)
    return found


def may_explode(source: str) -> bool:
    """Whether `re` may take more than linear time. Patterns that cannot be parsed here are in Python's dialect, and their author's own responsibility."""
    try:
        tree = parse_pattern(source)
    except BadPattern:
        return False
    starts = 1 if _is_anchored(tree) else 2
    short, long = _work(tree, 1_000), _work(tree, 2_000)
    return short is None or long is None or long * starts > 3 * short


def _nodes_in(node: PatternNode) -> Iterator[PatternNode]:
    """The node and all nodes inside it."""
    found = [node]
    for one in found:  # the list grows during iteration
        yield one
        match one:
            case Concatenation(parts) | Alternation(parts):
                found += parts
            case Repetition(body) | CaptureGroup(body) | Lookaround(body):
                found.append(body)
            case _:
                pass


def _compile_re(source: str, python: str) -> re.Pattern[str]:
    try:
        return re.compile(python)
    except re.error as error:
        raise BadPattern(f"the pattern {source!r} is not supported: {error}") from None


def _characters_beyond_latin1(node: PatternNode) -> int:
    """The number of characters beyond Latin-1 in its classes: `re` allocates a table of 64 KiB for such a class, and fills it one by one."""
    ranges = (each for one in _nodes_in(node) if isinstance(one, CharacterClass) for each in one.ranges)
    return sum(1_600 + min(last, 0xFFFF) - min(first, 0xFFFF) for first, last in ranges if last > 0xFF)  # noqa: PLR2004


class _ExponentialWork(Exception):
    """The text may be matched in exponentially many ways."""


def _work(node: PatternNode, length: int) -> int | None:
    """The worst-case steps of `re` from one position in a text of that length; None if exponential.

    A repetition of a body that varies in length, or has branches, may match in exponentially many ways.
    """
    try:
        return _ways_and_work(node, length)[1]
    except _ExponentialWork:
        return None


def _ways_and_work(node: PatternNode, length: int) -> tuple[int, int]:
    """The number of ways to match from one position, each of which may be tried with the rest, and the steps to find them all."""
    match node:
        case CharacterClass(ranges):
            return 1, 1 + len(ranges) // 4 + 2 * any(last > 0xFF for _, last in ranges)  # noqa: PLR2004 - end of Latin-1
        case Concatenation(parts):
            ways, work = 1, 1
            for part in parts:
                more, steps = _ways_and_work(part, length)
                work += ways * steps
                ways *= more
            return ways, work
        case Alternation(branches):
            found = [_ways_and_work(branch, length) for branch in branches]
            return sum(one for one, _ in found), 1 + sum(one for _, one in found)
        case Repetition(body, least, most):
            if _is_ambiguous(body):
                raise _ExponentialWork
            times = max(least, length) if most is None else most
            return times - least + 1, 1 + times * _ways_and_work(body, length)[1]
        case CaptureGroup(body):
            return _ways_and_work(body, length)
        case Lookaround(body):  # `re` does not backtrack into a lookaround that succeeded
            return 1, _ways_and_work(body, length)[1]
        case BackReference():
            return 1, length
        case _:
            return 1, 1


def _is_anchored(node: PatternNode) -> bool:
    """Whether it can only match at the text's beginning."""
    return isinstance(node, Concatenation) and node.parts[:1] == (BoundaryAssertion("^"),)


def _is_ambiguous(node: PatternNode) -> bool:
    """Whether it may match in more than one way."""
    return any(
        isinstance(one, Alternation | Lookaround | BackReference)
        or (isinstance(one, Repetition) and one.least != one.most)
        for one in _nodes_in(node)
    )


class _StateSet(dict[str, "_StateSet"]):
    """A set of states with its cached transitions by character."""

    __slots__ = ("before", "states")

    def __init__(self, states: frozenset[int], before: str) -> None:
        super().__init__()
        self.states = states
        self.before = before  # a character of the same kind as the previous one: edges ask only for its kind


_FOUND: Final = _StateSet(frozenset(), "")
_LOST: Final = _StateSet(frozenset(), "")


class _Automaton:
    """A pattern's automaton; all states are stepped at once."""

    def __init__(self, tree: PatternNode) -> None:
        self._consumes: list[CharacterClass | None] = []
        self._edge: list[BoundaryAssertion | None] = []

        # Tuples of numbers and not state objects: the garbage collector does not track them, and would walk an object graph at each full collection.
        self._after: list[tuple[int, ...]] = []
        self._uses_word_boundaries = False
        self._node_count = 0
        self._end = self._state()
        self._start = self._build(tree, self._end)
        self._weights = [
            2 + (0 if one is None else len(one.ranges) // 4 + len(one.categories)) for one in self._consumes
        ]
        self._forget()

    def __len__(self) -> int:
        return len(self._after)

    def _forget(self) -> None:
        self._first = _StateSet(frozenset(), "")
        self._known: dict[tuple[frozenset[int], str], _StateSet] = {}
        self._room = _MOST_KNOWN

    def _state(
        self, after: Iterable[int] = (), consumes: CharacterClass | None = None, edge: BoundaryAssertion | None = None
    ) -> int:
        if len(self._after) >= MOST_STATES:
            raise BadPattern("the pattern is too large: its repetitions come to too many states")
        self._consumes.append(consumes)
        self._edge.append(edge)
        self._after.append(tuple(after))
        return len(self._after) - 1

    def _build(self, node: PatternNode, after: int) -> int:
        """The state that matches the node and continues at `after`."""
        self._node_count += 1
        if self._node_count > 4 * MOST_STATES:  # repetitions of nothing have no states, and may be nested
            raise BadPattern("the pattern is too large: its repetitions come to too many parts")
        match node:
            case CharacterClass():
                return self._state([after], consumes=node)
            case BoundaryAssertion(kind):
                self._uses_word_boundaries |= kind in "bB"
                return self._state([after], edge=node)
            case Concatenation(parts):
                for part in reversed(parts):
                    after = self._build(part, after)
                return after
            case Alternation(branches):
                return self._state([self._build(branch, after) for branch in branches])
            case CaptureGroup(body):
                return self._build(body, after)
            case Repetition(body, least, most):
                return self._repeated(body, least, most, after)
            case Lookaround() | BackReference():
                raise BadPattern("an automaton has no lookaround and no back-references")

    def _repeated(self, body: PatternNode, least: int, most: int | None, after: int) -> int:
        if max(least, most or 0) > MOST_STATES:
            raise BadPattern(f"a repetition of {max(least, most or 0)} times is too large")
        if most is None:
            loop = self._state()
            self._after[loop] = (self._build(body, loop), after)
            after = loop
        else:
            out = after
            for _ in range(most - least):
                after = self._state([self._build(body, after), out])
        for _ in range(least):
            after = self._build(body, after)
        return after

    def search(self, text: str, meter: StepMeter) -> bool:
        """Whether it matches anywhere."""
        meter.spend(1 + len(text) // 4)
        here = self._first
        for character in text:
            after = here.get(character)
            if after is None:
                after = self._step(here, character, meter)
            if after is _FOUND:
                return True
            here = after
        after = here.get("")
        return (self._step(here, "", meter) if after is None else after) is _FOUND

    def _step(self, before: _StateSet, here: str, meter: StepMeter) -> _StateSet:
        """The transition from the states, or from the start, by a character; the end of the text is an empty string."""
        reached: set[int] = set()
        waiting = [self._start, *before.states]
        meter.spend(5 + len(waiting))
        while waiting:
            state = waiting.pop()
            edge = self._edge[state]
            meter.left -= 1
            if state in reached or (edge is not None and not edge.holds(before.before, here)):
                continue
            reached.add(state)
            meter.left -= self._weights[state]
            if meter.left < 0:
                meter.refill_or_raise()
            if self._consumes[state] is None:
                waiting += self._after[state]
        if self._end in reached:
            after = _FOUND
        elif not here:
            after = _LOST
        else:
            moved = (state for state in reached if (one := self._consumes[state]) is not None and one.has(here))
            after = self._states(frozenset(after for state in moved for after in self._after[state]), here)
        if self._room > 0:
            self._room -= 1
            before[here] = after
        else:  # after the cache was cleared, only the running search holds the states
            self._forget()
        return after

    def _states(self, states: frozenset[int], here: str) -> _StateSet:
        before = "a" if self._uses_word_boundaries and WORD.has(here) else "-"
        found = self._known.get((states, before))
        if found is None:
            found = self._known[states, before] = _StateSet(states, before)
            self._room -= 1 + len(states)
        return found


# --- The syntax of ECMA-262 patterns: parsed to a tree, and translated to Python's syntax.

DEEPEST: Final = 40


class BadPattern(GreenroomError):
    """The pattern is malformed, or uses something unsupported. Says what."""


class CharacterClass(NamedTuple):
    """One character: in these ranges of code points, in these Unicode categories, or in neither."""

    ranges: tuple[tuple[int, int], ...]
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False

    def has(self, character: str) -> bool:
        """Whether the character belongs to the class. A category paired with True is negated."""
        code = ord(character)
        found = any(first <= code <= last for first, last in self.ranges)
        if not found and self.categories:
            category = unicodedata.category(character)
            found = any(category.startswith(name) is not excluded for name, excluded in self.categories)
        return found is not self.negated


class BoundaryAssertion(NamedTuple):
    """A position between characters: `^`, `$`, `b` or `B`."""

    kind: str

    def holds(self, before: str, here: str) -> bool:
        """Whether the assertion holds between two characters (empty at either end of the text)."""
        if self.kind == "^":
            return not before
        if self.kind == "$":
            return not here
        border = (bool(before) and WORD.has(before)) is not (bool(here) and WORD.has(here))
        return border is (self.kind == "b")


class Concatenation(NamedTuple):
    """A sequence of nodes."""

    parts: tuple[PatternNode, ...]


class Alternation(NamedTuple):
    """Alternatives."""

    branches: tuple[PatternNode, ...]


class Repetition(NamedTuple):
    """A repetition; `most` is None if unbounded."""

    body: PatternNode
    least: int
    most: int | None
    lazy: bool


class CaptureGroup(NamedTuple):
    """A capture group, with a number and perhaps a name."""

    body: PatternNode
    name: str | None


class Lookaround(NamedTuple):
    """A lookahead or lookbehind: `?=`, `?!`, `?<=` or `?<!`."""

    body: PatternNode
    kind: str


class BackReference(NamedTuple):
    """A back-reference to a group."""

    group: str


PatternNode: TypeAlias = (
    CharacterClass
    | BoundaryAssertion
    | Concatenation
    | Alternation
    | Repetition
    | CaptureGroup
    | Lookaround
    | BackReference
)

_LAST: Final = 0x10FFFF
_DIGIT: Final = ((0x30, 0x39),)
_WORD: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
WORD: Final = CharacterClass(_WORD)
_DOT: Final = CharacterClass(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)), negated=True)
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_QUANTIFIER: Final = re.compile(r"(\*|\+|\?|\{(\d{1,9})(,(\d{1,9})?)?\})(\??)")
_CODE: Final = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|c([A-Za-z])")
_PROPERTY: Final = re.compile(r"([pP])\{(?:General_Category=|gc=)?([A-Z][a-z]?|Letter|Number|Punctuation|Symbol)\}")
_GROUP: Final = re.compile(r"\((\?:|\?=|\?!|\?<=|\?<!|\?<([A-Za-z_]\w*)>|(?!\?))")


def parse_pattern(source: str) -> PatternNode:
    """Parse a pattern to a tree. Raises `BadPattern`."""
    reader = _PatternParser(source)
    tree = reader.choice(0)
    if reader.place < len(source):
        raise reader.error("there is a `)` without a `(`")
    return tree


class _PatternParser:
    """Parses a pattern from left to right."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.place = 0
        self.groups = 0

    def error(self, why: str) -> BadPattern:
        return BadPattern(f"the pattern {self.source!r} is not supported: {why}, at character {self.place}")

    @property
    def peek(self) -> str:
        return self.source[self.place : self.place + 1]

    def accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.source, self.place)
        if found:
            self.place = found.end()
        return found

    def choice(self, depth: int) -> PatternNode:
        if depth > DEEPEST:
            raise self.error("its groups are nested too deeply")
        branches = [self.chain(depth)]
        while self.peek == "|":
            self.place += 1
            branches.append(self.chain(depth))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def chain(self, depth: int) -> PatternNode:
        parts: list[PatternNode] = []
        while self.peek and self.peek not in "|)":
            atom = self.atom(depth)
            if found := self.accept(_QUANTIFIER):
                if isinstance(atom, BoundaryAssertion):
                    raise self.error("there is nothing to repeat")
                atom = self.repeat(atom, found)
            parts.append(atom)
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def repeat(self, body: PatternNode, found: re.Match[str]) -> PatternNode:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[1], (int(found[2] or 0), None))
        if found[2]:
            most = None if found[3] == "," else int(found[4] or found[2])
        if most is not None and most < least:
            raise self.error("a repetition ends before it starts")
        return Repetition(body, least, most, bool(found[5]))

    def atom(self, depth: int) -> PatternNode:
        here = self.peek
        if here in "*+?":
            raise self.error("there is nothing to repeat")
        if here == "(":
            return self.group(depth)
        self.place += 1
        match here:
            case "^" | "$":
                return BoundaryAssertion(here)
            case ".":
                return _DOT
            case "[":
                return self.char_class()
            case "\\":
                return self.escape()
            case _:
                return _single_character(ord(here))

    def group(self, depth: int) -> PatternNode:
        found = self.accept(_GROUP)
        if found is None:
            raise self.error("unknown group syntax; flags inside patterns are not supported")
        body = self.choice(depth + 1)
        if self.peek != ")":
            raise self.error("a `(` is never closed")
        self.place += 1
        match found[1]:
            case "?:":
                return body
            case "?=" | "?!" | "?<=" | "?<!":
                return Lookaround(body, found[1])
            case _:
                return CaptureGroup(body, found[2])

    def escape(self) -> PatternNode:
        here = self.peek
        if here in ("b", "B"):
            self.place += 1
            return BoundaryAssertion(here)
        if found := self.accept(re.compile(r"[1-9]\d?|k<([A-Za-z_]\w*)>")):
            return BackReference(found[1] or found[0])
        return self.escaped()

    def escaped(self) -> CharacterClass:
        """An escape sequence, outside or inside of a class."""
        if found := self.accept(_PROPERTY):
            return CharacterClass((), ((found[2][:1] if len(found[2]) > 2 else found[2], found[1] == "P"),))  # noqa: PLR2004 - a name
        if found := self.accept(_CODE):
            code = ord(found[4].upper()) - 64 if found[4] else int(found[1] or found[2] or found[3], 16)
            if code > _LAST:
                raise self.error("the character does not exist")
            return _single_character(code)
        here = self.peek
        self.place += 1
        if here.lower() in _CLASSES and here:
            return CharacterClass(_CLASSES[here.lower()], negated=here.isupper())
        if here in _CONTROLS:
            return _single_character(_CONTROLS[here])
        if not here or here.isalnum():
            raise self.error(f"\\{here} is unknown" + (" (write ^ and $)" if here in "AzZ" and here else ""))
        return _single_character(ord(here))

    def char_class(self) -> CharacterClass:
        negated = self.peek == "^"
        self.place += negated
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        while self.peek != "]":
            first = self.in_class()
            single = len(first.ranges) == 1 and first.ranges[0][0] == first.ranges[0][1] and not first.negated
            if single and self.peek == "-" and self.source[self.place + 1 : self.place + 2] not in ("]", ""):
                self.place += 1
                last = self.in_class()
                low, high = first.ranges[0][0], last.ranges[0][1] if len(last.ranges) == 1 else -1
                if high < low:
                    raise self.error("a range ends before it starts")
                ranges.append((low, high))
                continue
            ranges += _inverted(first.ranges) if first.negated else first.ranges
            categories += first.categories
        self.place += 1
        return CharacterClass(tuple(ranges), tuple(categories), negated)

    def in_class(self) -> CharacterClass:
        here = self.peek
        if not here:
            raise self.error("a `[` is never closed")
        self.place += 1
        if here != "\\":
            return _single_character(ord(here))
        if self.peek == "b":
            self.place += 1
            return _single_character(0x08)
        return self.escaped()


def _single_character(code: int) -> CharacterClass:
    return CharacterClass(((code, code),))


def _inverted(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The complement of ranges, which are in order."""
    found: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    return (*found, (start, _LAST))


def to_python(node: PatternNode) -> str | None:
    """The pattern in Python's syntax; None if it cannot be expressed. `re` may still refuse it."""
    try:
        return _python_source(node)
    except LookupError:
        return None


def _python_source(node: PatternNode) -> str:
    match node:
        case CharacterClass():
            return _python_class(node)
        case BoundaryAssertion(kind):
            return {"^": r"\A", "$": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}[kind]
        case Concatenation(parts):
            return "".join(_python_source(part) for part in parts)
        case Alternation(branches):
            return f"(?:{'|'.join(_python_source(branch) for branch in branches)})"
        case Repetition(body, least, most, lazy):
            return f"(?:{_python_source(body)}){{{least},{'' if most is None else most}}}{'?' if lazy else ''}"
        case CaptureGroup(body, name):
            return f"(?P<{name}>{_python_source(body)})" if name else f"({_python_source(body)})"
        case Lookaround(body, kind):
            return f"({kind}{_python_source(body)})"
        case BackReference(group):
            return f"(?:\\{group})" if group.isdigit() else f"(?P={group})"


def _python_class(one: CharacterClass) -> str:
    if one.categories:
        raise LookupError("Python's patterns have no Unicode categories")
    if not one.ranges:
        return r"[\s\S]" if one.negated else r"(?!)"
    inside = "".join(f"{_code(first)}-{_code(last)}" for first, last in one.ranges)
    return f"[{'^' if one.negated else ''}{inside}]"


def _code(code: int) -> str:
    return f"\\U{code:08x}"
