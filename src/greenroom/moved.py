"""Modules and names that have moved: the old paths can be imported until the next minor version, with a warning that says the new one."""

from __future__ import annotations

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
    "greenroom.protocol.hints": "greenroom.protocol.type_hints",
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

_NAMES: Final = {
    "greenroom.auth": "APIKeyAuth AuthInfo BasicAuth BearerAuth ClientCredentials CustomAuth Denied DeviceCode "
    "EnterpriseManaged FileStore GivenTokens Introspection KeySet KeyringStore MemoryStore NoAuth OAuth "
    "OAuthResource Protected SignIn SignInError TokenStore best_store hash_key hash_password open_browser "
    "paste_back show_code signing_key verify_key verify_password",
    "greenroom.host": "Annex Consent ConsentAnswer ConsentDenied ConsentQuestion ElicitationBridge OpenQuestion OutputLimit "
    "OutputLimits Permissions Pins Rule ToolRefused",
    "greenroom.transports": "ConnectFailed ConnectionLost Fetcher FixedHeaders Guard HttpError HttpRoute HttpSettings NodeEnded "
    "NotMcp ProcessDied RequestTooLarge ResponseTooLarge SessionGone SilentTooLong SseRoute Trust "
    "WireFull",
}
"""The names that have left the front door, by the module that has them now."""


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


def home_of_moved(package: str, name: str) -> str | None:
    """The module that has a name which has left the front door; None for any other."""
    place = next((place for place, names in _NAMES.items() if package == "greenroom" and name in names.split()), None)
    if place is not None:
        warnings.warn(f"greenroom.{name} has moved: from {place} import {name}", DeprecationWarning, stacklevel=4)
    return place
