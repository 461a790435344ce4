"""What Thespian knows of a node: the actor whose process it runs in. The main thread stays Thespian's; the node has a thread of its own."""

from __future__ import annotations

import logging
import signal
import traceback
from typing import TYPE_CHECKING, Final

from .inherited import take_note
from .thespian_door import Actor, ActorExitRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATIENCE: Final = 30


class NodeHost(Actor):
    """One for each process."""

    @staticmethod
    def actorSystemCapabilityCheck(capabilities: Mapping[str, object], requires: Mapping[str, object]) -> bool:  # noqa: N802 - Thespian's name
        """Whether a machine is the one that is meant."""
        return all(capabilities.get(name) == wanted for name, wanted in requires.items())

    def __init__(self) -> None:
        """It waits for what to boot: if the one who wanted it can send nothing any more, not for ever."""
        super().__init__()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE)

    def receiveMessage(self, message: object, sender: object) -> None:  # noqa: ARG002, N802 - Thespian's words
        """The first bytes are what to boot; later ones are not looked at."""
        try:
            from . import hosting  # noqa: PLC0415 - the keeper, which makes this, never needs it

            if type(message) is bytes:
                signal.alarm(0)
                manager = self._myRef
                guest = manager._parentAddr == manager._adminAddr  # noqa: SLF001 - nowhere else is it told
                hosting.boot(message, manager.transport.childResetFileNumList(), guest=guest)
            elif isinstance(message, ActorExitRequest):
                hosting.leave()
        except BaseException:  # noqa: BLE001 - it is told, and Thespian must not see it
            take_note(
                logging.ERROR, f"the process of a node failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )
