"""One server of a configuration by its name, for whoever wants only that one: a command at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.errors import ConfigError

from .mistakes import BadConfig, nearest
from .reader import read

if TYPE_CHECKING:
    import os

    from .values import ServerConfig


def server_named(name: str, path: str | os.PathLike[str] | None = None) -> ServerConfig:
    """The server of this name in a file, or in the user's and the project's. Raises `ConfigError`."""
    config = read() if path is None else read(path)
    if name in config.failed:
        raise BadConfig(config.failed[name])
    server = config.servers.get(name)
    if server is None:
        whole = [one for one in config.mistakes if one.server is None and not one.harmless]
        if whole and not config.servers:
            raise BadConfig(whole)
        known = [*config.servers, *config.failed]
        there = f"there are {', '.join(known)}" if known else "none is configured"
        raise ConfigError(f"no server is called {name!r}; {nearest(name, known, there)}")
    if server.disabled:
        raise ConfigError(f"{server.source}: server {name} is disabled; take that out to use it")
    return server
