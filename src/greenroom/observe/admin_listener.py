"""The admin listener as a part of a program's tree.

::

    admin            restarted for ever, with a growing delay, and never a reason for the program to end
    ├─ …             the processes of `Admin.auth`
    ├─ observer      keeps what the pages show, and makes links
    └─ http:9091     a listener of the admin application, served by Hypercorn
    …                what the program serves
    ready            says that all of it runs: the last to start and the first to stop

It starts before everything else and stops after it, so that `/livez` and `/readyz` are answered while the program starts and while it stops.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from greenroom.run_options import auth_gate_of, closed_on_failure
from greenroom.supervision import Backoff, GenServer, Supervisor, child, current_node, current_process, visible
from greenroom.transports.http_listener import listener

from .admin_access import ROOT, TOKEN, AdminAccess
from .observed_program import ObservedProgram
from .readiness import ProgramReadiness, ReadyMark

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from greenroom.supervision import ChildSpec, ExitReason
    from greenroom.transports.asgi import App, Receive, Scope, Send

    from .admin_settings import Admin

_BACKOFF: Final = Backoff(first=0.05, factor=2.0, longest=5.0, jitter=0.25, quiet=30.0)
_INTENSITY: Final = 1000
"""More restarts than the delays leave time for: the listener is tried for ever."""


class AdminPart:
    """The admin listener of one program. It is bound when it is made; its children have to be started."""

    def __init__(
        self,
        admin: Admin,
        program: str,
        missing: Callable[[], Iterable[str]],
        *,
        urls: Callable[[], Sequence[str]] = tuple,
        observed: Callable[..., ObservedProgram] | None = None,
    ) -> None:
        """`program` is the name that the pages show; `missing` says which parts do not run that the program needs, and `urls` where it serves.

        `observed` makes what is shown, unless that is this process alone. Raises `CannotListen`.
        """
        self.admin = admin
        self.program = program
        self.readiness = ProgramReadiness(missing)
        self.observed = (
            ObservedProgram(admin, program, urls=urls, readiness=self.readiness)
            if observed is None
            else observed(readiness=self.readiness)
        )
        self.access = AdminAccess(admin)
        self._gate = auth_gate_of(admin.auth, () if admin.scope is None else (admin.scope,))
        self._announced = False
        config = admin.http_config
        with closed_on_failure(config) as binding:
            self._binding = binding
            self.access.port = binding.port
            self._listener = listener(self._serve, binding, config)
        self._app: App | None = None

    def __repr__(self) -> str:
        return f"<AdminPart of {self.program} on {self._binding.host}:{self._binding.port}>"

    @property
    def address(self) -> str:
        """The URL of the observer, without a token."""
        host, port = self._binding.addresses[0] if self._binding.addresses else (self.admin.host, self._binding.port)
        scheme = "https" if self.admin.is_tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{ROOT}"

    def new_link(self) -> str:
        """A link that signs one browser in, once; with `Admin.auth` the address alone."""
        if self.admin.auth is not None:
            return self.address
        return f"{self.address}?{TOKEN}={self.access.new_token(asyncio.get_running_loop().time())}"

    def around(self, *served: ChildSpec[Any]) -> list[ChildSpec[Any]]:
        """The children of a program that serves this: the admin listener first, and the mark of readiness last."""
        children: list[ChildSpec[Any]] = [
            *(() if self._gate is None else self._gate.children()),
            child(ObserverProcess, self).but(id="observer"),
            self._listener,
        ]
        admin = child(Supervisor, children, intensity=_INTENSITY, period=10.0, backoff=_BACKOFF)
        return [
            admin.but(id="admin", restart="temporary"),
            *served,
            child(ReadyMark, self.readiness).but(id="ready"),
        ]

    def beside(self, served: ChildSpec[Any]) -> ChildSpec[Any]:
        """The same as one child: its restarts are its supervisor's to decide, as without the listener."""
        return child(Supervisor, self.around(served), intensity=0).but(id=served.id)

    @contextmanager
    def closed_on_failure(self) -> Generator[None]:
        """Give the port back if the block fails."""
        try:
            yield
        except BaseException:
            self._binding.close()
            raise

    # --- what the pages show

    def start(self) -> None:
        """Begin to collect what the pages show; the first time, print the link."""
        self.observed.start()
        if not self._announced:
            self._announced = True
            print(f"greenroom: observe: {visible(self.new_link(), 500)}", file=sys.stderr, flush=True)  # noqa: T201

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for any reason
        """The supervisor of the listener has ended: collect no more. While only a part of it is restarted, events are still counted."""
        self.observed.stop()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the application is loaded with the first one."""
        if self._app is None:
            from .admin_app import AdminApp  # noqa: PLC0415 - it loads Quart
            from .observer_pages import observer_blueprint  # noqa: PLC0415 - as above

            self._app = AdminApp(
                self.admin,
                self.access,
                self.readiness,
                gate=self._gate,
                metrics=self.observed.metrics_page,
                pages=lambda: observer_blueprint(self.observed, self.access),
            )
        await self._app(scope, receive, send)


class ObserverProcess(GenServer):
    """Collects what the pages show, and makes links for browsers."""

    def __init__(self, part: AdminPart) -> None:
        self.part = part

    def init(self) -> None:
        """Begin to collect."""
        process = current_process("observe")
        (process.parent or process).add_exit_waiter(self.part)
        self.part.start()

    def new_link(self) -> str:
        """A link that signs one browser in, once."""
        return self.part.new_link()


def new_links() -> list[str]:
    """A new link to the observer for each admin listener of this node: it signs one browser in, once. Call it in the node's loop."""
    behaviours: list[Any] = [process.behaviour.inner for process in current_node().processes.values()]
    return [each.part.new_link() for each in behaviours if isinstance(each, ObserverProcess)]
