"""Attacks on the admin listener over real sockets: what a page elsewhere, another program on this machine, or a guesser can try."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from greenroom.auth import APIKeyAuth
from greenroom.observe.admin_access import SECURITY_HEADERS

from .admin_helpers import running_admin

if TYPE_CHECKING:
    from tests.transports.http.raw_http import HttpResponse

KEY = "k" * 40
CLOSED = (401, 403, 404, 405)


def assert_guarded(response: HttpResponse) -> None:
    for name, value in SECURITY_HEADERS:
        if name != "cache-control":
            assert response.headers[name] == value, name
    assert "server" not in response.headers


async def test_a_link_signs_in_once_and_leaves_no_token_behind(capfd: pytest.CaptureFixture[str]) -> None:
    async with running_admin() as admin:
        printed = capfd.readouterr()
        assert printed.out == ""
        found = re.search(r"observe: http://127\.0\.0\.1:(\d+)(/observe/\?token=([\w-]{43}))\n", printed.err)
        assert found is not None
        assert int(found[1]) == admin.port
        response = await admin.ask("GET", found[2], sec_fetch_site="none")
        assert (response.status, response.headers["location"]) == (303, "/observe/")
        assert found[3] not in str(response.headers) + response.body.decode()
        cookie = response.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/observe/"} <= set(cookie.split("; "))
        assert f"-{admin.port}=" in cookie
        assert response.headers["referrer-policy"] == "same-origin"
        assert response.headers["cache-control"] == "no-store"
        assert (await admin.ask("GET", "/observe/", cookie=cookie.partition(";")[0])).status == 200
        again = await admin.ask("GET", found[2])
        assert again.status == 401
        assert "set-cookie" not in again.headers


async def test_a_token_is_not_used_up_by_what_looks_ahead() -> None:
    async with running_admin() as admin:
        link = admin.link
        for header, value in (("sec_purpose", "prefetch;prerender"), ("purpose", "prefetch"), ("x_moz", "prefetch")):
            assert (await admin.ask("GET", link, **{header: value})).status == 401, header
        assert (await admin.ask("HEAD", link)).status == 401
        assert (await admin.ask("GET", link.replace("/?", "/static/x?"))).status in CLOSED
        assert (await admin.ask("POST", link, b"")).status == 403
        assert (await admin.ask("GET", link)).status == 303


@pytest.mark.parametrize(
    "path", ["/", "/observe/", "/metrics", "/livez", "/readyz", "/observe/static/x.js", "/nothing"]
)
async def test_a_name_that_was_rebound_to_this_machine_is_refused(path: str) -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        for host in ("evil.example", f"evil.example:{admin.port}", "127.0.0.1.evil.example", "127.0.0.1@evil.example"):
            response = await admin.ask("GET", path, host=host, cookie=admin.cookie)
            assert response.status == 403, (host, response)
            assert_guarded(response)
            assert b"weather" not in response.body


async def test_pages_of_other_sites_can_load_nothing_and_send_nothing() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        for site in ("cross-site", "same-site"):  # another port of this machine is the same site
            loaded = await admin.ask("GET", "/observe/", **{**admin.own, "sec_fetch_site": site})
            assert loaded.status == 403
            sent = await admin.ask("POST", "/observe/sign-out", b"", **{**admin.posted, "sec_fetch_site": site})
            assert sent.status == 403
        own = f"http://127.0.0.1:{admin.port}"
        for origin in ("null", "http://evil.example", f"{own}1", "http://127.0.0.1", f"{own}.evil.example", ""):
            sent = await admin.ask("POST", "/observe/sign-out", b"", **{**admin.posted, "origin": origin})
            assert sent.status == 403, origin
        without = {name: value for name, value in admin.posted.items() if name not in ("origin", "sec_fetch_site")}
        assert (await admin.ask("POST", "/observe/sign-out", b"", **without)).status == 403
        for token in ("", "x", admin.csrf[:-1], f"{admin.csrf}x", "\u00e4"):
            sent = await admin.ask("POST", "/observe/sign-out", b"", **{**admin.posted, "x_csrf_token": token})
            assert sent.status == 403, token
        assert (await admin.ask("GET", "/observe/", **admin.own)).status == 200  # none of it signed the viewer out
        assert (await admin.ask("POST", "/observe/sign-out", b"", **admin.posted)).status == 200
        assert (await admin.ask("GET", "/observe/", **admin.own)).status == 401


async def test_the_token_of_a_form_counts_as_the_header_does() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        headers = {**admin.posted, "x_csrf_token": "", "content_type": "application/x-www-form-urlencoded"}
        assert (await admin.ask("POST", "/observe/sign-out", b"csrf=x", **headers)).status == 403
        assert (await admin.ask("POST", "/observe/sign-out", f"csrf={admin.csrf}".encode(), **headers)).status == 200


async def test_one_viewers_token_is_of_no_use_to_another() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        first, theirs = admin.cookie, admin.csrf
        await admin.sign_in()
        assert admin.cookie != first
        sent = await admin.ask("POST", "/observe/sign-out", b"", **{**admin.posted, "x_csrf_token": theirs})
        assert sent.status == 403


@pytest.mark.parametrize(
    "path",
    [
        "/observe/static/../admin_listener.py",
        "/observe/static/..%2fadmin_listener.py",
        "/observe/static/%2e%2e/%2e%2e/server.py",
        "/observe/static/..\\admin_listener.py",
        "/observe/static//etc/passwd",
        "/observe/static/%00",
        "/observe/../livez/../observe/static/../../../../../../etc/passwd",
    ],
)
async def test_no_file_outside_of_the_static_ones_is_served(path: str) -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        response = await admin.ask("GET", path, **admin.own)
        assert response.status in (400, 404), response
        assert b"import" not in response.body
        assert b"root:" not in response.body


async def test_every_answer_has_the_headers_that_a_browser_obeys() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        for method, path in (
            ("GET", "/observe/"),
            ("GET", "/livez"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
            ("GET", "/nothing"),
            ("DELETE", "/livez"),
            ("OPTIONS", "/observe/"),
            ("GET", "/observe/nothing"),
        ):
            response = await admin.ask(method, path, **admin.own)
            assert_guarded(response)
            assert "access-control-allow-origin" not in response.headers
        policy = dict(SECURITY_HEADERS)["content-security-policy"]
        assert "unsafe" not in policy
        assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy.split("; "))


async def test_guessers_are_slowed_down_and_do_not_lock_the_user_out() -> None:
    async with running_admin() as admin:
        client = await admin.client()
        responses = [await client.ask("GET", f"/observe/?token=guess{guess}", host="127.0.0.1") for guess in range(30)]
        told = [response.status for response in responses]
        assert told[:20] == [401] * 20
        assert set(told[20:]) == {429}
        assert int(responses[-1].headers["retry-after"]) > 0
        assert (await admin.ask("GET", admin.link)).status == 303


async def test_requests_are_bounded_in_size() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        large = b"csrf=" + b"x" * (300 * 1024)
        headers = {**admin.posted, "x_csrf_token": "", "content_type": "application/x-www-form-urlencoded"}
        assert (await admin.ask("POST", "/observe/sign-out", large, **headers)).status == 413
        client = await admin.client()
        await client.send(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n")
        assert (await client.head()).status == 431


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"a&" * 100_000, "application/x-www-form-urlencoded", 413),
        (b"csrf=\xff", "application/x-www-form-urlencoded", 400),
        (b"--b\r\n\r\n--b--\r\n", "multipart/form-data; boundary=b", 415),
    ],
)
@pytest.mark.parametrize("path", ["/observe/sign-in", "/observe/sign-out"])
async def test_forms_that_no_page_sends_are_refused_before_they_are_read(
    path: str, body: bytes, kind: str, status: int
) -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        headers = {**admin.posted, "x_csrf_token": "", "content_type": kind}
        assert (await admin.ask("POST", path, body, **headers)).status == status


async def test_a_cookie_that_another_port_has_set_does_not_sign_the_viewer_out() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        name = admin.cookie.partition("=")[0]
        tossed = {**admin.own, "cookie": f"{name}=tossed; {admin.cookie}"}
        assert (await admin.ask("GET", "/observe/", **tossed)).status == 200
        full = {**admin.own, "cookie": f"{f'{name}=tossed; ' * 100}{admin.cookie}"}
        assert (await admin.ask("GET", "/observe/", **full)).status == 401


async def test_websockets_and_other_methods_are_refused() -> None:
    async with running_admin() as admin:
        await admin.sign_in()
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec_websocket_version": "13"}
        response = await admin.ask("GET", "/observe/", **admin.own, **upgrade, sec_websocket_key="x" * 16)
        assert response.status == 403
        for method in ("PUT", "DELETE", "TRACE", "PATCH"):
            assert (await admin.ask(method, "/observe/", **admin.own)).status in CLOSED


# --- with credentials


async def test_with_auth_every_page_asks_for_the_credential_and_its_scope() -> None:
    keys = {KEY: {"subject": "ada", "scopes": ["observe"]}, "w" * 40: {"subject": "bob", "scopes": ["x"]}}
    auth = APIKeyAuth(keys)
    async with running_admin(auth=auth, scope="observe", acts=True, act_scope="operate") as admin:
        assert "token=" not in admin.part.new_link()
        for path in ("/observe/", "/metrics", "/observe/nothing"):
            refused = await admin.ask("GET", path)
            assert refused.status == 401
            assert "www-authenticate" in refused.headers
            assert (await admin.ask("GET", path, x_api_key="wrong")).status == 401
            assert (await admin.ask("GET", path, x_api_key="w" * 40)).status == 403
        assert (await admin.ask("GET", "/observe/", x_api_key=KEY)).status == 200
        assert (await admin.ask("GET", "/livez")).status == 200
        # What a program may read with its credential, it may not do with it: that takes a browser's session.
        sent = await admin.ask("POST", "/observe/sign-out", b"", x_api_key=KEY, **admin.own)
        assert sent.status == 403


async def test_a_browser_signs_in_with_a_form_and_may_act_only_with_the_scope_for_it() -> None:
    tokens = {
        KEY: {"subject": "ada", "scopes": ["observe"]},
        "o" * 40: {"subject": "op", "scopes": ["observe", "operate"]},
    }
    async with running_admin(auth=APIKeyAuth(tokens), scope="observe", acts=True, act_scope="operate") as admin:
        form = {"content_type": "application/x-www-form-urlencoded"}
        own = {"host": f"127.0.0.1:{admin.port}", "sec_fetch_site": "same-origin", **form}
        page = {**own, "origin": f"http://127.0.0.1:{admin.port}"}
        assert (await admin.ask("POST", "/observe/sign-in", f"credential={KEY}".encode(), **own)).status == 403
        assert (await admin.ask("POST", "/observe/sign-in", b"credential=wrong", **page)).status == 401
        rights: list[bool] = []
        for key in tokens:
            response = await admin.ask("POST", "/observe/sign-in", f"credential={key}".encode(), **page)
            assert response.status == 303
            assert key not in str(response.headers)
            cookie = response.headers["set-cookie"].partition(";")[0]
            assert (await admin.ask("GET", "/observe/", cookie=cookie)).status == 200
            viewer = admin.part.access.viewer_of(cookie.partition("=")[2], asyncio.get_running_loop().time())
            assert viewer is not None
            rights.append(viewer.may_act)
        assert rights == [False, True]
