"""Escapes text of peers and other programs for terminals and logs, so that it cannot move the cursor, set a title or imitate our output.

Escaped are control characters and all invisible characters: Unicode's line and paragraph separators, surrogates, bidirectional controls (which disguise the
end of a file's name), and characters without width, in which words are hidden from a reader and not from a model. Emoji that are joined by such a character
are shown in their parts; the alternative is a list of the allowed sequences.
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
"""Letters, marks and symbols that are drawn blank."""
_RESERVED: Final = frozenset("\u2065\ufff0\ufff1\ufff2\ufff3\ufff4\ufff5\ufff6\ufff7\ufff8")
"""Unassigned and invisible (Unicode's Default_Ignorable_Code_Point). Other unassigned characters are drawn as a box, or are newer than Python's tables: new emoji."""
_TAGS: Final = range(0xE0000, 0xE1000)
"""Tags and variation selectors: an invisible alphabet, some of it unassigned."""
_SELECTORS: Final = range(0xFE00, 0xFE0E)
"""Variation selectors, without the two that choose between the text and the picture of an emoji."""


def visible(text: str, longest: int | None = None, *, lines: bool = False) -> str:
    """Escape text for display, cut to `longest` characters: one line, or several with `lines`."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}…"
    text = text.replace("\r\n", "\n").replace("\t", " ") if lines else " ".join(text.split())
    return escaped(text, but="\n")


def escaped(text: str, *, but: str = "") -> str:
    """Replace each invisible character, except those in `but`, by its escape as Python writes it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in but or not _is_invisible(each) else _escape(each) for each in text)


def escaped_in_json(text: str) -> str:
    """Escape invisible characters in JSON text. It stays equivalent, since they can only be inside its strings."""
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
    """A log formatter that escapes: a record may quote a peer, or the output of a program."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record, with its traceback if it has one."""
        return visible(super().format(record), lines=True)


def escape_logged_text() -> None:
    """Escape what `logging`'s last-resort handler writes in a program that has not configured logging."""
    if logging.lastResort is not None and logging.lastResort.formatter is None:
        logging.lastResort.setFormatter(EscapingFormatter())


def escape_uncaught_errors() -> None:
    """Escape tracebacks that end the program or a thread, since an exception may quote a peer. Hooks set by the program stay."""
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
