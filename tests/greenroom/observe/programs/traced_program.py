"""Serves the traced tools on stdio, with a tracer provider of its own."""

from importlib import import_module
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from greenroom.observe import OpenTelemetry

if __name__ == "__main__":
    tools: Any = import_module("traced_tools")  # beside this file
    with OpenTelemetry(TracerProvider()):
        tools.traced_server().run()
