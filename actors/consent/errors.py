"""What a caller hears whose call was not allowed."""

from __future__ import annotations

from typing import ClassVar

from greenroom.errors import GreenroomError


class ConsentDenied(GreenroomError):
    """It was not allowed: nothing was sent. `what` is the tool, or `Elicit(server)`; `why` is in words."""

    reason: ClassVar[str] = "consent_denied"

    def __init__(self, what: str, why: str) -> None:
        """Both are for whoever reads it, a model too."""
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what} is not allowed: {self.why}"
