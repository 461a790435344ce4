"""The loopback redirect page over real sockets, and how users get to the authorization URL."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import socket
import sys
import threading
import webbrowser
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

from greenroom.auth import DeviceCode, OAuth, SignInError, open_browser, paste_back, show_code
from greenroom.auth.client.interactive_flows import (
    MOST_CONNECTIONS,
    LoopbackRedirect,
    _RedirectConnection,
    html_page,
    parse_authorization_response,
)

from .oauth_world import CHALLENGE, URL, World

if TYPE_CHECKING:
    from greenroom.auth.client.interactive_flows import AuthorizationResponse


async def visit(uri: str, target: str, method: str = "GET", raw: bytes | None = None) -> tuple[int, str, str]:
    parts = urlsplit(uri)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(raw if raw is not None else f"{method} {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    if raw is not None:
        writer.write_eof()
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, head, body


@pytest.mark.row("CB-06")
async def test_a_response_with_the_right_state_is_accepted_and_no_other() -> None:
    async with LoopbackRedirect() as listener:
        uri = listener.redirect_uri
        assert urlsplit(uri).hostname == "127.0.0.1"
        response = asyncio.create_task(listener.response("s1"))
        await asyncio.sleep(0)
        assert (await visit(uri, "/callback?code=evil&state=other"))[0] == 400
        assert (await visit(uri, "/callback?code=evil"))[0] == 400
        assert (await visit(uri, "/callback?code=evil&state=s1&state=s1"))[0] == 400
        assert (await visit(uri, "/favicon.ico"))[0] == 404
        assert (await visit(uri, "/callback?code=a&state=s1", "POST"))[0] == 404
        assert (await visit(uri, "", raw=b"\x16\x03\x01 nonsense\r\n\r\n"))[0] == 404
        assert (await visit(uri, "", raw=b"GET / HTTP/1.1\r\n" + b"a" * 40_000))[0] == 431
        assert not response.done()
        status, head, body = await visit(uri, "/callback?code=good&state=s1&iss=https%3A%2F%2Fidp.example")
        assert status == 200
        assert "default-src 'none'" in head
        assert "no-store" in head
        assert "good" not in body
        found: AuthorizationResponse = await response
        assert (found.code, found.issuer, found.error) == ("good", "https://idp.example", None)
        assert (await visit(uri, "/callback?code=again&state=s1"))[0] == 400
    with pytest.raises(ConnectionRefusedError):
        await visit(uri, "/callback")


@pytest.mark.parametrize("said", [b"", b"G", b"GET /callback?code=c&state=other HTTP/1.1\r\n"])
async def test_silent_connections_do_not_keep_the_browser_out(said: bytes) -> None:
    """A local program opens connections as fast as they are closed, before, between and after those of the browser."""
    async with LoopbackRedirect() as listener:
        response = asyncio.create_task(listener.response("s1"))
        await asyncio.sleep(0)
        parts = urlsplit(listener.redirect_uri)
        held = [socket.create_connection((parts.hostname, parts.port)) for _ in range(60)]
        for _ in range(8):
            for _ in range(60):
                each = socket.create_connection((parts.hostname, parts.port))
                each.sendall(said)
                held.append(each)
            assert (await visit(listener.redirect_uri, "/callback?code=x&state=forged"))[0] == 400
            assert len(listener._open) <= MOST_CONNECTIONS
        assert (await visit(listener.redirect_uri, "/callback?code=good&state=s1"))[0] == 200
        assert (await response).code == "good"
        for each in held:
            each.close()


async def test_a_silent_connection_is_answered_before_it_is_closed() -> None:
    async with LoopbackRedirect() as listener:
        parts = urlsplit(listener.redirect_uri)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        began = asyncio.get_running_loop().time()
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        assert 5 <= asyncio.get_running_loop().time() - began < 6
        writer.close()


async def test_the_page_does_not_wait_for_silent_connections_when_it_closes() -> None:
    async with LoopbackRedirect() as listener:
        parts = urlsplit(listener.redirect_uri)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        await visit(listener.redirect_uri, "/")
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() == began
    with contextlib.suppress(ConnectionResetError):  # which is how it may be closed
        assert await reader.read() == b""
    writer.close()


async def test_a_head_in_single_bytes_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searched bytes are not searched again: the cost of a head is linear in its length, however it is split."""
    searched = 0

    class Counted(bytearray):
        def find(self, sub: bytes, start: int = 0, *_: int) -> int:  # type: ignore[override]
            nonlocal searched
            searched += len(self) - start
            return super().find(sub, start)

    listener = LoopbackRedirect()
    connection = _RedirectConnection(listener)
    connection._head = Counted()
    said: list[str] = []

    def say(status: str, title: str, text: str) -> None:
        said.append(status)

    monkeypatch.setattr(connection, "_send_page", say)
    head = b"GET / HTTP/1.1\r\nx: " + b"a" * 10_000 + b"\r\n\r\n"
    for byte in head:
        connection.data_received(bytes((byte,)))
    assert said == ["404 Not Found"]
    assert searched <= 4 * len(head)


def test_pages_for_the_browser_are_escaped() -> None:
    assert "<script>" not in html_page("<script>x</script>", '"><img onerror=1>')
    assert "&lt;script&gt;" in html_page("<script>", "")


SCRIPTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "{title}{text}{0}",
    "</title><svg onload=alert(1)>",
    "\r\nset-cookie: a=b\r\n\r\n<script>",
]
HARMFUL = ("alert", "onerror", "onload", "{title}", "set-cookie", "<script", "<svg", "<img")
PLACES = [
    "/callback?code=c&state=s1&error={}",
    "/callback?state=s1&error=access_denied&error_description={}",
    "/callback?state=s1&error=access_denied&error_uri={}",
    "/callback?code={}&state=s1",
    "/callback?code=c&state={}",
    "/callback?code=c&state=s1&iss={}",
    "/callback?code=c&state=s1&{}=x",
    "/{}",
]


@pytest.mark.row("CB-06")
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("place", PLACES)
async def test_parameters_of_a_response_are_never_shown_to_the_browser(place: str, script: str) -> None:
    """The page contains only fixed text, whatever the address contains, and no script could run in it."""
    async with LoopbackRedirect() as listener:
        response = asyncio.create_task(listener.response("s1"))
        await asyncio.sleep(0)
        for written in (place.format(quote(script)), place.format(quote(quote(script)))):
            status, head, body = await visit(listener.redirect_uri, written)
            assert status in (200, 400, 404)
            assert not [each for each in HARMFUL if each in (head + body).lower()]
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
            assert headers.keys() == {
                "content-type",
                "cache-control",
                "referrer-policy",
                "content-security-policy",
                "x-content-type-options",
                "connection",
                "content-length",
            }
            policy = headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} == set(
                policy
            )
            assert (headers["x-content-type-options"], headers["content-type"]) == (
                "nosniff",
                "text/html; charset=utf-8",
            )
        response.cancel()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_page_escapes_all_that_it_is_made_of(script: str) -> None:
    whole = html_page(script, script)
    assert whole.count("<") == html_page("", "").count("<")
    assert not set(re.findall(r"<(\w+)", whole)) - {"html", "head", "meta", "title", "body", "h1", "p"}


@pytest.mark.row("CB-06")
async def test_the_page_is_on_the_loopback_and_for_its_own_login_alone() -> None:
    """A second login of the same program has a page, a port and a state of its own."""
    async with LoopbackRedirect() as one, LoopbackRedirect() as other:
        for each in (one, other):
            listening: Any = each._acceptor
            assert {sock.getsockname()[0] for sock in listening.sockets} == {"127.0.0.1"}
        waits = [asyncio.create_task(one.response("state-1")), asyncio.create_task(other.response("state-2"))]
        await asyncio.sleep(0)
        assert (await visit(one.redirect_uri, "/callback?code=c&state=state-2"))[0] == 400
        assert (await visit(other.redirect_uri, "/callback?code=c&state=state-1"))[0] == 400
        for verb in ("POST", "PUT", "OPTIONS", "HEAD"):
            assert (await visit(one.redirect_uri, "/callback?code=c&state=state-1", verb))[0] == 404
        assert not any(each.done() for each in waits)
        assert (await visit(one.redirect_uri, "/callback?code=c&state=state-1"))[0] == 200
        assert (await waits[0]).code == "c"
        waits[1].cancel()


def test_repeated_response_parameters_are_ignored() -> None:
    assert parse_authorization_response("code=a&code=b&state=s").code is None
    assert parse_authorization_response("&".join(f"a{n}=1" for n in range(100))).state is None
    assert parse_authorization_response("error=x&error_description=%3Cb%3E").description == "<b>"


@pytest.mark.row("CB-08")
async def test_a_port_can_be_pinned_and_one_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SignInError, match=f"port {port}.*pin another port"):
            async with LoopbackRedirect(port):
                pass
    async with LoopbackRedirect(port) as listener:
        assert urlsplit(listener.redirect_uri).port == port


@pytest.mark.row("CB-06")
@pytest.mark.row("CB-08")
async def test_a_user_comes_back_by_themselves_to_the_port_that_was_pinned() -> None:
    world = World()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen: list[tuple[int, str, str]] = []
    tasks: list[asyncio.Task[None]] = []

    async def come_back(url: str) -> None:
        location = await world.idp.browse(url)
        parts = urlsplit(location)
        assert parts.port == port
        seen.append(await visit(location, f"{parts.path}?{urlencode({'state': 'forged', 'code': 'x'})}"))
        seen.append(await visit(location, f"{parts.path}?{parts.query}"))

    async def browser(url: str, /) -> str | None:
        tasks.append(asyncio.create_task(come_back(url)))
        return None

    credentials = OAuth(browser=browser, fetch=world.fetch, port=port).credentials(URL)
    assert await credentials.refused(401, CHALLENGE, {})
    await asyncio.gather(*tasks)
    assert [status for status, _, _ in seen] == [400, 200]
    assert (await credentials.headers()).keys() == {"authorization"}


async def test_a_browser_that_does_not_come_back_times_out() -> None:
    world = World()

    async def never_returns(url: str, /) -> str | None:
        return None

    with pytest.raises(SignInError, match="the browser did not come back from signing in within 20 s"):
        await OAuth(browser=never_returns, fetch=world.fetch, timeout=20).credentials(URL).refused(401, CHALLENGE, {})


@pytest.mark.parametrize("pasted", ["", "nonsense", "http://[::1", "http://127.0.0.1/callback?code=x"])
async def test_a_pasted_response_is_checked_against_the_request(pasted: str) -> None:
    async def paste(url: str, /) -> str | None:
        return pasted

    with pytest.raises(SignInError) as caught:
        await OAuth(browser=paste, fetch=World().fetch).credentials(URL).refused(401, CHALLENGE, {})
    assert caught.value.step == "authorization"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://a.example/`id`", "--help", "https://a/\n"]
)
async def test_no_browser_is_given_what_is_no_web_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    for way in (open_browser, paste_back):
        with pytest.raises(SignInError, match="the user is not sent there"):
            await way(url)
    assert opened == []


async def test_the_browser_is_opened_and_the_address_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[str] = loop.create_future()

    def note(url: str) -> None:
        loop.call_soon_threadsafe(opened.set_result, url)
        raise webbrowser.Error("there is none")

    monkeypatch.setattr(webbrowser, "open", note)
    assert await open_browser("https://idp.example/a?b=c") is None
    assert await opened == "https://idp.example/a?b=c"
    said = capsys.readouterr()
    assert "https://idp.example/a?b=c" in said.err
    assert said.out == ""


@pytest.mark.row("CB-22")
async def test_an_address_is_pasted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()

    async def paste(url: str, /) -> str | None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"  {await world.idp.browse(url)}\n"))
        return await paste_back(url)

    credentials = OAuth(browser=paste, fetch=world.fetch).credentials(URL)
    assert await credentials.refused(401, CHALLENGE, {})
    assert "Paste its whole address" in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError("the terminal is gone"), ValueError("I/O operation on closed file")])
async def test_without_a_readable_stdin_no_user_is_signed_in(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise error

    world = World()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=gone))
    credentials = OAuth(browser=paste_back, fetch=world.fetch).credentials(URL)
    with pytest.raises(SignInError):
        await credentials.refused(401, CHALLENGE, {})
    assert not world.tokens()


async def test_a_line_that_is_typed_too_late_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = threading.Event()

    def late() -> str:
        assert typed.wait(60)
        return "too late"

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=late))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await paste_back("https://idp.example/a")
    readers = [each for each in threading.enumerate() if each.name == "greenroom paste"]
    assert readers
    typed.set()
    for each in readers:
        await asyncio.to_thread(each.join, 60)
    await asyncio.sleep(0)  # a line for a future that was cancelled would be an error of the loop


async def test_a_code_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    await show_code(DeviceCode("https://idp.example/device", "ABCD-EFGH", None, 600.0))
    said = capsys.readouterr()
    assert "https://idp.example/device" in said.err
    assert "ABCD-EFGH" in said.err
    assert said.out == ""


async def test_a_user_is_sent_with_where_to_come_back_to() -> None:
    world = World()
    await OAuth(browser=world.browse, fetch=world.fetch).credentials(URL).refused(401, CHALLENGE, {})
    [redirect_uri] = parse_qs(urlsplit(world.visits[0]).query)["redirect_uri"]
    assert redirect_uri.startswith("http://127.0.0.1:")
    assert redirect_uri.endswith("/callback")
