"""GenServer: a process that keeps state and answers calls, one message at a time.

The instance is the state. A client calls methods by reference through a `Ref`; or sends any value, which reaches
`handle_call`, `handle_cast` or `handle_info`. `def` callbacks run at once and must not block; `async def` callbacks
run in a worker task, and the server takes no other message until they are done.

Who sends it messages: anybody who has its `Ref`. What happens when it dies: whoever waits for it hears why at once,
links and monitors fire, and its supervisor decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision.kernel import describe
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.process import INLINE

from .actions import Continue, EventTimeout, Ignore, NoReply, Reject, Reply, Stop
from .caller import Caller
from .server import BadReturn
from .serving import Serving

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from greenroom.supervision.kernel.reasons import ExitReason

__all__ = ["Action", "BadReturn", "Begun", "GenServer"]

Action = Reply | NoReply | Stop
Begun = Continue | EventTimeout | NoReply | Ignore | Stop


class GenServer(Serving):
    """Derive from it; ``await start(Counter, 2)`` makes a process of it.

    The constructor keeps the arguments, and runs in the new process, as `init` does. Whatever either raises is raised
    from `start` as `StartFailed`.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._otp_terminates = cls.terminate is not GenServer.terminate

    # --- callbacks

    def init(self) -> Begun | Awaitable[Begun | None] | None:
        """Get ready; `start` returns when this does.

        Return None, `Continue(token)` to go on in `handle_continue` before any message, `NoReply(idle_after=…)` or
        `EventTimeout(…)` to be woken, `IGNORE` not to run, or `Stop(reason)`.
        """
        return None

    def handle_call(self, request: Any, caller: Caller[Any]) -> Action | Awaitable[Action]:
        """Somebody `ask`ed. Return `Reply(value)`, `NoReply()` to answer through `caller` later, or `Stop(…)`."""
        message = f"{type(self).__name__} answers no ask(): {describe.short(request)}; call one of its methods instead"
        raise Reject(TypeError(message))

    def handle_cast(self, request: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Somebody told us something."""
        self._otp_unexpected("cast", describe.short(request))
        return None

    def handle_info(self, message: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Any other message: `Down`, `Exit`, `Timeout`, what timers and plain `send` bring."""
        self._otp_unexpected("message", describe.short(message))
        return None

    def handle_continue(self, token: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """What a callback asked to be done next."""
        message = f"{type(self).__name__} asked to continue with {token!r} but has no handle_continue"
        raise BadReturn(message)

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """The server ends for this reason: clean up. Not called when it is killed, or dies of an untrapped signal."""

    # --- for callbacks

    @property
    def caller(self) -> Caller[Any]:
        """Whoever made the call that is being handled. Keep it, return `later()`, and answer it when you can."""
        call = self._otp_call
        if call is None:
            process = self._otp_process
            if process.activity != INLINE:
                message = "there is no caller: what is being handled is not a call"
                raise ActorError(message)
            call = self._otp_call = Caller(process.node, process, process.asker)
        return call
