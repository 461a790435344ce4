"""``greenroom login``, ``logout`` and ``whoami``: logins at servers. Tokens are never shown.

A login is stored where all programs with the same configuration find it: in the system's keyring, or in an encrypted file of the user.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from .click_app import echo, is_terminal, styled
from .command_output import print_entry, print_json
from .exit_codes import OK, SIGN_IN, CommandFailed, UsageError
from .server_loader import is_url
from .target_client import configure_logging, environment_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from greenroom.auth.client.oauth_login import OAuth
    from greenroom.auth.client.token_stores import LoginRecord

_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class _LoginTarget:
    """A server to sign in to."""

    name: str
    url: str
    auth: OAuth
    written: str = ""
    """The URL as it stands in the configuration. It may be shown; the expanded URL may contain a secret."""

    @property
    def key(self) -> str:
        """The key of the login in the store."""
        from greenroom.auth.client.oauth_login import login_key  # noqa: PLC0415 - not for help

        return login_key(self.auth, self.url)

    async def kept(self) -> LoginRecord | None:
        """The stored login, or None."""
        from greenroom.auth.client.token_stores import LoginRecord  # noqa: PLC0415 - as above

        return LoginRecord.read(await self.auth.store.get(self.key))


def login(  # noqa: PLR0913 - a keyword for each option
    *,
    target: str,
    mcp_oauth_port: int | None,
    device: bool,
    account: str | None,
    scope: Sequence[str],
    config: Path | None,
    json: bool,
) -> int:
    """Sign in to a server, unless a login is stored already."""
    configure_logging()
    if not is_terminal() and not device:
        raise CommandFailed(
            SIGN_IN, "signing in needs a terminal: run the command where a browser is, or pass --device"
        )
    port = environment_defaults().oauth_port
    place = _login_target(target, config, usual=port, port=mcp_oauth_port, account=account, also=scope)
    if device:
        from greenroom.auth.client.interactive_flows import show_code  # noqa: PLC0415 - not for help

        place = replace(place, auth=replace(place.auth, device=show_code))
    record = asyncio.run(_sign_in(place))
    if json:
        print_json({"server": place.name, "login": _login_fields(record)})
        return OK
    if record is None:
        echo(f"{place.name} requires no login: nothing to do")
        return OK
    scopes = f", with {' '.join(record.scopes)}" if scope else ""
    echo(styled(f"signed in to {place.name}", "good") + _expiry_text(record) + scopes)
    return OK


async def _sign_in(place: _LoginTarget) -> LoginRecord | None:
    """The login. The user signs in if none is stored, or if the stored login lacks one of the scopes."""
    from greenroom.client import Client  # noqa: PLC0415 - as above

    async with Client(place.url, auth=place.auth) as client:
        await client.ping()
        record = await place.kept()
        if record is not None and not set(place.auth.also) <= set(record.scopes):
            record = await place.auth.credentials(place.url).add_scopes(place.auth.also)
        return record


def logout(*, target: str, account: str | None, config: Path | None, json: bool) -> int:
    """Delete the stored login, and ask the authorization server to revoke its tokens; the login is deleted even if that fails."""
    configure_logging()
    place = _login_target(target, config, account=account)
    record, why = asyncio.run(_sign_out(place))
    if json:
        print_json({"server": place.name, "signed_out": record is not None, "revoked": why is None, "why_not": why})
        return OK
    if record is None:
        echo(f"you were not signed in to {place.name}")
        return OK
    echo(styled(f"signed out of {place.name}", "good"))
    if why is not None:
        warning = (
            f"greenroom: the tokens are deleted here, but were not revoked and stay valid until they expire: {why}"
        )
        echo(styled(warning, "odd"), error=True)
    return OK


async def _sign_out(place: _LoginTarget) -> tuple[LoginRecord | None, str | None]:
    """The deleted login, and the reason if its tokens could not be revoked."""
    from greenroom.auth.client.oauth_login import revoke  # noqa: PLC0415 - as above
    from greenroom.errors import GreenroomError  # noqa: PLC0415 - as above

    record = await place.kept()
    if record is None:
        return None, "there was no login"
    async with place.auth.store.lock(place.key):
        await place.auth.store.put(place.key, None)
    try:
        await revoke(place.auth, place.url, record)
    except GreenroomError as error:
        return record, str(error)
    return record, None


def whoami(*, target: str | None, account: str | None, config: Path | None, json: bool) -> int:
    """Show the stored logins; exit code 5 if a server was named and has none."""
    places, records = asyncio.run(_logins(target, account, config))
    if json:
        print_json({place.name: _login_fields(record) for place, record in zip(places, records, strict=True)})
    else:
        for place, record in zip(places, records, strict=True):
            if record is None:
                print_entry(place.name, "not signed in", [place.written] if place.written else [])
            else:
                scopes = f"may {' '.join(record.scopes)}" if record.scopes else ""
                print_entry(
                    place.name,
                    f"signed in{_expiry_text(record)}",
                    [part for part in (f"as {record.client_id}, known to {record.issuer}", scopes) if part],
                )
        if not places:
            echo("no login is stored, and no configured server needs one: sign in with greenroom login URL")
    return SIGN_IN if target and records[0] is None else OK


async def _logins(
    target: str | None, account: str | None, config: Path | None
) -> tuple[list[_LoginTarget], list[LoginRecord | None]]:
    """The login of one server; or of all configured servers and all others with a stored login."""
    if target:
        places = [_login_target(target, config, account=account)]
    else:
        places = _configured_targets(config)
        if account is not None:
            places = [replace(place, auth=replace(place.auth, account=account)) for place in places]
        places += await _other_logins({place.key for place in places}, account)
    return places, [await place.kept() for place in places]


async def _other_logins(known: set[str], account: str | None) -> list[_LoginTarget]:
    from greenroom.auth.client.oauth_login import OAuth, parse_login_key  # noqa: PLC0415 - as above
    from greenroom.auth.client.token_stores import best_store  # noqa: PLC0415 - as above

    store = best_store()
    found: list[_LoginTarget] = []
    for key in sorted(await store.keys()):
        login = parse_login_key(key)
        if login is None or key in known or account not in (None, login.account):
            continue
        name = login.url if login.account == "default" else f"{login.url} ({login.account})"
        auth = OAuth(store=store, account=login.account, client_id=login.client_id)
        found.append(_LoginTarget(name, login.url, auth))
    return found


# --- Targets of a login.


def _login_target(
    target: str,
    config: Path | None,
    *,
    usual: int = 0,
    port: int | None = None,
    account: str | None = None,
    also: Sequence[str] = (),
) -> _LoginTarget:
    """The server to sign in to. `usual` is the port from the environment; a server's own port takes precedence, and a typed port over both."""
    from greenroom.auth.client.oauth_login import OAuth  # noqa: PLC0415 - as above
    from greenroom.auth.client.token_stores import best_store  # noqa: PLC0415 - as above

    typed = {"port": port, "account": account, "also": tuple(also) or None}
    changes: dict[str, Any] = {name: value for name, value in typed.items() if value is not None}
    if is_url(target):
        changes.setdefault("port", usual)
        return _LoginTarget(target, target, OAuth(store=best_store(), **changes))
    from greenroom.config.config_reader import server_named  # noqa: PLC0415 - as above
    from greenroom.config.sign_in import oauth_of  # noqa: PLC0415 - as above

    server = server_named(target, config)
    auth = oauth_of(server, port=usual)
    if auth is None or server.url is None:
        raise UsageError(f'{target} has no login: write oauth = "auto" in {server.source} if the server needs one')
    return _LoginTarget(target, server.url, replace(auth, **changes), server.written["url"])


def _configured_targets(config: Path | None) -> list[_LoginTarget]:
    from greenroom.config.config_reader import read  # noqa: PLC0415 - as above
    from greenroom.config.sign_in import oauth_of  # noqa: PLC0415 - as above

    found = read() if config is None else read(config)
    ways = [(name, server, oauth_of(server)) for name, server in found.servers.items()]
    return [
        _LoginTarget(name, server.url, auth, server.written["url"])
        for name, server, auth in ways
        if auth is not None and server.url is not None
    ]


# --- Output.


def _expiry_text(record: LoginRecord) -> str:
    if record.expires_at is None:
        return ""
    left = record.expires_at - time.time()
    if left <= 0:
        return ", renewed when it is used" if record.refresh_token else ", but the login has expired: sign in again"
    minutes = max(1, round(left / _MINUTE))
    return f", for {minutes} minutes{', and renewed then' if record.refresh_token else ''}"


def _login_fields(record: LoginRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "issuer": record.issuer,
        "client_id": record.client_id,
        "scopes": list(record.scopes),
        "expires_at": record.expires_at,
        "renewable": record.refresh_token is not None,
        "ended": record.is_expired(),
    }
