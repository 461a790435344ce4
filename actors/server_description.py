"""A server's description for its clients: its identity and its capabilities, as `initialize` and `server/discover` answer them.

Pure functions. Nothing is declared that is not registered, so that a client asks for nothing in vain. A server that has nothing registered may get anything
later, and declares all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol import methods
from greenroom.protocol.dialect import STATELESS_DIALECT, dialect_of
from greenroom.protocol.extension_ids import APPS_ID
from greenroom.protocol.revision_downgrade import downgrade

from .apps import APPS_SETTINGS, has_apps
from .settings import cache_members, server_info
from .tasks import CAPABILITY, declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .catalogue import Catalogue
    from .settings import Settings
    from .worker_interfaces import SessionFacts


def initialize_result(settings: Settings, catalogue: Catalogue, version: str) -> dict[str, Any]:
    """The result of `initialize` in that revision."""
    who = server_info(settings)
    result = methods.initialize_result(
        version, declared_capabilities(settings, catalogue, version), who, settings.instructions
    )
    return downgrade("initialize", result, version)


def declared_capabilities(settings: Settings, catalogue: Catalogue, version: str) -> dict[str, Any]:
    """The server's capabilities for this peer, from its settings and from what is registered now."""
    tools, prompts = bool(catalogue.count("tool")), bool(catalogue.count("prompt"))
    resources = bool(catalogue.count("resource") or catalogue.count("resource_template"))
    nothing = not (tools or prompts or resources)
    found = methods.ServerFeatures(
        tools=tools or nothing,
        tools_list_changed=True,
        resources=resources or nothing,
        resources_subscribe=True,
        resources_list_changed=True,
        prompts=prompts or nothing,
        prompts_list_changed=True,
        logging=True,
        completions=bool(catalogue.count("completion")),
        tasks=CAPABILITY if declared(settings, catalogue) and not dialect_of(version).is_stateless else None,
        experimental=settings.experimental,
    ).to_wire(version)
    extensions = {each.id: dict(each.settings) for each in catalogue.extensions.values()}
    if has_apps(catalogue):
        extensions.setdefault(APPS_ID, dict(APPS_SETTINGS))
    if extensions:
        found["extensions"] = extensions
    for name, value in settings.capabilities.items():
        if value is None or value is False:
            found.pop(name, None)
        else:
            found[name] = {} if value is True else dict(value)
    if dialect_of(version).is_stateless:
        found.pop("tasks", None)
        if declared(settings, catalogue):
            found["extensions"] = {**found.get("extensions", {}), methods.TASKS_EXTENSION: {}}
    return found


def discover_result(
    catalogue: Catalogue,
    params: Mapping[str, Any],  # noqa: ARG001 - the signature of inline answers
    settings: Settings,
    facts: SessionFacts,
) -> dict[str, Any]:
    """The result of `server/discover`."""
    version = STATELESS_DIALECT.version
    result: dict[str, Any] = {
        "supportedVersions": [version],
        "capabilities": declared_capabilities(settings, catalogue, version),
    }
    if settings.instructions is not None:
        result["instructions"] = settings.instructions
    hint = cache_members(settings, "server/discover")
    return facts.dialect.finish("server/discover", result, server_info(settings), hint)


def is_disabled(settings: Settings, method: methods.Method) -> bool:
    """Whether the settings switch off the capability that the method needs."""
    if not settings.capabilities or method.capability is None:
        return False
    value = settings.capabilities.get(method.capability.partition(".")[0], True)
    return value is None or value is False
