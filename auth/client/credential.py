"""The credentials that a wire asks for its headers: they look at the login that its keeper shows, and have the keeper do what takes longer."""

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

from .discovery import Place, discover
from .door import fetcher_for
from .stores import MemoryStore, Record, reason, store_failures
from .token_calls import Endpoint, Need, ask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping, Sequence

    from greenroom.supervision import NoReply, Pid
    from greenroom.transports.client.fetch import Fetch
    from greenroom.transports.client.http_settings import Trust

    from .stores import TokenStore
    from .token_calls import Way

PATIENCE: Final = 900.0
"""Seconds for a user to sign in, with everything around it, and for the requests before it."""
_SCHEME: Final = "Bearer "


class KeptCredentials:
    """`Credentials` of one way to log in at one server. Those with equal ways and stores share one keeper."""

    def __init__(self, way: Way, store: TokenStore, fetch: Fetch) -> None:
        """Nothing is asked before a request needs it."""
        self._way = way
        self._store = store
        self._fetch = fetch
        self._name = ("greenroom credential", store.name, way.name)
        self._pid: Pid | None = None
        self._shown = Shown()

    def __repr__(self) -> str:
        return f"KeptCredentials({self._way.url.partition('?')[0]!r})"

    async def headers(self) -> Mapping[str, str]:
        """The token, if there is one. Raises `SignInError`."""
        keeper = await self._keeper()
        shown = self._shown
        shown.used = now = asyncio.get_running_loop().time()
        record = shown.record
        if (
            not shown.loaded
            or (record is None and self._way.eager)
            or (record is not None and record.is_old() and now >= shown.pause)
        ):
            with _keeper_failures():
                await keeper.call(Keeper.fresh, shown.failures)
            record = shown.record
        return {} if record is None else {"authorization": f"{_SCHEME}{record.access_token}"}

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """The server said 401 or 403. Raises `SignInError`."""
        keeper = await self._keeper()
        self._shown.used = asyncio.get_running_loop().time()
        value = sent.get("authorization", "")
        token = value.removeprefix(_SCHEME) if value.startswith(_SCHEME) else None
        with _keeper_failures():
            return await keeper.call(Keeper.renew, status, challenge, token, self._shown.failures)

    async def widen(self, scopes: Sequence[str]) -> Record:
        """Have a login that has these scopes besides its own. Raises `SignInError`."""
        keeper = await self._keeper()
        with _keeper_failures():
            return await keeper.call(Keeper.widen, tuple(scopes), self._shown.failures)

    async def _keeper(self) -> Ref[Keeper]:
        while True:
            pid = whereis(self._name)
            if pid is not None and pid == self._pid:
                return Ref(pid, PATIENCE)
            if pid is None:
                shown = Shown()
                options = Options(name=self._name, label="credential")
                try:
                    ref = await options.start(Keeper, self._way, self._store, self._fetch, shown)
                except (AlreadyRegistered, StartFailed) as error:
                    if whereis(self._name) is None:
                        raise _lost(error) from None
                    continue
                self._pid, self._shown = whereis(self._name), shown
                return Ref(ref.target, PATIENCE)
            try:
                self._shown = await Ref[Keeper](pid, PATIENCE).call(Keeper.look)
            except ActorError as error:
                if whereis(self._name) == pid:
                    raise _lost(error) from None
                continue
            self._pid = pid


@contextmanager
def _keeper_failures() -> Generator[None]:
    try:
        yield
    except ActorError as error:
        raise _lost(error) from None


def _lost(error: BaseException) -> SignInError:
    return SignInError("credential", f"whoever keeps the login has ended: {error}", temporary=True)


# --- The process that keeps one login: requests that need a token, or were refused with one, come here, one after another.
# So a hundred requests that are refused at once are one refresh: the first has it done, and the others find that their token is not the one that holds any more.
# The same goes for other processes, since all is done under the store's lock, and what is kept is looked at before a server is asked.
# What cannot be reached takes nothing away: a token goes on until it is refused, a refresh token until its issuer does not want it.

log = logging.getLogger(__name__)

IDLE: Final = 900.0
"""Seconds without a question after which the process ends; it begins again with the next."""
PAUSE: Final = 10.0
"""Seconds before a token that is about to end is tried to be renewed again, when that did not go well."""
MOST: Final = 3
"""How often in a minute one logs in anew, and how often for the same scopes: a server that is never content is not asked for ever."""
_MINUTE: Final = 60.0
_MOST_STEPS: Final = 64
_FORBIDDEN: Final = 403
_UNKNOWN: Final = frozenset({"invalid_client", "unauthorized_client"})


@dataclass(frozen=True, kw_only=True)
class LoginSettings(ABC):
    """What all ways to log in can be told."""

    scopes: Sequence[str] = ()
    """What to ask for in any case: instead of all that the server says there is."""
    store: TokenStore = field(default_factory=MemoryStore)
    """Where logins are kept."""
    private: bool = False
    """Whether authorization servers may be in networks that are not public."""
    trust: Trust | None = None
    """The TLS trust for requests to authorization servers."""
    fetch: Fetch | None = None
    """What fetches, instead of our own."""

    def fetcher(self, url: str) -> Fetch:
        """What fetches for a login at that server."""
        return self.fetch or fetcher_for(url, private=self.private, trust=self.trust)

    def credentials(self, url: str) -> KeptCredentials:
        """For one server. Raises `ConfigError`."""
        fetch = self.fetcher(url)
        return KeptCredentials(self.way(url, fetch), self.store, fetch)

    @abstractmethod
    def way(self, url: str, fetch: Fetch) -> Way:
        """How to log in at that server."""


@dataclass(slots=True)
class Shown:
    """The login as callers may read it without a call to its keeper."""

    record: Record | None = None
    loaded: bool = False
    failures: int = 0
    """How many attempts have failed: a caller says how many there were, and so shares in the failure that it waited for."""
    used: float = 0.0
    pause: float = 0.0


class Keeper(GenServer):
    """The process."""

    def __init__(self, way: Way, store: TokenStore, fetch: Fetch, shown: Shown) -> None:
        """`shown` is where the login is seen."""
        self._way = way
        self._store = store
        self._fetch = fetch
        self._shown = shown
        self._failure: SignInError | None = None
        self._logins: deque[float] = deque(maxlen=MOST)
        self._steps: dict[frozenset[str], int] = {}
        self._place: Place | None = None
        self._unkept = False
        """Whether what is held is newer than what the store has, which could not be written."""

    def init(self) -> None:
        """Look now and then whether the login is still used."""
        self._shown.used = _now()
        send_after(IDLE, self.pid, "idle?")

    def handle_info(self, message: Any) -> NoReply | Stop | None:
        """Stop when the login has not been used for `IDLE` seconds."""
        if message != "idle?":
            return super().handle_info(message)  # type: ignore[return-value]  # it is no coroutine
        if _now() - self._shown.used >= IDLE and not self._unkept:
            return Stop(NORMAL)
        send_after(IDLE, self.pid, "idle?")
        return None

    def look(self) -> Shown:
        """What is seen of it."""
        return self._shown

    async def fresh(self, seen: int) -> None:
        """Have a token, if one can be had without the user, and one that holds for a moment."""
        shown = self._shown
        with self._shared_failure(seen):
            if not shown.loaded:
                shown.record = await self._kept() or await self._way.begin()
                shown.loaded = True
            if shown.record is None:
                if self._way.eager:
                    async with self._locked():
                        shown.record = await self._kept() or await self._log_in(None, (), None)
            elif shown.record.is_old() and _now() >= shown.pause:
                await self._renew_early(shown.record)

    async def renew(self, status: int, header: str, sent: str | None, seen: int) -> bool:
        """The server has refused that token, or wants more. Whether another try is worth it."""
        with self._shared_failure(seen):
            held = self._shown.record
            if held is not None and held.access_token != sent:
                return True
            async with self._locked():
                kept = await self._kept()
                if kept is not None and kept.access_token != sent and not kept.is_over():
                    self._shown.record = kept
                else:
                    await self._anew(status, header, kept or held)
        return True

    async def widen(self, scopes: Sequence[str], seen: int) -> Record:
        """Have a login that has these scopes besides its own: the user is asked where the one that is kept lacks some."""
        with self._shared_failure(seen):
            async with self._locked():
                kept = await self._kept()
                if kept is not None and kept.access_token and set(scopes) <= set(kept.scopes):
                    return kept
                return await self._log_in(None, tuple(scopes), kept, wider=True)

    # --- how

    @contextmanager
    def _shared_failure(self, seen: int) -> Generator[None]:
        """One attempt: a caller that has waited for one that failed shares its failure, and this one's is for the callers that wait now."""
        if self._failure is not None and self._shown.failures > seen:
            raise Reject(self._failure)
        try:
            yield
        except (SignInError, OSError) as error:
            if isinstance(error, SignInError):
                self._failure = error
            else:  # of the program's own functions, as of its `browser`: it fails this login, and not the process
                what = f"a function that signs in has failed: {type(error).__name__}: {reason(error)}"
                self._failure = SignInError("authorization", what, temporary=True)
            self._shown.failures += 1
            log.warning("signing in at %s: %s", self._way.url.partition("?")[0], self._failure)
            raise Reject(self._failure) from None

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            with store_failures():
                await stack.enter_async_context(self._store.lock(self._way.name))
            yield

    async def _kept(self) -> Record | None:
        """What is in the store, unless what is held could not be written there and is newer."""
        with store_failures():
            kept = Record.read(await self._store.get(self._way.name))
        held = self._shown.record
        if self._unkept and held is not None and (kept is None or kept.obtained_at <= held.obtained_at):
            return held
        return kept

    async def _keep(self, record: Record) -> Record:
        self._shown.record = record
        self._shown.loaded = True
        self._shown.pause = 0.0
        try:
            await self._store.put(self._way.name, record.as_dict())
            self._unkept = False
        except (SignInError, OSError) as error:
            self._unkept = True
            log.warning("the new token is used, and could not be kept: %s", error)
        return record

    async def _renew_early(self, old: Record) -> None:
        """Before it ends: the token was not refused yet, so nothing is lost when it does not go well."""
        try:
            async with self._locked():
                kept = await self._kept()
                if kept is not None and kept.access_token != old.access_token and not kept.is_old():
                    self._shown.record = kept
                elif self._way.alone:
                    await self._log_in(None, (), None)
                elif await self._refreshed(kept or old, None) is None:
                    self._shown.pause = float("inf")
        except (
            SignInError,
            OSError,
        ) as error:  # of the store as well: the token that is held is good until it is refused
            log.info("a token that is about to end could not be renewed yet: %s", error)
            self._shown.pause = _now() + PAUSE

    async def _anew(self, status: int, header: str, old: Record | None) -> Record:
        challenge = bearer_challenge(header)
        params: Mapping[str, str] = {} if challenge is None else challenge.params
        scopes = tuple(params.get("scope", "").split())
        if status == _FORBIDDEN:
            self._count_step(scopes)
            place = self._place or await self._found(params.get("resource_metadata"))
            return await self._log_in(place, scopes, old, wider=True)
        found: Place | None = None
        try:
            found = await self._found(params.get("resource_metadata"))
        except SignInError as error:
            if old is None or not error.temporary:
                raise
        if old is not None and (found is None or found.server.issuer == old.issuer):
            renewed = await self._refreshed(old, found)
            if renewed is not None:
                return renewed
        if found is None:
            raise SignInError(
                "discovery", "the authorization server cannot be reached: try again later", temporary=True
            )
        return await self._log_in(found, scopes, old)

    async def _found(self, resource_metadata: str | None) -> Place:
        place = self._way.place
        if place is None:
            place = await discover(
                self._way.url, self._fetch, resource_metadata=resource_metadata, issuer=self._way.issuer
            )
        self._place = place
        return place

    async def _refreshed(self, old: Record, place: Place | None) -> Record | None:
        """With its refresh token; None where there is none that is good. What cannot be reached is raised, and takes nothing away."""
        if old.refresh_token is None:
            return None
        identity = await self._way.identity(old)
        if identity is None:
            return None
        methods = place.server.auth_methods if place is not None else ()
        url = (place.server.token_endpoint if place is not None else None) or old.token_endpoint
        try:
            form = {"grant_type": "refresh_token", "refresh_token": old.refresh_token}
            endpoint = Endpoint(url, old.issuer, methods)
            tokens = await ask(endpoint, identity, self._fetch, form, resource=old.resource, step="refresh")
        except SignInError as error:
            if error.temporary:
                raise
            if error.code in _UNKNOWN:
                await self._way.forget(old)
            log.info("the refresh token is of no use any more: %s", error)
            kept = await self._kept()
            if kept is None or kept.refresh_token == old.refresh_token:
                await self._keep(replace(old, refresh_token=None))
            return None
        return await self._keep(old.renewed(tokens))

    async def _log_in(
        self, place: Place | None, scopes: tuple[str, ...], old: Record | None, *, wider: bool = False
    ) -> Record:
        now = _now()
        if len(self._logins) == MOST and now - self._logins[0] < _MINUTE:
            raise SignInError(
                "token",
                f"the server has refused {MOST} new logins within a minute: what it wants is not what its own authorization server gives",
            )
        self._logins.append(now)
        if place is None:
            place = await self._found(None)
        before = old if old is not None and old.issuer == place.server.issuer else None
        if self._way.bound and old is not None and before is None:
            raise SignInError(
                "discovery",
                f"the server wants tokens of {place.server.issuer} now, and this client is known to {old.issuer}: register it there",
            )
        return await self._keep(await self._way.obtain(place, Need(scopes, before, wider)))

    def _count_step(self, scopes: tuple[str, ...]) -> None:
        wanted = frozenset(scopes)
        times = self._steps.get(wanted, 0)
        if times >= MOST or len(self._steps) >= _MOST_STEPS:
            raise SignInError(
                "authorization",
                f"the server wants {' '.join(sorted(wanted)) or 'other scopes'}, which it was not content with {times} times: ask its operator",
                code="insufficient_scope",
            )
        self._steps[wanted] = times + 1


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- What a server says with its 401 or 403: `WWW-Authenticate` read into challenges, leniently, bounded, and in linear time. Pure.

LONGEST: Final = 8192
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_CHALLENGES_SCHEME: Final = re.compile(rf"[\s,]*({_WORD})(?:[ \t]+|\Z|(?=,))")
_PARAM: Final = re.compile(rf'[\s,]*({_WORD})[ \t]*=[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s,"]*))')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Challenge:
    """One of them. Names of schemes and params are lower-cased; of a param that came twice, the first counts."""

    scheme: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_challenges(header: str) -> list[Challenge]:
    """All challenges of a header's value, as far as they can be read."""
    header = header[:LONGEST]
    found: list[Challenge] = []
    at = 0
    params: dict[str, str] = {}
    while at < len(header):
        param = _PARAM.match(header, at) if found else None
        if param is not None:
            value = param[3] if param[2] is None else _ESCAPED.sub(r"\1", param[2])
            params.setdefault(param[1].lower(), value)
            at = param.end()
            continue
        scheme = _CHALLENGES_SCHEME.match(header, at)
        if scheme is None:
            break
        params = {}
        found.append(Challenge(scheme[1].lower(), params))
        at = scheme.end()
    return found


def bearer_challenge(header: str) -> Challenge | None:
    """The first that asks for a bearer token."""
    return next((each for each in parse_challenges(header) if each.scheme == "bearer"), None)
