"""URI templates: matching, values that escape their folder, and linear time."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.errors import GreenroomError
from greenroom.protocol.uri_templates import URI_LIMIT, BadTemplate, TemplateVariable, UriTemplate, escapes_folder


def match(template: str, uri: str, **options: Any) -> dict[str, str] | None:
    return UriTemplate(template, **options).match(uri)


@pytest.mark.row("RG-17")
@pytest.mark.row("RG-18")
@pytest.mark.row("RG-19")
@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        # The last variable takes the rest; one in the middle ends where the following text begins, and at a slash.
        ("file:///{path}", "file:///etc/hosts", {"path": "etc/hosts"}),
        ("weather://{city}", "weather://Oslo", {"city": "Oslo"}),
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("test://template/{id}/data", "test://template/1/2/data", None),
        ("test://template/{id}/data", "test://template/123/data/", None),
        ("{a}-{b}", "x-y-z", {"a": "x", "b": "y-z"}),
        ("{a}-{b}-{c}", "1-2-3-4", {"a": "1", "b": "2", "c": "3-4"}),
        ("{a}-{b}", "x/y-z", None),
        ("x:{a}.txt", "x:one.txt.txt", {"a": "one.txt"}),
        ("x:{owner}/{name}", "x:a/b/c", {"owner": "a", "name": "b/c"}),
        # `+` and `*` match as many segments as possible.
        ("files://{+path}", "files:///etc/hosts", {"path": "/etc/hosts"}),
        ("x:{+path}/raw", "x:a/raw/b/raw", {"path": "a/raw/b"}),
        ("x:{path*}/{name}", "x:a/b/c", {"path": "a/b", "name": "c"}),
        ("x:{+a}/x/{b}", "x:p/x/q/x/r", {"a": "p/x/q", "b": "r"}),
        ("repo://{owner}/{name}/blob/{+path}", "repo://a/b/blob/c/d.py", {"owner": "a", "name": "b", "path": "c/d.py"}),
        # Empty values never match.
        ("file:///{path}", "file:///", None),
        ("x:{a}/b", "x:/b", None),
        ("x:{+a}/b", "x:/b", None),
        ("{a}-{b}", "-b", None),
        ("{a}-{b}", "a-", None),
        ("{a}", "", None),
        # Values are decoded, once.
        ("x:{a}", "x:a%20b%2Bc+d", {"a": "a b+c+d"}),
        ("x:{a}/y", "x:b%2Fc/y", {"a": "b/c"}),
        ("x:{a}", "x:100%2525", {"a": "100%25"}),
        ("x:{a}", "x:%C3%A9", {"a": "é"}),
        ("x:{a}", "x:é", {"a": "é"}),
        ("x:{a}", "x:100%", {"a": "100%"}),
        ("x:{a}", "x:%zz", {"a": "%zz"}),
        ("x:{a}", "x:%ff", None),
        ("x:{a}", "x:%c0%ae", None),
        ("x:{a}", "x:\ud800", None),
        # Letters are literal.
        ("X:{a}", "x:1", None),
        ("é:{a}:ü", "é:ö:ü", {"a": "ö"}),
        ("x:(.*)[a]{b}$", "x:(.*)[a]1$", {"b": "1"}),
        ("plain", "plain", {}),
        ("plain", "plains", None),
        ("x:{a.b_1}", "x:1", {"a.b_1": "1"}),
    ],
)
def test_a_uri_matches_a_template_with_these_values(template: str, uri: str, expected: dict[str, str] | None) -> None:
    assert match(template, uri) == expected


@pytest.mark.row("RG-19")
def test_with_segments_the_last_variable_stays_in_its_segment() -> None:
    assert match("file:///{path}", "file:///etc/hosts", segments=True) is None
    assert match("file:///{path}", "file:///hosts", segments=True) == {"path": "hosts"}
    assert match("file:///{+path}", "file:///etc/hosts", segments=True) == {"path": "etc/hosts"}


@pytest.mark.row("RG-18")
@pytest.mark.parametrize(
    "value",
    [
        *(
            "..",
            "../etc/passwd",
            "a/../../etc",
            "a/..",
            "..%2f",
            "..%2fetc%2fpasswd",
            "%2e%2e/etc",
            "%2E%2E%2Fetc",
            ".%2e/x",
        ),
        *("%252e%252e%252fetc", "..%252fetc", "%25252e%25252e%25252f", "a%252f..%252fb", "%25%32%65%25%32%65/x"),
        *("..\\etc", "..%5cetc", "a%5c..%5cb", "%255c..%255c", " ../x", "..%20/x", "%2e%2e%09/x"),
        *("a%00", "%00", "a%2500b", "a\0b"),
        *("/etc/passwd", "%2fetc/passwd", "%252fetc", "\\etc", "%5cetc", "C:/x", "c:%5Cx", "C%3A%5Cx"),
        ("%" + "25" * 20 + "2e") * 2 + "/x",
    ],
)
def test_a_value_that_escapes_its_folder_does_not_match(value: str) -> None:
    assert match("file:///{path}", "file:///" + value) is None
    assert match("x:{a}/end", f"x:{value}/end") is None
    assert escapes_folder(unquote(value))


def test_a_value_that_only_resembles_an_escape_matches() -> None:
    for value in ("a..b", "...", "main..feature", ".hidden", "a/.../b", "..a", "b..", "a/./b", "C:x", "50%25", "x:y"):
        assert match("file:///{path}", f"file:///{value}") == {"path": unquote(value)}
        assert not escapes_folder(unquote(value))


@pytest.mark.row("RG-19")
def test_a_reserved_variable_may_be_absolute_but_not_escape() -> None:
    assert match("files://{+path}", "files:///a") == {"path": "/a"}
    assert match("files://{path*}", "files:///a") is None
    for value in ("/../a", "/a/%2e%2e/b", "..", "/a%00", "/%252e%252e/"):
        assert match("files://{+path}", "files://" + value) is None


@pytest.mark.row("RG-19")
@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a{b", "the '{' at 1 is never closed"),
        ("a{b{c}", "{b{c} does not name a variable"),
        ("a}b", "a '}' at 1 that nothing opens"),
        ("a{b}}", "a '}' at 4 that nothing opens"),
        ("{a}{b}", "a text is missing between 'a' and 'b'"),
        ("{a}/{a}", "'a' occurs twice"),
        ("{}", "does not name a variable"),
        ("{+}", "does not name a variable"),
        ("{a b}", "does not name a variable"),
        ("{1a}", "does not name a variable"),
        ("{a,b}", "does not name a variable"),
        ("{é}", "does not name a variable"),
        *(
            (text, "is not supported")
            for text in ("{?q}", "{&q}", "{/a}", "{/id*}", "{#a}", "{.a}", "{;a}", "{a:3}", "{=a}", "{a**}")
        ),
    ],
)
def test_a_malformed_template_is_refused_when_it_is_made(template: str, said: str) -> None:
    with pytest.raises(BadTemplate, match=re.escape(said)) as caught:
        UriTemplate(template)
    assert isinstance(caught.value, GreenroomError | ValueError)
    assert repr(template) in str(caught.value)


@given(st.text("{}+*?a/b,:.-é", max_size=12))
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        template = UriTemplate(text)
    except BadTemplate as refused:
        assert repr(text) in str(refused)
        return
    template.match(text)
    assert len(template.names) == text.count("{")


def test_a_template_is_a_value() -> None:
    assert UriTemplate("a:{b}") == UriTemplate("a:{b}") != UriTemplate("a:{b}", segments=True)
    assert len({UriTemplate("a:{b}"), UriTemplate("a:{b}")}) == 1
    assert repr(UriTemplate("a:{b}")) == "UriTemplate('a:{b}')"
    assert UriTemplate("a:{b}/{+c}").names == ("b", "c")
    assert UriTemplate("a") != "a"


# --- compared with an exhaustive matcher

_LITERALS = st.text("ab/-", min_size=1, max_size=3)


@st.composite
def templates(draw: st.DrawFn) -> str:
    parts: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        parts.append(draw(_LITERALS) if number or draw(st.booleans()) else "")
        parts.append(draw(st.sampled_from(["{v%d}", "{+v%d}", "{v%d*}"])) % number)
    return "".join(parts) + draw(_LITERALS | st.just(""))


def all_cuts(parts: tuple[str | TemplateVariable, ...], text: str) -> list[tuple[str, ...]]:
    """All ways to split the text among the variables."""
    if not parts:
        return [()] if not text else []
    first, rest = parts[0], parts[1:]
    if isinstance(first, str):
        return all_cuts(rest, text[len(first) :]) if text.startswith(first) else []
    return [
        (text[:size], *others)
        for size in range(1, len(text) + 1)
        if first.crosses or "/" not in text[:size]
        for others in all_cuts(rest, text[size:])
    ]


@given(templates(), st.text("ab/-", max_size=12), st.booleans())
@example("{+v0}a{v1}", "aaaa", False)  # noqa: FBT003
@example("{v0}-{v1}b", "a-b-ab", True)  # noqa: FBT003
def test_matching_agrees_with_an_exhaustive_matcher(text: str, uri: str, segments: bool) -> None:  # noqa: FBT001
    template = UriTemplate(text, segments=segments)
    cuts = all_cuts(template.parts, uri)
    found = template.match(uri)
    if not cuts:
        assert found is None
        return
    variables = [part for part in template.parts if isinstance(part, TemplateVariable)]
    # The first variable is matched first, as long or as short as possible; then the next one.
    best = min(
        cuts, key=lambda cut: [-len(v) if part.greedy else len(v) for v, part in zip(cut, variables, strict=True)]
    )
    if any(escapes_folder(value, rooted=not part.reserved) for value, part in zip(best, variables, strict=True)):
        assert found is None
    else:
        assert found == dict(zip(template.names, best, strict=True))


_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@given(_VALUES, _VALUES, st.sampled_from(["x://{a}/y/{b}", "x:{a}/{+b}", "{a}/{b*}", "x://{a}/y/{b}/z"]))
def test_an_expanded_uri_matches_its_values(a: str, b: str, text: str) -> None:
    template = UriTemplate(text)
    values = {"a": a, "b": b}
    variables = {part.name: part for part in template.parts if isinstance(part, TemplateVariable)}
    expected = None if any(escapes_folder(v, rooted=not variables[k].reserved) for k, v in values.items()) else values
    assert template.match(template.expand(values)) == expected


def test_an_expanded_value_stays_in_its_place() -> None:
    assert UriTemplate("x:{a}/{b}").expand({"a": "1/2 3", "b": "4/5?"}) == "x:1%2F2%203/4/5%3F"
    assert UriTemplate("x:{+a}").expand({"a": "/1/2?3=é"}) == "x:/1/2?3=%C3%A9"
    for values in ({}, {"a": ""}):
        with pytest.raises(BadTemplate, match="no value for 'a'"):
            UriTemplate("x:{a}").expand(values)


@given(st.text(max_size=60), st.sampled_from(["x:{a}", "{a}", "{a}/{+b}", "{a*}-{b}", "file:///{path}"]))
def test_any_uri_can_be_matched(uri: str, template: str) -> None:
    for value in (match(template, uri) or {}).values():
        assert value
        assert "\0" not in value
        assert ".." not in value.replace("\\", "/").split("/")


# --- time

_MANY = "{+a}a{+b}a{+c}a{+d}a{+e}a{+f}a{+g}b{h}x"


@pytest.mark.parametrize(
    ("template", "unit", "end"),
    [
        (_MANY, "a", "x"),
        (_MANY, "a", "bax"),
        (_MANY, "ab", "y"),
        ("{a}-{b}-{c}-{d}-{e}/x", "-", "/x"),
        ("{a}-{b}-{c}-{d}-{e}", "-/", ""),
        ("{+a}/{+b}/{+c}/{d}", "/", ""),
        ("{+a}" + "ab" * 50 + "{+b}", "ab" * 49 + "a", "x"),
        ("{a*}%{b*}", "%25", "x"),
        ("{+a}/x", "%25", "2e%2e/x"),
        ("{a}", "%", "25"),
        ("{a}", "../", "x"),
        ("{a}", "/", "x"),
        ("{a}", " ", ".."),
    ],
)
def test_no_string_takes_long(template: str, unit: str, end: str) -> None:
    uri = unit * ((URI_LIMIT - 200) // len(unit.encode())) + end
    compiled = UriTemplate(template)
    begun = time.process_time()
    compiled.match(uri)
    assert time.process_time() - begun < 0.25  # 5 ms here, for 64 KB; doubling a string may not square this


def test_a_uri_without_an_end_is_no_match() -> None:
    assert match("x:{+a}", "x:" + "a" * (URI_LIMIT - 2)) is not None
    assert match("x:{+a}", "x:" + "a" * (URI_LIMIT - 1)) is None
    assert match("x:{+a}", "x:" + "é" * URI_LIMIT) is None
