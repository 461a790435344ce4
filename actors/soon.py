"""Stands in for what the protocol room does not have yet."""
# mypy: ignore-errors
# pyright: basic

from __future__ import annotations

try:
    from greenroom.protocol.fitting import fit
except ImportError:

    def fit(method, result, version):  # noqa: ANN001, ANN201, ARG001, D103
        return result


try:
    from greenroom.protocol.validation import BadSchema, check_schema
except ImportError:

    class BadSchema(Exception):  # noqa: D101
        pass

    def check_schema(schema):  # noqa: ANN001, ANN201, D103
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise BadSchema('its root must say "type": "object"')


__all__ = ["BadSchema", "check_schema", "fit"]
