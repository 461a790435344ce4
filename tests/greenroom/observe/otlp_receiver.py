"""A receiver of OTLP over HTTP, which decodes what an exporter sends."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


class OtlpReceiver:
    """What has arrived: `spans` and `metrics`, each with the attributes of its resource."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.spans: list[tuple[Mapping[str, Any], Any]] = []
        self.metrics: list[tuple[Mapping[str, Any], Any]] = []
        self._changed = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        """Decode a message."""
        with self._changed:
            if path == "/v1/traces":
                traces = ExportTraceServiceRequest.FromString(body)
                self.spans += [
                    (plain(resource.resource.attributes), span)
                    for resource in traces.resource_spans
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
            else:
                assert path == "/v1/metrics", path
                measured = ExportMetricsServiceRequest.FromString(body)
                self.metrics += [
                    (plain(resource.resource.attributes), metric)
                    for resource in measured.resource_metrics
                    for scope in resource.scope_metrics
                    for metric in scope.metrics
                ]
            self._changed.notify_all()

    def wait(self, spans: int, within: float = 20.0) -> None:
        """Wait for so many spans."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.spans) >= spans, within), self.spans


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dict."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def receiving() -> Generator[OtlpReceiver]:
    """A receiver on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take one message."""
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base names it
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = OtlpReceiver(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
