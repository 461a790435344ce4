"""How to sign in at a configured server, as its `oauth` and `oauth_config` say: a user with a browser, and the login kept for the next time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.auth.client.browsers import open_browser
from greenroom.auth.client.keyring_store import best_store
from greenroom.auth.client.oauth import OAuth

from .values import OAuthConfig

if TYPE_CHECKING:
    from greenroom.auth.client.browsers import Browser
    from greenroom.auth.client.stores import TokenStore

    from .values import ServerConfig


def oauth_of(
    server: ServerConfig,
    *,
    port: int = 0,
    store: TokenStore | None = None,
    browser: Browser | None = open_browser,
) -> OAuth | None:
    """None where nobody signs in. `port` is where the user comes back to, if the server's own configuration does not say; 0 is any that is free.

    Without a `browser` nobody is there to sign in: what is kept is used, and else it fails at once.
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
        port=port if known.port is None else known.port,
        store=best_store() if store is None else store,
        authorization_endpoint=known.authorization_endpoint if manual else None,
        token_endpoint=known.token_endpoint if manual else None,
    )
