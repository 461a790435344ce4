"""The token endpoint, and what becomes of tokens after: each grant is a method."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.errors import Denied
from greenroom.auth.grants import text, texts
from greenroom.auth.jose import check

from .book import METHODS, Approve, Grant, Refuse
from .giving import SIGNED, peek
from .pages import resources
from .words import OAuthError, told

if TYPE_CHECKING:
    from .book import Client
    from .giving import Desk
    from .server import AuthorizationServer
    from .words import Answer, Asked

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - likewise
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


class TokenDesk:
    """The places that give tokens, look at them, and take them back."""

    methods = METHODS

    def __init__(self, home: AuthorizationServer, desk: Desk) -> None:
        """`home` has the book."""
        self._home = home
        self._desk = desk
        self._by_grant = {
            "authorization_code": self._code,
            "refresh_token": self._refresh,
            "client_credentials": self._credentials,
            DEVICE: self._device,
            EXCHANGE: self._exchange,
            BEARER: self._assertion,
        }

    @property
    def grants(self) -> tuple[str, ...]:
        """What can be asked for."""
        return tuple(self._by_grant)

    async def token(self, asked: Asked) -> Answer:
        """Give a token. Raises `OAuthError`."""
        client = await self._desk.client(asked)
        kind = asked.form.get("grant_type", "")
        give = self._by_grant.get(kind)
        if give is None:
            raise OAuthError("unsupported_grant_type", "nothing is given for that")
        if client.grants is not None and kind not in client.grants and kind != "refresh_token":
            raise OAuthError("unauthorized_client", f"this client may not ask for {kind}")
        return told(give(client, asked), 200, (("pragma", "no-cache"),))

    # --- grants

    def _code(self, client: Client, asked: Asked) -> dict[str, Any]:
        home, form = self._home, asked.form
        code = home.codes.get(form.get("code", ""))
        if code is None or code.grant.client_id != client.id or code.expires < home.clock():
            raise OAuthError("invalid_grant", "this is no code of yours, or it is too old")
        if code.used and not home.faults.replayed_codes:
            self._desk.take_back(code.grant.family)
            raise OAuthError("invalid_grant", "the code was used before: its tokens are taken back")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri is not that of the code")
        if not home.faults.any_verifier and not code.proven(form.get("code_verifier")):
            raise OAuthError("invalid_grant", "code_verifier does not fit the challenge")
        code.used = True
        grant = self._narrowed(code.grant, asked)
        return self._desk.answer(grant, refresh=self._wants_refresh(client))

    def _refresh(self, client: Client, asked: Asked) -> dict[str, Any]:
        home, form = self._home, asked.form
        token = form.get("refresh_token", "")
        known = home.refreshes.get(token)
        if known is None or known.grant.client_id != client.id:
            raise OAuthError("invalid_grant", "this is no refresh token of yours, or it was taken back")
        if known.used and home.rotates and not home.faults.reused_refresh:
            self._desk.take_back(known.grant.family)
            raise OAuthError(
                "invalid_grant", "the refresh token was used before: all tokens of its grant are taken back"
            )
        known.used = True
        wanted = tuple(form["scope"].split()) if "scope" in form else known.grant.scopes
        if not set(wanted) <= set(known.grant.scopes):
            raise OAuthError("invalid_scope", "more than was granted")
        grant = self._narrowed(known.grant, asked)
        grant = Grant(grant.client_id, grant.user, wanted, grant.resource, grant.family)
        answer = self._desk.answer(grant, refresh=False)
        return answer | {"refresh_token": self._desk.refresh(known.grant)} if home.rotates else answer

    def _credentials(self, client: Client, asked: Asked) -> dict[str, Any]:
        if client.method == "none":
            raise OAuthError("unauthorized_client", "a client that cannot show itself gets nothing for itself")
        scopes = tuple(asked.form.get("scope", "").split())
        grant = Grant(client.id, client.id, scopes, resources(asked), secrets.token_hex(8))
        return self._desk.answer(grant, refresh=False)

    def _device(self, client: Client, asked: Asked) -> dict[str, Any]:
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
        grant = Grant(client.id, decided.user, scopes, device.resource, secrets.token_hex(8))
        return self._desk.answer(grant, refresh=self._wants_refresh(client, DEVICE))

    def _exchange(self, client: Client, asked: Asked) -> dict[str, Any]:
        """Another token for this one (RFC 8693): an access token, or an assertion for another issuer (ID-JAG)."""
        home, form = self._home, asked.form
        kind, token = form.get("subject_token_type", ""), form.get("subject_token", "")
        if kind not in (ACCESS_TOKEN, ID_TOKEN, "urn:ietf:params:oauth:token-type:jwt"):
            raise OAuthError("invalid_request", "a subject_token of that kind is not known")
        claims = self._own(token)
        scopes = tuple(form.get("scope", "").split())
        wanted = form.get("requested_token_type", ACCESS_TOKEN)
        user = str(claims.get("sub"))
        grant = Grant(client.id, user, scopes, resources(asked), secrets.token_hex(8))
        if wanted == ACCESS_TOKEN:
            return self._desk.answer(grant, refresh=False) | {"issued_token_type": ACCESS_TOKEN}
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

    def _assertion(self, client: Client, asked: Asked) -> dict[str, Any]:
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
        grant = Grant(client.id, str(claims.get("sub")), scopes, about, secrets.token_hex(8))
        return self._desk.answer(grant, refresh=False)

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
        return Grant(grant.client_id, grant.user, grant.scopes, wanted, grant.family)

    @staticmethod
    def _wants_refresh(client: Client, kind: str = "") -> bool:
        return client.grants is None or "refresh_token" in client.grants or kind in client.grants

    # --- what becomes of them

    async def introspect(self, asked: Asked) -> Answer:
        """What a token is good for (RFC 7662); only for those who can show themselves."""
        client = await self._desk.client(asked)
        if client.method == "none":
            raise OAuthError("invalid_client", "this is for those who can show themselves", 401)
        token = asked.form.get("token", "")
        given = self._home.given.get(token)
        if given is None or given[1].get("exp", 0) < self._home.clock():
            return told({"active": False})
        return told({"active": True, "token_type": "Bearer", **given[1]})

    async def revoke(self, asked: Asked) -> Answer:
        """Take a token back (RFC 7009): a refresh token with all of its grant."""
        client = await self._desk.client(asked)
        token = asked.form.get("token", "")
        given, refresh = self._home.given.get(token), self._home.refreshes.get(token)
        if given is not None and given[0] is not None and given[0].client_id == client.id:
            del self._home.given[token]
        if refresh is not None and refresh.grant.client_id == client.id:
            self._desk.take_back(refresh.grant.family)
        return told({})
