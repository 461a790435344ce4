"""Lazily loaded names are known to type checkers."""

from __future__ import annotations

from typing import assert_type

import greenroom

assert_type(greenroom.__version__, str)
error: Exception = greenroom.GreenroomError("on purpose")
greenroom.Nonsense  # expect-error: attr-defined, reportAttributeAccessIssue, reportUnknownMemberType
