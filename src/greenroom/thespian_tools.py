"""`Server.thespian_tool`: what is checked before an actor of somebody's Thespian system becomes a tool, and what that takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from greenroom.actors.catalogue import RegistrationError
from greenroom.actors.guest.actor_tools import SLACK, employer_spec, tool_function
from greenroom.actors.options import ToolOptions
from greenroom.protocol.hints import BadHint
from greenroom.supervision.cluster.foreign import TIMEOUT, ForeignActor

from .decorators import name_of, options_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.supervision import ChildSpec

    from .registrations import Registrations


def register(  # noqa: PLR0913 - as the server's method
    registry: Registrations,
    system: Any,
    actor: Any,
    *,
    name: str | None,
    request: Callable[..., Any],
    reply: Callable[[Any], Any] | None,
    options: Mapping[str, Any],
) -> ChildSpec[Any]:
    """Register the tool; returns the child that ends the actor with the server. Raises `RegistrationError`."""
    name = name_of(name, request)
    what = f"tool {name!r}"
    said = options_of(ToolOptions, "a tool", options)
    if not callable(request):
        raise RegistrationError(
            f"{what}: request={request!r} cannot be called: give the message's class, or a function that makes one"
        )
    if reply is not None and not callable(reply):
        raise RegistrationError(
            f"{what}: reply={reply!r} cannot be called: give a function that takes the actor's reply"
        )
    if said.isolation not in (None, "thread"):
        raise RegistrationError(f"{what}: whoever asks an actor of Thespian waits in a thread: leave isolation out")
    if not (hasattr(system, "private") and hasattr(system, "ask")):
        raise RegistrationError(f"{what}: {system!r} is no ActorSystem: give the one that the actor lives in")
    try:
        asked = ForeignActor(system, actor)
        timeout = TIMEOUT if said.timeout is None else said.timeout
        function = tool_function(asked, request, reply, timeout)
    except (TypeError, BadHint) as error:
        raise RegistrationError(f"{what}: {error}") from error
    registry.register_tool(
        name, function, replace(said, timeout=timeout + SLACK if timeout > 0 else timeout), replace=False
    )
    return employer_spec(asked, name)
