"""The grammar of mentions, their words, and the expansion of templates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.mentions.mention_reader import (
    PartialMention,
    TemplateWordsError,
    expand,
    mentions,
    partial_mention,
    placeholders,
    quoted_as_typed,
    words_after,
)
from greenroom.protocol.uri_templates import UriTemplate


@pytest.mark.row("CB-15")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@git:readme", ["@git:readme"]),
        ("see @git:readme.", ["@git:readme"]),
        ("see (@git:readme) and @hub:issue 12", ["@git:readme", "@hub:issue"]),
        ("@files:file:///etc/hosts, please", ["@files:file:///etc/hosts"]),
        ('@git:"release notes" now', ["@git:release notes"]),
        ("@git:'a b'", ["@git:a b"]),
        ("ada@example.org:22", []),
        ("@git", []),
        ("@git: readme", []),
        ("a@b:c @d:e", ["@d:e"]),
        ("@" + "x" * 65 + ":y", []),
    ],
)
def test_mentions_are_found_in_a_text(text: str, found: list[str]) -> None:
    assert [str(each) for each in mentions(text)] == found


@pytest.mark.parametrize(
    ("behind", "most", "words"),
    [
        (" 12 ada", 2, ["12", "ada"]),
        (" 12 ada", 1, ["12"]),
        (' "a b" c', 2, ["a b", "c"]),
        (" one @git:x", 2, ["one"]),
        ("\n12", 1, []),
        (" a", 0, []),
    ],
)
def test_which_words_are_its_own(behind: str, most: int, words: list[str]) -> None:
    assert words_after(f"@a:b{behind}", 4, most)[0] == words


@pytest.mark.parametrize(
    ("behind", "words"),
    [(" 12, please", ["12"]), (" 12 ada.", ["12", "ada"]), (' "a, b" c', ["a, b", "c"]), (" ... x", ["...", "x"])],
)
def test_in_a_sentence_a_comma_ends_the_words(behind: str, words: list[str]) -> None:
    assert words_after(f"@a:b{behind}", 4, 2, sentence=True)[0] == words


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("hello @", PartialMention(None, None, "")),
        ("hello @gi", PartialMention(None, None, "gi")),
        ("hello @git:", PartialMention("git", None, "")),
        ("hello @git:rea", PartialMention("git", None, "rea")),
        ("@git:issue ", PartialMention("git", "issue", "")),
        ("@git:issue ada 1", PartialMention("git", "issue", "1", ("ada",))),
        ('@git:"release n', PartialMention("git", None, '"release n')),
        ('@git:"release notes"', PartialMention("git", None, '"release notes"')),
        ("@git:'release notes' 7", PartialMention("git", "release notes", "7")),
        ('@git:"', PartialMention("git", None, '"')),
        ("hello", None),
        ("ada@git:rea", None),
        ("@gi hello", None),
    ],
)
def test_the_unfinished_mention_is_found(text: str, now: PartialMention | None) -> None:
    assert partial_mention(text) == now


@pytest.mark.row("CB-15")
@pytest.mark.parametrize(
    ("template", "words", "uri"),
    [
        ("github://repos/{owner}/{repo}/issues/{id}", ["ada", "engine", "7"], "github://repos/ada/engine/issues/7"),
        ("x://{a}/{b}/{a}", ["1", "2"], "x://1/2/1"),
        ("file:///{+path}", ["a/b c"], "file:///a/b%20c"),
        ("file:///{path*}", ["a/b"], "file:///a/b"),
        ("x://{a}", ["a/b?c"], "x://a%2Fb%3Fc"),
        ("x://y{?q,r}", ["1", "ä"], "x://y?q=1&r=%C3%A4"),
        ("x://y{/a}{#b}", ["1", "2"], "x://y/1#2"),
        ("x://y", [], "x://y"),
    ],
)
def test_words_fill_in_a_template_in_order(template: str, words: list[str], uri: str) -> None:
    assert expand(template, words) == uri


@pytest.mark.row("CB-15")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs 2 words, <a> <b>, but has 0"),
        (["1"], "needs 2 words, <a> <b>, but has 1"),
        (["1", "2", "3"], "needs 2 words, <a> <b>, but has 3"),
        (["1", ""], "<b> is empty"),
    ],
)
def test_the_wrong_number_of_words_is_told(words: list[str], says: str) -> None:
    with pytest.raises(TemplateWordsError, match=says):
        expand("x://{a}/{b}/{a}", words)


@given(
    st.text(min_size=1).filter(lambda word: not set("/\\\0") & set(word) and ".." not in word and word.isprintable())
)
def test_an_expanded_template_is_parsed_back_by_our_servers(word: str) -> None:
    template = "x://{a}/end"

    assert UriTemplate(template).match(expand(template, [word])) == {"a": word}


@given(st.text(max_size=20) | st.text("ab @\"'.,:/?\n", max_size=8))
def test_a_completion_reads_back_as_the_same_resource(word: str) -> None:
    typed = quoted_as_typed(word)
    if typed is None:
        assert not word or not word.isprintable() or {"'", '"'} <= set(word)
        return
    found = mentions(f"see @git:{typed} now")[0]
    assert found.resource == word
    assert words_after(f"@a:b {typed}, now", 4, 1, sentence=True)[0] == [word]


@given(st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    for each in mentions(text):
        assert text[each.start] == "@"
        assert each.resource in text[each.start : each.end]
    partial_mention(text)
    placeholders(text)
