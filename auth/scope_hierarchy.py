"""Scopes that imply others: what an issuer grants may be broader than what an operation needs. Pure.

::

    BearerAuth(…, scope_implies={"admin": ["files", "users:read"], "files": ["files:read", "files:write"]})

No scope implies another one by its name: whether `files` includes `files:read` is the issuer's to say, and a wrong guess would grant what was not granted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from greenroom.errors import ConfigError

from .auth_info import is_collection

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .auth_info import AuthInfo


class ScopeHierarchy:
    """Which scopes each scope implies, through others as well."""

    def __init__(self, implies: Mapping[str, Collection[str]] | None) -> None:
        """Raises `ConfigError` for anything but lists of scopes by scope."""
        given = {} if implies is None else _checked(implies)
        self._implied = {scope: _closure(scope, given) for scope in given}

    def widen(self, info: AuthInfo) -> AuthInfo:
        """The same caller, with the scopes that its own imply. The claims stay as they are."""
        if not info.scopes or self._implied.keys().isdisjoint(info.scopes):
            return info
        more = [self._implied[scope] for scope in info.scopes if scope in self._implied]
        return replace(info, scopes=info.scopes.union(*more))


def _checked(implies: Any) -> dict[str, Collection[str]]:
    if not hasattr(implies, "items"):
        raise ConfigError(f'scope_implies must be a mapping like {{"admin": ["read", "write"]}}, not {implies!r}')
    for broad, narrow in implies.items():
        if not is_collection(narrow) or not all(_is_scope(each) for each in (broad, *narrow)):
            raise ConfigError(
                f"scope_implies must have a list of scopes without blanks for each scope, not {broad!r}: {narrow!r}"
            )
    return dict(implies)


def _is_scope(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not any(letter.isspace() for letter in value)


def _closure(scope: str, given: Mapping[str, Collection[str]]) -> frozenset[str]:
    found = {scope}
    waiting = [scope]
    while waiting:
        for each in given.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return frozenset(found)
