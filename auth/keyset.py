"""The keys of an issuer: fetched, kept, and fetched again when they are old or when a token names one that is not among them.

One process does it, so a thousand requests that come at once with a new key's name are one fetch. Who looks for a key that is there looks at
a snapshot, and waits for nobody. An issuer that cannot be reached leaves the keys as they are.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from greenroom.errors import GreenroomError
from greenroom.protocol.json import decode
from greenroom.supervision import ActorError, GenServer, Ref, Reject, child, send_after

from .errors import Denied
from .jose import read_keys
from .own_fetcher import own_fetcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from greenroom.supervision import ChildSpec, Timer
    from greenroom.transports.client.fetch import Fetch, Fetched

    from .jose import Heading, Key

log = logging.getLogger(__name__)

FRESH: Final = 600.0
"""Seconds after which keys are fetched again without a reason."""
PAUSE: Final = 30.0
"""Seconds between two fetches for keys that were not there: whoever makes up names of keys has us ask no more often."""
PATIENCE: Final = 15.0
_OK: Final = 200


class KeySetError(GreenroomError):
    """The keys could not be had."""


@dataclass(slots=True)
class Shown:
    """What everybody may look at: replaced as a whole."""

    keys: tuple[Key, ...] = ()
    known: bool = False
    names: frozenset[str] = field(default_factory=frozenset[str])


class KeyKeeper(GenServer):
    """The process."""

    def __init__(self, url: str, fetch: Fetch, shown: Shown, fresh: float, pause: float) -> None:
        """`shown` is where the keys are seen."""
        self._url = url
        self._fetch = fetch
        self._shown = shown
        self._fresh = fresh
        self._pause = pause
        self._tried: float | None = None
        self._failure: str = ""
        self._timer: Timer | None = None

    async def look_for(self, kid: str | None) -> None:
        """See to it that the key is there, if it can be had at all. Raises `KeySetError` while there are none."""
        if self._shown.known and (kid is None or kid in self._shown.names):
            return
        if self._tried is None or _now() - self._tried >= self._pause:
            await self._renew()
        if not self._shown.known:
            raise Reject(KeySetError(self._failure))

    async def handle_info(self, message: Any) -> None:
        """The keys are old."""
        if message == "old":
            await self._renew()
        else:
            super().handle_info(message)

    async def _renew(self) -> None:
        self._tried = _now()
        try:
            keys = _keys_of(await self._fetch(self._url))
        except Exception as error:  # noqa: BLE001 - whatever fetches is somebody's own: the keys stay as they are
            why = str(error) if isinstance(error, GreenroomError) else type(error).__name__
            self._failure = f"the keys of {self._url.partition('?')[0]} could not be had: {why}"
            log.warning("%s", self._failure)
        else:
            self._shown.names = frozenset(key.kid for key in keys if key.kid is not None)
            # Another snapshot each time: what was found out with the keys of before is not known any more.
            self._shown.keys, self._shown.known = tuple(keys), True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = send_after(self._fresh, self.pid, "old")


def _keys_of(answer: Fetched) -> Sequence[Key]:
    if answer.status != _OK:
        raise KeySetError(f"status {answer.status}")
    return read_keys(decode(answer.body))


def _now() -> float:
    return asyncio.get_running_loop().time()


class KeySet:
    """An issuer's keys, by the URL of its JWK set. `child_spec` is its process, which the server starts that it is for."""

    def __init__(self, url: str, fetch: Fetch | None = None, *, fresh: float = FRESH, pause: float = PAUSE) -> None:
        """`fetch` is by default a `Fetcher` that goes to public addresses, and to this machine where `url` is there."""
        self.url = url
        self._fetch = own_fetcher(url) if fetch is None else fetch
        self._fresh = fresh
        self._pause = pause
        self._shown = Shown()
        self._name = ("greenroom key set", id(self))

    @property
    def version(self) -> object:
        """Which keys there are: the same object for as long as they are the same."""
        return self._shown.keys

    def __repr__(self) -> str:
        return f"KeySet({self.url.partition('?')[0]!r})"

    def child_spec(self) -> ChildSpec[Ref[KeyKeeper]]:
        """The process, for a supervisor."""
        return child(KeyKeeper, self.url, self._fetch, self._shown, self._fresh, self._pause).but(
            name=self._name, id=self._name
        )

    async def find(self, heading: Heading) -> Sequence[Key]:
        """The keys that a token of this heading may have been signed with. Raises `Denied` when there are none to be had."""
        shown = self._shown
        if not shown.known or (heading.kid is not None and heading.kid not in shown.names):
            try:
                await Ref[KeyKeeper](self._name, PATIENCE).call(KeyKeeper.look_for, heading.kid)
            except KeySetError as error:
                raise Denied("server_error", detail=str(error)) from None
            except ActorError as error:
                raise Denied("server_error", detail=f"the keeper of {self!r}: {error}") from None
        return [key for key in self._shown.keys if heading.kid is None or key.kid in (None, heading.kid)]
