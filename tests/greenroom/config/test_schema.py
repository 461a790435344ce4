"""The JSON Schema for editors and the checker accept the same documents, and the files generated from them are current."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.docs import configuration
from tests.example_counts import examples

from greenroom.config.config_schema import (
    ROOT,
    SERVER,
    URL,
    ChoiceType,
    FlagType,
    MistakeCollector,
    NumberType,
    TableMapType,
    TableType,
    TextListType,
    TextMapType,
    TextType,
    anchored,
    schema,
)
from greenroom.errors import ConfigError
from greenroom.transports.client.http_address import ServerUrl

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.config.config_schema import FieldType

VALIDATOR: Any = jsonschema.Draft202012Validator(schema())
WORDS = st.sampled_from(
    [
        *(
            "",
            "a",
            "uvx",
            "stdio",
            "http",
            "sse",
            "Http",
            "auto",
            "manual",
            "off",
            "none",
            "process",
            "3",
            "true",
            "a\n",
            "a b",
            "\0",
            "ä",
        ),
        *(
            "http://a",
            "https://a.b:70000/x",
            "https://user@a/b?c#d",
            "ftp://a",
            "http://",
            "http://[::1]:80/",
            "${A}",
            "x${A:-}y",
            "$A",
        ),
        *(
            "Host",
            "X-Key",
            "accept",
            "A=B",
            "Elicit(git)",
            "*",
            "rm_*",
            "http://127.0.0.1:1/x",
            "http://b/x",
            "git",
            "Git",
            "x" * 33,
        ),
    ]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(WORDS, inside, max_size=3),
    max_leaves=5,
)


def like(kind: FieldType) -> st.SearchStrategy[Any]:
    """Values that are nearly valid, with many kinds of mistakes."""
    match kind:
        case TableType(fields=known):
            given = {
                name: st.one_of(like(one.kind), like(one.kind), like(one.kind), ANY) for name, one in known.items()
            }
            nothing: st.SearchStrategy[dict[str, Any]] = st.just({})
            more = st.dictionaries(st.sampled_from(["comand", "type"]), ANY, max_size=1)
            some = st.fixed_dictionaries({}, optional=given)
            return st.tuples(some, st.one_of(nothing, nothing, more)).map(lambda told: told[0] | told[1])
        case TableMapType(table=table):
            return st.dictionaries(WORDS, like(table), max_size=2)
        case TextMapType():
            return st.dictionaries(WORDS, WORDS, max_size=3)
        case TextListType():
            return st.lists(WORDS, max_size=3)
        case NumberType(least=least, most=most):
            edges = [least, least - 1, least + 0.5, least + 1, most, most + 1, 0, 1, 3.0, float("inf")]
            return st.sampled_from(edges) | st.integers() | st.floats(allow_nan=False)
        case ChoiceType(words=words):
            return st.sampled_from(words) | WORDS
        case FlagType():
            return st.booleans()
        case _:
            return WORDS


def refused(document: Any) -> list[Any]:
    book = MistakeCollector()
    ROOT.check(document, (), book)
    return book.mistakes


STDIO = {"command": "uvx"}


@pytest.mark.row("CB-03")
@settings(max_examples=examples(400))
@given(like(ROOT) | ANY)
@example({"server": {"a": STDIO | {"url": "http://a"}}})
@example({"server": {"a": {"url": "http://a"}}})
@example({"server": {"a": {"transport": "http", "url": "http://a", "args": []}}})
@example(
    {"server": {"a": {"transport": "sse", "url": "http://a", "oauth": "manual", "oauth_config": {"client_id": "x"}}}}
)
@example({"server": {"a": {"transport": "http", "url": "http://a", "oauth_config": {}}}})
@example({"server": {"a": {"transport": 5, "oauth": 5, "oauth_config": 5}}})
@example({"server": {"a\n": STDIO}})
def test_the_schema_and_the_checker_refuse_the_same(document: Any) -> None:
    assert VALIDATOR.is_valid(document) == (not refused(document)), refused(document)


@pytest.mark.row("CB-03")
@settings(max_examples=examples(300))
@given(like(SERVER))
def test_they_do_for_servers_that_are_nearly_right(server: Any) -> None:
    document = {"server": {"a": server}}
    assert VALIDATOR.is_valid(document) == (not refused(document)), refused(document)


@given(st.from_regex(anchored(URL)))
def test_a_url_that_the_pattern_accepts_is_valid(url: str) -> None:
    try:
        ServerUrl.of(url)
    except ConfigError:
        assert "[" in url  # a pattern cannot count the groups of an IPv6 address


@pytest.mark.parametrize("url", ["http://#@a", 'http://"@a', "http://a?@", "http://?a"])
def test_a_url_without_a_host_is_rejected(url: str) -> None:
    book = MistakeCollector()
    ROOT.check({"server": {"a": {"transport": "http", "url": url}}}, (), book)
    assert [path for path, *_ in book.mistakes] == ([] if url == "http://a?@" else [("server", "a", "url")])


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_field_is_described() -> None:
    def fields(table: TableType) -> list[Any]:
        found: list[Any] = []
        for one in table.fields.values():
            found.append(one)
            inner = one.kind.table if isinstance(one.kind, TableMapType) else one.kind
            if isinstance(inner, TableType):
                found += fields(inner)
        return found

    assert [one for one in fields(ROOT) if not one.description.strip().endswith((".", "`."))] == []


@pytest.mark.parametrize("name", list(configuration.FILES))
def test_generated_schema_and_reference_are_current(root: Path, name: str) -> None:
    made = configuration.FILES[name]()
    assert (root / name).read_text(encoding="utf-8") == made, "run `python -m tests.docs.configuration`"


def test_the_schema_file_is_json(root: Path) -> None:
    assert json.loads((root / configuration.SCHEMA).read_text(encoding="utf-8")) == schema()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, "60", True, None, [], {}])
def test_a_time_is_a_number_of_seconds(value: Any) -> None:
    assert refused({"server": {"a": STDIO | {"timeouts": {"tool": value}}}})


def test_a_text_with_an_end_of_line_behind_it_is_another_text() -> None:
    assert not TextType(r"[a-z]+").accepts("a\n")
