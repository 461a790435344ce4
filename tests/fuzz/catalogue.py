"""All targets there are."""

from __future__ import annotations

from .targets import (
    channels,
    connections,
    events,
    frames,
    framing,
    handshakes,
    headers,
    links,
    old_streams,
    parsing,
    tasks,
    templates,
    values,
)

TARGETS = {
    module.TARGET.name: module.TARGET
    for module in (
        *(framing, values, parsing, events, templates, headers),
        *(connections, channels, frames, handshakes, old_streams, tasks, links),
    )
}
