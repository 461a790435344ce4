"""Who may use the admin listener: links with one-time tokens, viewers' sessions, and the checks of each request. It does no I/O.

A page of another site must not be able to use the listener through a viewer's browser (CVE-2025-49596, CVE-2025-58444), so nothing is done for a request because
of the address that it comes from alone. A viewer comes with a link that holds a token, once, or with credentials that `Admin.auth` knows, and gets a cookie which
scripts cannot read and which browsers send for requests of the listener's own pages only. Requests that change something also need the `Origin` of the listener,
`Sec-Fetch-Site: same-origin`, and the session's own token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from greenroom.auth.auth_gate import FailureLimiter
from greenroom.transports.http_request import AllowedHosts, parse_host, parse_origin
from greenroom.transports.open_connections import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .admin_settings import Admin

ROOT: Final = "/observe/"
"""The path of the observer."""
TOKEN: Final = "token"  # noqa: S105 - the parameter's name
CSRF_HEADER: Final = "x-csrf-token"
CSRF_FIELD: Final = "csrf"
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_LONGEST_TOKEN: Final = 256
_LINKS: Final = 16
"""How many links can be open at once; the oldest one gives way to the next."""
_SHARES: Final = 4
"""With `Admin.auth`, one principal can be signed in with one in so many of all browsers."""
_GUESSES: Final = 20
_GUESSES_SECONDS: Final = 60.0
_LOCAL_VIEWER: Final = "the user of this machine"

SECURITY_HEADERS: Final = (
    (
        "content-security-policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
            "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),  # with no-referrer, browsers send forms of these pages with `Origin: null`
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ("cache-control", "no-store"),
    ("x-robots-tag", "noindex, nofollow"),
)
"""On each response of the listener."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who has signed in with one browser."""

    name: str
    """The principal as acts are logged with it."""
    may_act: bool = False
    may_inject_faults: bool = False
    csrf: str = field(default="", repr=False)
    """The token that each of the viewer's requests that changes something has to carry."""
    key: bytes = field(default=b"", repr=False)
    expires: float = 0.0


class TooManyGuesses(Exception):
    """This source has shown too many wrong tokens; `seconds` is when it may try again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class AdminAccess:
    """The links and the viewers of one admin listener. Times are those of the loop."""

    def __init__(self, admin: Admin) -> None:
        """Everything is forgotten with the program: no secret outlasts it."""
        self._admin = admin
        self._links: OrderedDict[bytes, float] = OrderedDict()
        """The digest of each unused token, and when it expires."""
        self._viewers: OrderedDict[bytes, Viewer] = OrderedDict()
        """By the digest of the cookie, the one that was idle for longest first."""
        self._guesses = FailureLimiter(_GUESSES, _GUESSES_SECONDS)
        self._hosts = AllowedHosts(admin.http_config)
        self._literal_hosts = admin.allowed_hosts is None and not admin.is_loopback
        self._current: ContextVar[Viewer | None] = ContextVar("greenroom_viewer", default=None)

    def __repr__(self) -> str:
        return f"<AdminAccess, {len(self._viewers)} viewers>"

    # --- links

    def new_token(self, now: float) -> str:
        """A token that signs one browser in, once."""
        token = secrets.token_urlsafe(32)
        while len(self._links) >= _LINKS:
            self._links.popitem(last=False)
        self._links[_digest(token)] = now + self._admin.link_lifetime
        return token

    def redeem(self, token: str, source: str, now: float) -> str | None:
        """The cookie of a new viewer for a token that is used now; None for a wrong one. Raises `TooManyGuesses`.

        A right token is taken also from a source that has guessed: tokens have 256 bits, and another program on this machine must not lock its user out.
        """
        found = _find(self._links, token)
        if found is None or self._links.pop(found) <= now:
            wait = self._guesses.wait_seconds(source, now)
            self._guesses.add_failure(source, now)
            if wait:
                raise TooManyGuesses(wait)
            return None
        return self.sign_in(_LOCAL_VIEWER, now, may_act=True)

    # --- viewers

    def sign_in(self, name: str, now: float, *, may_act: bool, expires: float | None = None) -> str:
        """The cookie of a new viewer, until `expires` at most. `may_act` is the viewer's right, which counts where acts or faults are on."""
        for key in [key for key, each in self._viewers.items() if each.expires <= now]:
            del self._viewers[key]
        self._make_room(name)
        cookie = secrets.token_urlsafe(32)
        until = now + self._admin.session_lifetime
        key = _digest(cookie)
        self._viewers[key] = Viewer(
            name,
            may_act=may_act and self._admin.acts,
            may_inject_faults=may_act and self._admin.faults,
            csrf=secrets.token_urlsafe(32),
            key=key,
            expires=until if expires is None else min(until, expires),
        )
        return cookie

    def _make_room(self, name: str) -> None:
        """Drop the viewer that was idle for longest where there is no room for another; of a principal that has its share, one of its own."""
        most = self._admin.max_viewers
        own = [key for key, each in self._viewers.items() if each.name == name]
        if self._admin.auth is not None and len(own) >= max(1, most // _SHARES):
            del self._viewers[own[0]]
        elif len(self._viewers) >= most:
            self._viewers.popitem(last=False)

    def viewer_of(self, cookie: str, now: float) -> Viewer | None:
        """The viewer with this cookie; None if there is none, or no longer."""
        key = _find(self._viewers, cookie)
        if key is None:
            return None
        if self._viewers[key].expires <= now:
            del self._viewers[key]
            return None
        self._viewers.move_to_end(key)
        return self._viewers[key]

    def is_signed_in(self, viewer: Viewer, now: float) -> bool:
        """Whether the viewer is still signed in: asked now and then for as long as a stream is open."""
        return viewer.key in self._viewers and viewer.expires > now

    def sign_out(self, viewer: Viewer) -> None:
        """End the viewer's session."""
        self._viewers.pop(viewer.key, None)

    @property
    def viewer(self) -> Viewer:
        """The viewer of the request that is being answered."""
        found = self._current.get()
        assert found is not None, "each request for a page has a viewer, or is refused before"
        return found

    def enter(self, viewer: Viewer) -> None:
        """Answer the rest of this request for this viewer."""
        self._current.set(viewer)

    @property
    def has_principals(self) -> bool:
        """Whether viewers are told apart by their credentials; otherwise all of them are the user of this machine."""
        return self._admin.auth is not None

    # --- checks of a request, by its headers in lower case

    def allows_host(self, header: str | None) -> bool:
        """Whether `Host` names this listener: a page that has its own name point here (DNS rebinding) does not.

        Where other machines can reach the listener and no names are configured, any address is accepted: rebinding needs a name.
        """
        if self._literal_hosts:
            where = parse_host(header) if header else None
            if where is not None and (_is_address(where.host) or where.host == "localhost"):
                return True
        return self._hosts.allow(header)

    def refusal_of_fetch(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why a request did not come from the listener's own pages or from the address bar; None if it did."""
        site = headers.get("sec-fetch-site")
        if method in SAFE_METHODS:
            # A page elsewhere may link here: the cookie is not sent then, and a token in the link is its own proof. It may not load anything into itself.
            navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
            if site not in (None, "none", "same-origin") and not navigates:
                return "Pages of other sites may not load this"
            return None
        if site != "same-origin":
            return "Sec-Fetch-Site must be same-origin: only this listener's own pages may send this"
        if not self._is_own_origin(headers.get("origin"), headers.get("host")):
            return "Origin must be this listener's own"
        return None

    def _is_own_origin(self, origin: str | None, host: str | None) -> bool:
        found = parse_origin(origin) if origin else None
        own = parse_origin(f"{'https' if self._admin.is_tls else 'http'}://{host}") if host else None
        if found is None or own is None:
            return False
        # Behind a proxy that speaks TLS the page's scheme is https, and this listener's is http.
        return found in (own, parse_origin(f"https://{host}"))

    @property
    def cookie_name(self) -> str:
        """The cookie's name. It has the port, since browsers send cookies to all ports of a host."""
        # With TLS, a cookie that only this host itself can set, and no other host of the same domain.
        return f"{'__Host-' if self._admin.is_tls else ''}greenroom-observe-{self.port}"

    @property
    def cookie_path(self) -> str:
        """The cookie's path: browsers accept a `__Host-` cookie with `/` only."""
        return "/" if self._admin.is_tls else ROOT

    port: int = 0
    """The port that is listened on, once it is known."""


def is_csrf_token(viewer: Viewer, token: str | None) -> bool:
    """Whether it is the viewer's own token."""
    return bool(token) and hmac.compare_digest(_bytes(token or ""), _bytes(viewer.csrf))


def is_local(address: str, headers: Mapping[str, str]) -> bool:
    """Whether a request was made on this machine, and by no proxy here for another one: details are for such readers."""
    found = address_of(address)
    forwarded = any(name in headers for name in ("forwarded", "x-forwarded-for", "x-real-ip", "via"))
    return found is not None and found.is_loopback and not forwarded


def _bytes(text: str) -> bytes:
    return text[:_LONGEST_TOKEN].encode("utf-8", "backslashreplace")


def _digest(token: str) -> bytes:
    return hashlib.sha256(_bytes(token)).digest()


def _find(known: Mapping[bytes, object], token: str) -> bytes | None:
    """The digest of a token among known ones, in a time that does not depend on which one it is, or how much of it is right."""
    wanted, found = _digest(token), None
    for each in known:
        if hmac.compare_digest(each, wanted):
            found = each
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
