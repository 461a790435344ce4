"""The revisions of the protocol: which there are, which are newer, and which one two peers settle on.

A revision is its date as text, so newer ones compare greater. All four begin with a handshake; the stateless one that came after
them is known by name, and settled on in another way.
"""

from __future__ import annotations

from typing import Final

JSONRPC: Final = "2.0"
"""What every message calls its envelope."""

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"

SUPPORTED: Final = (V2025_11_25, V2025_06_18, V2025_03_26, V2024_11_05)
"""The revisions that a handshake can settle on, newest first."""

STATELESS: Final = "2026-07-28"
"""The revision that has no handshake: an `initialize` never ends in it."""

LATEST: Final = V2025_11_25
"""What is offered to a client that asks for a revision that is not known here."""

OLDEST: Final = V2024_11_05

DEFAULT_NEGOTIATED: Final = V2025_03_26
"""What an HTTP request without a version header is taken to speak, when nothing was negotiated either."""


def is_supported(version: object) -> bool:
    """Whether a handshake can settle on it. Takes anything: what a peer sent may not even be text."""
    return isinstance(version, str) and version in SUPPORTED


def negotiate(requested: object) -> str:
    """What a server answers to the revision that a client asked for: that one if it can, else its latest."""
    return requested if isinstance(requested, str) and requested in SUPPORTED else LATEST
