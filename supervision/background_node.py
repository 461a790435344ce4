"""A node for synchronous programs: it runs in its own thread, and any other thread may call into it.

The thread is a daemon: a handler that blocks for ever can prevent the orderly stop, whose error then says where it hangs, but not the exit of the program.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from .behaviours.process_start import Options, start
from .behaviours.refs import stop
from .kernel.errors import ActorError, CallTimeout
from .kernel.node import Node
from .kernel.process_lookup import current

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .behaviours.refs import Ref

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


_CLOSED = "the node was closed before it could answer"
_FORKED = "this node was opened before a fork, and runs in the parent process: open another one here"
_TOO_LATE = "the program is exiting, and this node's thread has stopped: leave its `with` block before that"


class BackgroundNode:
    """A node that runs in a thread of its own.

    ::

        with BackgroundNode() as node:
            counter = node.start(Counter, 2)
            node.call(counter, Counter.add, 3)
    """

    def __init__(self, *, stop_timeout: float = 10.0, **options: Any) -> None:
        """The options are `Node`'s; `stop_timeout` bounds the orderly stop on leaving the block."""
        self._options = options
        self._stop_timeout = stop_timeout
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread: threading.Thread | None = None
        self._home = 0
        self._end: asyncio.Event | None = None
        self._open: set[concurrent.futures.Future[Any]] = set()
        self.node = Node(**options)

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ActorError("this node is open already")
        self._ready = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._main, name=f"greenroom-{self.node.name}", daemon=True)
        self._home = os.getpid()
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._thread = None  # not open: entering may be tried again
            raise
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is None or self._home != os.getpid():
            return
        loop = self._ready.result()
        end = self._end
        if end is not None and not loop.is_closed():
            loop.call_soon_threadsafe(end.set)
        thread.join(self._stop_timeout)
        if thread.is_alive():
            frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way to it
            where = "".join(traceback.format_stack(frame)[-1:]).strip() if frame is not None else "an unknown place"
            error = CallTimeout(self._stop_timeout, self.node, "stop")
            error.add_note(f"its event loop is at {where}")
            raise error

    def _main(self) -> None:
        async def main() -> None:
            self._end = asyncio.Event()
            async with self.node:
                self._ready.set_result(asyncio.get_running_loop())
                await self._end.wait()

        try:
            asyncio.run(main())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            for future in tuple(self._open):  # sent too late for the loop to run it
                future.cancel()

    def run(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an async function inside the node, wait for it, and return what it returns."""
        if self._thread is None:
            raise ActorError("this node is not open: use it inside its `with` block")
        if self._home != os.getpid():
            raise ActorError(_FORKED)
        if sys.is_finalizing():  # a finalizer at interpreter exit: the loop does not answer any more
            raise ActorError(_TOO_LATE)
        if threading.current_thread() is self._thread:
            raise ActorError("code that runs in the node must await; run() is for other threads")
        context = contextvars.copy_context()
        asker = current.get()
        if asker is not None and asker.node is not self.node:
            # A thread started by a handler of another node: that process does not belong to this node.
            context.run(current.set, None)
        loop, coroutine = self._ready.result(), function(*args, **kwargs)
        try:
            future = context.run(asyncio.run_coroutine_threadsafe, coroutine, loop)
        except RuntimeError:  # its loop was closed just now
            coroutine.close()
            raise ActorError(_CLOSED) from None
        self._open.add(future)
        try:
            if loop.is_closed():
                future.cancel()
            return future.result()
        except concurrent.futures.CancelledError:
            if not loop.is_closed():
                raise
            coroutine.close()
            raise ActorError(_CLOSED) from None
        except KeyboardInterrupt:
            future.cancel()
            raise
        finally:
            self._open.discard(future)

    def start(self, server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Ref[S]:
        """Start a server, and wait for its `init`."""
        return self.run(start, server, *args, **kwargs)

    def start_with(self, options: Options, server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Ref[S]:
        """As `start`, with a name or other options."""
        return self.run(options.start, server, *args, **kwargs)

    @overload
    def call(
        self,
        ref: Ref[S],
        method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    def call(self, ref: Ref[S], method: Callable[Concatenate[S, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def call(self, ref: Ref[Any], method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a server by reference, and wait for its answer."""
        awaitable: Callable[..., Coroutine[Any, Any, Any]] = ref.call
        return self.run(awaitable, method, *args, **kwargs)

    def ask(self, ref: Ref[Any], request: object) -> Any:
        """Send a request to `handle_call`, and wait for the answer."""
        return self.run(ref.ask, request)

    def stop(self, ref: Ref[Any], timeout: float | None = None) -> None:
        """End a server in order, and wait until it is gone."""
        self.run(stop, ref, timeout=timeout)
