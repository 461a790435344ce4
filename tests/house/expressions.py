"""Proves that regular expressions are linear: no input makes the matcher read the same text in a growing number of ways.

The parser of `re` gives a tree, which becomes an automaton of positions, one for each character that the expression can consume. The automaton is
ambiguous without bound, and the matcher then backtracks more than linearly, exactly if a text leads from some position p back to p and also
from p to another position q and from q back to q (Weber and Seidl, 1991), or back to p in two ways. A search is treated as the same expression with a position in front that
consumes any text. An expression that cannot fail is allowed: the way over q counts only as long as no match is certain.

The proof errs on the safe side: lookarounds and anchors are taken to hold, atomic groups are taken for plain ones, and many repetitions for
unbounded ones. A possessive repeat of one character (`[a-z]*+`) is exact.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .tree import Source, Tree

_parser: Any = import_module("re._parser")  # no public name gives the tree of an expression
_compiler: Any = import_module("re._compiler")

COPIES: Final = 32
"""A repeat of one character up to so many times is written out; a larger one is taken for unbounded."""
FEW: Final = 8
"""The same limit for a repeat of longer expressions, where each repetition may double the number of ways."""
SEARCHES: Final = frozenset({"search", "finditer", "findall", "sub", "subn", "split"})
AGAIN: Final = (SEARCHES - {"search"}) | {"match at"}
"""Methods that continue after a match. `match at` is `match` with a start position, as in a loop over a text."""
METHODS: Final = SEARCHES | {"match", "fullmatch"}
GROUPS: Final = 500
"""The most sets of positions that are examined; beyond that a match is not taken for certain."""
LINE: Final = "a line's beginning"
BEGIN: Final = "the beginning"
END: Final = "an end"
OTHER: Final = "another anchor, or a lookaround"
ANCHORS: Final = {
    LINE: LINE,
    **dict.fromkeys(("AT_BEGINNING", "AT_BEGINNING_STRING"), BEGIN),
    **dict.fromkeys(("AT_END", "AT_END_STRING"), END),
}
OTHERS: Final = "\xa0\xe9\u0130\u017f\u0660\u2028\u212a\uff21\U0001f600"
"""Letters, digits and spaces beyond the first 256, one for each way in which `re` may treat them."""

Set: TypeAlias = frozenset[str | bytes]


@dataclass
class Node:
    """A state between characters: its transitions without a character, and with one."""

    free: list[tuple[Node, str]] = field(default_factory=list[tuple["Node", str]])
    """The next nodes, each with the condition of the transition."""
    takes: tuple[Set, Node] | None = None
    barred: Set = frozenset()
    """Characters that cannot be next, after a possessive repeat."""


class Unproven(Exception):
    """The expression contains a construct that this module does not handle."""


class Automaton:
    """An expression as positions, each of which has consumed one character."""

    def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
        """Raises `Unproven`."""
        self._state = _parser.parse(pattern, flags)
        self._flags = self._state.state.flags
        self.alphabet: Set = frozenset(_letters(pattern))
        self.begin, self.end = Node(), Node()
        self._join(self._sequence(self._state, self.begin), self.end)

    # --- the tree as nodes

    @staticmethod
    def _join(here: Node, there: Node, held: str = "") -> Node:
        here.free.append((there, held))
        return there

    def _sequence(self, items: Iterable[Any], here: Node) -> Node:
        for operation, argument in items:
            here = self._item(str(operation), argument, here)
        return here

    def _item(self, operation: str, argument: Any, here: Node) -> Node:
        match operation:
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY" | "CATEGORY":
                there = Node()
                self._join(here, Node(takes=(self._set(operation, argument), there)))
                return there
            case "SUBPATTERN":
                before, self._flags = self._flags, (self._flags | argument[1]) & ~argument[2]
                there = self._sequence(argument[3], here)
                self._flags = before
                return there
            case "ATOMIC_GROUP":
                return self._sequence(argument, here)
            case "BRANCH":
                there = Node()
                for each in argument[1]:
                    self._join(self._sequence(each, self._join(here, Node())), there)
                return there
            case "AT":
                place = str(argument)
                if place == "AT_BEGINNING" and self._flags & re.MULTILINE:
                    place = LINE
                return self._join(here, Node(), ANCHORS.get(place, OTHER))
            case "ASSERT" | "ASSERT_NOT":
                if _unbounded(argument[1]):
                    raise Unproven("a lookaround without a bound")
                return self._join(here, Node(), OTHER)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                return self._repeat(operation, least, most, inner, here)
            case _:
                raise Unproven(f"{operation.lower()} is not handled here")

    def _repeat(self, operation: str, least: int, most: int, items: Any, here: Node) -> Node:
        copies = COPIES if self._single(items) else FEW
        endless = most > copies
        for _ in range(min(least, copies)):
            here = self._sequence(items, here)
        there = Node()
        if endless:
            loop = self._join(here, Node())
            self._join(self._sequence(items, loop), loop)
            self._join(loop, there)
            if operation == "POSSESSIVE_REPEAT" and most is _parser.MAXREPEAT:
                there.barred = self._single(items)
            return there
        for _ in range(most - min(least, copies)):
            self._join(here, there)
            here = self._sequence(items, self._join(here, Node()))
        return self._join(here, there)

    def _single(self, items: Any) -> Set:
        if len(items) != 1:
            return frozenset()
        operation, argument = items[0]
        if str(operation) == "SUBPATTERN":
            return self._single(argument[3])
        if str(operation) in {"LITERAL", "NOT_LITERAL", "IN", "ANY"}:
            return self._set(str(operation), argument)
        return frozenset()

    def _set(self, operation: str, argument: Any) -> Set:
        node = _parser.SubPattern(self._state.state, [(getattr(_parser, operation), argument)])
        one = _compiler.compile(node, self._flags & ~re.DEBUG)
        return frozenset(letter for letter in self.alphabet if one.fullmatch(letter))


_ENDLESS: Final = 1 << 16
"""A larger width belongs to an unbounded repeat, in any version of Python."""


def _unbounded(items: Any) -> bool:
    most: int = items.getwidth()[1]
    return most >= _ENDLESS


def _letters(pattern: str | bytes) -> Iterator[str | bytes]:
    if isinstance(pattern, bytes):
        yield from (bytes((code,)) for code in range(256))
        return
    codes = {*range(256), *map(ord, OTHERS)}
    for letter in pattern:
        codes |= {max(0, ord(letter) - 1), ord(letter), ord(letter) + 1}
    yield from map(chr, sorted(codes))


# --- positions and the transitions between them


class Positions:
    """The automaton without the transitions that consume no character."""

    def __init__(self, automaton: Automaton, method: str) -> None:
        """Also finds the positions from which a match is certain: after them the matcher does not backtrack."""
        begin = automaton.begin
        if method in SEARCHES:
            anything = Node()
            anything.free = [(Node(takes=(automaton.alphabet, anything)), ""), (begin, "")]
            begin = anything
        self.sets: list[Set] = [frozenset()]
        edges: list[dict[int, tuple[int, Set]]] = []
        ends: list[bool] = []
        free: list[bool] = []
        nodes: list[Node] = [begin]
        numbers: dict[tuple[int, bool], int] = {}
        newline = automaton.alphabet & {"\n", b"\n"}
        while len(edges) < len(nodes):
            here = len(edges)
            found: dict[int, tuple[int, Set]] = {}
            ended = certain = False
            for node, barred, held in _reached(nodes[here]):
                if here and (BEGIN in held or (LINE in held and self.sets[here] != newline)):
                    continue
                if node.takes is None:
                    ended, certain = ended or held <= {END}, certain or not (held or barred)
                    continue
                for letters in (node.takes[0] & newline - barred, node.takes[0] - newline - barred):
                    if not letters:
                        continue
                    target = numbers.setdefault((id(node), letters <= newline), len(nodes))
                    if target == len(nodes):
                        nodes.append(node.takes[1])
                        self.sets.append(node.takes[0] & newline if letters <= newline else node.takes[0] - newline)
                    ways, before = found.get(target, (0, frozenset[Any]()))
                    found[target] = ways + 1, before | letters
            edges.append(found)
            ends.append(ended)
            free.append(certain)
        reached = frozenset[Any]().union(*(letters for found in edges for _, letters in found.values()))
        self._total = reached == automaton.alphabet  # a character that no position consumes ends every way
        self.edges = self._numbered(edges)
        """From each position: the number of ways to each next one, and the kinds of characters."""
        last = free if method != "fullmatch" else [False] * len(free)
        self.certain: set[int] = set()
        if self._grows():  # perhaps not where a match is certain, which takes longer to find out
            self.certain = {here for here in range(len(nodes)) if self._succeeds(here, last, ends)}
            if method in AGAIN:  # a match is not the end: the text that was read after it is read again
                self.certain = {here for here in self.certain if not self._goes_on(here)}
        self.ambiguous = self._grows()
        """Whether the number of ways over a text grows with its length."""

    def _numbered(self, edges: list[dict[int, tuple[int, Set]]]) -> list[dict[int, tuple[int, int]]]:
        """Replaces the characters by classes: one bit for all characters that no edge distinguishes."""
        over = [letters for found in edges for _, letters in found.values()]
        kept: dict[tuple[bool, ...], int] = {}
        for letter in frozenset[Any]().union(*over):
            kept.setdefault(tuple(letter in letters for letters in over), len(kept))
        self._letters = [1 << bit for bit in range(len(kept))]
        bits = iter([sum(1 << bit for among, bit in kept.items() if among[place]) for place in range(len(over))])
        return [{there: (ways, next(bits)) for there, (ways, _) in found.items()} for found in edges]

    def _succeeds(self, here: int, free: list[bool], ends: list[bool]) -> bool:
        """Whether there is a match from this position on with any text. False if that takes too long to find out."""
        begin = frozenset({here})
        seen = {begin}
        waiting = [begin]
        while waiting:
            group = waiting.pop()
            if any(free[one] for one in group):
                continue
            if not any(ends[one] for one in group) or len(seen) > GROUPS or not self._total:
                return False
            for letter in self._letters:
                following = frozenset(
                    there for one in group for there, (_, letters) in self.edges[one].items() if letter & letters
                )
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return True

    def _goes_on(self, here: int) -> bool:
        """Whether the matcher may read on after a match without end and without a longer match."""
        behind = self._behind(here) - self.certain
        return any(one in self._behind(one, behind) for one in behind)

    def _behind(self, here: int, within: set[int] | None = None) -> set[int]:
        found: set[int] = set()
        waiting = [here]
        while waiting:
            for there in self.edges[waiting.pop()].keys() - found:
                if within is not None and there not in within:
                    continue
                found.add(there)
                waiting.append(there)
        return found

    def _grows(self) -> bool:
        behind = [self._behind(here) for here in range(len(self.edges))]
        circles = [here for here in range(len(self.edges)) if here in behind[here]]
        return any(
            there not in self.certain and there in behind[here] and self._twice(here, there, behind)
            for here in circles
            for there in circles
        )

    def _twice(self, p: int, q: int, behind: list[set[int]]) -> bool:
        """Whether one text leads from p to p, from p to q in another way, and from q to q."""
        to_p, to_q = ({here for here, found in enumerate(behind) if there in found} for there in (p, q))
        firsts, seconds, thirds = (self._within(to_p), self._within(to_q), self._within(to_q - self.certain))
        begin: tuple[int, int, int, bool] = (p, p, q, False)
        seen: set[tuple[int, int, int, bool]] = {begin}
        waiting: list[tuple[int, int, int, bool]] = [begin]
        while waiting:
            first, second, third, apart = waiting.pop()
            for one, ways, letters in firsts[first]:
                for two, _, letters_two in seconds[second]:
                    parted = apart or one != two or ways > 1
                    both = letters & letters_two
                    if not both or (parted and two in self.certain):
                        continue
                    for three, _, letters_three in thirds[third] if p != q else ((one, 1, letters),):
                        if not both & letters_three:
                            continue
                        state = (one, two, three, parted)
                        if parted and (one, two, three) == (p, q, q):
                            return True
                        if state not in seen:
                            seen.add(state)
                            waiting.append(state)
        return False

    def _within(self, some: set[int]) -> list[list[tuple[int, int, int]]]:
        return [
            [(there, ways, letters) for there, (ways, letters) in found.items() if there in some]
            for found in self.edges
        ]


def _reached(node: Node) -> Iterator[tuple[Node, Set, frozenset[str]]]:
    """The nodes that can be reached without a character and that consume one or end, each with its barred characters and conditions."""
    waiting: list[tuple[Node, Set, frozenset[str], frozenset[tuple[int, int]]]] = [
        (node, node.barred, frozenset(), frozenset())
    ]
    while waiting:
        here, barred, held, passed = waiting.pop()
        if here.takes is not None or not here.free:
            yield here, barred, held
            continue
        for number, (there, holds) in enumerate(here.free):
            step = (id(here), number)
            if step not in passed:
                waiting.append((there, barred | there.barred, held | {holds} - {""}, passed | {step}))


def linear(pattern: str | bytes, flags: int = 0, method: str = "finditer") -> bool:
    """Whether this expression, used by that method, takes time linear in the length of the text. Raises `Unproven`."""
    return not Positions(Automaton(pattern, flags), method).ambiguous


# --- the rule

USED_ELSEWHERE: Final[dict[tuple[str, str], str]] = {
    ("src/greenroom/protocol/validation.py", r"[^@\s]+@[^@\s]+"): "fullmatch",
    ("src/greenroom/protocol/validation.py", r"[A-Za-z][A-Za-z0-9+.-]*:\S+"): "fullmatch",
    ("src/greenroom/config/parsed_file.py", r"(?:[ \t\r\n]|#[^\n]*)*"): "match",
}
"""The methods of expressions that are passed to other code."""

_FRAMES: Final = r'  File "(?:<string>|.*/(?:thespian|multiprocessing|asyncio|uvloop|greenroom/supervision)/[^"]*|.*/threading\.py)", '
_TOML: Final = "tomllib has parsed the text before, so each match succeeds"
_SHOWN_TEXT: Final = "a text is cut to 2,000 letters before, and a run of letters is looked at from its beginning only"
BOUNDED: Final[dict[tuple[str, str], str]] = {
    (
        "src/greenroom/observe/secret_masks.py",
        r"""(?<![A-Za-z0-9_.-])(?:(--[A-Za-z0-9_.-]{1,58}+)[ \t]|([A-Za-z0-9_.-]{1,60}+)[\"']?[:=][ \t]?)[\"']?""",
    ): _SHOWN_TEXT,
    (
        "src/greenroom/observe/secret_masks.py",
        "(?i:(?<![a-z0-9])(?:bearer|basic|dpop)[ \\t]++)[A-Za-z0-9._~+/=-]{8,}+|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+(?:\\.[A-Za-z0-9_-]++){1,4}+|(?<![A-Za-z0-9_-])(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|xox[abprs]|glpat|hf|npm|pypi)[-_][A-Za-z0-9_-]{12,}+|(?<![A-Za-z0-9_-])(?:AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}+|(?<=://)[^/\\s:@\\\"'<>,]{0,200}+:[^/\\s\\\"'<>,]{1,200}(?=@)|(?<=://)[^/\\s:@\\\"'<>,]{16,200}+(?=@)|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\\s\\\\-]*+",
    ): _SHOWN_TEXT,
    (
        "src/greenroom/observe/secret_masks.py",
        "(?<=[?&#;])([A-Za-z0-9_.\\[\\]-]{1,60}+=)([^&\\s#\\\"'<>]++)",
    ): _SHOWN_TEXT,
    ("actors/handler_options.py", r"(^|[^\w.])((\w+\.)*)Context\b"): "an annotation is the program's own",
    ("src/greenroom/config/parsed_file.py", r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*"): (
        "an unterminated comment is read once: the parser refuses its slash next"
    ),
    ("src/greenroom/config/config_schema.py", "pattern"): "the patterns of the configuration's own kinds",
    ("src/greenroom/config/parsed_file.py", r'"(?:[^"\\\n]|\\.)*"'): _TOML,
    ("src/greenroom/config/parsed_file.py", r"'''.*?'''(?:'{1,2})?"): _TOML,
    ("src/greenroom/config/parsed_file.py", r'"""(?:[^\\]|\\.)*?"""(?:"{1,2})?'): _TOML,
    ("src/greenroom/protocol/safe_regex.py", "python"): "a schema's pattern, whose steps are bounded before",
    ("src/greenroom/protocol/schema_compiler.py", "source"): "a pattern by the author of a hint, in Python's dialect",
    ("supervision/cluster/crash_output.py", _FRAMES): "a line is cut at 512 characters",
    (
        "supervision/kernel/safe_repr.py",
        r"""\b(\w+)['"]?\s*[=:]\s*""",
    ): "at most 10,000 characters of a repr, each word once",
}
"""Expressions that are not linear, or that are made at run time, by file and source: the reason why their input is short, or does not come from a peer."""


@dataclass(frozen=True)
class Use:
    """A regular expression in the source, and the method that uses it."""

    path: str
    line: int
    written: str
    """Its source."""
    pattern: str | bytes | None
    """None where it is made at run time."""
    flags: int
    method: str

    @property
    def key(self) -> tuple[str, str]:
        """The key in the tables."""
        return self.path, self.pattern if isinstance(self.pattern, str) else self.written


def uses(source: Source) -> Iterator[Use]:
    """All regular expressions of a module."""
    constants = dict(_constants(source.syntax))
    kept = {
        id(value): name
        for name, value in constants.items()
        if isinstance(value, ast.Call) and _called(value) == "compile"
    }
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        called = _called(node)
        if called is None:
            for word in node.keywords:
                if word.arg == "pattern" and ast.unparse(node.func).endswith("Meta"):
                    yield _use(source, node, word.value, constants, "search")
        elif called == "compile":
            for method in _methods(source, kept.get(id(node))):
                yield _use(source, node, _first(node), constants, method)
        elif called in METHODS:
            yield _use(source, node, _first(node), constants, called)


def _hidden(source: Source) -> Iterator[int]:
    for node in source.nodes:
        match node:
            case ast.ImportFrom(module="re", level=0):
                yield node.lineno
            case ast.Import(names=names) if any(name.name == "re" and name.asname for name in names):
                yield node.lineno
            case _:
                pass


def _called(node: ast.Call) -> str | None:
    match node.func:
        case ast.Attribute(value=ast.Name(id="re"), attr=name):
            return name
        case _:
            return None


def _first(node: ast.Call) -> ast.expr:
    return node.args[0] if node.args else next(word.value for word in node.keywords if word.arg == "pattern")


def _constants(syntax: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in syntax.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case _:
                pass


def _use(source: Source, node: ast.Call, written: ast.expr, constants: dict[str, ast.expr], method: str) -> Use:
    flags = 0
    position = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(_called(node) or "", 2)
    given = [word.value for word in node.keywords if word.arg == "flags"] or node.args[position : position + 1]
    for each in given:
        for name in ast.walk(each):
            if isinstance(name, ast.Attribute):
                flags |= getattr(re, name.attr)
    pattern = _evaluated(written, constants)
    return Use(source.path, node.lineno, ast.unparse(written), pattern, flags, method)


def _evaluated(node: ast.expr, constants: dict[str, ast.expr]) -> Any:
    match node:
        case ast.Constant(value=str() | bytes() as value):
            return value
        case ast.Name(id=name) if name in constants:
            return _evaluated(constants[name], constants)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_evaluated(left, constants), _evaluated(right, constants)]
            return None if None in parts else parts[0] + parts[1]
        case ast.JoinedStr(values=values):
            texts = [
                _evaluated(each.value if isinstance(each, ast.FormattedValue) else each, constants) for each in values
            ]
            return None if None in texts else "".join(texts)
        case _:
            return None


def _methods(source: Source, name: str | None) -> set[str]:
    """The methods that a compiled expression is used by; the costliest one if that is unknown."""
    if name is None or not name.startswith("_"):
        return {"finditer"}
    found: set[str] = set()
    seen: set[int] = set()
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=used) as value, attr=method), args=args) if used == name:
                seen.add(id(value))
                found.add("match at" if method == "match" and len(args) > 1 else method)
            case ast.Attribute(value=ast.Name(id=used) as value, attr=method) if used == name and id(value) not in seen:
                seen.add(id(value))
                found |= {method} & METHODS
            case _:
                pass
    for node in source.nodes:
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in seen:
            return {"finditer"}
    return found & (METHODS | AGAIN) or {"finditer"}


def expressions_are_linear(tree: Tree) -> list[str]:
    """Each regular expression is linear, or its input is short or not from a peer."""
    broken: list[str] = []
    left = {*BOUNDED, *USED_ELSEWHERE}
    for source in tree.sources:
        if "re." not in source.text and " re " not in source.text and "Meta(" not in source.text:
            continue
        broken += [
            f"{source.path}:{line}: write `re.compile(…)` or another `re.…`, so that this test finds the expression"
            for line in _hidden(source)
        ]
        for use in uses(source):
            left.discard(use.key)
            why = "" if use.key in BOUNDED else _wrong(use)
            if why:
                broken.append(f"{use.path}:{use.line}: {why}: {use.written}")
    here = {source.path for source in tree.sources}
    broken += [
        f"{path}: {written} no longer exists: take it out of the table" for path, written in left if path in here
    ]
    return broken


def _wrong(use: Use) -> str:
    if use.pattern is None:
        return "made at run time"
    method = USED_ELSEWHERE.get(use.key, use.method)
    try:
        return "" if linear(use.pattern, use.flags, method) else f"not linear by {method}"
    except Unproven as why:
        return f"not proven: {why}"
