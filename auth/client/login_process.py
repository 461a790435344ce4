"""Logins that are kept and renewed: `LoginCredentials` for the wires of a client, and the process behind them.

`LoginProcess` owns one login. The credentials of all connections with an equal login method and store call it when there is no token, when the token is about
to expire, or when the server refused it; otherwise they read its `LoginView` without a call. It stops when unused and is started again on demand. If it
dies, calls in progress fail with a temporary `SignInError`, and the next one starts it again from the store.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.errors import SignInError
from greenroom.supervision import (
    NORMAL,
    ActorError,
    AlreadyRegistered,
    GenServer,
    Options,
    Ref,
    Reject,
    StartFailed,
    Stop,
    send_after,
    whereis,
)
from greenroom.supervision.event_bus import bus
from greenroom.transports.client.interfaces import digest_of

from .auth_option import fetcher_for
from .dpop_proofs import GrantBinding, ProofKey, ServerNonces, TokenProver, strongest
from .metadata_discovery import TokenSource, discover
from .token_requests import OAuthEndpoint, TokenRequest, request_token
from .token_stores import LoginRecord, MemoryStore, os_error_text, store_failures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Hashable, Mapping, Sequence

    from greenroom.supervision import NoReply, Pid
    from greenroom.transports.client.fetch import FetchFunction
    from greenroom.transports.client.http_settings import Trust

    from .dpop_proofs import DpopUse
    from .token_requests import LoginMethod
    from .token_stores import TokenStore

LOGIN_TIMEOUT: Final = 900.0
"""Seconds for one call of the process: a user who signs in, and the calls queued before it."""
TOKEN_SCHEMES: Final = ("bearer", "dpop")
_REFRESH: Final = "refresh"
"""The kind of a sign-in that needs no user: the token is renewed by another one."""
_REFUSED_PROOF: Final = frozenset({"use_dpop_nonce", "invalid_dpop_proof"})


class LoginCredentials:
    """`Credentials` for one login method at one server. Equal methods and stores share one process."""

    def __init__(self, login_method: LoginMethod, store: TokenStore, fetch: FetchFunction) -> None:
        """No request is sent before the first use."""
        self._login_method = login_method
        self._store = store
        self._fetch = fetch
        self._name = ("greenroom credential", store.name, login_method.name, login_method.dpop)
        self._pid: Pid | None = None
        self._view = LoginView()

    def __repr__(self) -> str:
        return f"LoginCredentials({self._login_method.url.partition('?')[0]!r})"

    @property
    def extensions(self) -> Sequence[str]:
        """The extensions of the protocol by which it signs in."""
        return self._login_method.extensions

    async def headers(self) -> Mapping[str, str]:
        """The headers with the bearer token, if there is one. Raises `SignInError`, also for a token that is bound to a key: see `headers_for`."""
        record = await self._current()
        if record is not None and record.proof_key is not None:
            raise SignInError(
                "token",
                "the token is bound to a key (DPoP), so each request has headers of its own: headers_for(method, url)",
            )
        return {} if record is None else {"authorization": f"Bearer {record.access_token}"}

    async def headers_for(self, method: str, url: str) -> Mapping[str, str]:
        """The headers for one HTTP request: those with the token if there is one, and a new proof if it is bound to a key. Raises `SignInError`."""
        record = await self._current()
        if record is None:
            return {}
        token, key = record.access_token, record.proof_key
        if key is None:
            return {"authorization": f"Bearer {token}"}
        proof = key.proof(method, url, nonce=self._view.nonces.newest(url), token=token)
        return {"authorization": f"DPoP {token}", "dpop": proof}

    @property
    def authorization(self) -> Hashable:
        """A digest of the present token, to compare; None before the login was loaded."""
        view = self._view
        return digest_of("" if view.record is None else view.record.access_token) if view.is_loaded else None

    def on_nonce(self, url: str, nonce: str) -> None:
        """A response from that URL named a nonce for the proofs of later requests."""
        self._view.nonces.note(url, nonce)

    async def _current(self) -> LoginRecord | None:
        process = await self._process()
        view = self._view
        view.used_at = now = asyncio.get_running_loop().time()
        record = view.record
        if (
            not view.is_loaded
            or (record is None and self._login_method.logs_in_early)
            or (record is not None and record.is_expiring() and now >= view.renew_after)
        ):
            with _process_failures():
                await process.call(LoginProcess.ensure_fresh, view.failures)
            record = view.record
        return record

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """The server answered 401 or 403: renew the token. Raises `SignInError`."""
        process = await self._process()
        self._view.used_at = asyncio.get_running_loop().time()
        if "dpop" in sent and any(each.params.get("error") in _REFUSED_PROOF for each in parse_challenges(challenge)):
            return True  # the token was not refused, and the next proof is another one
        scheme, _, value = sent.get("authorization", "").partition(" ")
        token = value if scheme.lower() in TOKEN_SCHEMES else None
        with _process_failures():
            return await process.call(LoginProcess.renew, status, challenge, token, self._view.failures)

    async def add_scopes(self, scopes: Sequence[str]) -> LoginRecord:
        """A login that has these scopes in addition to its own. Raises `SignInError`."""
        process = await self._process()
        with _process_failures():
            return await process.call(LoginProcess.add_scopes, tuple(scopes), self._view.failures)

    async def _process(self) -> Ref[LoginProcess]:
        while True:
            pid = whereis(self._name)
            if pid is not None and pid == self._pid:
                return Ref(pid, LOGIN_TIMEOUT)
            if pid is None:
                view = LoginView()
                options = Options(name=self._name, label="credential")
                try:
                    ref = await options.start(LoginProcess, self._login_method, self._store, self._fetch, view)
                except (AlreadyRegistered, StartFailed) as error:
                    if whereis(self._name) is None:
                        raise _process_lost(error) from None
                    continue
                self._pid, self._view = whereis(self._name), view
                return Ref(ref.target, LOGIN_TIMEOUT)
            try:
                self._view = await Ref[LoginProcess](pid, LOGIN_TIMEOUT).call(LoginProcess.view)
            except ActorError as error:
                if whereis(self._name) == pid:
                    raise _process_lost(error) from None
                continue
            self._pid = pid


@contextmanager
def _process_failures() -> Generator[None]:
    try:
        yield
    except ActorError as error:
        raise _process_lost(error) from None


def _process_lost(error: BaseException) -> SignInError:
    return SignInError("credential", f"the login process ended: {error}", temporary=True)


# --- The process: it handles requests for a token, and reports of refused tokens, one after another.
# So a hundred simultaneous 401s cause one refresh: the first call refreshes, and the others find that their token is no longer the current one.
# Other OS processes are covered too, since all changes happen under the store's lock, and the store is read before a server is asked.
# An unreachable server invalidates nothing: a token is used until it is refused, a refresh token until its issuer rejects it.

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 900.0
"""Seconds without use after which the process stops; the next use starts it again."""
RENEW_PAUSE: Final = 10.0
"""Seconds between attempts to renew a token that is about to expire."""
MOST_LOGINS: Final = 3
"""How many new logins are made per minute, and how many attempts for one set of scopes: a server that refuses every token must not be retried for ever."""
_MINUTE: Final = 60.0
_MOST_SCOPE_SETS: Final = 64
_FORBIDDEN: Final = 403
_UNKNOWN_CLIENT: Final = frozenset({"invalid_client", "unauthorized_client"})


@dataclass(frozen=True, kw_only=True)
class LoginSettings(ABC):
    """Settings that all login methods have."""

    scopes: Sequence[str] = ()
    """The scopes to request; empty: those that the server states."""
    store: TokenStore = field(default_factory=MemoryStore)
    """Where the login is stored."""
    private: bool = False
    """Whether authorization servers may be in private networks."""
    trust: Trust | None = None
    """The TLS trust for requests to authorization servers."""
    fetch: FetchFunction | None = None
    """A fetch function that replaces ours."""

    def fetcher(self, url: str) -> FetchFunction:
        """The fetch function for a login at that server."""
        return self.fetch or fetcher_for(url, private=self.private, trust=self.trust)

    def credentials(self, url: str) -> LoginCredentials:
        """The credentials for one server. Raises `ConfigError`."""
        fetch = self.fetcher(url)
        return LoginCredentials(self.login_method(url, fetch), self.store, fetch)

    @abstractmethod
    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """The login method for that server."""


@dataclass(slots=True)
class LoginView:
    """The login as callers read it, without a call to the process."""

    record: LoginRecord | None = None
    is_loaded: bool = False
    failures: int = 0
    """The number of failed attempts. A caller passes the number it has seen, and so shares a failure that it waited for."""
    used_at: float = 0.0
    renew_after: float = 0.0
    nonces: ServerNonces = field(default_factory=ServerNonces)


class LoginProcess(GenServer):
    """The process that owns one login."""

    def __init__(self, login_method: LoginMethod, store: TokenStore, fetch: FetchFunction, view: LoginView) -> None:
        """`view` is what callers read."""
        self._login_method = login_method
        self._store = store
        self._fetch = fetch
        self._view = view
        self._failure: SignInError | None = None
        self._logins: deque[float] = deque(maxlen=MOST_LOGINS)
        self._scope_requests: dict[frozenset[str], int] = {}
        self._source: TokenSource | None = None
        self._unsaved = False
        """Whether the current record is newer than the stored one, because writing failed."""

    def init(self) -> None:
        """Check at intervals whether the login is still used."""
        self._view.used_at = _now()
        send_after(IDLE_SECONDS, self.pid, "idle?")

    def handle_info(self, message: Any) -> NoReply | Stop | None:
        """Stop when the login has not been used for `IDLE_SECONDS` seconds."""
        if message != "idle?":
            return super().handle_info(message)  # type: ignore[return-value]  # this handler is not a coroutine
        if _now() - self._view.used_at >= IDLE_SECONDS and not self._unsaved:
            return Stop(NORMAL)
        send_after(IDLE_SECONDS, self.pid, "idle?")
        return None

    def view(self) -> LoginView:
        """The view, for callers that find the process running."""
        return self._view

    async def ensure_fresh(self, seen: int) -> None:
        """Provide a token that is not about to expire, if that needs no user."""
        view = self._view
        with self._shared_failure(seen):
            if not view.is_loaded:
                view.record = await self._load() or await self._login_method.initial_record()
                view.is_loaded = True
            if view.record is None:
                if self._login_method.logs_in_early:
                    async with self._locked():
                        view.record = await self._load() or await self._log_in(None, (), None)
            elif view.record.is_expiring() and _now() >= view.renew_after:
                await self._renew_early(view.record)

    async def renew(self, status: int, header: str, sent: str | None, seen: int) -> bool:
        """The server refused that token, or wants more scopes. Returns whether to retry the request."""
        with self._shared_failure(seen):
            held = self._view.record
            if held is not None and held.access_token != sent:
                return True
            async with self._locked():
                stored = await self._load()
                if stored is not None and stored.access_token != sent and not stored.is_expired():
                    self._view.record = stored
                else:
                    await self._renew_refused(status, header, stored or held)
        return True

    async def add_scopes(self, scopes: Sequence[str], seen: int) -> LoginRecord:
        """A login with these scopes in addition to its own. The user is asked if the stored one lacks some."""
        with self._shared_failure(seen):
            async with self._locked():
                stored = await self._load()
                if stored is not None and stored.access_token and set(scopes) <= set(stored.scopes):
                    return stored
                return await self._log_in(None, tuple(scopes), stored, adds_scopes=True)

    # --- steps

    @contextmanager
    def _shared_failure(self, seen: int) -> Generator[None]:
        """Run one attempt. A caller that waited for an attempt that failed shares its failure instead of repeating it."""
        if self._failure is not None and self._view.failures > seen:
            raise Reject(self._failure)
        try:
            yield
        except (SignInError, OSError) as error:
            if isinstance(error, SignInError):
                self._failure = error
            else:  # a program's own function, such as `browser`, failed: that fails the login and not the process
                what = f"a function that signs in has failed: {type(error).__name__}: {os_error_text(error)}"
                self._failure = SignInError("authorization", what, temporary=True)
            self._view.failures += 1
            self._announce(self._login_method.kind, self._failure)
            log.warning("signing in at %s failed: %s", self._login_method.url.partition("?")[0], self._failure)
            raise Reject(self._failure) from None

    def _announce(self, kind: str, error: BaseException | None = None) -> None:
        """Tell the listeners of events that a sign-in has ended."""
        if bus.listener is not None:
            from greenroom.auth.sign_in_events import announce_sign_in  # noqa: PLC0415 - only a program with a listener loads the events

            announce_sign_in(self._login_method.url, kind, error)

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            with store_failures():
                await stack.enter_async_context(self._store.lock(self._login_method.name))
            yield

    async def _load(self) -> LoginRecord | None:
        """The stored record; or the current one, if it is newer and could not be stored."""
        with store_failures():
            stored = LoginRecord.read(await self._store.get(self._login_method.name))
        if stored is not None and stored.proof_key is None and self._login_method.dpop == "require":
            stored = None  # made before bound tokens were required
        held = self._view.record
        if self._unsaved and held is not None and (stored is None or stored.obtained_at <= held.obtained_at):
            return held
        return stored

    async def _save(self, record: LoginRecord) -> LoginRecord:
        self._view.record = record
        self._view.is_loaded = True
        self._view.renew_after = 0.0
        try:
            await self._store.put(self._login_method.name, record.as_dict())
            self._unsaved = False
        except (SignInError, OSError) as error:
            self._unsaved = True
            log.warning("the new token is used, and could not be stored: %s", error)
        return record

    async def _renew_early(self, old: LoginRecord) -> None:
        """Renew a token before it expires. It is still valid, so a failure costs nothing."""
        try:
            async with self._locked():
                stored = await self._load()
                if stored is not None and stored.access_token != old.access_token and not stored.is_expiring():
                    self._view.record = stored
                elif self._login_method.is_unattended:
                    await self._log_in(None, (), None)
                elif await self._refresh(stored or old, None) is None:
                    self._view.renew_after = float("inf")
        except (
            SignInError,
            OSError,
        ) as error:  # errors of the store too: the current token is valid until it is refused
            log.info("a token that is about to end could not be renewed yet: %s", error)
            self._announce(_REFRESH, error)
            self._view.renew_after = _now() + RENEW_PAUSE

    async def _renew_refused(self, status: int, header: str, old: LoginRecord | None) -> LoginRecord:
        challenges = [each for each in parse_challenges(header) if each.scheme in TOKEN_SCHEMES]
        challenge = bearer_challenge(header) or next(iter(challenges), None)
        params: Mapping[str, str] = {} if challenge is None else challenge.params
        scopes = tuple(params.get("scope", "").split())
        if status == _FORBIDDEN:
            self._count_scope_request(scopes)
            source = self._source or await self._discover(params.get("resource_metadata"))
            return await self._log_in(source, scopes, old, adds_scopes=True)
        found: TokenSource | None = None
        try:
            found = await self._discover(params.get("resource_metadata"))
        except SignInError as error:
            if old is None or not error.temporary:
                raise
        wanted = _challenged_binding(challenges)
        binding = self._binding(found, wanted, old)
        is_kept = old is not None and (old.proof_key is None or binding.use != "never")
        if old is not None and is_kept and (found is None or found.server.issuer == old.issuer):
            renewed = await self._refresh(old, found, binds=binding.use == "require")
            if renewed is not None:
                return renewed
        if found is None:
            raise SignInError(
                "discovery", "the authorization server cannot be reached: try again later", temporary=True
            )
        return await self._log_in(found, scopes, old, wanted=wanted)

    def _binding(self, source: TokenSource | None, challenged: DpopUse | None, old: LoginRecord | None) -> GrantBinding:
        """Whether new tokens are bound: as it is set, or else as the server's metadata and its challenge have it. Without a challenge, bound tokens remain bound."""
        use = self._login_method.dpop
        if use == "auto":
            if challenged is None:
                challenged = "require" if old is not None and old.proof_key is not None else "never"
            use = strongest((challenged, "never" if source is None else source.dpop))
        return GrantBinding(use, self._view.nonces)

    async def _discover(self, resource_metadata: str | None) -> TokenSource:
        source = self._login_method.source
        if source is None:
            source = await discover(
                self._login_method.url,
                self._fetch,
                resource_metadata=resource_metadata,
                issuer=self._login_method.issuer,
            )
        self._source = source
        return source

    async def _refresh(
        self, old: LoginRecord, source: TokenSource | None, *, binds: bool = False
    ) -> LoginRecord | None:
        """Refresh with the refresh token; None without a valid one. Network failures are raised, and invalidate nothing.

        Tokens that are bound to a key remain bound to it. `binds`: tokens that were not bound are now.

        """
        if old.refresh_token is None:
            return None
        identity = await self._login_method.identity(old)
        if identity is None:
            return None
        key = ProofKey() if old.proof_key is None and binds else old.proof_key
        prover = None if key is None else TokenProver(key, self._view.nonces, required=True)
        methods = source.server.auth_methods if source is not None else ()
        url = (source.server.token_endpoint if source is not None else None) or old.token_endpoint
        try:
            form = {"grant_type": "refresh_token", "refresh_token": old.refresh_token}
            endpoint = OAuthEndpoint(url, old.issuer, methods)
            tokens = await request_token(
                endpoint, identity, self._fetch, form, resource=old.resource, step="refresh", prover=prover
            )
        except SignInError as error:
            if error.temporary:
                raise
            if error.code in _UNKNOWN_CLIENT:
                await self._login_method.forget(old)
            log.info("the refresh token was rejected: %s", error)
            self._announce(_REFRESH, error)
            stored = await self._load()
            if stored is None or stored.refresh_token == old.refresh_token:
                await self._save(replace(old, refresh_token=None))
            return None
        self._announce(_REFRESH)
        return await self._save(old.with_tokens(tokens))

    async def _log_in(
        self,
        source: TokenSource | None,
        scopes: tuple[str, ...],
        old: LoginRecord | None,
        *,
        adds_scopes: bool = False,
        wanted: DpopUse | None = None,
    ) -> LoginRecord:
        now = _now()
        if len(self._logins) == MOST_LOGINS and now - self._logins[0] < _MINUTE:
            raise SignInError(
                "token",
                f"the server has refused {MOST_LOGINS} new logins within a minute: it does not accept the tokens of its own authorization server",
            )
        self._logins.append(now)
        if source is None:
            source = await self._discover(None)
        before = old if old is not None and old.issuer == source.server.issuer else None
        if self._login_method.is_issuer_bound and old is not None and before is None:
            raise SignInError(
                "discovery",
                f"the server accepts tokens of {source.server.issuer} now, and this client is registered at {old.issuer}: register it there",
            )
        binding = self._binding(source, wanted, old or self._view.record)
        request = TokenRequest(scopes, before, adds_scopes, binding)
        record = await self._login_method.obtain(source, request)
        self._announce(self._login_method.kind)
        return await self._save(record)

    def _count_scope_request(self, scopes: tuple[str, ...]) -> None:
        wanted = frozenset(scopes)
        times = self._scope_requests.get(wanted, 0)
        if times >= MOST_LOGINS or len(self._scope_requests) >= _MOST_SCOPE_SETS:
            raise SignInError(
                "authorization",
                f"the server requires {' '.join(sorted(wanted)) or 'other scopes'}, and refused the tokens with those scopes {times} times: ask its operator",
                code="insufficient_scope",
            )
        self._scope_requests[wanted] = times + 1


def _challenged_binding(challenges: Sequence[AuthChallenge]) -> DpopUse | None:
    """The use of bound tokens that the challenges of a 401 ask for; None if they say nothing about tokens."""
    schemes = {each.scheme for each in challenges}
    if not schemes:
        return None
    return "never" if "dpop" not in schemes else "auto" if "bearer" in schemes else "require"


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- The `WWW-Authenticate` header of a 401 or 403: parsed leniently, bounded, and in linear time. Pure.

LONGEST_CHALLENGE: Final = 8192
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SCHEME_START: Final = re.compile(rf"[\s,]*({_WORD})(?:[ \t]+|\Z|(?=,))")
_PARAM: Final = re.compile(rf'[\s,]*({_WORD})[ \t]*=[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s,"]*))')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AuthChallenge:
    """One challenge. Schemes and parameter names are lower-cased; the first of repeated parameters counts."""

    scheme: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_challenges(header: str) -> list[AuthChallenge]:
    """The challenges in a header, as far as they can be parsed."""
    header = header[:LONGEST_CHALLENGE]
    found: list[AuthChallenge] = []
    at = 0
    params: dict[str, str] = {}
    while at < len(header):
        param = _PARAM.match(header, at) if found else None
        if param is not None:
            value = param[3] if param[2] is None else _ESCAPED.sub(r"\1", param[2])
            params.setdefault(param[1].lower(), value)
            at = param.end()
            continue
        scheme = _SCHEME_START.match(header, at)
        if scheme is None:
            break
        params = {}
        found.append(AuthChallenge(scheme[1].lower(), params))
        at = scheme.end()
    return found


def bearer_challenge(header: str) -> AuthChallenge | None:
    """The first challenge of the scheme Bearer."""
    return next((each for each in parse_challenges(header) if each.scheme == "bearer"), None)
