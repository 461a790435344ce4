"""API keys, passwords, a program's own function, or no authentication: the providers without token verification.

::

    APIKeyAuth({"k-123…": {"subject": "ci", "scopes": ["deploy"]}})
    APIKeyAuth({hash_key(key, pepper): {"subject": "ci"}}, hash_keys=True, pepper=pepper)
    APIKeyAuth(verifier=look_it_up)
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, cast

from greenroom.errors import ConfigError
from greenroom.supervision import Threads
from greenroom.transports.interfaces import HttpRefusal

from .auth_info import AuthInfo, awaited, check_not_expired, info_from_config, info_from_verifier, refusal, scope_param
from .credential_headers import challenge, extract_api_key, extract_basic_auth, extract_bearer_token
from .errors import STATUS, Denied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from .auth_info import AuthRequest

if TYPE_CHECKING:
    Found = AuthInfo | Mapping[str, Any] | None
    Verifier = Callable[[str], Found | Awaitable[Found]]

_REQUIRED: Final = "API key required"
_V = TypeVar("_V")


class _ProcesslessProvider:
    """A provider without child processes."""

    def children(self) -> tuple[()]:
        """No processes."""
        return ()


class _SecretProvider(_ProcesslessProvider):
    """A provider that stores the secrets itself, or asks a verifier about them."""

    invalid_message: ClassVar[str]
    expired_detail: ClassVar[str]

    def _refused(self, detail: str = "") -> Denied:
        return Denied("invalid_credentials", self.invalid_message, detail=detail)

    def _not_expired(self, info: AuthInfo) -> AuthInfo:
        try:
            return check_not_expired(info)
        except Denied:
            raise self._refused(self.expired_detail) from None

    async def _from_verifier(self, found: Found | Awaitable[Found], name: str) -> AuthInfo:
        """The identity that the program's verifier returned."""
        result: Found = await awaited(found)
        if result is None:
            raise self._refused()
        return self._not_expired(info_from_verifier(result, name))


class APIKeyAuth(_SecretProvider):
    """API-key authentication: each key maps to one principal."""

    invalid_message = "Invalid API key"
    expired_detail = "the key has expired"

    def __init__(
        self,
        keys: Mapping[str, Mapping[str, Any]] | Sequence[str] | None = None,
        *,
        verifier: Verifier | None = None,
        header_name: str = "x-api-key",
        hash_keys: bool = False,
        pepper: str | bytes | None = None,
    ) -> None:
        """`keys` are the keys, or their hashes by `hash_key` with `hash_keys`; a mapping also gives the identity of each.

        In a list, each key is its own subject, named by a digest of the key. `verifier` replaces the list, and returns None for unknown keys.

        """
        if (keys is None) == (verifier is None):
            raise ConfigError("APIKeyAuth needs either keys or a verifier")
        entries: Mapping[str, Mapping[str, Any]] = {} if keys is None else _key_entries(keys)
        if any(not key for key in entries):
            raise ConfigError("an empty API key would admit every caller: remove it")
        if verifier is None:
            _check_stored_keys(entries, pepper, hashed=hash_keys)
        self.headers: Sequence[str] = (header_name.lower(), "authorization")
        self._header = header_name.lower()
        self._hashed = hash_keys
        self._pepper = pepper
        self._index_secret = secrets.token_bytes(32)
        self._index = {
            self._index_key(key): (key, info_from_config(entry, default_subject(key))) for key, entry in entries.items()
        }
        self._verifier = verifier

    def __repr__(self) -> str:
        how = "a verifier" if self._verifier is not None else f"{len(self._index)} keys"
        return f"APIKeyAuth({how}, header_name={self._header!r})"

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller by its key."""
        key = extract_api_key(request.headers, self._header)
        if self._verifier is not None:
            return await self._from_verifier(self._verifier(key), default_subject(key))
        # Looked up by a keyed digest, which no client can predict, and then compared in constant time: the duration reveals nothing about the stored keys.
        for candidate in self._candidates(key):
            stored, info = self._index.get(self._index_key(candidate), ("", None))
            same = verify_key(key, stored, self._pepper) if self._hashed else _equal_in_constant_time(key, stored)
            if same and info is not None:
                return self._not_expired(info)
        raise self._refused()

    def _candidates(self, key: str) -> Sequence[str]:
        """The forms in which this key may be stored."""
        if not self._hashed:
            return (key,)
        plain = plain_digest(key)
        return (plain,) if self._pepper is None else (hash_key(key, self._pepper), plain)

    def _index_key(self, kept: str) -> bytes:
        kept = kept.lower() if self._hashed and not kept.startswith("hmac-") else kept
        return hmac.digest(self._index_secret, kept.encode(), "sha256")

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:  # noqa: ARG002 - the same for every request
        """A refusal that names the header for the key."""
        error = {"missing": "invalid_request", "invalid_credentials": "invalid_key"}.get(denied.kind)
        shown = Denied("missing", _REQUIRED) if denied.kind == "missing" else denied
        return refusal(shown, challenge("ApiKey", header=self._header), error=error)


def _key_entries(keys: Mapping[str, Mapping[str, Any]] | Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    if isinstance(keys, str | bytes):
        raise ConfigError("keys is a mapping or a list of keys, not one key")
    if hasattr(keys, "items"):
        return cast("Mapping[str, Mapping[str, Any]]", keys)
    return {key: {} for key in keys}


def _check_stored_keys(keys: Collection[str], pepper: str | bytes | None, *, hashed: bool) -> None:
    """Raises `ConfigError` for stored keys that can never match. The message counts keys and quotes none."""
    if not hashed:
        hashes = sum(map(has_hash_prefix, keys))
        if hashes:
            raise ConfigError(
                f"{hashes} of {len(keys)} keys are hashes: pass hash_keys=True, and the pepper they were made with"
            )
        if pepper is not None:
            raise ConfigError("a pepper is for hashed keys: pass hash_keys=True, with keys from hash_key(key, pepper)")
        return
    if pepper is not None and not pepper:
        raise ConfigError("the pepper is empty: pass the one that hash_key was given")
    plain = sum(not (_STORED_KEY.match(key) or _HEX.match(key)) for key in keys)
    if plain:
        raise ConfigError(
            f"with hash_keys=True, {plain} of {len(keys)} keys are not hashes and would never match: keep hash_key(key, pepper) of each"
        )
    if pepper is None and any(map(has_hash_prefix, keys)):
        raise ConfigError("these keys were hashed with a pepper: pass pepper=…")


def _equal_in_constant_time(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


# --- Users and passwords, for clients that support nothing better. Without TLS, every hop can read them.

if TYPE_CHECKING:
    BasicVerifier = Callable[[str, str], Found | Awaitable[Found]]

HASHES_AT_ONCE: Final = 4
"""How many passwords are hashed at a time: each occupies a core for tens of milliseconds."""
MOST_QUEUED: Final = 100
"""How many more may wait."""
MOST_REMEMBERED: Final = 1000
REMEMBERED_SECONDS: Final = 300.0
"""How many correct passwords are accepted again without hashing, and for how many seconds; they are stored as digests with a key of this process."""


class BasicAuth(_SecretProvider):
    """Identifies callers by user and password. Passwords are hashed in a few threads, so that a flood of guesses delays no other request."""

    invalid_message = "Invalid user or password"
    expired_detail = "the user has expired"
    headers = ("authorization",)

    def __init__(
        self,
        credentials: Mapping[str, str | Mapping[str, Any]] | None = None,
        *,
        verifier: BasicVerifier | None = None,
        hash_passwords: bool = True,
        realm: str = "mcp",
    ) -> None:
        """`credentials` map each user to a stored password, or to a mapping with `password`, `scopes` and `metadata`."""
        if (credentials is None) == (verifier is None):
            raise ConfigError("BasicAuth needs either credentials or a verifier")
        entries = {user: _user_entry(entry) for user, entry in (credentials or {}).items()}
        if any(not entry.get("password") for entry in entries.values()):
            raise ConfigError("a user without a password would admit every caller: give one")
        for user, entry in entries.items():
            _check_stored_password(user, entry["password"], hashed=hash_passwords)
        self._users = {user: (entry["password"], info_from_config(entry, user)) for user, entry in entries.items()}
        self._unknown_user_hash = dummy_hash([stored for stored, _ in self._users.values()]) if hash_passwords else "\0"
        self._verifier = verifier
        self._hashed = hash_passwords
        self._realm = realm
        self._threads = Threads(HASHES_AT_ONCE)
        self._remembered = ExpiringCache[bool](MOST_REMEMBERED)
        self._key = secrets.token_bytes(32)

    def __repr__(self) -> str:
        return f"BasicAuth({'a verifier' if self._verifier is not None else f'{len(self._users)} users'})"

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the user. An unknown user takes as long to refuse as a known one with a wrong password."""
        user, password = extract_basic_auth(request.headers)
        if self._verifier is not None:
            return await self._from_verifier(self._verifier(user, password), user)
        stored, info = self._users.get(user, (self._unknown_user_hash, None))
        if not await self._is_password(user, password, stored) or info is None:
            raise self._refused()
        return self._not_expired(info)

    async def _is_password(self, user: str, password: str, stored: str) -> bool:
        if not self._hashed:
            return hmac.compare_digest(_digest(password), _digest(stored))
        digest = keyed_digest(self._key, user, password)
        if self._remembered.get(digest):  # verified recently: otherwise each request of a client would be hashed
            return True
        if self._threads.waiting >= MOST_QUEUED:
            raise Denied("too_many_failures", detail="too many passwords are waiting to be checked")
        same = await self._threads.run(verify_password, password, stored)
        if same:
            self._remembered.keep(digest, same, REMEMBERED_SECONDS)
        return same

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:  # noqa: ARG002 - the same for every request
        """A refusal that asks for user and password."""
        return refusal(denied, challenge("Basic", realm=self._realm, charset="UTF-8"))


def _user_entry(entry: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(entry, str):
        return {"password": entry}
    if not hasattr(entry, "get"):
        raise ConfigError(
            f'an entry must be a stored password, or {{"password": …, "scopes": […]}}, not {type(entry).__name__}'
        )
    return entry


def _check_stored_password(user: str, password: Any, *, hashed: bool) -> None:
    """Raises `ConfigError` for a stored password that can never match. The message does not quote it."""
    if not isinstance(password, str):
        raise ConfigError(f"the password of {user!r} must be a text, not {type(password).__name__}")
    if hashed and _parse_stored_password(password) is None and not _HEX.match(password):
        raise ConfigError(
            f"the password of {user!r} is not hashed and would never match: keep hash_password(password); in tests, pass hash_passwords=False"
        )
    if not hashed and has_hash_prefix(password):
        raise ConfigError(f"the password of {user!r} is a hash: leave out hash_passwords=False")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# --- Formats of stored keys and passwords, which are never stored as they are. A format names its algorithm, and is compared in constant time.
# Keys are random, so one HMAC with a pepper suffices and is fast: `hmac-sha256$…`. Passwords are not, so they get many rounds:
# `pbkdf2-sha256$…`. Plain SHA-256 in hex, which older stores contain, is still accepted with a warning; it is no longer made for keys, and for
# passwords only on request.

log = logging.getLogger(__name__)

Algorithm: TypeAlias = Literal["pbkdf2-sha256", "sha256-hex"]

ROUNDS: Final = 100_000
MOST_ROUNDS: Final = 10_000_000
"""The limit: without it, a writer of the store could make each attempt take an hour."""
SALT_BYTES: Final = 16
_HMAC: Final = "hmac-sha256$"
_PBKDF2: Final = "pbkdf2-sha256$"
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}\Z")
_STORED_KEY: Final = re.compile(r"hmac-sha256\$[A-Za-z0-9+/]{43}=\Z")


_STORED_PASSWORD: Final = re.compile(r"pbkdf2-sha256\$([0-9]{1,8})\$([^$]*)\$([^$]+)\Z")


class PepperRequired(ConfigError):
    """A key is to be hashed, or was hashed, with a pepper, and none was given."""


def hash_key(key: str, pepper: str | bytes | None = None) -> str:
    """The form in which to store an API key: its HMAC-SHA256 with `pepper`. Raises `PepperRequired` without one."""
    if not pepper:
        raise PepperRequired(
            "hash_key needs a pepper, a secret that is stored apart from the hashes: hash_key(key, os.environ[…]); without one it would be plain SHA-256"
        )
    digest = hmac.digest(pepper.encode() if isinstance(pepper, str) else pepper, key.encode(), "sha256")
    return _HMAC + base64.b64encode(digest).decode()


def verify_key(key: str, stored: str, pepper: str | bytes | None = None) -> bool:
    """Whether `stored` is the hash of `key`, in constant time. Raises `PepperRequired`."""
    if stored.startswith(_HMAC):
        if pepper is None:
            raise PepperRequired("this key was hashed with a pepper: pass pepper=…")
        return hmac.compare_digest(hash_key(key, pepper).encode(), stored.encode(errors="replace"))
    return _is_plain_digest(
        key,
        stored,
        "an API key is kept as plain SHA-256, which will not be accepted for ever: hash it again, with a pepper",
    )


def plain_digest(secret: str) -> str:
    """SHA-256 in hexadecimal, as in older stores."""
    return hashlib.sha256(secret.encode()).hexdigest()


def has_hash_prefix(stored: str) -> bool:
    """Whether the text has a prefix of `hash_key` or `hash_password`. Hexadecimal does not count, since random keys may be hexadecimal."""
    return stored.startswith((_HMAC, _PBKDF2))


def default_subject(key: str) -> str:
    """The subject of a key that has no configured one: a digest, the same each time."""
    return f"key-{hashlib.sha256(b'greenroom key name ' + key.encode()).hexdigest()[:16]}"


def hash_password(password: str, *, algorithm: Algorithm = "pbkdf2-sha256", iterations: int = ROUNDS) -> str:
    """The form in which to store a password. It takes tens of milliseconds by design: call it in a thread."""
    if algorithm == "sha256-hex":
        return plain_digest(password)
    if algorithm != "pbkdf2-sha256":
        raise ConfigError(f'algorithm must be "pbkdf2-sha256" or "sha256-hex", not {algorithm!r}')
    if not 1 <= iterations <= MOST_ROUNDS:
        raise ConfigError(f"iterations must be from 1 to {MOST_ROUNDS}, not {iterations}")
    salt = secrets.token_bytes(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    return _format_stored_password(iterations, salt, digest)


def verify_password(password: str, stored: str) -> bool:
    """Whether `stored` is the hash of `password`, in constant time. False for an unknown format."""
    if stored.startswith(_PBKDF2):
        parts = _parse_stored_password(stored)
        if parts is None:
            return False
        rounds, salt, digest = parts
        return hmac.compare_digest(hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds), digest)
    return _is_plain_digest(
        password,
        stored,
        "a password is kept as plain SHA-256, which is easily guessed from: hash it again with hash_password",
    )


def _is_plain_digest(secret: str, stored: str, warning: str) -> bool:
    """Whether `stored` is the plain digest of `secret`; logs a warning if it is."""
    matches = _HEX.match(stored) is not None and hmac.compare_digest(plain_digest(secret), stored.lower())
    if matches:
        _warn_once(warning)
    return matches


def dummy_hash(stored: Sequence[str]) -> str:
    """A stored password that nothing matches, and that takes as long to check as the most expensive of `stored`."""
    rounds = [parts[0] for each in stored if (parts := _parse_stored_password(each)) is not None]
    if stored and not rounds:
        return secrets.token_hex(32)
    return _format_stored_password(
        max(rounds, default=ROUNDS), secrets.token_bytes(SALT_BYTES), secrets.token_bytes(32)
    )


def _format_stored_password(rounds: int, salt: bytes, digest: bytes) -> str:
    return f"{_PBKDF2}{rounds}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _parse_stored_password(stored: str) -> tuple[int, bytes, bytes] | None:
    found = _STORED_PASSWORD.match(stored)
    if found is None:
        return None
    try:
        parts = int(found[1]), base64.b64decode(found[2], validate=True), base64.b64decode(found[3], validate=True)
    except ValueError:  # also for what is not ASCII
        return None
    return parts if 1 <= parts[0] <= MOST_ROUNDS and parts[2] else None


@lru_cache
def _warn_once(text: str) -> None:
    """Log a warning once: otherwise each request would repeat it."""
    log.warning("%s", text)


# --- A cache for verified credentials, keyed by digest, bounded in size and time.


class ExpiringCache(Generic[_V]):
    """A cache whose entries expire. Beyond `most`, the least recently used entry is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[bytes, tuple[_V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes) -> _V | None:
        """The value, unless it has expired."""
        found = self._entries.get(digest)
        if found is None:
            return None
        value, until = found
        if until <= _now():
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return value

    def keep(self, digest: bytes, value: _V, seconds: float) -> None:
        """Store the value for so many seconds; later reads do not extend them."""
        self._entries[digest] = value, _now() + seconds
        self._entries.move_to_end(digest)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        """Remove the entry."""
        self._entries.pop(digest, None)


def keyed_digest(key: bytes, *parts: str) -> bytes:
    """A digest of credentials that is useless without the key. Lengths are part of it, so parts cannot run into each other."""
    whole = "".join([f"{len(part)}:{part}" for part in parts]).encode(errors="surrogatepass")
    return hashlib.blake2b(whole, key=key, digest_size=32).digest()


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- A provider of the program's own: a function, or an object with `authenticate(token)`, that identifies the caller.


class CustomAuth(_ProcesslessProvider):
    """Asks a program's function about the bearer token or API key of a request, and trusts its result.

    The function returns an `AuthInfo`, a mapping (`subject`, `scopes`, `metadata`; other keys are kept as claims), or None to refuse. An exception is
    logged and not shown to the caller.

    """

    headers = ("authorization", "x-api-key")

    def __init__(self, authenticate: Callable[[str], Found | Awaitable[Found]], *, realm: str = "mcp") -> None:
        """`authenticate` may be async, or an object with a method of that name. A `Denied` that it raises is the refusal."""
        asked: Any = getattr(authenticate, "authenticate", authenticate)
        if not callable(asked):
            raise ConfigError(f"CustomAuth needs a function of the token, not a {type(authenticate).__name__}")
        self._verifier: Any = asked
        self._realm = realm

    def __repr__(self) -> str:
        return "CustomAuth()"

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller by the function."""
        try:
            token = extract_bearer_token(request.headers)
        except Denied as denied:
            if denied.kind != "missing":
                raise
            token = extract_api_key(request.headers)
        found: Found = await awaited(self._verifier(token))
        if found is None:
            raise Denied("invalid_token")
        return check_not_expired(info_from_verifier(found, default_subject(token)))

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:  # noqa: ARG002 - the same for every request
        """A refusal without a reason; only missing scopes are named, since clients must know which to request."""
        if denied.kind in ("server_error", "too_many_failures"):
            return HttpRefusal(STATUS[denied.kind])
        lacking = denied.kind == "insufficient_scope"
        asked = challenge(
            "Bearer",
            realm=self._realm,
            error=denied.kind if lacking else None,
            scope=scope_param(denied.scopes) if lacking else None,
        )
        return HttpRefusal(STATUS[denied.kind], [("www-authenticate", asked)])


# --- No authentication: every caller is `anonymous` and has no scopes.


class NoAuth(_ProcesslessProvider):
    """Admits every caller."""

    headers = ()

    def __repr__(self) -> str:
        return "NoAuth()"

    async def authenticate(self, request: AuthRequest) -> AuthInfo:  # noqa: ARG002 - nothing is checked
        """An anonymous caller."""
        return AuthInfo("anonymous", scopes=frozenset(), anonymous=True)

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:  # noqa: ARG002 - there is only one refusal
        """A refusal without a challenge: no credentials would help."""
        return refusal(denied)
