"""How to sign in at a configured server, as its `oauth` and `oauth_config` say: a user with a browser, and the login kept for the next time."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from greenroom.auth.client.interactive_flows import open_browser
from greenroom.auth.client.oauth_login import OAuth
from greenroom.auth.client.token_stores import best_store

from .host_config import OAuthConfig

if TYPE_CHECKING:
    from greenroom.auth.client.interactive_flows import Browser

    from .configured_upstreams import SignIn
    from .host_config import ServerConfig


def oauth_of(
    server: ServerConfig,
    *,
    port: int = 0,
    browser: Browser | None = open_browser,
    named: bool = False,
) -> OAuth | None:
    """None where signing in is off. `port` is where the user comes back to, if the server's own configuration does not say; 0 is any that is free.

    Without a `browser` no user is there to sign in: what is kept is used, and else it fails at once, and says what to type. `named` is whether its file
    was named, so that the user that types it has to name it, too.
    """
    if server.oauth == "off":
        return None
    known = server.oauth_config or OAuthConfig()
    manual = server.oauth == "manual"
    return OAuth(
        client_id=known.client_id,
        client_secret=known.client_secret,
        issuer=known.issuer,
        client_metadata_url=known.client_metadata_url,
        scopes=known.scopes,
        account=known.account,
        browser=browser,
        advice=f"run `{_login_command(server, named=named)}` in a terminal, once",
        command=_login_command(server, named=named),
        port=port if known.port is None else known.port,
        store=best_store(),
        authorization_endpoint=known.authorization_endpoint if manual else None,
        token_endpoint=known.token_endpoint if manual else None,
    )


def default_sign_in(port: int = 0, *, named: bool = False) -> SignIn:
    """How users sign in where a program says nothing of it: with their browser if a user sits at the terminal, else as `greenroom login` left it.

    A run without a user would open a browser in vain, and wait until the user's time is over.
    """

    def sign_in(server: ServerConfig) -> OAuth | None:
        return oauth_of(server, port=port, browser=open_browser if user_at_terminal() else None, named=named)

    return sign_in


def user_at_terminal() -> bool:
    """Whether a user sits at a terminal who can be asked. A stream may be closed, or not there at all."""
    return all(stream is not None and not stream.closed and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _login_command(server: ServerConfig, *, named: bool) -> str:
    where = f" --config {shlex.quote(server.source.file)}" if named else ""
    return f"greenroom login {server.name}{where}"
