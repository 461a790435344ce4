"""All benchmarks and curves: importing this module registers them, in the order of the table."""

from __future__ import annotations

from benchmarks.cluster import connection_processes, nodes

from . import (
    actor_calls,
    actor_lifecycle,
    asyncio_floors,
    auth,
    benchmark_types,
    curves,
    events,
    gateways,
    http1_parsing,
    imports,
    introspection,
    memory,
    modern_exchanges,
    node_links,
    observer_cost,
    protocol,
    size_curves,
)
from .serving import layers

__all__ = ["BENCHMARKS", "CURVES"]

MODULES = (
    asyncio_floors,
    actor_calls,
    actor_lifecycle,
    node_links,
    memory,
    introspection,
    imports,
    protocol,
    http1_parsing,
    layers,
    modern_exchanges,
    events,
    observer_cost,
    size_curves,
    gateways,
    auth,
    nodes,
    connection_processes,
)
BENCHMARKS = benchmark_types.registered()
CURVES = curves.registered()
