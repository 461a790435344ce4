"""`EraVerdicts`: which revision each endpoint spoke last, so that a server without `server/discover` is not asked for it again.

A verdict is a first guess: a connection that finds it wrong forgets it, and asks the server.
"""

from __future__ import annotations

from typing import Final

MOST_VERDICTS: Final = 1024


class EraVerdicts:
    """The revisions that endpoints spoke last, by the identity of the endpoint. The oldest verdicts are dropped first."""

    def __init__(self, most: int = MOST_VERDICTS) -> None:
        """`most` is how many verdicts are kept."""
        self._most = most
        self._versions: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def of(self, endpoint: str) -> str | None:
        """The revision that the endpoint spoke last; None where that is not known."""
        return self._versions.get(endpoint)

    def learn(self, endpoint: str, version: str) -> None:
        """The endpoint speaks this revision."""
        if endpoint and self._versions.get(endpoint) != version:
            self._versions.pop(endpoint, None)
            self._versions[endpoint] = version
            if len(self._versions) > self._most:
                del self._versions[next(iter(self._versions))]

    def forget(self, endpoint: str) -> None:
        """The endpoint may speak another revision by now."""
        self._versions.pop(endpoint, None)

    def clear(self) -> None:
        """Forget all verdicts."""
        self._versions.clear()


PROCESS_VERDICTS: Final = EraVerdicts()
"""The verdicts of this process, which all connections share unless they are given others."""
