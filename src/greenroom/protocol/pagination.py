"""Pages of a list, by opaque cursors.

A cursor names the last item of the page before, not a number: what is added or removed meanwhile shifts nothing, and a cursor stays
good as long as its peer likes to keep it. It also names its list, so that one list's cursor is none of another. It is no secret and
needs no key: a peer that makes one up can ask for nothing but another page.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING

from .errors import ErrorCode, McpError

if TYPE_CHECKING:
    from collections.abc import Sequence

CURSOR_LIMIT = 16_384
"""How long a cursor may be: names are short, and URIs not endless."""


def page(keys: Sequence[str], cursor: str | None, size: int, kind: str) -> tuple[slice, str | None]:
    """Which part of a sorted list is wanted, and the cursor of the next part if there is one.

    `keys` are what the list is sorted by, each once. No cursor is the beginning, and so is the empty one. Raises `McpError`
    (-32602) for a cursor that this list has never given.
    """
    start = bisect_right(keys, read_cursor(cursor, kind)) if cursor else 0
    end = start + size
    return slice(start, end), write_cursor(keys[end - 1], kind) if end < len(keys) else None


def write_cursor(key: str, kind: str) -> str:
    """The cursor that says: after this key."""
    return urlsafe_b64encode(f"{kind}:{key}".encode(errors="surrogatepass")).decode().rstrip("=")


def read_cursor(cursor: str, kind: str) -> str:
    """The key that a cursor says it goes on after. Raises `McpError` (-32602)."""
    if len(cursor) <= CURSOR_LIMIT:
        try:
            text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode(errors="surrogatepass")
        except ValueError:
            text = ""
        found, colon, key = text.partition(":")
        if colon and found == kind and write_cursor(key, kind) == cursor:  # base64 is lenient; one spelling is enough
            return key
    raise McpError(
        ErrorCode.INVALID_PARAMS, "Invalid cursor: pass back the nextCursor of the same list, or none to begin"
    )
