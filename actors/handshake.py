"""What a server says when a peer introduces itself: which revision, what it can do, and who it is.

Pure: the session's state changes elsewhere. What is not registered is not declared, so that a client asks for nothing in vain; a server that
has nothing yet may come to have anything, and declares all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.definitions import Implementation
from greenroom.protocol.versions import V2025_03_26, at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .catalogue import Catalogue
    from .settings import Settings


def welcome(settings: Settings, catalogue: Catalogue, version: str) -> dict[str, Any]:
    """The result of `initialize`."""
    result: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": capabilities(settings, catalogue, version),
        "serverInfo": identity(settings),
    }
    if settings.instructions:
        result["instructions"] = settings.instructions
    return result


def capabilities(settings: Settings, catalogue: Catalogue, version: str) -> dict[str, Any]:
    """What the server can do for this peer, as it is set up and by what is registered now."""
    tools, prompts = catalogue.count("tool"), catalogue.count("prompt")
    resources = catalogue.count("resource") + catalogue.count("resource_template")
    nothing = not (tools or prompts or resources)
    found: dict[str, Any] = {}
    if tools or nothing:
        found["tools"] = {"listChanged": True}
    if resources or nothing:
        found["resources"] = {"subscribe": True, "listChanged": True}
    if prompts or nothing:
        found["prompts"] = {"listChanged": True}
    found["logging"] = {}
    if catalogue.count("completion") and at_least(version, V2025_03_26):
        found["completions"] = {}
    if settings.experimental:
        found["experimental"] = dict(settings.experimental)
    for name, said in settings.capabilities.items():
        if said is None or said is False:
            found.pop(name, None)
        else:
            found[name] = {} if said is True else dict(said)
    return found


def declared(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a capability, named by its path (`resources.subscribe`), has been declared."""
    here: Any = capabilities
    for step in path.split("."):
        here = here.get(step) if isinstance(here, dict) else None
        if here is None or here is False:
            return False
    return True


def identity(settings: Settings) -> dict[str, Any]:
    """Who the server is."""
    return Implementation(
        name=settings.name,
        version=settings.version,
        title=settings.title,
        description=settings.description,
        website_url=settings.website_url,
        icons=settings.icons,
    ).to_wire()
