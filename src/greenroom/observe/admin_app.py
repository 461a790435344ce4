"""The pages of the admin listener as a Quart application: `/livez`, `/readyz`, `/metrics` and `/observe/`, and the checks of each request.

Each request passes `_admit` before any page sees it, unless its route is in `_OPEN`: a page that is added later is closed.
"""

from __future__ import annotations

import asyncio
import json
from html import escape
from typing import TYPE_CHECKING, Any, Final, cast

from greenroom.auth.auth_info import AuthInfo
from greenroom.supervision import clock, visible
from greenroom.transports.access_log import log_refusal
from greenroom.transports.interfaces import HttpRefusal, Peer
from greenroom.transports.open_connections import host_in, source_of
from greenroom.transports.quart_door import Quart, Response, bound_requests, make_application, redirect, request

from .admin_access import (
    CSRF_FIELD,
    CSRF_HEADER,
    ROOT,
    SAFE_METHODS,
    SECURITY_HEADERS,
    TOKEN,
    TooManyGuesses,
    Viewer,
    is_csrf_token,
    is_local,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.auth.auth_gate import AuthGate
    from greenroom.transports.asgi import App, Message, Receive, Scope, Send

    from .admin_access import AdminAccess
    from .admin_settings import Admin
    from .prometheus_metrics import MetricsPage
    from .readiness import ProgramReadiness

_HEALTH: Final = frozenset({"livez", "readyz"})
_OPEN: Final = frozenset({"livez", "readyz", "metrics", "sign_in", "observer.static"})
"""The routes that need no viewer: they check what they need themselves, or hold nothing of the program."""
_MOST_FIELDS: Final = 1_000
"""The most fields of a form. A body of the largest size that has nothing else would take the loop for a third of a second."""
_LOOKS_AHEAD: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
"""The headers of a browser that loads a page before its user has asked for it."""
_MOST_COOKIES: Final = 8
_PUBLIC: Final = frozenset({"livez", "readyz", "metrics"})
"""The routes whose `Host` does not matter where other machines can reach the listener: they show nothing, or only with credentials in a header."""


class AdminApp:
    """The ASGI application of the admin listener. Quart's application is made for the first request, in a thread."""

    def __init__(
        self,
        admin: Admin,
        access: AdminAccess,
        readiness: ProgramReadiness,
        *,
        gate: AuthGate | None,
        metrics: Callable[[str], Awaitable[MetricsPage]],
        pages: Callable[[], Any],
    ) -> None:
        """`gate` authenticates where `admin.auth` is given, `metrics` writes the metrics, `pages` makes the observer's blueprint."""
        self._admin = admin
        self._access = access
        self._readiness = readiness
        self._gate = gate
        self._metrics = metrics
        self._pages = pages
        self._app: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._app is None:
            self._app = cast("App", await asyncio.to_thread(self.make))
        await self._app(scope, receive, _with_security_headers(send))

    def make(self) -> Quart:
        """The Quart application."""
        app = make_application()
        bound_requests(app, self._admin.http_config)
        app.before_request(self._admit)
        app.add_url_rule("/livez", "livez", self._livez)
        app.add_url_rule("/readyz", "readyz", self._readyz)
        app.add_url_rule("/metrics", "metrics", self._show_metrics)
        app.add_url_rule(f"{ROOT}sign-in", "sign_in", self._sign_in, methods=["POST"])
        app.add_url_rule(f"{ROOT}sign-out", "sign_out", self._sign_out, methods=["POST"])
        app.register_blueprint(self._pages(), url_prefix=ROOT.rstrip("/"))
        return app

    # --- who may

    async def _admit(self) -> Response | None:
        """Refuse the request, or let it go on."""
        endpoint = "" if request.url_rule is None else str(request.url_rule.endpoint)
        if not (endpoint in _PUBLIC and not self._admin.is_loopback) and not self._access.allows_host(
            request.headers.get("host")
        ):
            return _refuse(403, "This listener does not go by the name in Host; if it should, say so in allowed_hosts")
        if endpoint in _HEALTH:
            return None
        headers = _headers()
        if (why := self._access.refusal_of_fetch(request.method, headers)) is not None:
            return _refuse(403, why)
        if request.method not in SAFE_METHODS and (refused := await _refusal_of_body()) is not None:
            return refused
        if endpoint in _OPEN:
            return None
        if request.path == ROOT.rstrip("/"):
            return cast("Response", redirect(ROOT, 308))
        if not request.path.startswith(ROOT):
            return _refuse(404, "There is no such page here: the observer is at /observe/", is_logged=False)
        found = self._viewer() or await self._new_viewer(headers)
        if not isinstance(found, Viewer):
            return found
        self._access.enter(found)
        if request.method in SAFE_METHODS:
            return None
        form: Any = await cast("Any", request).form
        token: str | None = request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD)
        return None if is_csrf_token(found, token) else _refuse(403, "The token of this session is missing or wrong")

    def _viewer(self) -> Viewer | None:
        # Another port of this host can set a cookie of the same name, which must not sign the viewer out: the first that is known counts.
        for cookie in request.cookies.getlist(self._access.cookie_name)[:_MOST_COOKIES]:
            if (found := self._access.viewer_of(cookie, _now())) is not None:
                return found
        return None

    async def _new_viewer(self, headers: dict[str, str]) -> Viewer | Response:
        """A viewer with a link or with credentials; otherwise the page that says how to get in."""
        looks_ahead = any(name in headers for name in _LOOKS_AHEAD)
        may_enter = request.method == "GET" and request.path == ROOT and not looks_ahead
        if self._gate is None:
            token = request.args.get(TOKEN)
            if token is None or not may_enter:
                return self._sign_in_page(401)
            try:
                cookie = self._access.redeem(token, _source(), _now())
            except TooManyGuesses as guesses:
                return _refuse(429, "Too many wrong tokens came from here", ("retry-after", f"{guesses.seconds:.0f}"))
            return self._sign_in_page(401, was_wrong=True) if cookie is None else self._enter_with(cookie)
        found = await self._authenticate(headers)
        if isinstance(found, HttpRefusal):
            return self._sign_in_page(found.status, found)
        if may_enter and headers.get("sec-fetch-mode") == "navigate":
            return self._enter_with(self._sign_in_as(found))
        # A program that shows its credentials with each request needs no session. It cannot act: that takes a session's token.
        return Viewer(_name_of(found))

    async def _authenticate(self, headers: dict[str, str]) -> AuthInfo | HttpRefusal:
        """The caller by its credentials, if it has the scope for viewers."""
        assert self._gate is not None
        peer = Peer("http", _address())
        found = await self._gate.authenticate(request.method, request.path, headers, peer)
        if isinstance(found, HttpRefusal):
            log_refusal(found.why or "Refused by the admin listener", status=found.status, peer=peer, path=request.path)
            return found
        return found.auth if isinstance(found.auth, AuthInfo) else AuthInfo(None)

    def _sign_in_as(self, info: AuthInfo) -> str:
        now = _now()
        may_act = self._admin.act_scope is not None and info.has((self._admin.act_scope,))
        expires = None if info.expires_at is None else now + max(0.0, info.expires_at - clock.real_seconds())
        return self._access.sign_in(_name_of(info), now, may_act=may_act, expires=expires)

    def _enter_with(self, cookie: str) -> Response:
        """To the first page, with the cookie and without the token in the address."""
        response = cast("Response", redirect(ROOT, 303))
        response.set_cookie(
            self._access.cookie_name,
            cookie,
            max_age=int(self._admin.session_lifetime),
            path=self._access.cookie_path,
            secure=self._admin.is_tls,
            httponly=True,
            samesite="Strict",
        )
        return response

    # --- signing in and out

    async def _sign_in(self) -> Response:
        """Take the credential of a form, for browsers that can send no header: `Admin.auth` decides about it as about any other."""
        if self._gate is None:
            return _refuse(404, "Viewers come with the link that the program prints", is_logged=False)
        form: Any = await cast("Any", request).form
        credential: str = form.get("credential", "").strip()
        name = self._gate.headers[0]  # the provider's own header comes first
        shown = {name: f"Bearer {credential}" if name == "authorization" else credential}
        found = await self._authenticate({**_headers(), **shown})
        if isinstance(found, HttpRefusal):
            return self._sign_in_page(found.status, found, was_wrong=True)
        return self._enter_with(self._sign_in_as(found))

    async def _sign_out(self) -> Response:
        """End the session of this browser."""
        self._access.sign_out(self._access.viewer)
        response = self._sign_in_page(200)
        response.delete_cookie(self._access.cookie_name, path=self._access.cookie_path, secure=self._admin.is_tls)
        return response

    def _sign_in_page(self, status: int, refused: HttpRefusal | None = None, *, was_wrong: bool = False) -> Response:
        response = Response(_sign_in_text(has_form=self._gate is not None, was_wrong=was_wrong), status=status)
        response.content_type = "text/html; charset=utf-8"
        for name, value in () if refused is None else refused.headers:
            if name in ("www-authenticate", "retry-after"):
                response.headers.add(name, value)
        return response

    # --- health and metrics

    async def _livez(self) -> Response:
        """The loop answers, or this would not."""
        return _health([], with_details=False)

    async def _readyz(self) -> Response:
        """Whether calls should be sent here; readers on this machine learn why not."""
        return _health(self._readiness.reasons(), with_details=is_local(host_in(_address()), _headers()))

    async def _show_metrics(self) -> Response:
        """The metrics, for a scraper: with credentials where `Admin.auth` asks for them."""
        if self._gate is not None:
            found = await self._authenticate(_headers())
            if isinstance(found, HttpRefusal):
                return Response(found.body, status=found.status, headers=dict(found.headers))
        try:
            page = await self._metrics(request.headers.get("accept", ""))
        except ModuleNotFoundError as error:
            return _text(501, str(error))
        response = Response(page.body)
        response.content_type = page.content_type
        return response


async def _refusal_of_body() -> Response | None:
    """Refuse a form that no page here sends, before time is spent on it."""
    if request.mimetype.startswith("multipart/"):
        return _refuse(415, "A form must be sent as application/x-www-form-urlencoded")
    body: bytes = await cast("Any", request).get_data()
    if body.count(b"&") >= _MOST_FIELDS:
        return _refuse(413, f"A form can have {_MOST_FIELDS} fields")
    try:
        body.decode()
    except UnicodeDecodeError:
        return _refuse(400, "A form must be text in UTF-8")
    return None


def _with_security_headers(send: Send) -> Send:
    """`send`, with the headers of this listener on each response in place of the application's own."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = {name.encode() for name, _ in SECURITY_HEADERS if name != "cache-control"}
            kept = [(name, value) for name, value in message["headers"] if name.lower() not in ours]
            present = {name.lower() for name, _ in kept}
            added = [
                (name.encode(), value.encode()) for name, value in SECURITY_HEADERS if name.encode() not in present
            ]
            message = {**message, "headers": [*kept, *added]}
        await send(message)

    return send_with_headers


def _headers() -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _address() -> str:
    scope: Any = request.scope
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else ""


def _source() -> str:
    return source_of(host_in(_address()))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _name_of(info: AuthInfo) -> str:
    return visible(info.subject or info.client_id or "a viewer without a name")


def _refuse(status: int, why: str, *headers: tuple[str, str], is_logged: bool = True) -> Response:
    if is_logged:
        log_refusal(why, status=status, address=_address(), method=request.method, path=request.path)
    response = _text(status, f"{why}.")
    response.headers.extend(headers)
    return response


def _text(status: int, text: str) -> Response:
    response = Response(text if text.endswith("\n") else f"{text}\n", status=status)
    response.content_type = "text/plain; charset=utf-8"
    return response


def _health(reasons: list[str], *, with_details: bool) -> Response:
    data: dict[str, Any] = {"status": "unavailable" if reasons else "ok"}
    if with_details and reasons:
        data["reasons"] = [visible(each) for each in reasons]
    response = _text(503 if reasons else 200, json.dumps(data))
    response.content_type = "application/json"
    return response


def _sign_in_text(*, has_form: bool, was_wrong: bool) -> str:
    """The page for a browser without a session. It has no script and no style, and nothing of the program."""
    wrong = "This is not right, or no longer." if was_wrong else ""
    if has_form:
        what = (
            f'<form method="post" action="{ROOT}sign-in"><label>API key or token '
            '<input type="password" name="credential" autocomplete="off" required></label> <button>Sign in</button></form>'
        )
    else:
        what = (
            "<p>Open the link that the program has printed on stderr. It works once; "
            "<code>greenroom status --link</code> prints another one for a program that was started with <code>inspect</code>.</p>"
            f'<p>If you have just opened it: <a href="{ROOT}">go on</a>.</p>'
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>greenroom: sign in</title></head>'
        f"<body><main><h1>Sign in</h1>{f'<p>{escape(wrong)}</p>' if wrong else ''}{what}</main></body></html>"
    )
