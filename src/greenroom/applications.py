"""Finding the server of this program again in another process: by the module that it stands in, and its name there."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.catalogue import KINDS
from greenroom.actors.pools.loading import load
from greenroom.actors.pools.places import MAIN, RUN_AS, Found, Main, main_program

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .server import Server

_SHOWN: Final = 10
"""Registrations that a message names."""
_INSTEAD: Final = (
    "other processes import it by its name, so give it one at the top of a module: `server = Server(…)`, "
    "or `server = make_server()`"
)


@dataclass(frozen=True, slots=True)
class Application:
    """Where a server is found, and what this program has registered with it."""

    found: Found
    main: Main | None
    registered: tuple[tuple[str, str], ...] = ()
    """Each registration, and the module that its function is in."""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that were changed where the program was started."""

    def __str__(self) -> str:
        return str(self.found)

    def load(self) -> Server:
        """Import the module, and take the server from it. Blocks for as long as that takes. Raises `NotLoaded`, and `ConfigError`."""
        from .server import Server  # noqa: PLC0415 - which runs workers, which are found by this

        server: Any = load(self.found, self.main)
        if not isinstance(server, Server):
            raise ConfigError(f"{self.found} is no Server when another process imports it, but {server!r}")
        self._compare(server)
        if self.changes:
            server.set_up(**self.changes)
        return server

    def _compare(self, server: Server) -> None:
        """Raise `ConfigError` where the import has registered less than the program has: a worker would serve that in silence."""
        here = {what for what, _ in registrations_of(server)}
        missing = [(what, module) for what, module in self.registered if what not in here]
        if not missing:
            return
        shown = ", ".join(f"{what} (of {module})" for what, module in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        home = self.main.file or self.main.module if self.main is not None else f"the module {self.found.module}"
        modules = sorted({module for _, module in missing} - {MAIN, self.found.module})
        if modules:
            hint = f'write `import {", ".join(modules)}` in it, above `if __name__ == "__main__":`'
        elif self.main is None and any(module == MAIN for _, module in missing):
            hint = "register it in a module that it imports, or make the server in the program's own file"
        else:
            hint = 'register it above `if __name__ == "__main__":`, where an import comes by'
        raise ConfigError(
            f"worker processes import {home}, and there {self.found.name} has not got all that it has in this program: "
            f"{shown}{more} would be missing; {hint}"
        )


def application_of(server: Server) -> Application:
    """Where that one is. Raises `ConfigError` where another process could not find it."""
    for module, names in sorted(_importable().items()):
        for name, value in names:
            if value is server:
                return Application(Found(module, name), None, registrations_of(server), server.changes)
    main = main_program()
    for name, value in tuple(vars(sys.modules[MAIN]).items()):
        if value is server:
            if main is None:
                raise ConfigError(f"this program is in no file, from which workers could import it: {_INSTEAD}")
            return Application(Found(MAIN, name), main, registrations_of(server), server.changes)
    raise ConfigError(f"workers cannot find this server: {_INSTEAD}")


def registrations_of(server: Server) -> tuple[tuple[str, str], ...]:
    """All that is registered with it, each with the module of its function; and whatever else workers would lack in silence."""
    found = [
        (f"{kind.replace('_', ' ')} {name!r}", _module_of(entry.handler.function))
        for kind in KINDS
        for name, entry in server.registry.catalogue.all(kind).items()
    ]
    lifespans = [(f"lifespan {name}", module) for name, module in server.lifespans()]
    return (*found, *lifespans, *((f"mounted host {number}", MAIN) for number in range(1, server.mounted + 1)))


def _module_of(function: Any) -> str:
    module: Any = getattr(inspect.unwrap(function), "__module__", None)
    return MAIN if module == RUN_AS or not isinstance(module, str) else module


def _importable() -> dict[str, list[tuple[str, Any]]]:
    """What stands in modules that another process can import by their name; the program itself is found in another way."""
    return {
        name: list(vars(module).items())
        for name, module in tuple(sys.modules.items())
        if name != MAIN and getattr(module, "__spec__", None) is not None
    }
