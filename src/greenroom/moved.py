"""Modules and names that have moved: the old paths can be imported until the next minor version, with a warning that says the new one."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

PLACES: Final = {
    "greenroom.actors.federation.specs": "greenroom.actors.federation.upstream_spec",
    "greenroom.actors.names": "greenroom.actors.process_names",
    "greenroom.auth.client.discovery": "greenroom.auth.client.metadata_discovery",
    "greenroom.auth.client.landing": "greenroom.auth.client.interactive_flows",
    "greenroom.auth.stage": "greenroom.auth.asgi_middleware",
    "greenroom.cli.installing": "greenroom.cli.install_command",
    "greenroom.lookout": "greenroom.inspect_socket",
    "greenroom.probe": "greenroom.wire_probe",
    "greenroom.protocol.forms": "greenroom.protocol.elicitation_forms",
    "greenroom.protocol.hints": "greenroom.protocol.function_parameters",
    "greenroom.protocol.pins": "greenroom.protocol.tool_pins",
    "greenroom.protocol.problems": "greenroom.protocol.validation_errors",
    "greenroom.protocol.results": "greenroom.protocol.handler_results",
    "greenroom.protocol.schemas": "greenroom.protocol.type_schemas",
    "greenroom.running": "greenroom.program_runner",
    "greenroom.targets": "greenroom.client_targets",
    "greenroom.transports.binding": "greenroom.transports.listening_sockets",
    "greenroom.transports.client.command": "greenroom.transports.client.server_command",
    "greenroom.transports.client.guard": "greenroom.transports.client.http_address",
    "greenroom.transports.client.memory": "greenroom.transports.client.memory_route",
    "greenroom.transports.seam": "greenroom.transports.interfaces",
}
"""The path of each module today, by the path that the documentation had of it."""

_LEFT: Final = {
    "auth": "APIKeyAuth AuthInfo BasicAuth BearerAuth ClientCredentials CustomAuth Denied DeviceCode "
    "EnterpriseManaged FileStore GivenTokens Introspection KeySet KeyringStore MemoryStore NoAuth OAuth "
    "OAuthResource Protected SignIn SignInError TokenStore best_store hash_key hash_password open_browser "
    "paste_back show_code signing_key verify_key verify_password",
    "host": "Consent ConsentAnswer ConsentDenied ConsentQuestion ElicitationBridge OpenQuestion OutputLimit "
    "OutputLimits Permissions Pins Rule ToolRefused",
    "transports": "ConnectFailed ConnectionLost Fetcher FixedHeaders Guard HttpError HttpRoute HttpSettings NodeEnded "
    "NotMcp ProcessDied RequestTooLarge ResponseTooLarge SessionGone SilentTooLong SseRoute Trust "
    "WireFull",
}
"""The names that have left the front door, by the package that has them now."""

NAMES: Final = {
    **{f"greenroom.{name}": f"greenroom.{place}.{name}" for place, names in _LEFT.items() for name in names.split()},
    "greenroom.CallEnded": "greenroom.CallIsOver",
    "greenroom.Annex": "greenroom.host.ConnectionProcess",
    "greenroom.Told": "greenroom.ServerNotification",
    "greenroom.host.Annex": "greenroom.host.ConnectionProcess",
    "greenroom.supervision.Answers": "greenroom.supervision.MultiCallResult",
    "greenroom.supervision.Done": "greenroom.supervision.Completed",
    "greenroom.supervision.Gate": "greenroom.supervision.DirectWakeup",
    "greenroom.supervision.Gone": "greenroom.supervision.ExitFuture",
    "greenroom.supervision.Progress": "greenroom.supervision.ProgressReport",
}
"""Public names by the path that they had: those that have moved to another package, and those that have another name."""


class _Alias:
    """Loads a module under the path that it had."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002 - the module is there already
        module = import_module(self._place)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has put its own in this place


def spec_of_moved(name: str) -> ModuleSpec | None:
    """How to load a module that has moved, by the path that it had; None for any other."""
    place = PLACES.get(name)
    if place is None:
        return None
    warnings.warn(f"{name} has moved: import {place}", DeprecationWarning, stacklevel=3)
    return ModuleSpec(name, _Alias(place), origin=place)  # type: ignore[arg-type]


def moved_name(package: str, name: str, stacklevel: int = 3) -> object:
    """Load a public name by the path that it had. `stacklevel` is how many frames up the import is that is warned of.

    Raises:
        AttributeError: `package` has no such name, and had none in earlier versions.

    """
    path = NAMES.get(f"{package}.{name}")
    module = sys.modules[package]
    if path is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
    place, _, new = path.rpartition(".")
    warnings.warn(f"{package}.{name} has moved: from {place} import {new}", DeprecationWarning, stacklevel=stacklevel)
    value: object = getattr(import_module(place), new)
    setattr(module, name, value)  # an import asks a package twice, and would warn twice
    return value
