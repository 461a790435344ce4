"""Where users and new programs come to: the consent page, the registration, and the place for machines without a browser."""

from __future__ import annotations

import secrets
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from greenroom.protocol.json import is_object

from .book import Approve, Client, Code, Device, Grant, Refuse, Wish, client_of
from .faults import changed
from .giving import Desk, keys_of
from .words import Answer, OAuthError, page, told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .server import AuthorizationServer
    from .words import Asked

CODE_LIFETIME: Final = 60.0
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"


class Pages:
    """The places."""

    def __init__(self, home: AuthorizationServer) -> None:
        """`home` has the book."""
        self._home = home
        self._desk = Desk(home)

    async def authorize(self, asked: Asked) -> Answer:
        """Ask the user, and send them back. Where they would be sent back to somebody else, they stay here."""
        params = asked.form if asked.method == "POST" else asked.params
        try:
            client = await self._desk.find(params.get("client_id"))
        except OAuthError as error:
            return page(f"{error.error}: {error.description}", 400)
        back = params.get("redirect_uri") or (client.redirect_uris[0] if len(client.redirect_uris) == 1 else "")
        if not client.sends_back_to(back):
            return page("invalid_request: redirect_uri is none of this client's", 400)
        try:
            self._check(params)
            wish = Wish(client, tuple(params.get("scope", "").split()), self._resources(asked), params)
        except OAuthError as error:
            return self._refused(back, error, params)
        decision = self._home.consent(wish)
        if isinstance(decision, Refuse):
            return self._refused(back, OAuthError(decision.error, decision.description), params)
        if decision is None:
            return page("Do you allow this?")
        return self._send_back(back, {"code": self._code(wish, decision, back)}, params)

    def _check(self, params: Mapping[str, str]) -> None:
        if params.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type is code")
        if not params.get("code_challenge") or params.get("code_challenge_method") != "S256":
            raise OAuthError("invalid_request", "code_challenge is needed, with S256")

    def _resources(self, asked: Asked) -> tuple[str, ...]:
        found = resources(asked)
        for each in found:
            parts = urlsplit(each)
            if not parts.scheme or parts.fragment:
                raise OAuthError("invalid_target", "resource is an absolute URL without a fragment")
        return found

    def _code(self, wish: Wish, decision: Approve, back: str) -> str:
        code = secrets.token_urlsafe(24)
        scopes = wish.scopes if decision.scopes is None else tuple(s for s in wish.scopes if s in decision.scopes)
        grant = Grant(wish.client.id, decision.user, scopes, wish.resource, secrets.token_hex(8))
        expires = self._home.clock() + CODE_LIFETIME
        self._home.codes[code] = Code(grant, back, wish.params.get("code_challenge"), expires)
        return code

    def _refused(self, back: str, error: OAuthError, params: Mapping[str, str]) -> Answer:
        said = {"error": error.error, "error_description": error.description or None}
        return self._send_back(back, said, params)

    def _send_back(self, back: str, said: Mapping[str, str | None], params: Mapping[str, str]) -> Answer:
        home = self._home
        whole: dict[str, str | None] = {**said, "state": params.get("state"), "iss": home.issuer}
        query = urlencode(
            {name: value for name, value in changed(whole, home.faults.redirect).items() if value is not None}
        )
        return Answer(
            302, (("location", f"{back}{'&' if urlsplit(back).query else '?'}{query}"), ("cache-control", "no-store"))
        )

    async def register(self, asked: Asked) -> Answer:
        """A program registers itself (RFC 7591)."""
        if not self._home.registration:
            return page("Not Found", 404)
        known: Any = asked.json()
        if not is_object(known):
            raise OAuthError("invalid_client_metadata", "the body is no JSON object")
        method = known.get("token_endpoint_auth_method", "client_secret_basic")
        secret = secrets.token_urlsafe(24) if str(method).startswith("client_secret") else None
        client = client_of(
            {**known, "token_endpoint_auth_method": method}, f"c-{secrets.token_hex(8)}", secret, keys_of(known)
        )
        self._home.clients[client.id] = client
        answer = {**known, "client_id": client.id, "client_id_issued_at": int(self._home.clock())}
        answer["token_endpoint_auth_method"] = client.method
        if client.secret is not None:
            answer |= {"client_secret": client.secret, "client_secret_expires_at": 0}
        return told(answer, 201)

    async def device_authorization(self, asked: Asked) -> Answer:
        """A machine without a browser begins (RFC 8628)."""
        home = self._home
        client = await self._desk.client(asked)
        typed = "".join(secrets.choice(_LETTERS) for _ in range(8))
        device = Device(
            secrets.token_urlsafe(24),
            f"{typed[:4]}-{typed[4:]}",
            client.id,
            tuple(asked.form.get("scope", "").split()),
            resources(asked),
            home.clock() + home.device_lifetime,
        )
        home.devices[device.code] = device
        return told(
            {
                "device_code": device.code,
                "user_code": device.user_code,
                "verification_uri": home.url("device"),
                "verification_uri_complete": f"{home.url('device')}?user_code={device.user_code}",
                "expires_in": int(home.device_lifetime),
                "interval": home.device_interval,
            }
        )

    def device(self, asked: Asked) -> Answer:
        """The page for a user with a code: a form, and what came of the code that was typed."""
        if asked.method != "POST":
            return form("Type in the code that your device shows.", asked.params.get("user_code", ""))
        typed = asked.form.get("user_code", "").strip()
        code = "".join(each for each in typed.upper() if each.isalnum())
        device = next(
            (one for one in self._home.devices.values() if _is_same(one.user_code.replace("-", ""), code)), None
        )
        if device is None or device.expires < self._home.clock():
            return form(
                "There is no such code, or it has expired. Begin again on the device, or type it anew.", typed, 400
            )
        client = self._home.clients.get(device.client_id) or Client(device.client_id)
        decision = self._home.consent(Wish(client, device.scopes, device.resource, asked.form))
        if decision is None:
            return form("Do you allow this?", typed)
        device.decision = decision
        if isinstance(decision, Refuse):
            return page("Refused: the device is told.")
        return page(f"You are signed in as {decision.user}: go back to your device.")


def _is_same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())


def form(text: str, code: str, status: int = 200) -> Answer:
    """The page with the field for the code."""
    body = (
        "<!doctype html><meta charset=utf-8><title>Sign in on a device</title>"
        f'<form method="post"><p>{escape(text)}<p><input name="user_code" value="{escape(code)}" autofocus> '
        "<button>Sign in</button></form>"
    )
    headers = (
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("content-security-policy", "default-src 'none'; form-action 'self'"),
    )
    return Answer(status, headers, body.encode())


def resources(asked: Asked) -> tuple[str, ...]:
    """What tokens are wanted for (RFC 8707): it may be said more than once."""
    said = asked.forms if asked.method == "POST" else parse_qs(asked.query)
    return tuple(said.get("resource", ()))
