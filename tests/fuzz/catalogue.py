"""All fuzz targets."""

from __future__ import annotations

from .targets import (
    channels,
    configurations,
    connections,
    envelopes,
    events,
    frames,
    framing,
    handshakes,
    headers,
    links,
    mentions,
    old_streams,
    parsing,
    states,
    tasks,
    templates,
    values,
)

TARGETS = {
    module.TARGET.name: module.TARGET
    for module in (
        *(framing, values, parsing, events, templates, headers),
        *(connections, channels, frames, handshakes, old_streams, tasks, links),
        *(configurations, mentions),
        *(envelopes, states),
    )
}
