"""Stands in for what the protocol room does not have yet."""
# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

try:
    from greenroom.protocol.fitting import fit
except ImportError:

    def fit(method, result, version):  # noqa: ANN001, ANN201, ARG001, D103
        return result


__all__ = ["fit"]
