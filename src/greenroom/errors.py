"""The root of every error that greenroom raises on purpose. Every room stands on this file, and it stands on nothing."""

from __future__ import annotations


class GreenroomError(Exception):
    """The root of everything that greenroom raises on purpose."""


class ConfigError(GreenroomError, ValueError):
    """Something was set up in a way that cannot work, or must not: what it is, and what to write instead."""
