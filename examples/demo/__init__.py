"""The demonstration: a server on loopback whose tools work, wait, fail, exit, block and stream, and a tree that takes no harm.

`python -m examples.demo` runs it. `stage` is the server and its tools, `visitor` is a peer that tries them all, `teller` prints what
happens. A demonstration of the supervision room alone is in `theatre`.
"""
