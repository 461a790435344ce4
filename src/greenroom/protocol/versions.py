"""The protocol's revisions, and version negotiation.

A revision is its date as a string, so newer revisions compare greater. The first four have a handshake. The stateless revision that came
after them is known by name, and is negotiated in another way.
"""

from __future__ import annotations

from typing import Final

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"

SUPPORTED: Final = (V2025_11_25, V2025_06_18, V2025_03_26, V2024_11_05)
"""The revisions that a handshake can negotiate, newest first."""

STATELESS: Final = "2026-07-28"
"""The revision without a handshake: no `initialize` negotiates it."""

LATEST: Final = V2025_11_25
"""The revision offered to a client that asks for an unknown one."""

OLDEST: Final = V2024_11_05

DEFAULT_NEGOTIATED: Final = V2025_03_26
"""The revision assumed for an HTTP request without a version header, if none was negotiated."""


def is_supported(version: object) -> bool:
    """Whether a handshake can negotiate this revision. Accepts any value, since a peer's version may be no string."""
    return isinstance(version, str) and version in SUPPORTED


def negotiate(requested: object) -> str:
    """The revision that a server answers with: the requested one if it is supported, else the latest."""
    return requested if isinstance(requested, str) and requested in SUPPORTED else LATEST
