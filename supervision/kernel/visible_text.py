"""Text of a peer or another program, as a terminal or a log may get it: it moves no cursor, sets no title, and looks like nothing of ours.

Spelt out is all that a terminal may obey and all that is not seen: controls, the ends of lines and paragraphs of Unicode, halves of characters, bidirectional
controls, which have a file end in another name than it is shown with, and characters of no width, in which words are hidden from a reader and not from a
model. Emoji that are joined by one are shown in their parts; that is the price, and the alternative a list of which are honest.
"""

from __future__ import annotations

import logging
import sys
import threading
import unicodedata
from typing import TYPE_CHECKING, Any, Final

from .tracebacks import format_final_traceback

if TYPE_CHECKING:
    from types import TracebackType

_INVISIBLE_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_BLANK: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U0001107f\U00016fe4\U0001d159"
)
"""Letters, marks and signs without ink."""
_RESERVED: Final = frozenset("\u2065\ufff0\ufff1\ufff2\ufff3\ufff4\ufff5\ufff6\ufff7\ufff8")
"""Not assigned, and not shown even so (Unicode's Default_Ignorable_Code_Point). Others that are not assigned have a box, or are younger than Python's tables: new emoji."""
_TAGS: Final = range(0xE0000, 0xE1000)
"""Tags and selectors of variants by the hundred: an alphabet that is not seen, some of it not assigned."""
_SELECTORS: Final = range(0xFE00, 0xFE0E)
"""Those of variants, without the two that say whether an emoji is a text or a picture."""


def visible(text: str, longest: int | None = None, *, lines: bool = False) -> str:
    """Text of a peer or another program, as it can be shown: what moves a cursor, colours or hides is spelt out. One line, unless it may have several."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}…"
    text = text.replace("\r\n", "\n").replace("\t", " ") if lines else " ".join(text.split())
    return escaped(text, but="\n")


def escaped(text: str, *, but: str = "") -> str:
    """All that is not seen as its number, as Python writes it, except for these characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in but or not _is_invisible(each) else _escape(each) for each in text)


def escaped_in_json(text: str) -> str:
    """The same of JSON, which stays what it was: there a character that is not seen can only be in a string."""
    return "".join(
        each if each == "\n" or not _is_invisible(each) else "".join(f"\\u{unit:04x}" for unit in _units(each))
        for each in text
    )


def _is_invisible(sign: str) -> bool:
    number = ord(sign)
    return (
        (number < ord(" ") or number > ord("~"))
        and (unicodedata.category(sign) in _INVISIBLE_CATEGORIES or sign in _BLANK or sign in _RESERVED or number in _TAGS or number in _SELECTORS)
    )  # fmt: skip


def _escape(sign: str) -> str:
    number = ord(sign)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def _units(sign: str) -> tuple[int, ...]:
    data = sign.encode("utf-16-be", errors="surrogatepass")
    return tuple(int.from_bytes(data[start : start + 2], "big") for start in range(0, len(data), 2))


class EscapingFormatter(logging.Formatter):
    """Of what is logged: it may quote what a peer has said, or a program before it died."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, with its traceback if it has one."""
        return visible(super().format(record), lines=True)


def escape_logged_text() -> None:
    """Also where a program says nothing of logging, and the standard library writes warnings down by itself."""
    if logging.lastResort is not None and logging.lastResort.formatter is None:
        logging.lastResort.setFormatter(EscapingFormatter())


def escape_uncaught_errors() -> None:
    """The traceback that ends a program, or one of its threads: an exception may quote a peer. Hooks that a program has set stay."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _write_error
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _write_thread_error


def _write_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:  # noqa: ARG001 - as Python calls it
    if sys.stderr is not None:
        sys.stderr.write(visible(format_final_traceback(error), lines=True))


def _write_thread_error(args: Any) -> None:
    if args.exc_type is not SystemExit and sys.stderr is not None:
        name = "?" if args.thread is None else args.thread.name
        sys.stderr.write(f"Exception in thread {visible(name)}:\n")
        _write_error(args.exc_type, args.exc_value, args.exc_traceback)
