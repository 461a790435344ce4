"""Pagination with opaque cursors.

A cursor names the last item of the previous page, not an index: items added or removed meanwhile shift nothing, and a cursor stays valid for ever. It also
names its list, so a cursor of one list is refused for another. It is not secret and needs no key: with a forged cursor a peer can only ask for another page.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING

from .errors import ErrorCode, McpError

if TYPE_CHECKING:
    from collections.abc import Sequence

CURSOR_LIMIT = 16_384
"""The longest accepted cursor. Names are short, and URIs have a limit."""


def page(keys: Sequence[str], cursor: str | None, size: int, kind: str) -> tuple[slice, str | None]:
    """One page of a sorted list, and the cursor of the next page, if any.

    `keys` are the sort keys, without duplicates. No cursor and the empty cursor mean the first page. Raises `McpError` (-32602) for a cursor that
    this list never gave.
    """
    start = bisect_right(keys, read_cursor(cursor, kind)) if cursor else 0
    end = start + size
    return slice(start, end), write_cursor(keys[end - 1], kind) if end < len(keys) else None


def write_cursor(key: str, kind: str) -> str:
    """The cursor of the page after this key."""
    return urlsafe_b64encode(f"{kind}:{key}".encode(errors="surrogatepass")).decode().rstrip("=")


def read_cursor(cursor: str, kind: str) -> str:
    """The key in a cursor. Raises `McpError` (-32602)."""
    if len(cursor) <= CURSOR_LIMIT:
        try:
            text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode(errors="surrogatepass")
        except ValueError:
            text = ""
        found, colon, key = text.partition(":")
        if colon and found == kind and write_cursor(key, kind) == cursor:  # base64 decodes other spellings, too
            return key
    raise McpError(
        ErrorCode.INVALID_PARAMS, "Invalid cursor: pass back the nextCursor of the same list, or none to begin"
    )
