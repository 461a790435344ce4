"""Which URLs an elicitation may have, and the errors for the others."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import McpError, UrlElicitation, UrlElicitationRequired
from greenroom.protocol.elicitation_forms import check_id, check_url, new_elicitation_id
from greenroom.protocol.errors import LocalProtocolError

GOOD = (
    "https://example.com",
    "https://example.com/connect?elicitationId=550e8400-e29b&x=%20#top",
    "https://user-pages.example.com:8443/a/b;c=d/(e)!$&'*+,=@:~",
    "https://[2001:db8::1]/",
    "HTTPS://EXAMPLE.COM/",
    "https://xn--bcher-kva.example/",
    "http://localhost/",
    "http://localhost:8000/pay",
    "http://127.0.0.1:9/",
    "http://127.8.9.1/",
    "http://[::1]:80/",
)

BAD = (
    (None, "must be a string"),
    (7, "must be a string"),
    ("", "must be a string"),
    ("/connect", "absolute"),
    ("//example.com/", "absolute"),
    ("example.com/connect", "absolute"),
    ("https:", "absolute"),
    ("https:///path", "absolute"),
    ("https://./", "absolute"),
    ("https:example.com", "absolute"),
    ("ftp://example.com/", "https://"),
    ("javascript:alert(1)", "https://"),
    ("data:text/html,x", "https://"),
    ("file:///etc/passwd", "https://"),
    ("http://example.com/", "example.com is not"),
    ("http://localhost.example.com/", "is not"),
    ("http://10.0.0.1/", "is not"),
    ("http://0.0.0.0/", "is not"),
    ("https://user@example.com/", "not contain a name or password"),
    ("https://user:secret@example.com/", "not contain a name or password"),
    ("https://example.com@evil.example/", "not contain a name or password"),
    ("https://example.com/\n", "percent-encode"),
    ("https://exa\tmple.com/", "percent-encode"),
    ("https://example.com/\x00", "percent-encode"),
    ("https://example.com/\x1b[2J", "percent-encode"),
    ("https://example.com/a b", "percent-encode"),
    (" https://example.com/", "percent-encode"),
    ("https://bücher.example/", "percent-encode"),
    ("https://example.com/\u202egpj.exe", "percent-encode"),
    ("https://example.com/\ud800", "percent-encode"),
    ("https://example.com\\@evil.example/", "percent-encode"),
    ("https://example.com/{id}", "percent-encode"),
    ("https://example.com/%zz", "percent-encode"),
    ("https://example.com/%", "percent-encode"),
    ("https://example.com:99999/", "must be a URL"),
    ("https://[::1/", "must be a URL"),
    ("https://example.com/" + "x" * 8192, "at most 8192"),
)


@pytest.mark.row("SC-06")
@pytest.mark.parametrize("url", GOOD)
def test_where_a_user_may_be_sent(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.row("SC-06")
@pytest.mark.parametrize(("url", "why"), BAD)
def test_refused_urls(url: Any, why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        check_url(url)
    with pytest.raises(LocalProtocolError):
        UrlElicitation("Pay.", url)


@given(st.text())
def test_accepted_urls_are_visible_and_absolute(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.com/{text}", f"http://localhost{text}"):
        try:
            taken = check_url(url)
        except LocalProtocolError:
            continue
        assert taken.isascii()
        assert taken.isprintable()
        assert " " not in taken
        assert taken.lower().startswith(("https://", "http://"))


@pytest.mark.row("SC-06")
def test_elicitation_ids_cannot_be_guessed_and_are_unique() -> None:
    ids = {new_elicitation_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert min(map(len, ids)) >= 32
    assert UrlElicitation("a", "https://b.c").id != UrlElicitation("a", "https://b.c").id


@pytest.mark.parametrize("id", ["", " ", "a b", "é", "a\n", "x" * 257, None, 7])
def test_invalid_elicitation_ids(id: Any) -> None:
    with pytest.raises(LocalProtocolError, match="256 visible"):
        check_id(id)
    with pytest.raises(LocalProtocolError, match="256 visible"):
        UrlElicitation("a", "https://b.c", id)


def test_the_elicitation_id_is_put_into_the_url() -> None:
    page = UrlElicitation("Pay.", "https://pay.example/{elicitation_id}?again={elicitation_id}")
    assert page.url == f"https://pay.example/{page.id}?again={page.id}"
    assert page.id not in repr(page)
    own = UrlElicitation("Pay.", "https://pay.example/?e={elicitation_id}", "e1")
    assert own.to_wire() == {
        "mode": "url",
        "message": "Pay.",
        "url": "https://pay.example/?e=e1",
        "elicitationId": "e1",
    }


@pytest.mark.parametrize("message", ["", "  ", None, 7])
def test_the_elicitation_carries_its_message(message: Any) -> None:
    with pytest.raises(LocalProtocolError, match="tells the user why"):
        UrlElicitation(message, "https://b.c")


@pytest.mark.row("WC-25")
def test_the_error_names_every_page() -> None:
    pages = [UrlElicitation("a", "https://b.c/1", "e1"), UrlElicitation("b", "https://b.c/2", "e2")]
    error = UrlElicitationRequired(pages, "Connect both.")
    assert isinstance(error, McpError)
    assert error.to_wire() == {
        "code": -32042,
        "message": "Connect both.",
        "data": {"elicitations": [page.to_wire() for page in pages]},
    }
    assert UrlElicitationRequired(pages[0]).data == {"elicitations": [pages[0].to_wire()]}
    assert pickle.loads(pickle.dumps(error)) == error
    with pytest.raises(LocalProtocolError, match="at least one"):
        UrlElicitationRequired([])
