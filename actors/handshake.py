"""What a server says when a peer introduces itself: what it can do, and who it is.

Pure: the session's state changes elsewhere. What is not registered is not declared, so that a client asks for nothing in vain; a server that
has nothing yet may come to have anything, and declares all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol import negotiation
from greenroom.protocol.definitions import Implementation
from greenroom.protocol.fitting import fit

from .tasks import CAPABILITY, declared

if TYPE_CHECKING:
    from .catalogue import Catalogue
    from .settings import Settings


def welcome(settings: Settings, catalogue: Catalogue, version: str) -> dict[str, Any]:
    """The result of `initialize`, as that revision has it."""
    who = identity(settings)
    result = negotiation.welcome(version, capabilities(settings, catalogue, version), who, settings.instructions)
    return fit("initialize", result, version)


def capabilities(settings: Settings, catalogue: Catalogue, version: str) -> dict[str, Any]:
    """What the server can do for this peer, as it is set up and by what is registered now."""
    tools, prompts = bool(catalogue.count("tool")), bool(catalogue.count("prompt"))
    resources = bool(catalogue.count("resource") or catalogue.count("resource_template"))
    nothing = not (tools or prompts or resources)
    found = negotiation.Features(
        tools=tools or nothing,
        tools_list_changed=True,
        resources=resources or nothing,
        resources_subscribe=True,
        resources_list_changed=True,
        prompts=prompts or nothing,
        prompts_list_changed=True,
        logging=True,
        completions=bool(catalogue.count("completion")),
        tasks=CAPABILITY if declared(settings, catalogue) else None,
        experimental=settings.experimental,
    ).to_wire(version)
    for name, said in settings.capabilities.items():
        if said is None or said is False:
            found.pop(name, None)
        else:
            found[name] = {} if said is True else dict(said)
    return found


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
