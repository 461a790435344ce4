"""Who asks, and what they get: clients are recognised here, and tokens made."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from greenroom.auth.errors import Denied
from greenroom.auth.grants import texts
from greenroom.auth.jose import BadKey, check, read_keys
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.json import decode, is_object

from .book import Client, Refresh, client_of
from .faults import changed
from .words import OAuthError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .book import Grant
    from .server import AuthorizationServer
    from .words import Asked

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SIGNED = ("ES256", "RS256", "EdDSA", "PS256", "ES384", "RS384", "RS512")


class Desk:
    """What the places of the server share."""

    def __init__(self, home: AuthorizationServer) -> None:
        """`home` has the book."""
        self._home = home

    # --- who asks

    async def find(self, id: str | None) -> Client:
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

    async def client(self, asked: Asked) -> Client:
        """The program that asks, which has shown itself in the way that it said it would. Raises `OAuthError`."""
        form = asked.form
        assertion = form.get("client_assertion")
        login = _login(asked.headers.get("authorization"))
        if assertion is not None:
            return await self._signed(form, assertion)
        id, secret = login or (form.get("client_id"), form.get("client_secret"))
        client = await self.find(id)
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
        client = await self.find(form.get("client_id") or str(claimed.get("sub")))
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

    def answer(self, grant: Grant, *, refresh: bool, nonce: str | None = None) -> dict[str, Any]:
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
            said["refresh_token"] = self.refresh(grant)
        if "openid" in grant.scopes:
            said["id_token"] = self.identity(grant, nonce)
        return changed(said, home.faults.answer)

    def refresh(self, grant: Grant) -> str:
        """A refresh token."""
        token = secrets.token_urlsafe(24)
        self._home.refreshes[token] = Refresh(grant)
        return token

    def identity(self, grant: Grant, nonce: str | None = None) -> str:
        """An ID token: who the user is, for the program."""
        home = self._home
        now = int(home.clock())
        claims = {"iss": home.issuer, "sub": grant.user, "aud": grant.client_id, "iat": now, "exp": now + 300}
        return home.keys.sign(claims | ({"nonce": nonce} if nonce else {}), home.faults)

    def take_back(self, family: str) -> None:
        """All tokens of a grant are good for nothing any more."""
        home = self._home
        home.given = {
            token: entry for token, entry in home.given.items() if entry[0] is None or entry[0].family != family
        }
        home.refreshes = {token: each for token, each in home.refreshes.items() if each.grant.family != family}


def keys_of(said: Mapping[str, Any]) -> Any:
    """The keys that a client describes itself with."""
    try:
        return tuple(read_keys(said["jwks"])) if "jwks" in said else ()
    except BadKey:
        raise OAuthError("invalid_client_metadata", "jwks is no set of keys") from None


def peek(token: str) -> dict[str, Any]:
    """The claims of a token that nobody has checked. Raises `OAuthError`."""
    part = [*token.split("."), ""][1]
    try:
        value = decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ProtocolError, binascii.Error, ValueError):
        value = None
    if not is_object(value):
        raise OAuthError("invalid_grant", "this is no token")
    return value


def _login(authorization: str | None) -> tuple[str, str] | None:
    if authorization is None:
        return None
    scheme, _, rest = authorization.partition(" ")
    try:
        id, colon, secret = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = id = secret = ""
    if scheme.lower() != "basic" or not colon:
        raise OAuthError("invalid_client", "the Authorization header is malformed", 401)
    return unquote_plus(id), unquote_plus(secret)
