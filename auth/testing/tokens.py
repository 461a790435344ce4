"""What is asked of the authorization server over HTTP: tokens, by one method for each grant, and what becomes of them; users; new programs."""

from __future__ import annotations

import secrets
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from greenroom.auth.errors import Denied
from greenroom.auth.grants import text, texts
from greenroom.auth.headers import extract_basic_auth
from greenroom.auth.jose import BadKey, check, part_of, read_keys
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.messages import decode, is_object

from .book import (
    Approve,
    Client,
    Code,
    Device,
    Grant,
    OAuthError,
    Refresh,
    Refuse,
    Said,
    Wish,
    changed,
    client_of,
    page,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .book import Asked
    from .server import AuthorizationServer

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - likewise
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SIGNED: Final = ("ES256", "RS256", "EdDSA", "PS256", "ES384", "RS384", "RS512")
CODE_LIFETIME: Final = 60.0
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"


class Endpoints:
    """What the server does for its clients and users, by where they ask for it."""

    def __init__(self, home: AuthorizationServer) -> None:
        """`home` has the book."""
        self._home = home
        self.grants = {
            "authorization_code": self._for_code,
            "refresh_token": self._for_refresh,
            "client_credentials": self._for_itself,
            DEVICE: self._for_device,
            EXCHANGE: self._for_another,
            BEARER: self._for_assertion,
        }
        self.routes = {
            ("GET", "/authorize"): self._authorize,
            ("POST", "/authorize"): self._authorize,
            ("POST", "/register"): self._register,
            ("POST", "/device_authorization"): self._device_authorization,
            ("GET", "/device"): self._device,
            ("POST", "/device"): self._device,
            ("POST", "/token"): self._token,
            ("POST", "/introspect"): self._introspect,
            ("POST", "/revoke"): self._revoke,
        }

    async def _token(self, asked: Asked) -> Said:
        """Give a token. Raises `OAuthError`."""
        client = await self._client(asked)
        kind = asked.form.get("grant_type", "")
        give = self.grants.get(kind)
        if give is None:
            raise OAuthError("unsupported_grant_type", "nothing is given for that")
        if client.grants is not None and kind not in client.grants and kind != "refresh_token":
            raise OAuthError("unauthorized_client", f"this client may not ask for {kind}")
        return told(give(client, asked), 200, (("pragma", "no-cache"),))

    # --- grants

    def _for_code(self, client: Client, asked: Asked) -> dict[str, Any]:
        home, form = self._home, asked.form
        code = home.codes.get(form.get("code", ""))
        if code is None or code.grant.client_id != client.id or code.expires < home.clock():
            raise OAuthError("invalid_grant", "this is no code of yours, or it is too old")
        if code.used and not home.faults.replayed_codes:
            self._take_back(code.grant.family)
            raise OAuthError("invalid_grant", "the code was used before: its tokens are taken back")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri is not that of the code")
        if not home.faults.any_verifier and not code.proven(form.get("code_verifier")):
            raise OAuthError("invalid_grant", "code_verifier does not fit the challenge")
        code.used = True
        grant = self._narrowed(code.grant, asked)
        return self._answer(grant, refresh=self._wants_refresh(client))

    def _for_refresh(self, client: Client, asked: Asked) -> dict[str, Any]:
        home, form = self._home, asked.form
        token = form.get("refresh_token", "")
        known = home.refreshes.get(token)
        if known is None or known.grant.client_id != client.id:
            raise OAuthError("invalid_grant", "this is no refresh token of yours, or it was taken back")
        if known.used and home.rotates and not home.faults.reused_refresh:
            self._take_back(known.grant.family)
            raise OAuthError(
                "invalid_grant", "the refresh token was used before: all tokens of its grant are taken back"
            )
        known.used = True
        wanted = tuple(form["scope"].split()) if "scope" in form else known.grant.scopes
        if not set(wanted) <= set(known.grant.scopes):
            raise OAuthError("invalid_scope", "more than was granted")
        answer = self._answer(replace(self._narrowed(known.grant, asked), scopes=wanted), refresh=False)
        return answer | {"refresh_token": self._refresh(known.grant)} if home.rotates else answer

    def _for_itself(self, client: Client, asked: Asked) -> dict[str, Any]:
        if client.method == "none":
            raise OAuthError("unauthorized_client", "a client that cannot show itself gets nothing for itself")
        scopes = tuple(asked.form.get("scope", "").split())
        grant = Grant(client.id, client.id, scopes, resources(asked))
        return self._answer(grant, refresh=False)

    def _for_device(self, client: Client, asked: Asked) -> dict[str, Any]:
        home = self._home
        device = home.devices.get(asked.form.get("device_code", ""))
        if device is None or device.client_id != client.id:
            raise OAuthError("invalid_grant", "this is no code of yours")
        now = home.clock()
        if device.expires < now:
            raise OAuthError("expired_token", "the code is too old")
        early = device.asked is not None and now - device.asked < home.device_interval
        device.asked = now
        if isinstance(device.decision, Refuse):
            raise OAuthError(device.decision.error, device.decision.description)
        if device.decision is None:
            raise OAuthError("slow_down" if early else "authorization_pending")
        del home.devices[device.code]
        decided: Approve = device.decision
        scopes = device.scopes if decided.scopes is None else decided.scopes
        grant = Grant(client.id, decided.user, scopes, device.resource)
        return self._answer(grant, refresh=self._wants_refresh(client, DEVICE))

    def _for_another(self, client: Client, asked: Asked) -> dict[str, Any]:
        """Another token for this one (RFC 8693): an access token, or an assertion for another issuer (ID-JAG)."""
        home, form = self._home, asked.form
        kind, token = form.get("subject_token_type", ""), form.get("subject_token", "")
        if kind not in (ACCESS_TOKEN, ID_TOKEN, "urn:ietf:params:oauth:token-type:jwt"):
            raise OAuthError("invalid_request", "a subject_token of that kind is not known")
        claims = self._own(token)
        scopes = tuple(form.get("scope", "").split())
        wanted = form.get("requested_token_type", ACCESS_TOKEN)
        user = str(claims.get("sub"))
        grant = Grant(client.id, user, scopes, resources(asked))
        if wanted == ACCESS_TOKEN:
            return self._answer(grant, refresh=False) | {"issued_token_type": ACCESS_TOKEN}
        if wanted != ID_JAG:
            raise OAuthError("invalid_request", "no token of that kind is given")
        if not form.get("audience"):
            raise OAuthError("invalid_target", "audience is the issuer that the assertion is for")
        now = int(home.clock())
        said: dict[str, Any] = {
            "iss": home.issuer,
            "sub": user,
            "aud": form["audience"],
            "client_id": form.get("client_id") or client.id,
            "jti": secrets.token_hex(8),
            "iat": now,
            "exp": now + 300,
        }
        if grant.resource:
            said["resource"] = grant.resource[0]
        if scopes:
            said["scope"] = " ".join(scopes)
        signed = home.keys.sign(said, home.faults, {"typ": "oauth-id-jag+jwt"})
        answer = {"access_token": signed, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}
        return answer | ({"scope": " ".join(scopes)} if scopes else {})

    def _for_assertion(self, client: Client, asked: Asked) -> dict[str, Any]:
        """A token for what another issuer says of a user (RFC 7523)."""
        home, form = self._home, asked.form
        assertion = form.get("assertion", "")
        other = home.trusted.get(str(peek(assertion).get("iss")))
        if other is None:
            raise OAuthError("invalid_grant", "nobody trusts this issuer")
        claims = self._checked(assertion, other)
        if home.issuer not in texts(claims.get("aud")) or claims.get("client_id") not in (None, client.id):
            raise OAuthError("invalid_grant", "the assertion is meant for somebody else")
        name = str(claims.get("jti"))
        if name in home.assertions:
            raise OAuthError("invalid_grant", "the assertion was used before")
        home.assertions.add(name)
        scopes = tuple((form.get("scope") or text(claims.get("scope")) or "").split())
        about = texts(claims.get("resource")) or resources(asked)
        grant = Grant(client.id, str(claims.get("sub")), scopes, about)
        return self._answer(grant, refresh=False)

    def _own(self, token: str) -> dict[str, Any]:
        given = self._home.given.get(token)
        return given[1] if given is not None else self._checked(token, self._home)

    def _checked(self, token: str, issuer: AuthorizationServer) -> dict[str, Any]:
        try:
            claims = check(token, issuer.keys.all, SIGNED)
        except Denied as denied:
            raise OAuthError("invalid_grant", denied.detail or denied.message) from None
        if claims.get("exp", 0) < self._home.clock():
            raise OAuthError("invalid_grant", "the token has expired")
        return claims

    def _narrowed(self, grant: Grant, asked: Asked) -> Grant:
        """The grant, for the resources that are asked for now, if any are. Raises `OAuthError` for others."""
        wanted = resources(asked)
        if not wanted:
            return grant
        if grant.resource and not set(wanted) <= set(grant.resource):
            raise OAuthError("invalid_target", "the grant is for another resource")
        return replace(grant, resource=wanted)

    @staticmethod
    def _wants_refresh(client: Client, kind: str = "") -> bool:
        return client.grants is None or "refresh_token" in client.grants or kind in client.grants

    # --- what becomes of them

    async def _introspect(self, asked: Asked) -> Said:
        """What a token is good for (RFC 7662); only for clients that authenticate."""
        client = await self._client(asked)
        if client.method == "none":
            raise OAuthError("invalid_client", "this is for those who can show themselves", 401)
        token = asked.form.get("token", "")
        given = self._home.given.get(token)
        if given is None or given[1].get("exp", 0) < self._home.clock():
            return told({"active": False})
        return told({"active": True, "token_type": "Bearer", **given[1]})

    async def _revoke(self, asked: Asked) -> Said:
        """Take a token back (RFC 7009): a refresh token with all of its grant."""
        client = await self._client(asked)
        token = asked.form.get("token", "")
        given, refresh = self._home.given.get(token), self._home.refreshes.get(token)
        if given is not None and given[0] is not None and given[0].client_id == client.id:
            del self._home.given[token]
        if refresh is not None and refresh.grant.client_id == client.id:
            self._take_back(refresh.grant.family)
        return told({})

    # --- where users and new programs come to: the consent page, the registration, and the place for machines without a browser

    async def _authorize(self, asked: Asked) -> Said:
        """Ask the user, and send them back. Where they would be sent back to an unknown address, they stay here."""
        params = asked.form if asked.method == "POST" else asked.params
        try:
            client = await self._find(params.get("client_id"))
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
        grant = Grant(wish.client.id, decision.user, scopes, wish.resource)
        expires = self._home.clock() + CODE_LIFETIME
        self._home.codes[code] = Code(grant, back, wish.params.get("code_challenge"), expires)
        return code

    def _refused(self, back: str, error: OAuthError, params: Mapping[str, str]) -> Said:
        said = {"error": error.error, "error_description": error.description or None}
        return self._send_back(back, said, params)

    def _send_back(self, back: str, said: Mapping[str, str | None], params: Mapping[str, str]) -> Said:
        home = self._home
        whole: dict[str, str | None] = {**said, "state": params.get("state"), "iss": home.issuer}
        query = urlencode(
            {name: value for name, value in changed(whole, home.faults.redirect).items() if value is not None}
        )
        location = f"{back}{'&' if urlsplit(back).query else '?'}{query}"
        return Said(302, headers=(("location", location), ("cache-control", "no-store")))

    async def _register(self, asked: Asked) -> Said:
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

    async def _device_authorization(self, asked: Asked) -> Said:
        """A machine without a browser begins (RFC 8628)."""
        home = self._home
        client = await self._client(asked)
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

    async def _device(self, asked: Asked) -> Said:
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

    # --- the client that asks

    async def _find(self, id: str | None) -> Client:
        """The program of that name; one whose name is a URL is described there. Raises `OAuthError`."""
        home = self._home
        known = home.clients.get(id or "")
        if known is not None:
            return known
        if id is None or urlsplit(id).scheme not in ("http", "https"):
            raise OAuthError("invalid_client", "nobody knows this client", 401)
        said = home.client_documents.get(id)
        if said is None:
            try:
                answer = await home.documents(id)
                said = decode(answer.body)
            except (GreenroomError, ProtocolError) as error:
                raise OAuthError("invalid_client", f"the client's document cannot be read: {error}", 401) from None
        if not is_object(said) or said.get("client_id") != id:
            raise OAuthError("invalid_client", "the client's document is of another client", 401)
        return client_of({"token_endpoint_auth_method": "none", **said}, id, None, keys_of(said))

    async def _client(self, asked: Asked) -> Client:
        """The program that asks, which has shown itself in the way that it said it would. Raises `OAuthError`."""
        form = asked.form
        assertion = form.get("client_assertion")
        login = _login(asked.headers.get("authorization"))
        if assertion is not None:
            return await self._signed(form, assertion)
        id, secret = login or (form.get("client_id"), form.get("client_secret"))
        client = await self._find(id)
        how = "client_secret_basic" if login else "none" if secret is None else "client_secret_post"
        if how != client.method:
            raise OAuthError("invalid_client", f"this client shows itself by {client.method}, and not by {how}", 401)
        if client.secret is not None and not secrets.compare_digest(client.secret.encode(), (secret or "").encode()):
            raise OAuthError("invalid_client", "a wrong secret", 401)
        return client

    async def _signed(self, form: Mapping[str, str], assertion: str) -> Client:
        """By a signed assertion (RFC 7523, section 2.2)."""
        home = self._home
        if form.get("client_assertion_type") != ASSERTION:
            raise OAuthError("invalid_client", "an assertion of a strange type", 401)
        claimed = peek(assertion)
        client = await self._find(form.get("client_id") or str(claimed.get("sub")))
        try:
            claims = check(assertion, client.keys, SIGNED)
        except Denied as denied:
            raise OAuthError("invalid_client", f"the assertion: {denied.detail or denied.message}", 401) from None
        ours = {home.issuer, home.url("token")}
        if client.method != "private_key_jwt" or not claims.get("sub") == claims.get("iss") == client.id:
            raise OAuthError("invalid_client", "the assertion is another client's", 401)
        if not ours & set(texts(claims.get("aud"))):
            raise OAuthError("invalid_client", "the assertion is meant for somebody else", 401)
        expires, name = claims.get("exp"), claims.get("jti")
        if not isinstance(expires, int | float) or expires < home.clock() or not isinstance(name, str):
            raise OAuthError("invalid_client", "the assertion has expired, or has no jti", 401)
        if name in home.assertions:
            raise OAuthError("invalid_client", "the assertion was used before", 401)
        home.assertions.add(name)
        return client

    # --- what they get

    def access(self, grant: Grant, lifetime: float | None = None, more: Mapping[str, Any] | None = None) -> str:
        """An access token."""
        home = self._home
        now = home.clock()
        about = grant.resource or ((home.audience,) if home.audience else ())
        said: dict[str, Any] = {
            "iss": home.issuer,
            "sub": grant.user,
            "client_id": grant.client_id,
            "iat": int(now),
            "exp": int(now + (home.lifetime if lifetime is None else lifetime)),
            "jti": secrets.token_hex(8),
        }
        if about:
            said["aud"] = about[0] if len(about) == 1 else list(about)
        if grant.scopes:
            said["scope"] = " ".join(grant.scopes)
        claims = changed(said, {**(more or {}), **home.faults.claims})
        token = secrets.token_urlsafe(24) if home.opaque else home.keys.sign(claims, home.faults, {"typ": "at+jwt"})
        home.given[token] = (grant, claims)
        return token

    def _answer(self, grant: Grant, *, refresh: bool) -> dict[str, Any]:
        """What the token endpoint says of a grant."""
        home = self._home
        said: dict[str, Any] = {
            "access_token": self.access(grant),
            "token_type": "Bearer",
            "expires_in": int(home.lifetime),
        }
        if grant.scopes:
            said["scope"] = " ".join(grant.scopes)
        if refresh:
            said["refresh_token"] = self._refresh(grant)
        if "openid" in grant.scopes:
            claims = {"iss": home.issuer, "sub": grant.user, "aud": grant.client_id}
            now = int(home.clock())
            said["id_token"] = home.keys.sign(claims | {"iat": now, "exp": now + 300}, home.faults)
        return changed(said, home.faults.answer)

    def _refresh(self, grant: Grant) -> str:
        """A refresh token."""
        token = secrets.token_urlsafe(24)
        self._home.refreshes[token] = Refresh(grant)
        return token

    def _take_back(self, family: str) -> None:
        """All tokens of a grant are good for nothing any more."""
        home = self._home
        home.given = {
            token: entry for token, entry in home.given.items() if entry[0] is None or entry[0].family != family
        }
        home.refreshes = {token: each for token, each in home.refreshes.items() if each.grant.family != family}


def _is_same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())


def form(text: str, code: str, status: int = 200) -> Said:
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
    return Said(status, body.encode(), headers)


def resources(asked: Asked) -> tuple[str, ...]:
    """What tokens are wanted for (RFC 8707): it may be said more than once."""
    said = asked.forms if asked.method == "POST" else parse_qs(asked.query)
    return tuple(said.get("resource", ()))


def keys_of(said: Mapping[str, Any]) -> Any:
    """The keys that a client describes itself with."""
    try:
        return tuple(read_keys(said["jwks"])) if "jwks" in said else ()
    except BadKey:
        raise OAuthError("invalid_client_metadata", "jwks is no set of keys") from None


def peek(token: str) -> dict[str, Any]:
    """The claims of an unchecked token. Raises `OAuthError`."""
    claims = part_of(token, 1)
    if claims is None:
        raise OAuthError("invalid_grant", "this is no token")
    return claims


def _login(authorization: str | None) -> tuple[str, str] | None:
    if authorization is None:
        return None
    try:
        id, secret = extract_basic_auth({"authorization": authorization})
    except Denied:
        raise OAuthError("invalid_client", "the Authorization header is malformed", 401) from None
    return unquote_plus(id), unquote_plus(secret)
