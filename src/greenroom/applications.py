"""Finding the server of this program again in another process: by the module that it stands in, and its name there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.pools.loading import load
from greenroom.actors.pools.places import MAIN, Found, Main, main_program

from .errors import ConfigError

if TYPE_CHECKING:
    from .server import Server

_INSTEAD: Final = (
    "other processes import it by its name, so give it one at the top of a module: `server = Server(…)`, "
    "or `server = make_server()`"
)


@dataclass(frozen=True, slots=True)
class Application:
    """Where a server is found."""

    found: Found
    main: Main | None

    def __str__(self) -> str:
        return str(self.found)

    def load(self) -> Server:
        """Import the module, and take the server from it. Blocks for as long as that takes. Raises `NotLoaded`, and `ConfigError`."""
        from .server import Server  # noqa: PLC0415 - which runs workers, which are found by this

        server: Any = load(self.found, self.main)
        if not isinstance(server, Server):
            raise ConfigError(f"{self.found} is no Server when another process imports it, but {server!r}")
        return server


def application_of(server: Server) -> Application:
    """Where that one is. Raises `ConfigError` where another process could not find it."""
    for module, names in sorted(_importable().items()):
        for name, value in names:
            if value is server:
                return Application(Found(module, name), None)
    main = main_program()
    for name, value in tuple(vars(sys.modules[MAIN]).items()):
        if value is server:
            if main is None:
                raise ConfigError(f"this program is in no file, from which workers could import it: {_INSTEAD}")
            return Application(Found(MAIN, name), main)
    raise ConfigError(f"workers cannot find this server: {_INSTEAD}")


def _importable() -> dict[str, list[tuple[str, Any]]]:
    """What stands in modules that another process can import by their name; the program itself is found in another way."""
    return {
        name: list(vars(module).items())
        for name, module in tuple(sys.modules.items())
        if name != MAIN and getattr(module, "__spec__", None) is not None
    }
