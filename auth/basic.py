"""Users and passwords. It is for machines that know nothing better: over anything but TLS, everybody on the way reads them.

::

    BasicAuth({"ann": hash_password("…")})
    BasicAuth({"ann": {"password": hash_password("…"), "scopes": ["read"]}})
    BasicAuth({"ann": "…"}, hash_passwords=False)      # passwords as they are: for tests
    BasicAuth(verifier=look_them_up)
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError
from greenroom.supervision import Threads

from .answers import refusal
from .errors import Denied
from .grants import check_alive, found_by, granted
from .hashing import dummy_like, is_hash_of_password, says_it_is_a_hash, verify_password
from .headers import challenge, extract_basic_auth
from .remembered import Remembered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.transports.seam import Refusal

    from .info import AuthInfo
    from .seam import Asking

    Found = AuthInfo | Mapping[str, Any] | None
    Verifier = Callable[[str, str], Found | Awaitable[Found]]

_INVALID = "Invalid user or password"
AT_ONCE: Final = 4
"""How many passwords are hashed at a time: each keeps a core busy for a good while."""
QUEUE: Final = 100
"""How many more may wait for that."""
GOOD: Final = 1000
FOR: Final = 300.0
"""So many right passwords are known again without hashing, for so many seconds; what is kept of them is a digest with a key of this process."""


class BasicAuth:
    """The provider. Hashing happens in threads, a few at a time, so that a flood of guesses costs no other request its turn."""

    headers = ("authorization",)

    def __init__(
        self,
        credentials: Mapping[str, str | Mapping[str, Any]] | None = None,
        *,
        verifier: Verifier | None = None,
        hash_passwords: bool = True,
        realm: str = "mcp",
    ) -> None:
        """`credentials` say by user what was kept of the password, alone or as `password` beside `scopes` and `metadata`."""
        if (credentials is None) == (verifier is None):
            raise ConfigError("BasicAuth wants either credentials or a verifier")
        entries = {user: _entry(entry) for user, entry in (credentials or {}).items()}
        if any(not entry.get("password") for entry in entries.values()):
            raise ConfigError("a user without a password lets everybody in")
        for user, entry in entries.items():
            _check_form(user, entry["password"], hashed=hash_passwords)
        self._users = {user: (entry["password"], granted(entry, user)) for user, entry in entries.items()}
        self._nobody = dummy_like([stored for stored, _ in self._users.values()]) if hash_passwords else "\0"
        self._verifier = verifier
        self._hashed = hash_passwords
        self._realm = realm
        self._threads = Threads(AT_ONCE)
        self._good = Remembered(GOOD, FOR)

    def __repr__(self) -> str:
        return f"BasicAuth({'a verifier' if self._verifier is not None else f'{len(self._users)} users'})"

    def children(self) -> tuple[()]:
        """It needs no process."""
        return ()

    async def authenticate(self, asking: Asking) -> AuthInfo:
        """Which user it is. An unknown one takes as long to refuse as a known one with a wrong password."""
        user, password = extract_basic_auth(asking.headers)
        if self._verifier is not None:
            found = self._verifier(user, password)
            if inspect.isawaitable(found):
                found = await found
            if found is None:
                raise Denied("invalid_credentials", _INVALID)
            return self._alive(found_by(found, user))
        stored, info = self._users.get(user, (self._nobody, None))
        if not await self._same(user, password, stored) or info is None:
            raise Denied("invalid_credentials", _INVALID)
        return self._alive(info)

    async def _same(self, user: str, password: str, stored: str) -> bool:
        if not self._hashed:
            return hmac.compare_digest(_digest(password), _digest(stored))
        if self._good.has(user, password):  # found to be right a moment ago: every request would take that long again
            return True
        if self._threads.waiting >= QUEUE:
            raise Denied("too_many_failures", detail="too many passwords wait to be looked at")
        same = await self._threads.run(verify_password, password, stored)
        if same:
            self._good.add(user, password)
        return same

    @staticmethod
    def _alive(info: AuthInfo) -> AuthInfo:
        try:
            return check_alive(info)
        except Denied:
            raise Denied("invalid_credentials", _INVALID, detail="a user whose time is over") from None

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:  # noqa: ARG002 - it is the same for all
        """Ask for user and password."""
        return refusal(denied, challenge("Basic", realm=self._realm, charset="UTF-8"))


def _entry(entry: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(entry, str):
        return {"password": entry}
    if not hasattr(entry, "get"):
        raise ConfigError(
            f'an entry is what was kept of a password, or {{"password": …, "scopes": […]}}, not {type(entry).__name__}'
        )
    return entry


def _check_form(user: str, password: Any, *, hashed: bool) -> None:
    """Refuse what could never match a password that is shown. It is not quoted."""
    if not isinstance(password, str):
        raise ConfigError(f"the password of {user!r} is a text, not {type(password).__name__}")
    if hashed and not is_hash_of_password(password):
        raise ConfigError(
            f"the password of {user!r} is not hashed and would never match: keep hash_password(password); in tests, pass hash_passwords=False"
        )
    if not hashed and says_it_is_a_hash(password):
        raise ConfigError(f"the password of {user!r} is a hash: leave out hash_passwords=False")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
