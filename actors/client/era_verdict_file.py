"""`EraVerdictFile`: verdicts about servers' eras that outlast the program, in a file of the user.

The file names no server: an endpoint may hold secrets, so a digest stands for it. What cannot be read is forgotten, and what cannot be
written stays in memory: a verdict only saves a question. Programs that write at once may lose one of their verdicts, and no more than that.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from greenroom.auth.user_folders import state_folder
from greenroom.errors import ConfigError
from greenroom.protocol.dialect import DIALECTS, dialect_of
from greenroom.supervision.private_files import check_folder, read_regular, write_private

from .era_verdicts import MOST_VERDICTS, EraVerdicts

if TYPE_CHECKING:
    from pathlib import Path

Noted: TypeAlias = "dict[str, tuple[str, int]]"
"""The revision of each endpoint by its digest, and the second in which it was found out."""

_log: Final = logging.getLogger("greenroom.client")
_LARGEST: Final = 512 * 1024
_WEEK: Final = 7 * 86_400
"""Seconds after which a server of the handshake era is asked again: it may have been updated, and answers a handshake all the same."""


class EraVerdictFile(EraVerdicts):
    """The revisions that endpoints spoke last, in memory and in a file."""

    def __init__(self, path: Path | None = None, most: int = MOST_VERDICTS) -> None:
        """`path` is by default in the user's folder for state. The file is read when it is first needed."""
        super().__init__(most)
        self.path = state_folder() / "eras.json" if path is None else path
        self._times: dict[str, int] = {}
        self._is_loaded = False
        self._has_warned = False

    def __repr__(self) -> str:
        return f"EraVerdictFile({str(self.path)!r})"

    def of(self, endpoint: str) -> str | None:
        """The revision that the endpoint spoke last; None where that is not known, or too long ago."""
        self._load()
        digest = _digest(endpoint)
        version = super().of(digest)
        if version is not None and not dialect_of(version).is_stateless and _is_old(self._times.get(digest, 0)):
            return None
        return version

    def learn(self, endpoint: str, version: str) -> None:
        """The endpoint speaks this revision."""
        if not endpoint or self.of(endpoint) == version:
            return
        digest = _digest(endpoint)
        super().forget(digest)
        super().learn(digest, version)
        self._times[digest] = int(time.time())
        self._times = {each: self._times[each] for each in self._versions}
        self._save(digest)

    def forget(self, endpoint: str) -> None:
        """The endpoint may speak another revision by now."""
        self._load()
        digest = _digest(endpoint)
        if super().of(digest) is not None:
            super().forget(digest)
            self._save(digest)

    def clear(self) -> None:
        """Forget all verdicts, and delete the file."""
        super().clear()
        self._times.clear()
        self._is_loaded = True
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"cannot be deleted: {error.strerror}")

    def _load(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            for digest, (version, noted_at) in self._read().items():
                super().learn(digest, version)
                self._times[digest] = noted_at

    def _read(self) -> Noted:
        try:
            data = read_regular(self.path, _LARGEST, _check_owner)
            noted = msgspec.json.decode(data, type=dict[str, tuple[str, int]])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self._warn(f"is not used: {error}")
            return {}
        return {digest: each for digest, each in noted.items() if len(digest) == _DIGITS and each[0] in DIALECTS}

    def _save(self, digest: str) -> None:
        """Write what is known of this endpoint beside what other programs have written."""
        noted = self._read()
        noted.pop(digest, None)
        version = super().of(digest)
        if version is not None:
            noted[digest] = version, self._times[digest]
        for oldest in [*noted][: max(0, len(noted) - self._most)]:
            del noted[oldest]
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_folder(self.path.parent)
            write_private(self.path, msgspec.json.encode(noted), sync=False)
        except OSError as error:
            self._warn(f"cannot be written: {error.strerror}")
        except ConfigError as error:
            self._warn(f"is not written: {error}")

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s, which remembers what servers speak, %s", self.path, what)


def _digest(endpoint: str) -> str:
    return blake2b(
        endpoint.encode(errors="surrogatepass"), digest_size=_DIGITS // 2, person=b"greenroom era"
    ).hexdigest()


_DIGITS: Final = 64


def _is_old(noted_at: int) -> bool:
    """Whether it is too long ago; a time in the future is that of a clock that was wrong."""
    return not 0 <= time.time() - noted_at < _WEEK


def _check_owner(status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise ValueError("it belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError("others may write to it")
