"""Something that its server imports relatively."""

from __future__ import annotations

ANSWER = 42
