"""What one process of the operating system collects for the admin listener: its views and its metrics, from its start to its stop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .observatory import Observatory
from .process_views import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from .admin_settings import Admin
    from .prometheus_metrics import MetricsPage, PrometheusMetrics
    from .readiness import ProgramReadiness
    from .view_models import ActOutcome, View, ViewQuery


class ObservedProgram:
    """The views, acts and metrics of this process. Nothing is collected before `start`."""

    def __init__(
        self,
        admin: Admin,
        program: str,
        *,
        urls: Callable[[], Sequence[str]] = tuple,
        readiness: ProgramReadiness | None = None,
    ) -> None:
        """`program` is the name that the pages show, `urls` says where it serves, and `readiness` what state it is in."""
        self.observatory = Observatory(
            program,
            urls=urls,
            state=None if readiness is None else readiness.state,
            drain=None if readiness is None else readiness.drain,
            undrain=None if readiness is None else readiness.undrain,
            capture=admin.capture,
            acts=admin.acts,
            faults=admin.faults,
        )
        self._metrics: PrometheusMetrics | None = None

    def start(self) -> None:
        """Collect from now on. Metrics are collected where their extra is installed. A no-op where it collects already."""
        self.observatory.start()
        with suppress(ModuleNotFoundError):  # an extra: where it is missing, a scraper is told what to install
            self.own_metrics()

    def stop(self) -> None:
        """Collect no more."""
        self.observatory.stop()
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            metrics.close()

    def own_metrics(self) -> PrometheusMetrics:
        """The metrics of this process. Raises `ModuleNotFoundError`, which says what to install."""
        if self._metrics is None:
            from .prometheus_metrics import PrometheusMetrics  # noqa: PLC0415 - an extra

            self._metrics = PrometheusMetrics()
        return self._metrics

    # --- for the pages

    async def view(self, name: str, query: ViewQuery) -> View:
        """A view of this process."""
        return await self.observatory.view(name, **_given(query))

    async def act(self, act: str, target: str, principal: str, **more: Any) -> ActOutcome:
        """Act on this process. The viewer's right is checked before."""
        if act == "try":
            arguments, program = more.get("arguments", {}), more.get("program", "")
            return await self.observatory.try_tool(program, target, arguments, principal=principal)
        return await self.observatory.act(act, target, principal=principal, **more)

    async def recording(self) -> AsyncGenerator[bytes]:
        """The messages that are kept, as lines of JSON."""
        turns = Turns()
        for line in self.observatory.recording():
            yield line
            if turns.is_over():
                await turns.rest()

    async def metrics_page(self, accept: str = "") -> MetricsPage:
        """The metrics as a scraper reads them. Raises `ModuleNotFoundError`, which says what to install."""
        return self.own_metrics().text(accept)


def _given(query: ViewQuery) -> dict[str, Any]:
    """The fields that are set."""
    usual = type(query)()
    return {name: value for name in query.__struct_fields__ if (value := getattr(query, name)) != getattr(usual, name)}
