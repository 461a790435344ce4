"""Identifiers of extensions: their grammar, and what a peer's capabilities declare, whatever they hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import ErrorCode
from greenroom.protocol.extension_ids import (
    ID_LIMIT,
    declared_extensions,
    extension_not_declared,
    id_problem,
    is_extension_declared,
    is_reserved_prefix,
)

GRAMMAR = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
)
"""The grammar of `_meta` keys, with a prefix and a name, in one expression."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.row("26-V6")
@pytest.mark.parametrize(
    "id",
    ["com.example/notes", "a/b", "x-1.y2/n.m_o-p", "io.modelcontextprotocol/ui", "com.example.mcp/tools", "mcp/x"],
)
def test_an_identifier_with_a_prefix_and_a_name_is_accepted(id: str) -> None:
    assert id_problem(id) is None


@pytest.mark.row("26-V6")
@pytest.mark.row("26-M15")
@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("notes", 'no prefix: put a domain of yours before it, reversed, as in "com.example/notes"'),
        ("/notes", "labels with dots"),
        ("1com/notes", "labels with dots"),
        ("com-/notes", "labels with dots"),
        ("com..example/notes", "labels with dots"),
        ("com.example/", "begin and end with a letter or digit"),
        ("com.example/-x", "begin and end with a letter or digit"),
        ("com.example/a/b", "begin and end with a letter or digit"),
        ("com.example/ä", "begin and end with a letter or digit"),
        ("com.example/a\n", "begin and end with a letter or digit"),
        ("dev.mcp/x", "reserved"),
        ("com.mcp.tools/x", "reserved"),
        ("org.modelcontextprotocol.api/x", "reserved"),
        (f"com.example/{'x' * ID_LIMIT}", "longer than"),
        (3, "a text as its identifier"),
        (None, "a text as its identifier"),
    ],
)
def test_another_identifier_is_refused_with_the_reason(id: object, why: str) -> None:
    problem = id_problem(id)
    assert problem is not None
    assert why in problem
    assert len(problem) < 2 * ID_LIMIT


@pytest.mark.row("26-V6")
@pytest.mark.row("26-M15")
@given(st.from_regex(GRAMMAR, fullmatch=True) | st.text(alphabet="aZ0-._/é\n", max_size=12))
def test_the_grammar_is_that_of_meta_keys_with_a_prefix(id: str) -> None:
    fits = GRAMMAR.fullmatch(id) is not None and len(id) <= ID_LIMIT
    is_free = not is_reserved_prefix(id.partition("/")[0]) or id.startswith("io.modelcontextprotocol/")
    assert (id_problem(id) is None) is (fits and is_free)


@pytest.mark.row("26-V6")
def test_extensions_are_declared_by_objects_alone() -> None:
    capabilities: dict[str, Any] = {"extensions": {"a/b": {}, "a/c": {"x": 1}, "a/d": True, "a/e": None, "a/f": [{}]}}
    assert declared_extensions(capabilities) == {"a/b": {}, "a/c": {"x": 1}}
    assert [id for id in capabilities["extensions"] if is_extension_declared(capabilities, id)] == ["a/b", "a/c"]


@pytest.mark.row("26-V6")
@given(st.dictionaries(st.just("extensions") | st.text(), JSON))
def test_any_capabilities_can_be_read(capabilities: dict[str, Any]) -> None:
    found = declared_extensions(capabilities)
    assert all(isinstance(settings, dict) for settings in found.values())
    assert all(is_extension_declared(capabilities, id) for id in found)


@pytest.mark.row("26-V7")
def test_the_error_names_the_extension_that_is_missing_as_a_capabilities_object() -> None:
    error = extension_not_declared("notes/list", "com.example/notes")
    assert error.code == ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error.data == {"requiredCapabilities": {"extensions": {"com.example/notes": {}}}}
    assert "notes/list needs the extension com.example/notes" in error.message
