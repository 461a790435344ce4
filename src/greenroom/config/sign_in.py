"""OAuth for configured servers, from their `oauth` and `oauth_config`: the user signs in with a browser, and the login is stored."""

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
    """The OAuth settings of a server; None if its `oauth` is off. `port` is the port of the redirect if the server has none; 0 is any free port.

    Without a `browser` a stored login is used, and without one the connection fails at once with the command to type. `named` says whether the
    configuration file was named, so that this command has to name it as well.
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
    """The default sign-in of a host: with a browser if a user is at the terminal, otherwise with the login that `greenroom login` stored.

    A run without a user would open a browser in vain and wait for the whole sign-in timeout.
    """

    def sign_in(server: ServerConfig) -> OAuth | None:
        return oauth_of(server, port=port, browser=open_browser if user_at_terminal() else None, named=named)

    return sign_in


def user_at_terminal() -> bool:
    """Whether stdin and stderr are a terminal. A stream may also be closed or missing."""
    return all(stream is not None and not stream.closed and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _login_command(server: ServerConfig, *, named: bool) -> str:
    where = f" --config {shlex.quote(server.source.file)}" if named else ""
    return f"greenroom login {server.name}{where}"
