"""The endpoints of the fake authorization server: token, introspection, revocation, authorization, registration and device authorization."""

from __future__ import annotations

import secrets
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from greenroom.auth.auth_info import text, texts
from greenroom.auth.credential_headers import extract_basic_auth
from greenroom.auth.errors import Denied
from greenroom.auth.jose import InvalidKeyError, decode_part, parse_jwk_set, verified_claims
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.jsonrpc import decode, is_object

from .fake_auth_proofs import FakeProofVerifier
from .fake_auth_records import (
    Approve,
    AuthorizationCode,
    AuthServerResponse,
    ConsentRequest,
    DeviceAuthorization,
    Grant,
    IssuedRefreshToken,
    OAuthError,
    Refuse,
    RegisteredClient,
    client_from_metadata,
    json_response,
    text_response,
    with_fault,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .fake_auth_records import AuthServerRequest
    from .fake_auth_server import AuthorizationServer

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a token type
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - likewise
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SIGNATURE_ALGORITHMS: Final = ("ES256", "RS256", "EdDSA", "PS256", "ES384", "RS384", "RS512")
CODE_LIFETIME: Final = 60.0
_USER_CODE_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"


class FakeAuthEndpoints:
    """Handlers by path (`routes`) and by grant type (`grants`)."""

    def __init__(self, server: AuthorizationServer) -> None:
        """`server` holds the records."""
        self._server = server
        self._proofs = FakeProofVerifier(server)
        self.grants = {
            "authorization_code": self._grant_for_code,
            "refresh_token": self._grant_for_refresh_token,
            "client_credentials": self._grant_client_credentials,
            DEVICE: self._grant_for_device_code,
            EXCHANGE: self._exchange_token,
            BEARER: self._grant_for_assertion,
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

    async def _token(self, request: AuthServerRequest) -> AuthServerResponse:
        """The token endpoint."""
        try:
            fields = await self._tokens(request)
        except OAuthError as error:
            answer = error.answer()
        else:
            answer = json_response(fields, 200, (("pragma", "no-cache"),))
        nonce = self._server.dpop_nonce
        return answer if nonce is None else replace(answer, headers=(*answer.headers, ("dpop-nonce", nonce)))

    async def _tokens(self, request: AuthServerRequest) -> dict[str, Any]:
        kind = request.form.get("grant_type", "")
        client = await self._token_client(request, kind)
        bound = client.metadata.get("dpop_bound_access_tokens") is True
        request = replace(request, jkt=self._proofs.thumbprint_of(request, needed=bound))
        give = self.grants.get(kind)
        if give is None:
            raise OAuthError("unsupported_grant_type", "this grant type is not supported")
        if client.grants is not None and kind not in client.grants and kind != "refresh_token":
            raise OAuthError("unauthorized_client", f"this client may not use {kind}")
        return give(client, request)

    async def _token_client(self, request: AuthServerRequest, kind: str) -> RegisteredClient:
        """The client of a token request. The assertion of a workload needs none (RFC 7523, 3.1)."""
        form = request.form
        if (
            kind == BEARER
            and not {"client_id", "client_assertion"} & form.keys()
            and "authorization" not in request.headers
        ):
            return RegisteredClient("")
        return await self._authenticate_client(request)

    # --- grants

    def _grant_for_code(self, client: RegisteredClient, request: AuthServerRequest) -> dict[str, Any]:
        server, form = self._server, request.form
        code = server.codes.get(form.get("code", ""))
        if code is None or code.grant.client_id != client.id or code.expires < server.clock():
            raise OAuthError("invalid_grant", "the code is unknown, of another client, or expired")
        if code.used and not server.faults.replayed_codes:
            self._revoke_family(code.grant.family)
            raise OAuthError("invalid_grant", "the code was used before: its tokens are revoked")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri is not the one of the code")
        if not server.faults.any_verifier and not code.matches_verifier(form.get("code_verifier")):
            raise OAuthError("invalid_grant", "code_verifier does not match the challenge")
        if code.grant.jkt not in (None, request.jkt):
            raise OAuthError("invalid_grant", "the code is bound to another key")
        code.used = True
        grant = self._for_resources(code.grant, request)
        return self._token_response(grant, request, refresh=self._may_refresh(client))

    def _grant_for_refresh_token(self, client: RegisteredClient, request: AuthServerRequest) -> dict[str, Any]:
        server, form = self._server, request.form
        token = form.get("refresh_token", "")
        known = server.refresh_tokens.get(token)
        if known is None or known.grant.client_id != client.id:
            raise OAuthError("invalid_grant", "the refresh token is unknown, of another client, or revoked")
        if known.used and server.rotates and not server.faults.reused_refresh:
            self._revoke_family(known.grant.family)
            raise OAuthError("invalid_grant", "the refresh token was used before: all tokens of its grant are revoked")
        if client.method == "none" and known.grant.jkt not in (None, request.jkt):
            raise OAuthError("invalid_grant", "the refresh token is bound to another key")
        known.used = True
        wanted = tuple(form["scope"].split()) if "scope" in form else known.grant.scopes
        if not set(wanted) <= set(known.grant.scopes):
            raise OAuthError("invalid_scope", "scope exceeds the granted scopes")
        grant = replace(self._for_resources(known.grant, request), scopes=wanted)
        answer = self._token_response(grant, request, refresh=False)
        return answer | {"refresh_token": self._new_refresh_token(known.grant)} if server.rotates else answer

    def _grant_client_credentials(self, client: RegisteredClient, request: AuthServerRequest) -> dict[str, Any]:
        if client.method == "none":
            raise OAuthError("unauthorized_client", "a client without authentication may not use client_credentials")
        scopes = tuple(request.form.get("scope", "").split())
        grant = Grant(client.id, client.id, scopes, requested_resources(request))
        return self._token_response(grant, request, refresh=False)

    def _grant_for_device_code(self, client: RegisteredClient, request: AuthServerRequest) -> dict[str, Any]:
        server = self._server
        device = server.devices.get(request.form.get("device_code", ""))
        if device is None or device.client_id != client.id:
            raise OAuthError("invalid_grant", "the device code is unknown, or of another client")
        now = server.clock()
        if device.expires < now:
            raise OAuthError("expired_token", "the device code has expired")
        early = device.polled_at is not None and now - device.polled_at < server.device_interval
        device.polled_at = now
        if isinstance(device.decision, Refuse):
            raise OAuthError(device.decision.error, device.decision.description)
        if device.decision is None:
            raise OAuthError("slow_down" if early else "authorization_pending")
        del server.devices[device.code]
        decided: Approve = device.decision
        scopes = device.scopes if decided.scopes is None else decided.scopes
        grant = Grant(client.id, decided.user, scopes, device.resource)
        return self._token_response(grant, request, refresh=self._may_refresh(client, DEVICE))

    def _exchange_token(self, client: RegisteredClient, request: AuthServerRequest) -> dict[str, Any]:
        """Token exchange (RFC 8693): an access token, or an assertion for another issuer (ID-JAG)."""
        server, form = self._server, request.form
        kind, token = form.get("subject_token_type", ""), form.get("subject_token", "")
        if kind not in (ACCESS_TOKEN, ID_TOKEN, "urn:ietf:params:oauth:token-type:jwt"):
            raise OAuthError("invalid_request", "this subject_token_type is not supported")
        claims = self._claims_of(token)
        scopes = tuple(form.get("scope", "").split())
        wanted = form.get("requested_token_type", ACCESS_TOKEN)
        user = str(claims.get("sub"))
        grant = Grant(client.id, user, scopes, requested_resources(request))
        if wanted == ACCESS_TOKEN:
            return self._token_response(grant, request, refresh=False) | {"issued_token_type": ACCESS_TOKEN}
        if wanted != ID_JAG:
            raise OAuthError("invalid_request", "this requested_token_type is not supported")
        if not form.get("audience"):
            raise OAuthError("invalid_target", "audience must be the issuer that the assertion is for")
        now = int(server.clock())
        fields: dict[str, Any] = {
            "iss": server.issuer,
            "sub": user,
            "aud": form["audience"],
            "client_id": form.get("client_id") or client.id,
            "jti": secrets.token_hex(8),
            "iat": now,
            "exp": now + 300,
        }
        if grant.resource:
            fields["resource"] = grant.resource[0]
        if scopes:
            fields["scope"] = " ".join(scopes)
        signed = server.keys.sign(fields, server.faults, {"typ": "oauth-id-jag+jwt"})
        answer = {"access_token": signed, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}
        return answer | ({"scope": " ".join(scopes)} if scopes else {})

    def _grant_for_assertion(self, client: RegisteredClient, request: AuthServerRequest) -> dict[str, Any]:
        """A token for another issuer's assertion about a user (RFC 7523)."""
        server, form = self._server, request.form
        assertion = form.get("assertion", "")
        other = server.trusted.get(str(unverified_claims(assertion).get("iss")))
        if other is None:
            raise OAuthError("invalid_grant", "this issuer is not trusted")
        claims = self._verified(assertion, other)
        if server.issuer not in texts(claims.get("aud")) or claims.get("client_id") not in (None, client.id):
            raise OAuthError("invalid_grant", "the assertion has another audience or client_id")
        name = str(claims.get("jti"))
        if name in server.assertions:
            raise OAuthError("invalid_grant", "the assertion was used before")
        server.assertions.add(name)
        scopes = tuple((form.get("scope") or text(claims.get("scope")) or "").split())
        about = texts(claims.get("resource")) or requested_resources(request)
        grant = Grant(client.id, str(claims.get("sub")), scopes, about)
        return self._token_response(grant, request, refresh=False)

    def _claims_of(self, token: str) -> dict[str, Any]:
        issued = self._server.issued_tokens.get(token)
        return issued[1] if issued is not None else self._verified(token, self._server)

    def _verified(self, token: str, issuer: AuthorizationServer) -> dict[str, Any]:
        try:
            claims = verified_claims(token, issuer.keys.all, SIGNATURE_ALGORITHMS)
        except Denied as denied:
            raise OAuthError("invalid_grant", denied.detail or denied.message) from None
        if claims.get("exp", 0) < self._server.clock():
            raise OAuthError("invalid_grant", "the token has expired")
        return claims

    def _for_resources(self, grant: Grant, request: AuthServerRequest) -> Grant:
        """The grant, narrowed to the requested resources, if there are any. Raises `OAuthError`."""
        wanted = requested_resources(request)
        if not wanted:
            return grant
        if grant.resource and not set(wanted) <= set(grant.resource):
            raise OAuthError("invalid_target", "the grant is for another resource")
        return replace(grant, resource=wanted)

    @staticmethod
    def _may_refresh(client: RegisteredClient, kind: str = "") -> bool:
        return client.grants is None or "refresh_token" in client.grants or kind in client.grants

    # --- introspection and revocation

    async def _introspect(self, request: AuthServerRequest) -> AuthServerResponse:
        """Token introspection (RFC 7662), for clients with authentication only."""
        client = await self._authenticate_client(request)
        if client.method == "none":
            raise OAuthError("invalid_client", "introspection requires client authentication", 401)
        token = request.form.get("token", "")
        issued = self._server.issued_tokens.get(token)
        if issued is None or issued[1].get("exp", 0) < self._server.clock():
            return json_response({"active": False})
        return json_response({"active": True, "token_type": "Bearer", **issued[1]})

    async def _revoke(self, request: AuthServerRequest) -> AuthServerResponse:
        """Token revocation (RFC 7009); a refresh token is revoked with all tokens of its grant."""
        client = await self._authenticate_client(request)
        token = request.form.get("token", "")
        issued, refresh = self._server.issued_tokens.get(token), self._server.refresh_tokens.get(token)
        if issued is not None and issued[0] is not None and issued[0].client_id == client.id:
            del self._server.issued_tokens[token]
        if refresh is not None and refresh.grant.client_id == client.id:
            self._revoke_family(refresh.grant.family)
        return json_response({})

    # --- the consent page, client registration, and the device grant

    async def _authorize(self, request: AuthServerRequest) -> AuthServerResponse:
        """The authorization endpoint: ask the user, and redirect. Without a valid redirect URI, show an error page."""
        params = request.form if request.method == "POST" else request.params
        try:
            client = await self._find_client(params.get("client_id"))
        except OAuthError as error:
            return text_response(f"{error.error}: {error.description}", 400)
        back = params.get("redirect_uri") or (client.redirect_uris[0] if len(client.redirect_uris) == 1 else "")
        if not client.allows_redirect_to(back):
            return text_response("invalid_request: redirect_uri is not registered for this client", 400)
        try:
            self._check_code_request(params)
            consent_request = ConsentRequest(
                client, tuple(params.get("scope", "").split()), self._resources(request), params
            )
        except OAuthError as error:
            return self._redirect_error(back, error, params)
        decision = self._server.consent(consent_request)
        if isinstance(decision, Refuse):
            return self._redirect_error(back, OAuthError(decision.error, decision.description), params)
        if decision is None:
            return text_response("Do you allow this?")
        return self._redirect(back, {"code": self._code(consent_request, decision, back)}, params)

    def _check_code_request(self, params: Mapping[str, str]) -> None:
        if params.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        if not params.get("code_challenge") or params.get("code_challenge_method") != "S256":
            raise OAuthError("invalid_request", "code_challenge is required, with S256")

    def _resources(self, request: AuthServerRequest) -> tuple[str, ...]:
        found = requested_resources(request)
        for each in found:
            parts = urlsplit(each)
            if not parts.scheme or parts.fragment:
                raise OAuthError("invalid_target", "resource must be an absolute URL without a fragment")
        return found

    def _code(self, consent_request: ConsentRequest, decision: Approve, back: str) -> str:
        code = secrets.token_urlsafe(24)
        scopes = (
            consent_request.scopes
            if decision.scopes is None
            else tuple(s for s in consent_request.scopes if s in decision.scopes)
        )
        jkt = consent_request.params.get("dpop_jkt") if self._server.dpop else None
        grant = Grant(consent_request.client.id, decision.user, scopes, consent_request.resource, jkt=jkt)
        expires = self._server.clock() + CODE_LIFETIME
        self._server.codes[code] = AuthorizationCode(grant, back, consent_request.params.get("code_challenge"), expires)
        return code

    def _redirect_error(self, back: str, error: OAuthError, params: Mapping[str, str]) -> AuthServerResponse:
        fields = {"error": error.error, "error_description": error.description or None}
        return self._redirect(back, fields, params)

    def _redirect(self, back: str, fields: Mapping[str, str | None], params: Mapping[str, str]) -> AuthServerResponse:
        server = self._server
        whole: dict[str, str | None] = {**fields, "state": params.get("state"), "iss": server.issuer}
        query = urlencode(
            {name: value for name, value in with_fault(whole, server.faults.redirect).items() if value is not None}
        )
        location = f"{back}{'&' if urlsplit(back).query else '?'}{query}"
        return AuthServerResponse(302, headers=(("location", location), ("cache-control", "no-store")))

    async def _register(self, request: AuthServerRequest) -> AuthServerResponse:
        """Dynamic client registration (RFC 7591)."""
        if not self._server.registration:
            return text_response("Not Found", 404)
        known: Any = request.json()
        if not is_object(known):
            raise OAuthError("invalid_client_metadata", "the body is not a JSON object")
        method = known.get("token_endpoint_auth_method", "client_secret_basic")
        secret = secrets.token_urlsafe(24) if str(method).startswith("client_secret") else None
        client = client_from_metadata(
            {**known, "token_endpoint_auth_method": method}, f"c-{secrets.token_hex(8)}", secret, client_keys(known)
        )
        self._server.clients[client.id] = client
        answer = {**known, "client_id": client.id, "client_id_issued_at": int(self._server.clock())}
        answer["token_endpoint_auth_method"] = client.method
        if client.secret is not None:
            answer |= {"client_secret": client.secret, "client_secret_expires_at": 0}
        return json_response(answer, 201)

    async def _device_authorization(self, request: AuthServerRequest) -> AuthServerResponse:
        """The device authorization endpoint (RFC 8628)."""
        server = self._server
        client = await self._authenticate_client(request)
        typed = "".join(secrets.choice(_USER_CODE_LETTERS) for _ in range(8))
        device = DeviceAuthorization(
            secrets.token_urlsafe(24),
            f"{typed[:4]}-{typed[4:]}",
            client.id,
            tuple(request.form.get("scope", "").split()),
            requested_resources(request),
            server.clock() + server.device_lifetime,
        )
        server.devices[device.code] = device
        return json_response(
            {
                "device_code": device.code,
                "user_code": device.user_code,
                "verification_uri": server.url("device"),
                "verification_uri_complete": f"{server.url('device')}?user_code={device.user_code}",
                "expires_in": int(server.device_lifetime),
                "interval": server.device_interval,
            }
        )

    async def _device(self, request: AuthServerRequest) -> AuthServerResponse:
        """The page on which a user enters a device code."""
        if request.method != "POST":
            return device_form("Type in the code that your device shows.", request.params.get("user_code", ""))
        typed = request.form.get("user_code", "").strip()
        code = "".join(each for each in typed.upper() if each.isalnum())
        device = next(
            (
                one
                for one in self._server.devices.values()
                if _equal_in_constant_time(one.user_code.replace("-", ""), code)
            ),
            None,
        )
        if device is None or device.expires < self._server.clock():
            return device_form(
                "There is no such code, or it has expired. Begin again on the device, or type it again.", typed, 400
            )
        client = self._server.clients.get(device.client_id) or RegisteredClient(device.client_id)
        decision = self._server.consent(ConsentRequest(client, device.scopes, device.resource, request.form))
        if decision is None:
            return device_form("Do you allow this?", typed)
        device.decision = decision
        if isinstance(decision, Refuse):
            return text_response("Refused: the device gets an error.")
        return text_response(f"You are signed in as {decision.user}: go back to your device.")

    # --- client authentication

    async def _find_client(self, id: str | None) -> RegisteredClient:
        """The client of that id; an id that is a URL is read as a client metadata document. Raises `OAuthError`."""
        server = self._server
        known = server.clients.get(id or "")
        if known is not None:
            return known
        if id is None or urlsplit(id).scheme not in ("http", "https"):
            raise OAuthError("invalid_client", "the client is unknown", 401)
        fields = server.client_documents.get(id)
        if fields is None:
            try:
                answer = await server.documents(id)
                fields = decode(answer.body)
            except (GreenroomError, ProtocolError) as error:
                raise OAuthError("invalid_client", f"the client's document cannot be read: {error}", 401) from None
        if not is_object(fields) or fields.get("client_id") != id:
            raise OAuthError("invalid_client", "the client's document names another client_id", 401)
        return client_from_metadata({"token_endpoint_auth_method": "none", **fields}, id, None, client_keys(fields))

    async def _authenticate_client(self, request: AuthServerRequest) -> RegisteredClient:
        """The client of a request, authenticated by its registered method. Raises `OAuthError`."""
        form = request.form
        assertion = form.get("client_assertion")
        login = _basic_login(request.headers.get("authorization"))
        if assertion is not None:
            return await self._client_by_assertion(form, assertion)
        id, secret = login or (form.get("client_id"), form.get("client_secret"))
        client = await self._find_client(id)
        how = "client_secret_basic" if login else "none" if secret is None else "client_secret_post"
        if how != client.method:
            raise OAuthError("invalid_client", f"this client authenticates by {client.method}, and not by {how}", 401)
        if client.secret is not None and not secrets.compare_digest(client.secret.encode(), (secret or "").encode()):
            raise OAuthError("invalid_client", "the client secret is wrong", 401)
        return client

    async def _client_by_assertion(self, form: Mapping[str, str], assertion: str) -> RegisteredClient:
        """Client authentication by a signed assertion (RFC 7523, section 2.2)."""
        server = self._server
        if form.get("client_assertion_type") != ASSERTION:
            raise OAuthError("invalid_client", "client_assertion_type is not supported", 401)
        claimed = unverified_claims(assertion)
        client = await self._find_client(form.get("client_id") or str(claimed.get("sub")))
        try:
            claims = verified_claims(assertion, client.keys, SIGNATURE_ALGORITHMS)
        except Denied as denied:
            raise OAuthError("invalid_client", f"the assertion: {denied.detail or denied.message}", 401) from None
        ours = {server.issuer, server.url("token")}
        if client.method != "private_key_jwt" or not claims.get("sub") == claims.get("iss") == client.id:
            raise OAuthError("invalid_client", "the assertion is another client's", 401)
        if not ours & set(texts(claims.get("aud"))):
            raise OAuthError("invalid_client", "the assertion has another audience", 401)
        expires, name = claims.get("exp"), claims.get("jti")
        if not isinstance(expires, int | float) or expires < server.clock() or not isinstance(name, str):
            raise OAuthError("invalid_client", "the assertion has expired, or has no jti", 401)
        if name in server.assertions:
            raise OAuthError("invalid_client", "the assertion was used before", 401)
        server.assertions.add(name)
        return client

    # --- issued tokens

    def issue_access_token(
        self, grant: Grant, lifetime: float | None = None, more: Mapping[str, Any] | None = None
    ) -> str:
        """Issue an access token."""
        server = self._server
        now = server.clock()
        about = grant.resource or ((server.audience,) if server.audience else ())
        fields: dict[str, Any] = {
            "iss": server.issuer,
            "sub": grant.user,
            "client_id": grant.client_id,
            "iat": int(now),
            "exp": int(now + (server.lifetime if lifetime is None else lifetime)),
            "jti": secrets.token_hex(8),
        }
        if about:
            fields["aud"] = about[0] if len(about) == 1 else list(about)
        if grant.scopes:
            fields["scope"] = " ".join(grant.scopes)
        if grant.jkt is not None:
            fields["cnf"] = {"jkt": grant.jkt}
        claims = with_fault(fields, {**(more or {}), **server.faults.claims})
        token = (
            secrets.token_urlsafe(24) if server.opaque else server.keys.sign(claims, server.faults, {"typ": "at+jwt"})
        )
        server.issued_tokens[token] = (grant, claims)
        return token

    def _token_response(self, grant: Grant, request: AuthServerRequest, *, refresh: bool) -> dict[str, Any]:
        """The response of the token endpoint for a grant: the tokens are bound to the key of the request's proof, if it has one."""
        server = self._server
        grant = replace(grant, jkt=request.jkt)
        fields: dict[str, Any] = {
            "access_token": self.issue_access_token(grant),
            "token_type": "Bearer" if grant.jkt is None else "DPoP",
            "expires_in": int(server.lifetime),
        }
        if grant.scopes:
            fields["scope"] = " ".join(grant.scopes)
        if refresh:
            fields["refresh_token"] = self._new_refresh_token(grant)
        if "openid" in grant.scopes:
            claims = {"iss": server.issuer, "sub": grant.user, "aud": grant.client_id}
            now = int(server.clock())
            fields["id_token"] = server.keys.sign(claims | {"iat": now, "exp": now + 300}, server.faults)
        return with_fault(fields, server.faults.answer)

    def _new_refresh_token(self, grant: Grant) -> str:
        """Issue a refresh token."""
        token = secrets.token_urlsafe(24)
        self._server.refresh_tokens[token] = IssuedRefreshToken(grant)
        return token

    def _revoke_family(self, family: str) -> None:
        """Revoke all tokens of a grant."""
        server = self._server
        server.issued_tokens = {
            token: entry
            for token, entry in server.issued_tokens.items()
            if entry[0] is None or entry[0].family != family
        }
        server.refresh_tokens = {
            token: each for token, each in server.refresh_tokens.items() if each.grant.family != family
        }


def _equal_in_constant_time(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())


def device_form(text: str, code: str, status: int = 200) -> AuthServerResponse:
    """The page with the field for the user code."""
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
    return AuthServerResponse(status, body.encode(), headers)


def requested_resources(request: AuthServerRequest) -> tuple[str, ...]:
    """The `resource` parameters, which may be repeated (RFC 8707)."""
    fields = request.forms if request.method == "POST" else parse_qs(request.query)
    return tuple(fields.get("resource", ()))


def client_keys(fields: Mapping[str, Any]) -> Any:
    """The keys in a client's metadata."""
    try:
        return tuple(parse_jwk_set(fields["jwks"])) if "jwks" in fields else ()
    except InvalidKeyError:
        raise OAuthError("invalid_client_metadata", "jwks is not a JWK set") from None


def unverified_claims(token: str) -> dict[str, Any]:
    """The claims of a token without verification. Raises `OAuthError`."""
    claims = decode_part(token, 1)
    if claims is None:
        raise OAuthError("invalid_grant", "this is not a JWT")
    return claims


def _basic_login(authorization: str | None) -> tuple[str, str] | None:
    if authorization is None:
        return None
    try:
        id, secret = extract_basic_auth({"authorization": authorization})
    except Denied:
        raise OAuthError("invalid_client", "the Authorization header is malformed", 401) from None
    return unquote_plus(id), unquote_plus(secret)
