"""What Thespian knows of a node: the actor whose process it runs in. The main thread stays Thespian's; the node has a thread of its own."""

from __future__ import annotations

import logging
import traceback

from .inherited import take_note
from .thespian_door import Actor, ActorExitRequest


class NodeHost(Actor):
    """One for each process."""

    def receiveMessage(self, message: object, sender: object) -> None:  # noqa: ARG002, N802 - Thespian's words
        """The first bytes are what to boot; later ones are not looked at."""
        try:
            from . import hosting  # noqa: PLC0415 - the keeper, which makes this, never needs it

            if type(message) is bytes:
                hosting.boot(message, self._myRef.transport.childResetFileNumList())
            elif isinstance(message, ActorExitRequest):
                hosting.leave()
        except BaseException:  # noqa: BLE001 - it is told, and Thespian must not see it
            take_note(
                logging.ERROR, f"the process of a node failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )
