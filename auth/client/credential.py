"""What a wire asks for its headers: looks at the login that its keeper shows, and has the keeper do what takes longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from greenroom.auth.errors import SignInError
from greenroom.supervision import ActorError, AlreadyRegistered, Options, Ref, StartFailed, whereis

from .keeper import Keeper, Shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.supervision import Pid
    from greenroom.transports.client.fetch import Fetch

    from .record import Record
    from .stores import TokenStore
    from .ways import Way

PATIENCE: Final = 900.0
"""Seconds for a user to sign in, with everything around it, and for those who came before."""
_SCHEME: Final = "Bearer "


class KeptCredentials:
    """`Credentials` of one way to log in at one server. Those with equal ways and stores share one keeper."""

    def __init__(self, way: Way, store: TokenStore, fetch: Fetch) -> None:
        """Nothing is asked before somebody needs it."""
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
            try:
                await keeper.call(Keeper.fresh, shown.failures)
            except ActorError as error:
                raise _lost(error) from None
            record = shown.record
        return {} if record is None else {"authorization": f"{_SCHEME}{record.access_token}"}

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """The server said 401 or 403. Raises `SignInError`."""
        keeper = await self._keeper()
        self._shown.used = asyncio.get_running_loop().time()
        value = sent.get("authorization", "")
        token = value.removeprefix(_SCHEME) if value.startswith(_SCHEME) else None
        try:
            return await keeper.call(Keeper.renew, status, challenge, token, self._shown.failures)
        except ActorError as error:
            raise _lost(error) from None

    async def widen(self, scopes: Sequence[str]) -> Record:
        """Have a login that has these scopes besides its own. Raises `SignInError`."""
        keeper = await self._keeper()
        try:
            return await keeper.call(Keeper.widen, tuple(scopes), self._shown.failures)
        except ActorError as error:
            raise _lost(error) from None

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


def _lost(error: BaseException) -> SignInError:
    return SignInError("credential", f"whoever keeps the login has ended: {error}", temporary=True)
