"""A process beside the program, for connections that must not be able to harm it: one `Annex` says what it may use, and who shares it.

::

    risky = Annex("risky", memory=512 * MIB)

    Host({
        "git": UpstreamSpec(Command("uvx", "mcp-server-git"), isolation="process"),     # a process of its own
        "web": UpstreamSpec(HttpRoute("https://a.example/mcp"), isolation=risky),       # these two share one
        "wiki": UpstreamSpec(HttpRoute("https://b.example/mcp"), isolation=risky),
    })

It is a value and owns nothing: each host that has a server with it runs a process of its own (`annexes`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from greenroom.errors import ConfigError
from greenroom.supervision.cluster.specs import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision.cluster.cluster import Cluster

_serials: Final = count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Annex:
    """A process for connections. Give one to several servers of a host, and they share it, and its fate.

    `memory` is how many bytes it may have, and `open_files` how many descriptors; None is no limit. Both hold as well for each program that is
    started there. `start` is how many seconds it may take to come up. `cluster` is one that the program has started in its own tree,
    before the host: the process is then placed by that, on a machine that has all that `requires` asks for.
    """

    name: str = "annex"
    memory: int | None = field(default=None, kw_only=True)
    open_files: int | None = field(default=None, kw_only=True)
    start: float = field(default=30.0, kw_only=True)
    cluster: Cluster | None = field(default=None, kw_only=True)
    requires: Mapping[str, object] = field(default_factory=dict[str, object], kw_only=True)
    serial: int = field(init=False, repr=False)
    """What tells it from all others of this program."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "serial", next(_serials))
        _ = self.limits
        if isinstance(self.start, bool) or not self.start > 0:
            raise ConfigError(f"start must be more than 0 seconds, not {self.start!r}")
        if self.requires and self.cluster is None:
            raise ConfigError(
                "an annex that requires something needs the program's `cluster`, which knows other machines"
            )

    @property
    def limits(self) -> Limits:
        """As the cluster knows them. Raises `ConfigError`."""
        return Limits(memory=self.memory, open_files=self.open_files)


Isolation: TypeAlias = Annex | Literal["process"] | None
"""Where a connection runs: here, in a process of its own, or in one that others share."""


def check_isolation(isolation: object) -> None:
    """Raises `ConfigError` for what is none."""
    if isolation is not None and isolation != "process" and not isinstance(isolation, Annex):
        raise ConfigError(f"isolation is 'process' or an Annex(…), not {isolation!r}")
