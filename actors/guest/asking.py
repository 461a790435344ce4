"""Asking a guest from outside of its system: a program's thread, which gets the answer to what it has asked and no other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError
from greenroom.supervision.cluster.foreign import endpoint, is_simple
from greenroom.supervision.cluster.thespian_door import ActorSystemException

from .messages import Answer, Ended, Failed, Request, Subscribe, Updated

if TYPE_CHECKING:
    from greenroom.supervision.cluster.thespian_door import ActorSystem, Address

_SLACK: Final = 1.0


def ask(system: Any, guest: Any, request: Request) -> Answer:
    """The answer, of the guest at that address in an `ActorSystem`; a `Failed` when there is no guest to give one. A subscription is an actor's: raises `ConfigError`."""
    until = time.monotonic() + request.timeout + _SLACK
    if is_simple(system):
        return _answer(system, guest, request, until)
    if isinstance(request, Subscribe):
        raise ConfigError("whoever subscribes has to be there to hear: have an actor send the Subscribe")
    with endpoint(system) as mine:
        try:
            return _answer(mine, guest, request, until)
        except ActorSystemException as error:
            return Failed("away", f"the guest cannot be reached: {error}", ticket=request.ticket)


def _answer(mine: ActorSystem, guest: Address, request: Request, until: float) -> Answer:
    """Whatever else comes is nobody's any more; in the simple system, which has one endpoint, that is what was not listened to."""
    heard: Any = mine.ask(guest, request, request.timeout + _SLACK)
    while heard is not None:
        if isinstance(heard, Answer) and heard.ticket == request.ticket and not isinstance(heard, Updated | Ended):
            return heard
        heard = mine.listen(max(0.0, until - time.monotonic()))
    return Failed("away", "the guest is not there, or has not answered in time", ticket=request.ticket)
