"""The frontmatter of a `SKILL.md`: the part of YAML that every reader of YAML understands in the same way, and nothing else.

A host compares the frontmatter that a server has announced with what its own YAML library reads in the file. Versions of YAML differ on many
plain words: `yes` is a boolean or a text, `2026-01-31` a date or a text, `1:30` a number or a text. So whatever is ambiguous, and every feature
beyond mappings, lists and texts, is refused with its line and with what to write instead.

Understood are `key: value`, indented mappings, lists (`- item`, `[a, b]`), `{}` for an empty mapping, plain and quoted texts on one line, block texts
(`|` and `>`, with `-` or `+`), `true`, `false`, `null`, decimal numbers, and comments. Time and memory are linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from greenroom.errors import GreenroomError

SKILL_FILE: Final = "SKILL.md"
MOST_FILES: Final = 512
"""How many files a skill may have: every host takes so many."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""How many bytes the files of a skill may have together."""
FRONTMATTER_LIMIT: Final = 64 * 1024
"""The longest frontmatter, in characters."""
_MOST_LEVELS: Final = 16
_FENCE: Final = re.compile(r"---[ \t]*")
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*")
_COMMENT: Final = re.compile(r"[ \t]#")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}")
_BLOCK: Final = re.compile(r"(?P<style>[|>])(?P<chomp>[-+]?)[ \t]*(?:[ \t]#.*)?")
_AMBIGUOUS_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "~", "=", "<<"})
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_NUMERIC_START: Final = re.compile(r"[-+]?\.?[0-9]|[-+]?\.(?:inf|nan)", re.IGNORECASE)
_TEXT_AFTER_DIGITS: Final = re.compile(r"[0-9]+(?:[ ,;()]|[^0-9\W_eExXoObB]|\.[0-9]+\.[0-9A-Za-z])")
"""The beginning of texts that no version of YAML reads as a number or a date, though they begin with a digit: `3 steps`, `2nd`, `1.2.3`."""
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_HEX_ESCAPES: Final = {"x": 2, "u": 4, "U": 8}
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff\ud800-\udfff\u2028\u2029\x85]"
)
_NO_KEY: Final = 'the line must be "key: value", with a blank after the colon'
_QUOTE_IT: Final = "quote it, because versions of YAML read it differently"


class BadFrontmatter(GreenroomError, ValueError):
    """The frontmatter is not understood: the line, what is wrong, and what to write."""

    def __init__(self, line: int, problem: str) -> None:
        """`line` counts from 1, in the whole file."""
        super().__init__(line, problem)
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


class _Line(NamedTuple):
    number: int
    indent: int
    text: str
    """Without the indentation, and without blanks at the end."""


def read_frontmatter(text: str) -> dict[str, Any]:
    """The frontmatter at the beginning of a file's text. Raises `BadFrontmatter`."""
    head = text[: FRONTMATTER_LIMIT + 16]
    lines = head.split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    if not _FENCE.fullmatch(lines[0]):
        raise BadFrontmatter(1, 'the file must begin with a line "---", and its frontmatter must end with another')
    end = next((number for number, line in enumerate(lines[1:], 1) if _FENCE.fullmatch(line)), None)
    if end is None:
        raise BadFrontmatter(1, f'no line "---" ends the frontmatter within {FRONTMATTER_LIMIT} characters')
    reader = _Reader(lines[1:end])
    found = reader.mapping(0, 1) if reader.peek() is not None else {}
    left = reader.peek()
    if left is not None:
        raise BadFrontmatter(left.number, "this line is indented in another way than the lines before it")
    return found


class _Reader:
    """Reads the lines of a frontmatter from the first to the last."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        for number, line in enumerate(lines, 2):
            if _UNPRINTABLE.search(line):
                raise BadFrontmatter(number, "the line has a control character: write it as an escape in double quotes")

    def peek(self) -> _Line | None:
        """The next line that is neither empty nor a comment."""
        while self._at < len(self._lines):
            raw = self._lines[self._at]
            text = raw.strip(" \t")
            if text and not text.startswith("#"):
                indent = len(raw) - len(raw.lstrip(" "))
                if "\t" in raw:
                    raise BadFrontmatter(self._at + 2, 'the line has a tab: use blanks, or "\\t" in double quotes')
                return _Line(self._at + 2, indent, raw[indent:].rstrip(" \t"))
            self._at += 1
        return None

    def mapping(self, indent: int, level: int) -> dict[str, Any]:
        """The mapping whose keys stand at this indentation."""
        found: dict[str, Any] = {}
        while (line := self.peek()) is not None and line.indent == indent and not _is_item(line.text):
            key, rest = _split_key(line)
            if key in found:
                raise BadFrontmatter(line.number, f"the key {_shown(key)} is there twice")
            self._at += 1
            found[key] = self._value(line, rest, level)
        if line is not None and line.indent > indent:
            raise BadFrontmatter(
                line.number,
                "this line continues the one before it, or is indented too far: write a long text on one line, or after "
                '">-" on lines that are indented',
            )
        return found

    def _value(self, line: _Line, rest: str, level: int) -> Any:
        """The value after a key: on its line, or on the lines below it."""
        if level > _MOST_LEVELS:
            raise BadFrontmatter(line.number, f"there are more than {_MOST_LEVELS} levels")
        text = _without_comment(rest, line.number)
        if text and text[0] in "|>":
            return self._block_text(line, text)
        if text:
            return _inline_value(text, line.number)
        following = self.peek()
        if following is None:
            return None
        if _is_item(following.text) and following.indent >= line.indent:
            return self._items(following.indent)
        if following.indent > line.indent:
            return self.mapping(following.indent, level + 1)
        return None

    def _items(self, indent: int) -> list[Any]:
        """The list whose dashes stand at this indentation. An item is a value on one line."""
        found: list[Any] = []
        while (line := self.peek()) is not None and line.indent == indent and _is_item(line.text):
            self._at += 1
            rest = _without_comment(line.text[1:], line.number)
            if not rest or rest[0] in "|>" or _is_item(rest):
                raise BadFrontmatter(
                    line.number,
                    "an item of a list must be one value on its line: a text, a number, true, false or null",
                )
            found.append(_inline_value(rest, line.number))
        if line is not None and line.indent > indent:
            raise BadFrontmatter(line.number, "this line is indented further than the list that it stands in")
        return found

    def _block_text(self, line: _Line, header: str) -> str:
        """A block text: the lines below that are indented further than the key."""
        matched = _BLOCK.fullmatch(header)
        if matched is None:
            raise BadFrontmatter(
                line.number, f'write "{header[0]}", "{header[0]}-" or "{header[0]}+", and the text on the lines below'
            )
        lines: list[str] = []
        indent: int | None = None
        while self._at < len(self._lines):
            raw = self._lines[self._at]
            blanks = len(raw) - len(raw.lstrip(" "))
            if raw.strip(" "):
                if indent is None:
                    if blanks <= line.indent:
                        break
                    indent = blanks
                    if any(len(each) > indent for each in lines):
                        raise BadFrontmatter(
                            self._at + 2, "the empty lines before this one are indented further than it"
                        )
                if blanks < indent:
                    break
            elif indent is not None and blanks > indent:
                raise BadFrontmatter(
                    self._at + 2, "the line is blank, and indented further than the text: make it empty"
                )
            lines.append(raw)
            self._at += 1
        if self.peek() is None and matched["chomp"] != "-":
            raise BadFrontmatter(
                line.number,
                f'write "{header[0]}-": readers of YAML disagree on the line break at the end of the frontmatter',
            )
        return _folded([each[indent or 0 :] for each in lines], matched["style"], matched["chomp"], line.number + 1)


def _folded(lines: list[str], style: str, chomp: str, number: int) -> str:
    """The text of a block: `|` keeps its lines, `>` joins them."""
    body = [*lines]
    while body and not body[-1].strip(" "):
        body.pop()
    for following, line in enumerate(body, number):
        if line[:1] == "\t":
            raise BadFrontmatter(following, "a line of the text begins with a tab: indent by blanks")
        if line[:1] == " " and style == ">":
            raise BadFrontmatter(
                following, 'a line of a text after ">" is indented further than the first one: use "|"'
            )
    empty = len(lines) - len(body)
    if style == "|":
        text = "\n".join(body)
    else:
        parts: list[str] = []
        breaks = 0
        for line in body:
            if not line:
                breaks += 1
                continue
            if parts:
                parts.append("\n" * breaks if breaks else " ")
            else:
                parts.append("\n" * breaks)
            parts.append(line)
            breaks = 0
        text = "".join(parts)
    if chomp == "-" or (not body and chomp != "+"):
        return text
    return text + "\n" * (1 + empty if body else empty) if chomp == "+" else text + "\n"


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith(("- ", "-\t"))


def _split_key(line: _Line) -> tuple[str, str]:
    """A line's key, and what follows the colon."""
    text = line.text
    if text[0] in "\"'":
        end = _end_of_quoted(text, line.number)
        key, rest = _quoted(text[:end], line.number), text[end:].lstrip(" ")
    else:
        colon = text.find(":")
        key, rest = text[:colon].rstrip(" "), text[colon:]
        if colon < 0 or not _KEY.fullmatch(key):
            raise BadFrontmatter(line.number, _NO_KEY)
        if key.casefold() in _AMBIGUOUS_WORDS or key.casefold() in _CONSTANTS:
            raise BadFrontmatter(line.number, f"the key {_shown(key)}: {_QUOTE_IT}")
    if rest[:1] != ":" or rest[1:2] not in ("", " ", "\t"):
        raise BadFrontmatter(line.number, _NO_KEY)
    return key, rest[1:]


def _without_comment(rest: str, number: int) -> str:
    """A value without blanks around it, and without the comment after it."""
    text = rest.strip(" \t")
    if not text or text[0] in "\"'":
        if not text:
            return ""
        end = _end_of_quoted(text, number)
        after = text[end:].lstrip(" \t")
        if after and not (after.startswith("#") and text[end] in " \t"):
            raise BadFrontmatter(number, "there is more after the closing quote")
        return text[:end]
    if text.startswith("#"):
        return ""
    comment = _COMMENT.search(text)
    return text if comment is None else text[: comment.start()].rstrip(" \t")


def _end_of_quoted(text: str, number: int) -> int:
    """The index after the closing quote."""
    quote, at = text[0], 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 2
        elif text[at] != quote:
            at += 1
        elif quote == "'" and text[at + 1 : at + 2] == "'":
            at += 2
        else:
            return at + 1
    raise BadFrontmatter(number, "the quoted text does not end on its line")


def _quoted(text: str, number: int) -> str:
    """The value of a text in quotes."""
    inner = text[1:-1]
    if text[0] == "'":
        return inner.replace("''", "'")
    parts: list[str] = []
    at = 0
    while (slash := inner.find("\\", at)) >= 0:
        parts.append(inner[at:slash])
        letter = inner[slash + 1 : slash + 2]
        if letter in _HEX_ESCAPES:
            digits = inner[slash + 2 : slash + 2 + _HEX_ESCAPES[letter]]
            parts.append(_character(digits, _HEX_ESCAPES[letter], number))
            at = slash + 2 + len(digits)
        elif letter and letter in _ESCAPES:
            parts.append(_ESCAPES[letter])
            at = slash + 2
        else:
            raise BadFrontmatter(number, f"there is no escape \\{letter}: write \\\\ for a backslash")
    return "".join([*parts, inner[at:]])


def _character(digits: str, length: int, number: int) -> str:
    if len(digits) == length and re.fullmatch(r"[0-9A-Fa-f]+", digits):
        code = int(digits, 16)
        if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - the range of Unicode, without surrogates
            return chr(code)
    raise BadFrontmatter(number, "an escape does not name a character")


def _inline_value(text: str, number: int) -> Any:
    """A value on one line."""
    if text[0] == "[":
        return _flow_list(text, number)
    if text == "{}":
        return {}
    return _scalar(text, number)


def _flow_list(text: str, number: int) -> list[Any]:
    """`[a, "b", 3]`: values on one line."""
    if text[-1] != "]":
        raise BadFrontmatter(number, 'the list must end with "]" on the line where it begins')
    inner = text[1:-1].strip(" \t")
    found: list[Any] = []
    while inner:
        if inner[0] in "\"'":
            end = _end_of_quoted(inner, number)
            found.append(_quoted(inner[:end], number))
            inner = inner[end:].lstrip(" \t")
            if inner and inner[0] != ",":
                raise BadFrontmatter(number, "there must be a comma after the closing quote")
            comma = 0 if inner else -1
        else:
            comma = inner.find(",")
            item = (inner if comma < 0 else inner[:comma]).strip(" \t")
            if not item or any(character in item for character in "[]{}\"':#"):
                raise BadFrontmatter(
                    number, "an item of the list is empty, or has a character of YAML's own: put it into double quotes"
                )
            found.append(_scalar(item, number))
        if comma < 0:
            break
        inner = inner[comma + 1 :].strip(" \t")
    return found


def _scalar(text: str, number: int) -> Any:
    """A text, number, boolean or null."""
    if text[0] in "\"'":
        return _quoted(text, number)
    if text[0] in "&*!%@`|>?{}[],#":
        raise BadFrontmatter(
            number, f"a value that begins with {text[0]!r} is not understood: put it into double quotes if it is a text"
        )
    if text[0] == "-" and text[1:2] in ("", " ", "\t"):
        raise BadFrontmatter(number, "a list must begin on the line below its key")
    if ": " in text or ":\t" in text or text.endswith(":"):
        raise BadFrontmatter(number, "the text has a colon before a blank, or at its end: put it into double quotes")
    folded = text.casefold()
    if folded in _CONSTANTS:
        if text not in _CONSTANTS:
            raise BadFrontmatter(
                number, f"write {folded} in lower case, or put {_shown(text)} into quotes if it is a text"
            )
        return _CONSTANTS[text]
    if folded in _AMBIGUOUS_WORDS:
        raise BadFrontmatter(number, f"{_shown(text)}: {_QUOTE_IT}")
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _NUMERIC_START.match(text) and not _TEXT_AFTER_DIGITS.match(text):
        raise BadFrontmatter(number, f"{_shown(text)}: {_QUOTE_IT}")
    return text


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")  # noqa: PLR2004 - enough to recognize it
