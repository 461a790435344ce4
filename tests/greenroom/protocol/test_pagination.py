"""Pagination of a list that may change between pages."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.pagination import CURSOR_LIMIT, page, read_cursor, write_cursor

NAMES = st.lists(st.text(max_size=6), unique=True).map(sorted)


def walk(keys: list[str], size: int) -> list[str]:
    """All items, page by page."""
    seen: list[str] = []
    cursor: str | None = None
    while True:
        part, cursor = page(keys, cursor, size, "tools")
        seen += keys[part]
        assert 0 < len(keys[part]) <= size or not keys
        if cursor is None:
            return seen


@pytest.mark.row("WC-20")
@given(NAMES, st.integers(1, 5))
def test_the_pages_are_the_list(keys: list[str], size: int) -> None:
    assert walk(keys, size) == keys


@pytest.mark.row("WC-20")
def test_there_is_a_next_page_only_when_there_is_more() -> None:
    keys = [f"{number:02}" for number in range(50)]
    assert page(keys, None, 50, "tools") == (slice(0, 50), None)
    assert page([*keys, "99"], None, 50, "tools") == (slice(0, 50), write_cursor("49", "tools"))
    assert page([], None, 50, "tools") == (slice(0, 50), None)


@pytest.mark.row("WC-20")
def test_the_empty_cursor_is_the_beginning() -> None:
    assert page(["a", "b"], "", 1, "tools") == page(["a", "b"], None, 1, "tools")


@given(NAMES, NAMES, st.integers(1, 4))
def test_items_added_or_removed_meanwhile_shift_no_page(before: list[str], after: list[str], size: int) -> None:
    part, cursor = page(before, None, size, "tools")
    assert (cursor is None) is (len(before) <= size)
    assume(cursor is not None)
    last = before[part][-1]
    rest, _ = page(after, cursor, 1000, "tools")
    assert after[rest] == [key for key in after if key > last]


@pytest.mark.row("WC-20")
@pytest.mark.parametrize(
    "cursor",
    [
        *("garbage", "a", "====", "=", "0", "not base64!", "é", "\0", "a\nb", "\ud800", " "),
        *("x" * (CURSOR_LIMIT + 1), urlsafe_b64encode(b"tools").decode(), urlsafe_b64encode(b"\xff:\xff").decode()),
        *(
            write_cursor("a", "prompts"),
            write_cursor("a", "tools") + "=",
            write_cursor("a", "tools") + "\n",
            write_cursor("ab", "tools")[:-1],
        ),
    ],
)
def test_a_cursor_that_this_list_never_gave_is_refused(cursor: str) -> None:
    with pytest.raises(McpError, match="Invalid cursor") as caught:
        page(["a", "b"], cursor, 1, "tools")
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert len(caught.value.message) < 150


@given(st.text())
def test_any_cursor_is_read_or_refused(cursor: str) -> None:
    try:
        assert write_cursor(read_cursor(cursor, "tools"), "tools") == cursor
    except McpError as refused:
        assert refused.code == ErrorCode.INVALID_PARAMS


@given(st.text(st.characters(), max_size=50), st.sampled_from(["tools", "resources"]))
def test_a_written_cursor_is_read_back(key: str, kind: str) -> None:
    cursor = write_cursor(key, kind)
    assert read_cursor(cursor, kind) == key
    assert cursor.isascii()
    assert key not in cursor or len(key) < 3
