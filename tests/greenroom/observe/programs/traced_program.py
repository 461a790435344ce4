"""Serves the traced tools on stdio, with a tracer provider of its own."""

from opentelemetry.sdk.trace import TracerProvider
from traced_tools import traced_server

from greenroom.observe import OpenTelemetry

if __name__ == "__main__":
    with OpenTelemetry(TracerProvider()):
        traced_server().run()
