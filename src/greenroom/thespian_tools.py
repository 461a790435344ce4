"""`Server.thespian_tool`: an actor of a user's Thespian system as a tool, its checks, and the child that ends the actor with the server."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.catalogue import RegistrationError
from greenroom.actors.context import Context
from greenroom.actors.handler_options import ToolOptions
from greenroom.protocol.errors import ToolError
from greenroom.protocol.function_parameters import BadHint, docstring_of, parameters_of, return_hint_of
from greenroom.supervision import GenServer, child, in_thread
from greenroom.supervision.cluster.foreign_actor import TIMEOUT, ForeignActor

from .decorators import name_of, options_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import ClassVar

    from greenroom.supervision import ChildSpec, ExitReason

    from .decorators import Registrations


def register_actor_tool(  # noqa: PLR0913 - as the server's method
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
    given_options = options_of(ToolOptions, "a tool", options)
    if not callable(request):
        raise RegistrationError(
            f"{what}: request={request!r} cannot be called: give the message's class, or a function that makes one"
        )
    if reply is not None and not callable(reply):
        raise RegistrationError(
            f"{what}: reply={reply!r} cannot be called: give a function that takes the actor's reply"
        )
    if given_options.isolation not in (None, "thread"):
        raise RegistrationError(f"{what}: a tool of a Thespian actor waits in a thread: leave isolation out")
    if not (hasattr(system, "private") and hasattr(system, "ask")):
        raise RegistrationError(f"{what}: {system!r} is no ActorSystem: give the one in which the actor runs")
    try:
        foreign_actor = ForeignActor(system, actor)
        timeout = TIMEOUT if given_options.timeout is None else given_options.timeout
        function = tool_function(foreign_actor, request, reply, timeout)
    except (TypeError, BadHint) as error:
        raise RegistrationError(f"{what}: {error}") from error
    registry.register_tool(
        name, function, replace(given_options, timeout=timeout + SLACK if timeout > 0 else timeout), replace=False
    )
    return cleanup_spec(foreign_actor, name)


# --- The tool's function: arguments become the actor's message, and its reply the result.
# The parameters of the tool are those of `request`: the class of the message, or any function that makes one. Otherwise it is an ordinary tool, which blocks a thread
# while it waits, within the limits for threads of tools.

SLACK: Final = 5.0
"""How much longer than the actor the call has, in seconds, so that its error can say that the actor is silent."""


def tool_function(
    actor: ForeignActor, request: Callable[..., Any], reply: Callable[[Any], Any] | None, timeout: float
) -> Callable[..., Any]:
    """A handler with the parameters of `request`, and the return hint of `reply`. Raises `BadHint`."""
    from greenroom.supervision.cluster.foreign_actor import ForeignActorError  # noqa: PLC0415 - it loads Thespian

    own = _defaults(request)
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=own.get(each.name, each.default),
            annotation=each.hint,
        )
        for each in parameters_of(request)
    ]
    names = {each.name for each in parameters}
    context = next(name for name in ("ctx", "context", "_ctx", "_context_of_the_call") if name not in names)

    def call(**arguments: Any) -> Any:
        ctx: Context = arguments.pop(context)
        message = request(**arguments)
        try:
            answer = actor.ask(message, timeout, unwanted=lambda: ctx.over or bool(ctx.cancelled))
        except ForeignActorError as error:
            raise ToolError(str(error)) from error
        return answer if reply is None else reply(answer)

    described: Any = call
    described.__signature__ = inspect.Signature(
        [*parameters, inspect.Parameter(context, inspect.Parameter.KEYWORD_ONLY, annotation=Context)],
        return_annotation=inspect.Signature.empty if reply is None else return_hint_of(reply),
    )
    call.__doc__ = _description(request)
    return call


def _defaults(request: Any) -> Mapping[str, Any]:
    """The defaults of a message's fields that come from factories, each called once."""
    if not is_dataclass(request):
        return {}
    return {each.name: each.default_factory() for each in fields(request) if each.default_factory is not MISSING}


def _description(request: Any) -> str | None:
    """Its docstring, unless dataclasses has generated it."""
    text = docstring_of(request)
    made_up = inspect.isclass(request) and text is not None and text.startswith(f"{request.__name__}(")
    return None if made_up else text


class ActorCleanup(GenServer):
    """Ends, with the server, an actor that was made for it by the first call."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, actor: ForeignActor) -> None:
        self._actor = actor

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - the actor ends for any reason
        """End the actor."""
        await in_thread(bool, self._actor.close)


def cleanup_spec(actor: ForeignActor, name: str) -> ChildSpec[Any]:
    """The child of the company that ends the actor."""
    return child(ActorCleanup, actor).but(id=f"actor of {name}")
