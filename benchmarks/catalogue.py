"""All benchmarks and curves that there are: importing this module registers them, in the order of the table."""

from __future__ import annotations

from . import (
    auth,
    bench,
    calls,
    curves,
    floors,
    gateways,
    heads,
    imports,
    links,
    lives,
    looking,
    memory,
    protocol,
    sizes,
)
from .cluster import annexes, nodes
from .serving import layers

__all__ = ["BENCHMARKS", "CURVES"]

MODULES = (
    floors,
    calls,
    lives,
    links,
    memory,
    looking,
    imports,
    protocol,
    heads,
    layers,
    sizes,
    gateways,
    auth,
    nodes,
    annexes,
)
BENCHMARKS = bench.registered()
CURVES = curves.registered()
